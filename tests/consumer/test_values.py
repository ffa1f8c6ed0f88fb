"""The values that users meet: results and contexts, where to start, expressions, hooks."""

from __future__ import annotations

import copy
import dataclasses
import pickle
import re
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest

from rocketstream.consumer.expressions import Sql, Tag, subscription_to
from rocketstream.consumer.hooks import (
    ConsumeHook,
    ConsumeHookContext,
    FilterContext,
    FilterHook,
    QueueListener,
    run_after,
    run_before,
    tell_queues,
)
from rocketstream.consumer.results import ALL, ConsumeContext, ConsumeResult, OrderlyContext, OrderlyResult
from rocketstream.consumer.start_from import StartFrom
from rocketstream.errors import ConfigurationError
from rocketstream.message import MessageQueue
from rocketstream.wire.codes import ConsumeFromWhere
from rocketstream.wire.java import java_string_hash

QUEUE = MessageQueue("orders", "broker-a", 3)


def refusal(text: str) -> Any:
    return pytest.raises(ConfigurationError, match=f"^{re.escape(text)}$")


# --- results --------------------------------------------------------------------------------------------------------


def test_results_have_the_names_of_the_contract():
    assert [result.name for result in ConsumeResult] == ["SUCCESS", "RECONSUME_LATER"]
    assert [result.name for result in OrderlyResult] == ["SUCCESS", "COMMIT", "ROLLBACK", "SUSPEND"]


def test_the_success_of_one_kind_is_not_that_of_the_other():
    assert ConsumeResult.SUCCESS != OrderlyResult.SUCCESS


def test_a_concurrent_context_begins_with_all_acknowledged():
    context = ConsumeContext(QUEUE)
    assert (context.queue, context.ack_index, context.delay_level_when_next_consume) == (QUEUE, ALL, 0)
    assert ALL == 2**31 - 1
    context.ack_index = 2
    context.delay_level_when_next_consume = -1
    assert repr(context) == f"ConsumeContext({QUEUE!r}, ack_index=2, delay_level_when_next_consume=-1)"


def test_an_orderly_context_begins_with_auto_commit():
    context = OrderlyContext(QUEUE)
    assert (context.queue, context.auto_commit, context.suspend_current_queue_time) == (QUEUE, True, None)
    context.auto_commit = False
    context.suspend_current_queue_time = 0.5
    assert repr(context) == f"OrderlyContext({QUEUE!r}, auto_commit=False, suspend_current_queue_time=0.5)"


@pytest.mark.parametrize("kind", [ConsumeContext, OrderlyContext])
def test_a_misspelt_field_of_a_context_is_an_error(kind: Any):
    with pytest.raises(AttributeError):
        kind(QUEUE).ack_idx = 1


# --- where to start -------------------------------------------------------------------------------------------------


def test_last_and_first():
    assert StartFrom.LAST.where is ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET
    assert StartFrom.FIRST.where is ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET
    assert StartFrom.LAST.timestamp_ms is StartFrom.FIRST.timestamp_ms is None
    assert StartFrom.LAST != StartFrom.FIRST


@pytest.mark.parametrize(
    ("moment", "ms"),
    [
        (0, 0),
        (1_700_000_000_123, 1_700_000_000_123),
        (253_402_300_799_999, 253_402_300_799_999),
        (datetime(2023, 11, 14, 22, 13, 20, 123_000, UTC), 1_700_000_000_123),
        (datetime(2023, 11, 15, 6, 13, 20, 123_000, timezone(timedelta(hours=8))), 1_700_000_000_123),
        (datetime(2023, 11, 14, 22, 13, 20, 123_000, UTC).astimezone().replace(tzinfo=None), 1_700_000_000_123),
    ],
)
def test_at_a_moment(moment: datetime | int, ms: int):
    start = StartFrom.at(moment)
    assert start.where is ConsumeFromWhere.CONSUME_FROM_TIMESTAMP
    assert start.timestamp_ms == ms
    assert start == StartFrom.at(ms)
    assert start != StartFrom.at(ms - 1 if ms else 1)


