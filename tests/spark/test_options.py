from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from pyspark.sql.datasource import CaseInsensitiveDict

from rocketstream import Credentials, TlsFiles
from rocketstream.consumer.expressions import Sql, Tag
from rocketstream.errors import ConfigurationError
from rocketstream.message import MessageQueue
from rocketstream.spark.link import LinkSettings
from rocketstream.spark.options import READ_OPTIONS, Place, ReadOptions
from rocketstream.wire.columns import COLUMNS
from tests.contract.secured import Pki

GOOD = {"nameServers": "127.0.0.1:9876", "topic": "orders"}


def parse(**others: Any) -> ReadOptions:
    """Read options as Spark hands them over; None takes one away."""
    chosen = {name: value for name, value in {**GOOD, **others}.items() if value is not None}
    return ReadOptions.parse(CaseInsensitiveDict(chosen))


def test_the_least_that_is_needed() -> None:
    options = parse()
    assert options.link == LinkSettings(("127.0.0.1:9876",))
    assert options.topics == ("orders",)
    assert options.expression == Tag("*")
    assert (options.starting, options.ending, options.group) == (None, None, None)
    assert options.fail_on_data_loss
    assert not options.commit_offsets
    assert options.max_offsets_per_trigger is options.min_partitions is None


def test_everything_that_can_be_said() -> None:
    options = parse(
        nameServers="a:1;b:2",
        topic=None,
        topics=" orders , bills,orders ",
        group="spark",
        tags="paid || shipped",
        startingOffsets='{"orders": {"broker-a": {"0": 5}}}',
        endingTimestamp="2026-03-01T12:00:00Z",
        maxOffsetsPerTrigger="1000",
        minPartitions="12",
        failOnDataLoss="FALSE",
        commitOffsets="false",
        pullBatchSize="128",
        outageTimeout="2.5",
        accessKey="me",
        secretKey="secret!",
        tls="true",
        namespace="dev",
    )
    assert options.link == LinkSettings(("a:1", "b:2"), "me", "secret!", True, "dev")
    assert options.topics == ("orders", "bills")
    assert options.starting == Place("earliest", offsets=((MessageQueue("dev%orders", "broker-a", 0), 5),))
    assert options.ending == Place("latest", millis=1_772_366_400_000)
    assert (options.max_offsets_per_trigger, options.min_partitions, options.outage) == (1000, 12, 2.5)
    assert not options.fail_on_data_loss
    assert not options.commit_offsets
    settings = options.pull_settings()
    assert (settings.group, settings.expression, settings.pull_batch_size) == ("spark", Tag("paid || shipped"), 128)
    assert (settings.fail_on_data_loss, settings.outage) == (False, 2.5)
    assert pickle.loads(pickle.dumps(options)) == options
    assert "secret!" not in repr(options)


def test_names_are_read_in_any_case() -> None:
    lower = CaseInsensitiveDict({name.upper(): value for name, value in {**GOOD, "minPartitions": "3"}.items()})
    assert ReadOptions.parse(lower).min_partitions == 3


def test_a_group_has_its_offsets_written_unless_told_otherwise() -> None:
    assert parse(group="spark").commit_offsets
    assert not parse(group="spark", commitOffsets="false").commit_offsets


def test_the_name_servers_may_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NAMESRV_ADDR", "env:9876")
    assert parse(nameServers=None).link.name_servers == ("env:9876",)
    assert parse().link.name_servers == ("127.0.0.1:9876",)


@pytest.mark.parametrize(("text", "millis"), [("0", 0), ("1772366400000", 1_772_366_400_000)])
def test_a_time_is_milliseconds(text: str, millis: int) -> None:
    assert parse(startingTimestamp=text).starting == Place("earliest", millis=millis)


@pytest.mark.parametrize(
    "text", ["2026-03-01T12:00:00Z", "2026-03-01T13:00:00+01:00", "2026-03-01 12:00:00", "2026-03-01T12:00"]
)
def test_or_a_time_is_iso_and_utc_unless_it_says_so(text: str) -> None:
    assert parse(startingTimestamp=text).starting == Place("earliest", millis=1_772_366_400_000)


