"""Decisions of the pop path: when to pop, when again, when a failed message comes again."""

from __future__ import annotations

import pytest

from rocketstream.consumer.flow_control import Drop, Pull, Wait, WaitReason
from rocketstream.consumer.pop_acks import Popped, batch_acks
from rocketstream.consumer.pop_flow import after_nothing, delay_of, is_given_up, next_pop
from rocketstream.consumer.pop_request import Lease, PopProcessQueue, PopRequest, init_mode_of
from rocketstream.consumer.start_from import StartFrom
from rocketstream.message import MessageQueue
from rocketstream.wire.check_point import CheckPoint
from rocketstream.wire.codes import ConsumeInitMode, MessageRequestMode, PopStatus

QUEUE = MessageQueue("t", "a", -1)


def step(pq: PopProcessQueue, **others: bool) -> object:
    return next_pop(pq, **{"running": True, "paused": False, "subscribed": True, "limit": 96, **others})


def test_the_steps_in_their_order():
    pq = PopProcessQueue(QUEUE)
    assert step(pq) == Pull()
    pq.found(96)
    assert step(pq) == Pull(), "so many may be with us"
    assert step(pq, subscribed=False).reason is WaitReason.NO_SUBSCRIPTION
    pq.found(1)
    full = step(pq, subscribed=False)
    assert isinstance(full, Wait)
    assert (full.seconds, full.reason) == (0.05, WaitReason.COUNT)
    assert full.text == "t@a:-1 is not popped for now, more than 96 messages are not acknowledged: 97"
    paused = step(pq, paused=True)
    assert (paused.seconds, paused.reason) == (1.0, WaitReason.PAUSED)
    stopped = step(pq, paused=True, running=False)
    assert (stopped.seconds, stopped.reason) == (3.0, WaitReason.NOT_RUNNING)
    pq.done(97)
    assert step(pq) == Pull()
    pq.drop()
    assert isinstance(step(pq, running=False), Drop)


@pytest.mark.parametrize(
    ("status", "took", "seconds"),
    [
        (PopStatus.NO_NEW_MSG, 0.0, None),
        (PopStatus.POLLING_NOT_FOUND, 15.0, None),
        (PopStatus.POLLING_NOT_FOUND, 0.1, 1.0),
        (PopStatus.POLLING_FULL, 0.0, 3.0),
        (PopStatus.POLLING_FULL, 15.0, 3.0),
    ],
)
def test_when_to_pop_again_after_nothing(status, took, seconds):
    wait = after_nothing(status, took, 15.0)
    assert (None if wait is None else wait.seconds) == seconds


def test_the_delays_of_what_failed():
    seconds = [delay_of(times, 0) for times in range(18)]
    minutes = [2, 3, 4, 5, 6, 7, 8, 9, 10, 20, 30, 60, 120, 120, 120]
    assert seconds == [10, 30, 60, *(60 * minute for minute in minutes)]
    assert delay_of(0, 3) == 120, "the listener's own level"
    assert delay_of(9, -2) == delay_of(9, 0)


def test_when_a_message_is_given_up():
    assert not is_given_up(15, 0, 16)
    assert is_given_up(16, 0, 16)
    assert is_given_up(0, -1, 16)


def test_values():
    pq = PopProcessQueue(QUEUE, now=5.0)
    assert repr(pq) == "<PopProcessQueue t@a:-1 unacked=0>"
    assert not pq.pull_expired(125.0)
    assert pq.pull_expired(125.1)
    request = PopRequest("g", QUEUE, pq, ConsumeInitMode.MAX)
    assert request.mode is MessageRequestMode.POP
    assert repr(request) == f"<PopRequest {QUEUE}, ready, <PopProcessQueue t@a:-1 unacked=0>>"
    lease = Lease(pq, "t", QUEUE, 65.0, {})
    assert not lease.is_over(64.999)
    assert lease.is_over(65.0)


def test_where_pops_begin():
    assert init_mode_of(StartFrom.FIRST) is ConsumeInitMode.MIN
    assert init_mode_of(StartFrom.LAST) is ConsumeInitMode.MAX
    assert init_mode_of(StartFrom.at(1_700_000_000_000)) is ConsumeInitMode.MAX


def test_one_entry_for_each_lease():
    """What differs in topic, kind of topic, queue, start or time of the pop is another lease."""
    point = CheckPoint(5, 1000, 60, 3, "0", "a", 0, 5)
    others = [
        point._replace(retry="1"),
        point._replace(queue_id=1),
        point._replace(start_offset=4),
        point._replace(pop_time=1001),
    ]
    messages = [Popped("t", point), Popped("t", point._replace(offset=7)), *(Popped("t", one) for one in others)]
    acks = batch_acks("g", [*messages, Popped("u", point)])
    assert [(ack.topic, ack.retry, ack.queue_id, ack.start_offset, ack.pop_time) for ack in acks] == [
        ("t", "0", 0, 5, 1000),
        ("t", "1", 0, 5, 1000),
        ("t", "0", 1, 5, 1000),
        ("t", "0", 0, 4, 1000),
        ("t", "0", 0, 5, 1001),
        ("u", "0", 0, 5, 1000),
    ]
    assert [sorted(ack.bits) for ack in acks] == [[0, 2], [0], [0], [1], [0], [0]]
