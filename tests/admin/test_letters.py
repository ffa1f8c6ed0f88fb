"""Dead letters as values: which are meant, where they came from, what a copy of one carries."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketstream.admin.letters import (
    REPLAY_COUNT,
    REPLAYED_FROM,
    DeadLetter,
    LetterFilter,
    copy_properties,
    ids_of,
    origin_topic,
    place_of,
    replays_of,
    unique_id,
)
from rocketstream.admin.replays import LetterFate, ReplayedLetter, ReplayOrder, ReplayReport
from rocketstream.errors import ConfigurationError
from rocketstream.message import ReceivedMessage
from rocketstream.property_names import RESERVED_PROPERTIES

NOW = 1_800_000_000_000


def letter(properties: dict[str, str] | None = None, **fields: object) -> DeadLetter:
    message = ReceivedMessage("%DLQ%g", b"body", properties={"UNIQ_KEY": "AB12", **(properties or {})})
    values: dict[str, object] = {
        "origin_topic": "orders",
        "message_id": "AB12",
        "origin_message_id": "00FF",
        "broker_name": "broker-a",
        "queue_id": 0,
        "queue_offset": 17,
        "tags": message.tags,
        "keys": message.keys,
        "failures": 3,
        "born_timestamp": NOW - 1000,
        "store_timestamp": NOW,
        "size": 4,
        "replays": replays_of(message.properties),
        "message": message,
    }
    return DeadLetter(**{**values, **fields})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("wanted", "matches"),
    [
        ({}, True),
        ({"ids": ["ab12"]}, True),
        ({"ids": ["00ff", "else"]}, True),
        ({"ids": ["00F"]}, False),
        ({"key": "k2"}, True),
        ({"key": "k"}, False),
        ({"tags": "*"}, True),
        ({"tags": "blue || red"}, True),
        ({"tags": "blue"}, False),
        ({"topic": "orders"}, True),
        ({"topic": "order"}, False),
        ({"since": NOW, "until": NOW}, True),
        ({"since": NOW + 1}, False),
        ({"until": NOW - 1}, False),
        ({"since": "earliest", "until": "latest"}, True),
        ({"ids": ["ab12"], "tags": "blue"}, False),
    ],
)
def test_what_is_meant(wanted, matches):
    one = letter({"KEYS": "k1 k2", "TAGS": "red"})
    assert LetterFilter.make(**wanted).wants(one) is matches


@pytest.mark.parametrize(
    ("wanted", "problem"),
    [
        ({"ids": "ab12"}, "ids='ab12' must be a list of message ids"),
        ({"key": " "}, "key=' ': a key is a text that is not empty"),
        ({"tags": " || "}, "names no tag"),
        ({"since": "latest"}, "leave no dead letter to look at"),
        ({"until": "earliest"}, "leave no dead letter to look at"),
        ({"since": NOW, "until": NOW - 1}, "is after until="),
        ({"since": 5}, "since=5 is no time in milliseconds"),
    ],
)
def test_what_can_mean_nothing_is_refused(wanted, problem):
    with pytest.raises(ConfigurationError) as caught:
        LetterFilter.make(**wanted)
    assert problem in str(caught.value)


@pytest.mark.parametrize(
    ("properties", "topic"),
    [
        ({"RETRY_TOPIC": "orders"}, "orders"),
        ({"RETRY_TOPIC": "ns%orders"}, "ns%orders"),
        ({"RETRY_TOPIC": "%RETRY%g_orders"}, "orders"),
        ({"RETRY_TOPIC": "%RETRY%g+orders"}, "orders"),
        ({"RETRY_TOPIC": "%RETRY%g"}, None),
        ({"RETRY_TOPIC": "%RETRY%other_orders"}, None),
        ({"DLQ_ORIGIN_TOPIC": "orders", "RETRY_TOPIC": "%RETRY%g_x"}, "orders"),
        ({}, None),
    ],
)
def test_where_it_came_from(properties, topic):
    assert origin_topic(properties, "g") == topic


def test_a_copy_is_what_was_sent_and_says_where_it_was_taken_from():
    brokers = {
        "RETRY_TOPIC": "orders",
        "REAL_TOPIC": "x",
        "DELAY": "5",
        "TRAN_MSG": "true",
        "PGROUP": "p",
        "ORIGIN_MESSAGE_ID": "00FF",
        "MAX_RECONSUME_TIMES": "3",
        "1ST_POP_TIME": "1",
        "POP_CK": "1 2 3",
        "__transactionId__": "T",
        "INNER_NUM": "4",
        "TIMER_OUT_MS": "9",
    }
    senders = {"KEYS": "k", "TAGS": "t", "shop": "Bonn", "__SHARDINGKEY": "42", "CORRELATION_ID": "c"}
    one = letter({**brokers, **senders})
    place = place_of(one, "%DLQ%g")
    assert place == "%DLQ%g@broker-a:0:17"
    copy = copy_properties(one, place, None)
    own = {"UNIQ_KEY": "AB12", "WAIT": "true", REPLAYED_FROM: place, REPLAY_COUNT: "1"}
    assert copy == {**senders, **own}

    again = letter({**copy, "RETRY_TOPIC": "orders"}, queue_offset=18)
    second = copy_properties(again, place_of(again, "%DLQ%g"), "orders")
    assert (second[REPLAYED_FROM], second[REPLAY_COUNT]) == ("%DLQ%g@broker-a:0:18", "2")
    assert (second["RETRY_TOPIC"], second["ORIGIN_MESSAGE_ID"]) == ("orders", "00FF"), "a retry says whose it is"


@given(
    st.dictionaries(
        st.sampled_from(sorted(RESERVED_PROPERTIES)) | st.text("ab_", min_size=1), st.text("xy", min_size=1)
    )
)
def test_a_copy_is_never_taken_for_something_else(properties):
    """Whatever a letter carries: no order to a broker is left in its copy, and nothing of its sender is lost."""
    one = letter(properties)
    copy = copy_properties(one, "place", None)
    orders = {
        "TRAN_MSG",
        "DELAY",
        "RETRY_TOPIC",
        "REAL_TOPIC",
        "POP_CK",
        "TIMER_DELIVER_MS",
        "RECONSUME_TIME",
        "DUP_INFO",
    }
    assert not orders & copy.keys()
    kept = {name for name in properties if name not in RESERVED_PROPERTIES}
    assert {name: copy[name] for name in kept} == {name: properties[name] for name in kept}


def test_a_message_without_a_unique_id_is_known_by_its_place():
    one = letter()
    one.message.properties.pop("UNIQ_KEY")
    assert unique_id(one) == one.message.offset_message_id
    assert ids_of(one) >= {"AB12", "00FF"}


@pytest.mark.parametrize(
    ("failures", "replays", "why"),
    [
        (1, 0, "failed once"),
        (17, 0, "failed 17 times"),
        (2, 1, "failed 2 times since it was replayed"),
        (0, 0, "not said"),
    ],
)
def test_why_it_died(failures, replays, why):
    assert letter(failures=failures, replays=replays).why == why


def test_a_count_that_is_none_counts_for_nothing():
    assert [replays_of({REPLAY_COUNT: text}) for text in ("3", "-1", "x", "٣", "")] == [3, 0, 0, 0, 0]


@pytest.mark.parametrize(
    ("order", "problem"),
    [
        ({"to": "t", "to_retry": True}, "two places to send to"),
        ({"limit": 0}, "limit=0 must be"),
        ({"limit": True}, "limit=True must be"),
        ({"rate": -1}, "rate=-1 must be"),
        ({"rate": float("nan")}, "rate=nan must be"),
        ({"rate": "fast"}, "rate='fast' must be"),
    ],
)
def test_orders_that_make_no_sense_are_refused(order, problem):
    with pytest.raises(ConfigurationError, match=problem):
        ReplayOrder(**order)


def test_a_report_counts():
    def one(fate: LetterFate, target: str | None) -> ReplayedLetter:
        return ReplayedLetter("id", "orders", "broker-a", 0, 1, fate, target)

    report = ReplayReport(
        "g",
        False,
        (
            one(LetterFate.REPLAYED, "a"),
            one(LetterFate.REPLAYED, "b"),
            one(LetterFate.REPLAYED, "a"),
            one(LetterFate.ALREADY_REPLAYED, "a"),
            one(LetterFate.SKIPPED, None),
        ),
        {"a": ("other",)},
    )
    told = report.to_dict()
    assert (told["replayed"], told["already_replayed"], told["skipped"]) == (3, 1, 1)
    assert told["by_target"] == {"a": 2, "b": 1}
    assert told["other_groups"] == {"a": ["other"]}
    assert told["letters"][0]["fate"] == "replayed"
