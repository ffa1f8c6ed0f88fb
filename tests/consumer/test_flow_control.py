"""Whether a queue may be pulled now: the order of the questions, the exact limits, the seconds, the warnings."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketstream.consumer.flow_control import (
    Drop,
    FlowCounters,
    FlowLimits,
    Pull,
    Wait,
    WaitReason,
    next_step,
)
from rocketstream.consumer.process_queue import ProcessQueue
from rocketstream.message import MessageQueue, ReceivedMessage

QUEUE = MessageQueue("orders", "broker-a", 3)
MIB = 1024 * 1024


def message(offset: int, size: int = 0) -> ReceivedMessage:
    made = ReceivedMessage("orders", queue_offset=offset)
    made.body_size = size
    return made


def queue_of(*given: ReceivedMessage) -> ProcessQueue:
    pq = ProcessQueue(QUEUE)
    pq.put(given, None)
    return pq


def ask(pq: ProcessQueue, **given):
    asked = {
        "running": True,
        "paused": False,
        "subscribed": True,
        "orderly": False,
        "needs_lock": False,
        "limits": FlowLimits(),
    }
    return next_step(pq, **(asked | given))


def assert_waits(step, seconds: float, reason: WaitReason) -> None:
    assert isinstance(step, Wait)
    assert (step.seconds, step.reason) == (seconds, reason)
    assert step.text


# --- each question --------------------------------------------------------------------------------------------------


def test_nothing_in_the_way_is_a_pull():
    assert ask(queue_of()) == Pull(offset=None)


@pytest.mark.behaviour("PULL-02")
def test_a_dropped_queue_ends_there():
    pq = queue_of()
    pq.drop()
    step = ask(pq)
    assert isinstance(step, Drop)
    assert "dropped" in step.reason


@pytest.mark.behaviour("PULL-04")
def test_not_running_is_asked_again_in_three_seconds():
    assert_waits(ask(queue_of(), running=False), 3.0, WaitReason.NOT_RUNNING)


@pytest.mark.behaviour("PULL-05")
def test_paused_is_asked_again_in_one_second():
    assert_waits(ask(queue_of(), paused=True), 1.0, WaitReason.PAUSED)


@pytest.mark.behaviour("PULL-06")
@pytest.mark.parametrize("orderly", [False, True])
def test_more_than_a_thousand_messages_wait_fifty_milliseconds(orderly):
    pq = queue_of(*map(message, range(1000)))
    assert ask(pq, orderly=orderly) == Pull()
    pq.put([message(1000)], None)
    assert_waits(ask(pq, orderly=orderly), 0.050, WaitReason.COUNT)
    pq.remove([message(0)])
    assert ask(pq, orderly=orderly) == Pull()


@pytest.mark.behaviour("PULL-06")
def test_messages_being_consumed_count():
    pq = queue_of(*map(message, range(1001)))
    pq.take(1001, 0.0)
    step = ask(pq, orderly=True)
    assert_waits(step, 0.050, WaitReason.COUNT)
    assert "min_offset=None, max_offset=None, count=1001" in step.text
    pq.commit()
    assert ask(pq, orderly=True) == Pull()


@pytest.mark.behaviour("PULL-07")
@pytest.mark.parametrize("orderly", [False, True])
def test_more_than_a_hundred_mib_wait_fifty_milliseconds(orderly):
    pq = queue_of(message(1, 60 * MIB), message(2, 40 * MIB))
    assert ask(pq, orderly=orderly) == Pull()
    pq.put([message(3, 1)], None)
    assert_waits(ask(pq, orderly=orderly), 0.050, WaitReason.SIZE)
    pq.remove([message(3)])
    assert ask(pq, orderly=orderly) == Pull()


@pytest.mark.behaviour("PULL-08")
def test_a_span_over_two_thousand_waits_fifty_milliseconds():
    pq = queue_of(message(500), message(2500))
    assert ask(pq) == Pull()
    pq.put([message(2501)], None)
    assert_waits(ask(pq), 0.050, WaitReason.SPAN)
    pq.remove([message(500)])
    assert ask(pq) == Pull()


@pytest.mark.behaviour("PULL-08")
@pytest.mark.parametrize("needs_lock", [False, True])
def test_orderly_has_no_span(needs_lock):
    pq = queue_of(message(0), message(1_000_000))
    pq.set_locked(0.0)
    assert ask(pq, orderly=True, needs_lock=needs_lock) == Pull()


@pytest.mark.behaviour("PULL-10")
def test_an_orderly_queue_that_is_not_locked_is_asked_again_in_three_seconds():
    pq = queue_of()
    assert_waits(ask(pq, orderly=True, needs_lock=True), 3.0, WaitReason.NOT_LOCKED)
    pq.set_locked(5.0)
    assert ask(pq, orderly=True, needs_lock=True) == Pull()
    pq.set_unlocked()
    assert_waits(ask(pq, orderly=True, needs_lock=True), 3.0, WaitReason.NOT_LOCKED)
    assert ask(pq, orderly=True, needs_lock=False) == Pull()
    assert ask(pq, orderly=False, needs_lock=True) == Pull()


@pytest.mark.behaviour("PULL-12")
def test_no_subscription_is_asked_again_in_three_seconds():
    assert_waits(ask(queue_of(), subscribed=False), 3.0, WaitReason.NO_SUBSCRIPTION)


def test_limits_are_those_given():
    pq = queue_of(message(1, 5), message(4, 6))
    assert ask(pq, limits=FlowLimits(count=2, size_bytes=11, span=3)) == Pull()
    assert_waits(ask(pq, limits=FlowLimits(count=1)), 0.050, WaitReason.COUNT)
    assert_waits(ask(pq, limits=FlowLimits(size_bytes=10)), 0.050, WaitReason.SIZE)
    assert_waits(ask(pq, limits=FlowLimits(span=2)), 0.050, WaitReason.SPAN)


def test_the_defaults_are_javas():
    assert FlowLimits() == FlowLimits(count=1000, size_bytes=104_857_600, span=2000)


# --- their order ----------------------------------------------------------------------------------------------------

# What stands in the way, in the order in which Java asks. Each is a change of the arguments or of the queue.
IN_ORDER = ["dropped", "not running", "paused", "count", "size", "span or lock", "no subscription"]
EXPECTED = {
    "not running": (3.0, WaitReason.NOT_RUNNING),
    "paused": (1.0, WaitReason.PAUSED),
    "count": (0.050, WaitReason.COUNT),
    "size": (0.050, WaitReason.SIZE),
    "no subscription": (3.0, WaitReason.NO_SUBSCRIPTION),
}


@pytest.mark.behaviour("PULL-02", "PULL-04", "PULL-05", "PULL-06", "PULL-07", "PULL-08", "PULL-10", "PULL-12")
@pytest.mark.parametrize("orderly", [False, True])
@pytest.mark.parametrize(
    "obstacles", [some for n in range(len(IN_ORDER) + 1) for some in itertools.combinations(IN_ORDER, n)], ids=repr
)
def test_of_several_obstacles_the_first_in_javas_order_decides(obstacles, orderly):
    pq = queue_of(message(0, 7), message(10, 7))
    limits = FlowLimits(
        count=1 if "count" in obstacles else 2,
        size_bytes=13 if "size" in obstacles else 14,
        span=9 if "span or lock" in obstacles and not orderly else 10,
    )
    if "dropped" in obstacles:
        pq.drop()
    if "span or lock" not in obstacles:
        pq.set_locked(0.0)
    step = ask(
        pq,
        running="not running" not in obstacles,
        paused="paused" in obstacles,
        subscribed="no subscription" not in obstacles,
        orderly=orderly,
        needs_lock=orderly,
        limits=limits,
    )
    if not obstacles:
        assert step == Pull()
    elif obstacles[0] == "dropped":
        assert isinstance(step, Drop)
    elif obstacles[0] == "span or lock":
        assert_waits(step, *((3.0, WaitReason.NOT_LOCKED) if orderly else (0.050, WaitReason.SPAN)))
    else:
        assert_waits(step, *EXPECTED[obstacles[0]])


def test_asking_changes_nothing():
    pq = queue_of(message(0, 7), message(10, 7))
    before = (repr(pq), pq.last_pull_at, pq.last_consume_at)
    ask(pq, limits=FlowLimits(count=1))
    ask(pq, limits=FlowLimits(span=1))
    assert (repr(pq), pq.last_pull_at, pq.last_consume_at) == before


# --- a topic's limits -----------------------------------------------------------------------------------------------


@pytest.mark.behaviour("PULL-09")
@pytest.mark.parametrize(
    ("queues", "count", "mib"), [(1, 900, 50), (4, 225, 12), (7, 128, 7), (901, 1, 1), (50, 18, 1)]
)
def test_a_topics_limits_are_divided_by_the_owned_queues(queues, count, mib):
    assert FlowLimits().divide(900, 50, queues) == FlowLimits(count=count, size_bytes=mib * MIB, span=2000)


@pytest.mark.behaviour("PULL-09")
@pytest.mark.parametrize("off", [None, -1])
def test_a_topics_limits_are_off_by_default(off):
    own = FlowLimits(count=70, size_bytes=8 * MIB, span=9)
    assert own.divide(off, off, 4) == own
    assert own.divide(400, off, 4) == FlowLimits(count=100, size_bytes=8 * MIB, span=9)
    assert own.divide(off, 400, 4) == FlowLimits(count=70, size_bytes=100 * MIB, span=9)


@pytest.mark.behaviour("PULL-09")
def test_without_owned_queues_there_is_nothing_to_divide():
    own = FlowLimits(count=70, size_bytes=8 * MIB, span=9)
    assert own.divide(400, 400, 0) == own


@pytest.mark.behaviour("PULL-09")
@given(
    count=st.integers(1, 6_553_500), mib=st.integers(1, 102_400), before=st.integers(1, 99), after=st.integers(1, 99)
)
def test_each_rebalance_divides_the_topics_limit_and_not_the_last_share(count, mib, before, after):
    own = FlowLimits()
    own.divide(count, mib, before)
    divided = own.divide(count, mib, after)
    assert own == FlowLimits()
    assert divided is not own
    assert divided.count == max(1, count // after)
    assert divided.size_bytes == max(1, mib // after) * MIB


# --- warnings -------------------------------------------------------------------------------------------------------


def full_for(reason: WaitReason) -> Wait:
    pq = queue_of(message(7, 3 * MIB), message(40, 2 * MIB), message(107))
    limits = {
        WaitReason.COUNT: FlowLimits(count=2),
        WaitReason.SIZE: FlowLimits(size_bytes=4 * MIB),
        WaitReason.SPAN: FlowLimits(span=99),
    }[reason]
    step = ask(pq, limits=limits)
    assert_waits(step, 0.050, reason)
    return step


@pytest.mark.parametrize(
    ("reason", "why"),
    [
        pytest.param(WaitReason.COUNT, "more than 2 messages", marks=pytest.mark.behaviour("PULL-06")),
        pytest.param(WaitReason.SIZE, "more than 4 MiB", marks=pytest.mark.behaviour("PULL-07")),
        pytest.param(
            WaitReason.SPAN, "the span 100 of the cached offsets is over 99", marks=pytest.mark.behaviour("PULL-08")
        ),
    ],
)
def test_the_first_and_each_thousandth_time_is_a_warning_with_its_numbers(reason, why):
    counters = FlowCounters()
    wait = full_for(reason)
    warnings = {time: text for time in range(1, 3002) if (text := counters.warning(wait)) is not None}
    assert list(warnings) == [1, 1001, 2001, 3001]
    for time, text in warnings.items():
        assert why in text
        assert "orders@broker-a:3" in text
        assert text.endswith(f"min_offset=7, max_offset=107, count=3, size=5.0 MiB, times={time}")


@pytest.mark.behaviour("PULL-06", "PULL-07")
def test_count_and_size_are_counted_together():
    counters = FlowCounters()
    assert counters.should_warn(WaitReason.COUNT)
    assert not counters.should_warn(WaitReason.SIZE)
    assert (counters.full, counters.span) == (2, 0)


@pytest.mark.behaviour("PULL-08")
def test_the_span_has_its_own_counter():
    counters = FlowCounters()
    for _ in range(5):
        counters.should_warn(WaitReason.COUNT)
    assert (counters.warning(full_for(WaitReason.SPAN)) or "").endswith("times=1")
    assert (counters.full, counters.span) == (5, 1)
    assert repr(counters) == "<FlowCounters full=5 span=1>"


def test_other_waits_are_neither_counted_nor_warned_of():
    counters = FlowCounters()
    room = {WaitReason.ALL, WaitReason.COUNT, WaitReason.SIZE, WaitReason.SPAN}
    for reason in set(WaitReason) - room:
        assert not counters.should_warn(reason)
        assert counters.warning(Wait(1.0, reason, "why")) is None
    assert (counters.full, counters.span) == (0, 0)
