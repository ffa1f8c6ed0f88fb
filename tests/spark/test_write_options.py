"""The options of a write: what is taken, and one sentence for each that is not."""

from __future__ import annotations

import pickle
import re
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rocketstream.errors import ConfigurationError
from rocketstream.spark.write_columns import COLUMNS
from rocketstream.spark.write_options import DEFAULT_GROUP, WRITE_OPTIONS, WriteOptions

GOOD = {"nameServers": "127.0.0.1:9876", "topic": "orders"}


def parse(**options: str) -> WriteOptions:
    given = {**GOOD, **options}
    return WriteOptions.parse({name.lower(): value for name, value in given.items() if value is not None})


def test_defaults():
    options = parse()
    assert options.link.name_servers == ("127.0.0.1:9876",)
    assert (options.topic, options.group) == ("orders", DEFAULT_GROUP)
    assert (options.batch_size, options.batch_bytes) == (1_000, 262_144)
    assert (options.max_in_flight, options.max_in_flight_bytes) == (32, 8 * 1024 * 1024)
    assert (options.send_timeout, options.write_id, options.drop_reserved) == (60.0, None, False)
    assert options.single_from == 4096, "what the producer compresses is sent by itself"
    assert options.producer_settings().compress_over == 4096


def test_every_option_is_read():
    options = parse(
        group="g",
        batchSize="5",
        batchBytes="1000",
        maxInFlight="3",
        maxInFlightBytes="5000",
        sendTimeout="1.5",
        compression="none",
        compressOver="10",
        maxMessageSize="2000",
        dropReservedProperties="true",
        writeId="run-1",
        accessKey="a",
        secretKey="hidden",
        tls="true",
        namespace="ns",
        checkpointLocation="/anywhere",
        queryName="q",
    )
    assert (options.group, options.batch_size, options.batch_bytes) == ("g", 5, 1000)
    assert (options.max_in_flight, options.max_in_flight_bytes, options.send_timeout) == (3, 5000, 1.5)
    assert (options.compression, options.max_message_size) == ("none", 2000)
    assert (options.write_id, options.drop_reserved) == ("run-1", True)
    assert options.single_from == 1000, "nothing is compressed, but a batch's worth is sent by itself"
    assert options.producer_settings().compress_over > 2000
    assert options.producer_settings().namespace == "ns"
    assert "hidden" not in repr(options)
    assert pickle.loads(pickle.dumps(options)) == options


def test_rows_may_be_compressed_whatever_their_size():
    assert parse(compressOver="0").single_from == 0


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"nameServers": None}, "option nameServers is missing"),
        ({"nameServers": "here"}, "nameServers="),
        ({"topic": "a,b"}, "rows for several topics need a column topic"),
        ({"topic": "a b"}, "illegal characters"),
        ({"topic": "SCHEDULE_TOPIC_XXXX"}, "reserved for brokers"),
        ({"topic": "%RETRY%g"}, "retry topic"),
        ({"topic": "x" * 128}, "at most 127"),
        ({"topic": "x" * 120, "namespace": "namespace"}, "with its namespace"),
        ({"topic": " "}, "option topic is empty"),
        ({"topics": "a"}, "did you mean 'topic'"),
        ({"topik": "a"}, "did you mean 'topic'"),
        ({"maxinflite": "1"}, "did you mean 'maxInFlight'"),
        ({"path": "orders"}, "has no path"),
        ({"startingOffsets": "earliest"}, "has no option 'startingoffsets'"),
        ({"group": "DEFAULT_PRODUCER"}, "reserved"),
        ({"group": "a/b"}, "illegal characters"),
        ({"batchSize": "0"}, "batchSize=0 must be from 1"),
        ({"batchBytes": "many"}, "must be a whole number"),
        ({"batchBytes": "5000000"}, "more than maxMessageSize=4194304"),
        ({"maxInFlight": "-1"}, "maxInFlight=-1 must be from 1"),
        ({"sendTimeout": "0"}, "more than 0"),
        ({"sendTimeout": "nan"}, "sendTimeout='nan'"),
        ({"compression": "rar"}, "must be one of zlib, lz4, zstd, none"),
        ({"compressOver": "-1"}, "compressOver=-1"),
        ({"accessKey": "a"}, "option secretKey is missing"),
        ({"tls": "yes"}, "must be true or false"),
        ({"dropReservedProperties": "1"}, "must be true or false"),
        ({"namespace": "a%b"}, "namespace="),
        ({"writeId": "a:b"}, "writeId="),
    ],
)
def test_wrong_options_are_refused_with_their_name(options, words, monkeypatch):
    monkeypatch.delenv("NAMESRV_ADDR", raising=False)
    with pytest.raises(ConfigurationError) as refused:
        parse(**options)
    assert words in str(refused.value)
    assert_one_sentence(refused.value)


def test_a_codec_that_is_not_installed_is_missed_on_the_driver(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "zstandard", None)
    with pytest.raises(ConfigurationError, match="compression=zstd needs a package"):
        parse(compression="zstd")


NUMBERS = ("batchSize", "batchBytes", "maxInFlight", "maxInFlightBytes", "compressOver", "maxMessageSize")
bad_numbers = st.one_of(
    st.integers(max_value=-1).map(str),
    st.integers(min_value=2**31).map(str),
    st.floats().map(str),
    st.text(st.characters(blacklist_categories=["Nd", "Cs"]), min_size=1),
)
bad_options = st.one_of(
    st.tuples(st.sampled_from(NUMBERS), bad_numbers),
    st.tuples(st.text(min_size=1, max_size=30).filter(lambda name: name.lower() not in KNOWN), st.text(max_size=5)),
    st.tuples(
        st.sampled_from(["topic", "group", "namespace"]), st.text(min_size=1).filter(lambda text: not legal(text))
    ),
    st.tuples(st.sampled_from(["tls", "dropReservedProperties"]), st.text().filter(lambda text: not flag(text))),
    st.tuples(st.just("compression"), st.text().filter(lambda text: text.strip().lower() not in CODECS)),
    st.tuples(st.just("sendTimeout"), st.floats(max_value=0).map(str) | st.text(st.characters(categories=["Lu"]))),
)
KNOWN = {name.lower() for name in (*WRITE_OPTIONS, "checkpointLocation", "queryName")}
CODECS = {"zlib", "lz4", "zstd", "none"}


def legal(text: str) -> bool:
    return all(letter.isascii() and (letter.isalnum() or letter in "%|_-") for letter in text.strip())


def flag(text: str) -> bool:
    return text.strip().lower() in ("true", "false")


@settings(max_examples=500)
@given(bad_options)
def test_any_wrong_option_is_refused_in_one_sentence(option):
    name, value = option
    with pytest.raises(ConfigurationError) as refused:
        WriteOptions.parse({**{key.lower(): text for key, text in GOOD.items()}, name.lower(): value})
    assert_one_sentence(refused.value)


def assert_one_sentence(error: ConfigurationError) -> None:
    text = str(error)
    assert text
    assert "\n" not in text
    assert len(text) < 700
    assert "Traceback" not in text


def test_every_option_and_column_is_in_the_how_to():
    text = (Path(__file__).parents[2] / "docs" / "howto-spark-write.md").read_text()
    rows = " ".join(line.split("|")[1] for line in text.splitlines() if line.startswith("| `"))
    assert set(re.findall(r"`(\w+)`", rows)) == {*WRITE_OPTIONS, *COLUMNS}
