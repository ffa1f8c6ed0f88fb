"""PQ-10: the process queue makes no pass over all it holds. Steps are counted, not seconds."""

from __future__ import annotations

import random

import pytest

from rocketstream.consumer.process_queue import ProcessQueue
from rocketstream.message import MessageQueue

QUEUE = MessageQueue("orders", "broker-a", 3)


class Steps:
    """How often an offset was hashed or compared, or a message looked at."""

    taken = 0


class CountedOffset(int):
    """An offset that counts each look at it: a pass over all that is cached, even one in C, can't hide."""

    def __hash__(self):
        Steps.taken += 1
        return int.__hash__(self)

    def __eq__(self, other):
        Steps.taken += 1
        return int.__eq__(self, other)

    def __lt__(self, other):
        Steps.taken += 1
        return int.__lt__(self, other)

    def __gt__(self, other):
        Steps.taken += 1
        return int.__gt__(self, other)

    def __neg__(self):
        Steps.taken += 1
        return CountedOffset(int.__neg__(self))


class CountedMessage:
    __slots__ = ("_offset",)

    def __init__(self, offset):
        self._offset = CountedOffset(offset)

    @property
    def queue_offset(self):
        Steps.taken += 1
        return self._offset

    @property
    def body_size(self):
        Steps.taken += 1
        return 10


def counted(start, stop, step=1):
    return [CountedMessage(offset) for offset in range(start, stop, step)]


def steady(pq, n):
    """Nearly in order, as twenty workers finish."""
    finishing = counted(0, 640)
    order = random.Random(4)
    for k in range(20):
        pq.put(counted(n + 32 * k, n + 32 * (k + 1)), None)
        assert pq.span
        chunk = finishing[32 * k : 32 * (k + 1)]
        order.shuffle(chunk)
        for each in chunk:
            pq.remove([each])
            assert pq.first_offset is not None
            assert pq.last_offset == n + 32 * (k + 1) - 1


def behind_one_that_hangs(pq, n):
    """The first does not finish; the others do, from both ends, and come again, late."""
    for k in range(1, 200):
        low, high = CountedMessage(k), CountedMessage(n - k)
        pq.remove([low])
        pq.remove([high])
        assert pq.first_offset == 0
        pq.put([high], None)
        pq.put([low], None)
        assert pq.span


def orderly(pq, n):
    """Taken, rolled back, in part consumed again, committed; and something late between."""
    for _ in range(20):
        pq.take(16, 0.0)
        pq.rollback()
        taken = pq.take(16, 0.0)
        pq.consume_again(taken[8:])
        pq.put([taken[0]], None)
        assert pq.first_offset == taken[8].queue_offset
        pq.commit()
        assert pq.last_offset == n - 1


def late(pq, n):
    """Everything was put in the worst order; heaps answer."""
    for k in range(0, 400, 2):
        assert pq.first_offset == k
        assert pq.remove([CountedMessage(k)]) == k + 1
        assert pq.remove([CountedMessage(k + 1)]) == k + 2
        assert pq.span


def steps_of(work, n):
    pq = ProcessQueue(QUEUE)
    everything = counted(0, n)
    if work is late:
        # The last first, so that all others are late.
        pq.put(everything[-1:], None)
        random.Random(5).shuffle(everything)
    pq.put(everything, None)
    assert pq.count == n
    before = Steps.taken
    work(pq, n)
    return Steps.taken - before


@pytest.mark.behaviour("PQ-10")
@pytest.mark.parametrize("work", [steady, behind_one_that_hangs, orderly, late])
def test_a_hundred_times_as_many_messages_are_not_more_work(work):
    few, many = steps_of(work, 1_000), steps_of(work, 100_000)
    # log2(100,000) / log2(1,000) is 1.67.
    assert many < 1.8 * few


@pytest.mark.behaviour("PQ-10")
def test_one_message_that_hangs_costs_neither_memory_nor_steps():
    pq = ProcessQueue(QUEUE)
    pq.put(counted(0, 1), None)
    before = Steps.taken
    for start in range(1, 100_000, 32):
        batch = counted(start, start + 32)
        pq.put(batch, None)
        pq.remove(batch)
        assert pq.first_offset == 0
        assert len(pq._order) < 1_000
    assert pq.count == 1
    assert (Steps.taken - before) / 100_000 < 12


@pytest.mark.behaviour("PQ-10")
def test_taking_and_rolling_back_for_ever_costs_no_memory():
    pq = ProcessQueue(QUEUE)
    # 5 stays and 1 is late, so 9 never comes back to the front.
    pq.put(counted(5, 10, 4), None)
    pq.put(counted(1, 2), None)
    for _ in range(5_000):
        taken = pq.take(3, 0.0)
        pq.consume_again(taken[1:2])
        pq.consume_again([taken[0], taken[2]])
        assert len(pq._order) + len(pq._late) + len(pq._late_from_end) < 1_000
    assert [each.queue_offset for each in pq.take(9, 0.0)] == [1, 5, 9]


@pytest.mark.behaviour("PQ-10")
def test_what_is_rolled_back_goes_to_the_front_and_not_to_the_heaps():
    pq = ProcessQueue(QUEUE)
    pq.put(counted(0, 100), None)
    for n in (1, 32, 100):
        taken = pq.take(n, 0.0)
        pq.rollback()
        assert pq.take(n, 0.0) == taken
        pq.consume_again(taken)
        assert not pq._late