@pytest.mark.behaviour("START-02")
@pytest.mark.parametrize(
    "moment",
    [
        -1,
        253_402_300_800_000,
        1_700_000_000_123_000_000,
        1.5,
        True,
        None,
        "20231114221320",
        datetime(1969, 12, 31, tzinfo=UTC),
    ],
)
def test_a_moment_that_is_none_is_refused(moment: Any):
    allowed = "must be a datetime, or milliseconds since the epoch from 0 to 253402300799999"
    with refusal(f"start_from: at({moment!r}) {allowed}"):
        StartFrom.at(moment)


def test_a_start_that_brokers_do_not_know_cannot_be_made():
    with refusal(
        f"start_from={ConsumeFromWhere.CONSUME_FROM_MIN_OFFSET!r} must be StartFrom.LAST, FIRST or at(moment)"
    ):
        StartFrom(ConsumeFromWhere.CONSUME_FROM_MIN_OFFSET)
    with refusal("StartFrom.LAST has no timestamp, not even 5"):
        StartFrom(ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET, 5)
    with pytest.raises(ConfigurationError, match=r"^start_from: at\(None\) must be"):
        StartFrom(ConsumeFromWhere.CONSUME_FROM_TIMESTAMP)


def test_a_start_tells_itself_and_can_travel():
    starts = [StartFrom.LAST, StartFrom.FIRST, StartFrom.at(1_700_000_000_123)]
    assert repr(starts) == "[StartFrom.LAST, StartFrom.FIRST, StartFrom.at(1700000000123)]"
    assert pickle.loads(pickle.dumps(starts)) == copy.deepcopy(starts) == starts
    assert len(set(starts)) == 3
    with pytest.raises(dataclasses.FrozenInstanceError):
        StartFrom.LAST.timestamp_ms = 5  # type: ignore[misc]


# --- expressions ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("expression", ["paid || shipped", Tag("paid || shipped")])
def test_a_plain_text_is_a_tag(expression: str | Tag):
    told = subscription_to("orders", expression, 7)
    assert (told.topic, told.sub_string, told.expression_type, told.sub_version) == (
        *("orders", "paid || shipped", "TAG"),
        7,
    )
    assert told.tags_set == {"paid", "shipped"}
    assert told.code_set == {java_string_hash("paid"), java_string_hash("shipped")}


@pytest.mark.parametrize("expression", ["*", " * ", "", Tag("*"), Tag()])
def test_everything(expression: str | Tag):
    told = subscription_to("orders", expression, 7)
    assert (told.sub_string, told.expression_type, told.tags_set, told.code_set) == (
        *("*", "TAG"),
        frozenset(),
        frozenset(),
    )


def test_a_condition():
    told = subscription_to("orders", Sql("amount > 100 AND region = 'eu'"), 7)
    assert (told.sub_string, told.expression_type, told.sub_version) == ("amount > 100 AND region = 'eu'", "SQL92", 7)
    assert told.tags_set == told.code_set == frozenset()


def test_expressions_are_values():
    assert Tag("a") == Tag("a") != Tag("b")
    assert Tag("a") != Sql("a")
    assert repr([Tag("a || b"), Sql("x > 1")]) == "[Tag(expression='a || b'), Sql(expression='x > 1')]"
    assert pickle.loads(pickle.dumps(Sql("x > 1"))) == Sql("x > 1")


@pytest.mark.parametrize("wrong", [None, 5, b"a", ["a"]])
def test_an_expression_is_a_text(wrong: Any):
    with refusal(f"expression={wrong!r} must be a text like 'paid || shipped', or '*'"):
        Tag(wrong)
    with refusal(f"expression={wrong!r} must be an SQL92 condition like 'amount > 100'"):
        Sql(wrong)
    with refusal(f"expression={wrong!r} for topic 'orders' must be a text, Tag(...) or Sql(...)"):
        subscription_to("orders", wrong, 0)