def test_named_places() -> None:
    assert parse(startingOffsets="EARLIEST").starting == Place("earliest")
    assert parse(startingOffsets=" latest ").starting == Place("latest")
    assert parse(startingOffsets="committed", group="g").starting == Place("committed")
    assert parse(endingOffsets="latest").ending == Place("latest")
    assert parse(sql="amount > 100").expression == Sql("amount > 100")
    assert parse(topic=None, topicPattern="ord.*").topic_pattern == "ord.*"


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        ({"nameServer": "a:1"}, "has no option 'nameserver': did you mean 'nameServers'?"),
        ({"startingoffset": "earliest"}, "did you mean 'startingOffsets'?"),
        ({"maxOffsetPerTrigger": "5"}, "did you mean 'maxOffsetsPerTrigger'?"),
        ({"qqq": "5"}, "has no option 'qqq': it has nameServers, topic"),
        ({"path": "orders"}, "has no path"),
        ({"nameServers": None}, "option nameServers is missing"),
        ({"nameServers": "nowhere"}, "nameServers='nowhere'"),
        ({"nameServers": ""}, "option nameServers is empty"),
        ({"topic": None}, "option topic (or topics, or topicPattern) is missing"),
        ({"topic": "a,b"}, "several topics are for option topics"),
        ({"topic": "or ders"}, "illegal characters"),
        ({"topic": None, "topics": "a,,b"}, "a topic needs a name"),
        ({"topics": "a,b"}, "topic and topics"),
        ({"topicPattern": "a.*"}, "topic and topicPattern"),
        ({"topic": None, "topicPattern": "a("}, "no regular expression"),
        ({"group": "a b"}, "illegal characters"),
        ({"group": "DEFAULT_CONSUMER"}, "reserved"),
        ({"tags": " || "}, "names no tag"),
        ({"tags": "a", "sql": "b > 1"}, "tags and sql"),
        ({"startingOffsets": "first"}, "must be earliest, latest, committed or JSON"),
        ({"startingOffsets": "{}}"}, "no JSON"),
        ({"startingOffsets": "committed"}, "needs option group"),
        ({"startingOffsets": '{"bills": {"b": {"0": 1}}}'}, "'bills', which is not read"),
        ({"startingOffsets": "latest", "startingTimestamp": "5"}, "startingOffsets and startingTimestamp"),
        ({"endingOffsets": "earliest"}, "leaves nothing to read"),
        ({"startingTimestamp": "yesterday"}, "must be milliseconds since the epoch or an ISO time"),
        ({"startingTimestamp": "-5"}, "must be milliseconds"),
        ({"startingTimestamp": "9" * 400}, "must be milliseconds"),
        ({"startingTimestamp": "7", "endingTimestamp": "6"}, "startingTimestamp is later than endingTimestamp"),
        ({"maxOffsetsPerTrigger": "0"}, "maxOffsetsPerTrigger=0 must be from 1 to"),
        ({"maxOffsetsPerTrigger": "1e3"}, "must be a whole number"),
        ({"minPartitions": "-1"}, "minPartitions=-1 must be from 1 to"),
        ({"pullBatchSize": "1" * 5000}, "must be from 1 to 65535"),
        ({"failOnDataLoss": "yes"}, "failOnDataLoss='yes' must be true or false"),
        ({"commitOffsets": "true"}, "commitOffsets=true needs option group"),
        ({"outageTimeout": "0"}, "more than 0"),
        ({"outageTimeout": "nan"}, "more than 0"),
        ({"outageTimeout": "long"}, "more than 0"),
        ({"accessKey": "me"}, "option secretKey is missing"),
        ({"secretKey": "x"}, "option accessKey is missing"),
        ({"tls": "1"}, "tls='1' must be true or false"),
        ({"securityToken": "x"}, "securityToken is of no use without accessKey"),
        ({"tlsCaFile": "/no/such/file"}, "tlsCaFile='/no/such/file' cannot be read: No such file"),
        ({"tlsCaFile": __file__}, "holds no certificate in PEM"),
        ({"tlsCertFile": __file__}, "tlsCertFile="),
        ({"tlsKeyFile": __file__}, "tlsKeyFile is given without tlsCertFile"),
        ({"tls": "false", "tlsCaFile": __file__}, "tls=false and tlsCaFile contradict each other"),
        ({"tls": "false", "tlsCheckHostName": "false"}, "tls=false and tlsCheckHostName contradict"),
        ({"tlsCheckHostName": "no"}, "tlsCheckHostName='no' must be true or false"),
        ({"namespace": "a%b"}, "namespace='a%b'"),
    ],
)
def test_a_wrong_option_is_refused_in_one_sentence(wrong: dict[str, str | None], why: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        parse(**wrong)
    assert why in str(caught.value)
    assert one_sentence(str(caught.value))


def one_sentence(text: str) -> bool:
    return "\n" not in text and 10 < len(text) < 900


def test_a_secret_is_never_in_an_error() -> None:
    for wrong in ({"tls": "1"}, {"minPartitions": "x"}, {"accessKey": None}, {"qqq": "1"}):
        with pytest.raises(ConfigurationError) as caught:
            parse(**{"accessKey": "me", "secretKey": "hunter2", **wrong})
        assert "hunter2" not in str(caught.value)


def test_tls_and_its_files(tmp_path: Path) -> None:
    pki = Pki(tmp_path)
    assert parse(tls="true").link.tls is True
    assert parse(tlsCheckHostName="true").link.tls is False
    assert parse(tlsCheckHostName="false").link.tls == TlsFiles(check_host_name=False)
    assert parse(tls="true", tlsCaFile=pki.ca_file).link.tls == TlsFiles(pki.ca_file)
    cert_file, key_file = pki.client
    given = {"tlsCaFile": pki.ca_file, "tlsCertFile": cert_file, "tlsKeyFile": key_file}
    options = parse(**given, accessKey="me", secretKey="hunter2", securityToken="hunter3")
    assert options.link.tls == TlsFiles(pki.ca_file, cert_file, key_file)
    settings = pickle.loads(pickle.dumps(options)).link.client_settings()
    assert settings.credentials == Credentials("me", "hunter2", "hunter3")
    assert settings.remoting.ssl_context() is not None
    assert "hunter" not in repr(options) + repr(settings)


# --- two thousand of them ---------------------------------------------------------------------------------------------

text = st.text(max_size=30)
not_a_count = text.filter(lambda value: not (value.strip().isascii() and value.strip().isdigit()))
not_a_flag = text.filter(lambda value: value.strip().lower() not in ("true", "false"))


def typo(name: str) -> st.SearchStrategy[str]:
    """A name with one letter more, less or wrong."""
    places = st.integers(0, len(name) - 1)
    letters = st.sampled_from("abcdefghijklmnopqrstuvwxyz0_-.")
    return st.one_of(
        st.builds(lambda at, letter: name[:at] + letter + name[at:], places, letters),
        st.builds(lambda at: name[:at] + name[at + 1 :], places),
        st.builds(lambda at, letter: name[:at] + letter + name[at + 1 :], places, letters),
    )


KNOWN = {name.lower() for name in READ_OPTIONS}
counts = st.sampled_from(["maxOffsetsPerTrigger", "minPartitions", "pullBatchSize"])
bad_offsets = st.one_of(
    text.filter(lambda value: value.strip().lower() not in ("earliest", "latest", "committed", "{}")),
    st.sampled_from(['{"orders": []}', '{"orders": {"b": {"0": -2}}}', '{"other": {"b": {"0": 1}}}', "{} {}", "null"]),
)
bad_options = st.one_of(
    st.tuples(st.sampled_from(READ_OPTIONS).flatmap(typo).filter(lambda name: name.lower() not in KNOWN), text),
    st.tuples(text.filter(lambda name: name.lower() not in KNOWN), text),
    st.tuples(counts, not_a_count),
    st.tuples(counts, st.integers(max_value=0).map(str)),
    st.tuples(st.just("pullBatchSize"), st.integers(min_value=65_536).map(str)),
    st.tuples(st.sampled_from(["failOnDataLoss", "tls", "commitOffsets"]), not_a_flag),
    st.tuples(st.sampled_from(["startingOffsets", "endingOffsets"]), bad_offsets),
    st.tuples(st.just("outageTimeout"), st.sampled_from(["0", "-1", "inf", "nan", "1 s", "", "0x10", "1e9"])),
    st.tuples(st.just("topic"), text.filter(lambda name: not all(c.isalnum() or c in "%|_-" for c in name.strip()))),
    st.tuples(st.sampled_from(["group", "namespace"]), text.filter(lambda name: " " in name.strip())),
    st.tuples(st.sampled_from(["topics", "topicPattern"]), st.sampled_from(["orders", "a,b", "", "x" * 500])),
    st.tuples(st.sampled_from(["accessKey", "secretKey"]), text),
    st.tuples(st.sampled_from(READ_OPTIONS), st.sampled_from(["", " ", "\t\n"])),
    st.tuples(
        st.sampled_from(["startingTimestamp", "endingTimestamp"]),
        text.filter(lambda value: not any(c.isdigit() for c in value)) | st.sampled_from(["-1", "2026-13-01", "12:00"]),
    ),
    st.tuples(st.just("nameServers"), st.sampled_from(["a", ":1", "a:b", "a:70000", ";", "a:1;b", "a:-1"])),
)


@settings(max_examples=2000)
@given(bad_options)
@pytest.mark.slow(10, "asks Spark for many sources")
def test_a_bad_option_is_one_sentence_that_names_it(bad: tuple[str, str]) -> None:
    name, value = bad
    with pytest.raises(ConfigurationError) as caught:
        parse(**{name: value})
    message = str(caught.value)
    assert one_sentence(message)
    assume(len(name) < 100)
    assert name.lower() in message.lower() or repr(name.lower()) in message


@settings(max_examples=500)
@given(st.dictionaries(st.sampled_from(READ_OPTIONS), text, max_size=6))
def test_whatever_is_given_is_read_or_refused(given: dict[str, str]) -> None:
    try:
        options = ReadOptions.parse(CaseInsensitiveDict({**GOOD, **given}))
    except ConfigurationError as refused:
        message = str(refused)
    else:
        message = "nothing is wrong with it"
        assert pickle.loads(pickle.dumps(options)) == options
    assert one_sentence(message)


def test_the_documentation_has_every_option_and_column_once() -> None:
    page = (Path(__file__).parents[2] / "docs" / "howto-spark-read.md").read_text()
    first_cells = [line.split("|")[1] for line in page.splitlines() if line.startswith("| `")]
    named = [name.strip(" `") for cell in first_cells for name in cell.split(",")]
    assert sorted(named) == sorted([*READ_OPTIONS, *COLUMNS])