def test_a_condition_says_something():
    for blank in ("", "  "):
        with refusal(f"expression={blank!r} must be an SQL92 condition like 'amount > 100'"):
            Sql(blank)


def test_bars_without_tags_are_refused():
    with pytest.raises(ConfigurationError, match=r"'\|\| \|\|' to topic 'orders' names no tag"):
        subscription_to("orders", "|| ||", 0)


@pytest.mark.parametrize("topic", ["", None, "a b", "x" * 128])
def test_a_topic_is_one(topic: Any):
    with pytest.raises(ConfigurationError, match=r"^topic="):
        subscription_to(topic, "*", 0)


# --- hooks ----------------------------------------------------------------------------------------------------------


class Noting(ConsumeHook):
    """Notes its calls in the context, or raises."""

    def __init__(self, name: str, *, raises: bool = False) -> None:
        self.name = name
        self.raises = raises

    def __repr__(self) -> str:
        return f"Noting({self.name})"

    def note(self, when: str, context: ConsumeHookContext) -> None:
        context.properties[f"{when} {self.name}"] = context.status
        if self.raises:
            raise RuntimeError(self.name)

    def before(self, context: ConsumeHookContext) -> None:
        self.note("before", context)

    def after(self, context: ConsumeHookContext) -> None:
        self.note("after", context)


def test_a_hook_that_raises_is_logged_and_the_others_run(caplog: pytest.LogCaptureFixture):
    hooks = [Noting("a", raises=True), ConsumeHook(), Noting("b")]
    context = ConsumeHookContext("group", QUEUE, [])
    assert (context.success, context.status, context.return_type, context.namespace) == (None, "", "", None)

    run_before(hooks, context)
    context.status = "SUCCESS"
    run_after(hooks, context)

    assert context.properties == {"before a": "", "before b": "", "after a": "SUCCESS", "after b": "SUCCESS"}
    assert [(record.name, record.getMessage()) for record in caplog.records] == [
        ("rocketstream.consumer", f"the consume hook Noting(a) raised before messages of {QUEUE}"),
        ("rocketstream.consumer", f"the consume hook Noting(a) raised after messages of {QUEUE}"),
    ]
    assert all(record.exc_info is not None for record in caplog.records)


def test_contexts_do_not_share_their_notes():
    one, other = (ConsumeHookContext("group", QUEUE, []) for _ in range(2))
    one.properties["a"] = "b"
    assert other.properties == {}


def test_a_filter_hook_leaves_everything_unless_it_says_otherwise():
    context = FilterContext("group", QUEUE, [])
    assert context.unit_mode is False
    FilterHook().filter(context)
    assert context.messages == []


class Told(QueueListener):
    def __init__(self) -> None:
        self.calls: list[tuple[object, ...]] = []

    def on_change(self, topic: str, all_queues: frozenset[MessageQueue], mine: frozenset[MessageQueue]) -> None:
        self.calls.append((topic, all_queues, mine))


def test_a_queue_listener_of_either_kind_is_told():
    told, calls = Told(), []
    every, mine = frozenset([QUEUE, MessageQueue("orders", "b", 0)]), frozenset([QUEUE])
    tell_queues(told, "orders", every, mine)
    tell_queues(lambda *arguments: calls.append(arguments), "orders", every, mine)
    tell_queues(QueueListener(), "orders", every, mine)
    tell_queues(None, "orders", every, mine)
    assert told.calls == calls == [("orders", every, mine)]


def test_a_queue_listener_that_raises_is_logged(caplog: pytest.LogCaptureFixture):
    def listener(*arguments: object) -> None:
        raise RuntimeError("no")

    tell_queues(listener, "orders", frozenset(), frozenset())
    assert [record.getMessage() for record in caplog.records] == [
        f"the queue listener {listener!r} raised when it was told of topic 'orders'"
    ]
