"""The process queue: exact at all times, in order whatever comes, the offset safe to store.

Beside it: test_process_queue_model.py (any order of calls, two threads), test_process_queue_cost.py (PQ-10).
"""

from __future__ import annotations

import random

import pytest

from rocketstream.consumer.process_queue import ProcessQueue
from rocketstream.message import MessageQueue, ReceivedMessage

QUEUE = MessageQueue("orders", "broker-a", 3)


def message(offset: int, size: int = 10) -> ReceivedMessage:
    return ReceivedMessage("orders", b"x" * size, queue_offset=offset)


def messages(*offsets: int) -> list[ReceivedMessage]:
    return [message(offset) for offset in offsets]


def offsets_of(given: list[ReceivedMessage]) -> list[int]:
    return [each.queue_offset for each in given]


def holding(*offsets: int) -> ProcessQueue:
    pq = ProcessQueue(QUEUE)
    for offset in offsets:
        pq.put(messages(offset), None)
    return pq


def waiting(pq: ProcessQueue) -> list[int]:
    """All that is not taken, in the order in which it would be taken; the queue is as before."""
    taken = pq.take(pq.count + 1, pq.last_consume_at)
    pq.consume_again(taken)
    return offsets_of(taken)


# --- a new queue ----------------------------------------------------------------------------------------------------


def test_a_new_queue_is_empty_and_nobodys():
    pq = ProcessQueue(QUEUE, now=7.0)
    assert pq.queue is QUEUE
    assert (pq.count, pq.size, pq.backlog, pq.span, pq.max_offset_seen) == (0, 0, 0, 0, -1)
    assert (pq.first_offset, pq.last_offset) == (None, None)
    assert (pq.dropped, pq.locked, pq.consuming) == (False, False, False)
    assert (pq.last_pull_at, pq.last_consume_at, pq.locked_at) == (7.0, 7.0, 7.0)
    assert pq.take(1, 8.0) == []
    assert pq.commit() == -1
    assert pq.remove(messages(1)) == -1
    assert pq.taken_offsets == []


# --- PQ-01: order, once, exact --------------------------------------------------------------------------------------


@pytest.mark.behaviour("PQ-01")
@pytest.mark.parametrize(
    "batches",
    [
        [[1, 2, 3, 4, 5]],
        [[1, 2], [3, 4], [5]],
        [[4, 5], [1, 2, 3]],
        [[5], [4], [3], [2], [1]],
        [[3, 1, 5, 4, 2]],
        [[1, 5], [2, 4], [3]],
    ],
)
def test_messages_are_kept_in_offset_order(batches):
    pq = ProcessQueue(QUEUE)
    for batch in batches:
        pq.put(messages(*batch), None)
    assert (pq.first_offset, pq.last_offset, pq.span) == (1, 5, 4)
    assert offsets_of(pq.take(9, 0.0)) == [1, 2, 3, 4, 5]


@pytest.mark.behaviour("PQ-01")
@pytest.mark.parametrize("again", [[1], [2], [3], [1, 2, 3], [3, 3], [2, 3, 4]])
def test_an_offset_put_twice_counts_once(again):
    pq = ProcessQueue(QUEUE)
    first = [message(offset, size=100) for offset in (1, 2, 3)]
    pq.put(first, None)
    pq.put([message(offset, size=100) for offset in again], None)
    new = len(set(again) - {1, 2, 3})
    assert (pq.count, pq.size) == (3 + new, 300 + 100 * new)
    taken = pq.take(9, 0.0)
    assert offsets_of(taken) == sorted({1, 2, 3, *again})
    assert taken[:3] == first


@pytest.mark.behaviour("PQ-01")
def test_an_offset_twice_in_one_batch_counts_once():
    pq = ProcessQueue(QUEUE)
    pq.put(messages(1, 2, 2, 3), None)
    assert (pq.count, pq.size) == (3, 30)
    assert waiting(pq) == [1, 2, 3]


@pytest.mark.behaviour("PQ-01")
@pytest.mark.parametrize("again", [[2], [1, 2, 3], [3, 1]])
def test_an_offset_that_is_being_consumed_counts_once(again):
    # Java has it twice then, and its count stays one too high for ever.
    pq = holding(1, 2, 3)
    pq.take(2, 0.0)
    pq.put(messages(*again), None)
    assert (pq.count, pq.size) == (3, 30)
    assert waiting(pq) == [3]
    pq.commit()
    assert pq.remove(messages(3)) == 4
    assert (pq.count, pq.size) == (0, 0)


@pytest.mark.behaviour("PQ-01")
def test_count_and_size_are_exact_at_every_step():
    pq = ProcessQueue(QUEUE)
    pq.put([message(1, 5), message(2, 7), message(3, 0), message(4, 11)], None)
    assert (pq.count, pq.size) == (4, 23)
    pq.take(2, 0.0)
    assert (pq.count, pq.size) == (4, 23)
    pq.rollback()
    assert (pq.count, pq.size) == (4, 23)
    pq.take(2, 0.0)
    pq.commit()
    assert (pq.count, pq.size) == (2, 11)
    pq.remove(messages(4))
    assert (pq.count, pq.size) == (1, 0)


def test_the_size_is_that_of_the_message_cached_not_of_the_one_named():
    pq = ProcessQueue(QUEUE)
    pq.put([message(1, 5), message(2, 7)], None)
    pq.remove([message(1, 500)])
    assert (pq.count, pq.size) == (1, 7)


@pytest.mark.parametrize("orderly", [True, False])
def test_a_body_size_that_changed_meanwhile_does_not_stay_in_the_sum(orderly):
    pq = ProcessQueue(QUEUE)
    changing = message(1, 5)
    pq.put([changing], None)
    changing.body_size = 3
    if orderly:
        pq.take(1, 0.0)
        pq.commit()
    else:
        pq.remove([changing])
    assert (pq.count, pq.size) == (0, 0)


# --- PQ-02, PQ-03: what put tells -----------------------------------------------------------------------------------


@pytest.mark.behaviour("PQ-02")
def test_put_dispatches_once_until_the_queue_is_given_back():
    pq = ProcessQueue(QUEUE)
    assert pq.put(messages(1), None) is True
    assert pq.consuming
    assert pq.put(messages(2), None) is False
    pq.take(2, 0.0)
    assert pq.consuming
    assert pq.put(messages(3), None) is False
    pq.take(1, 0.0)
    pq.commit()
    assert pq.take(1, 0.0) == []
    assert not pq.consuming
    assert pq.put(messages(4), None) is True


@pytest.mark.behaviour("PQ-02")
def test_put_dispatches_nothing_from_an_empty_queue():
    pq = ProcessQueue(QUEUE)
    assert pq.put([], None) is False
    assert not pq.consuming


@pytest.mark.behaviour("PQ-02")
def test_put_of_nothing_new_dispatches_what_still_waits():
    pq = holding(1)
    pq.consuming = False
    assert pq.put([], None) is True
    pq.consuming = False
    assert pq.put(messages(1), None) is True


@pytest.mark.behaviour("PQ-02")
def test_what_is_being_consumed_does_not_wait():
    pq = holding(1)
    pq.take(1, 0.0)
    pq.consuming = False
    assert pq.put([], None) is False


@pytest.mark.behaviour("PQ-03")
def test_put_records_the_backlog():
    pq = ProcessQueue(QUEUE)
    pq.put(messages(1, 2, 3), 103)
    assert pq.backlog == 100
    pq.put(messages(5, 4), 105)
    assert pq.backlog == 101, "the last message's offset, not the largest"
    pq.put(messages(3), 10)
    assert pq.backlog == 7, "of known messages too"


@pytest.mark.behaviour("PQ-03")
@pytest.mark.parametrize(("offsets", "max_offset"), [([4], None), ([4], 4), ([4], 3), ([], 1000)])
def test_what_says_nothing_about_the_backlog_leaves_it(offsets, max_offset):
    pq = ProcessQueue(QUEUE)
    pq.put(messages(1), 6)
    pq.put(messages(*offsets), max_offset)
    assert pq.backlog == 5


# --- PQ-04, PQ-05, PQ-06: orderly -----------------------------------------------------------------------------------


@pytest.mark.behaviour("PQ-04")
def test_take_moves_the_first_to_the_consuming_set():
    pq = holding(5, 3, 1, 4, 2)
    assert offsets_of(pq.take(2, 9.5)) == [1, 2]
    assert pq.taken_offsets == [1, 2]
    assert pq.last_consume_at == 9.5
    assert (pq.first_offset, pq.last_offset, pq.span, pq.count) == (3, 5, 2, 5)
    assert offsets_of(pq.take(9, 10.5)) == [3, 4, 5]
    assert pq.taken_offsets == [1, 2, 3, 4, 5]
    assert (pq.first_offset, pq.last_offset, pq.span, pq.count) == (None, None, 0, 5)


@pytest.mark.behaviour("PQ-04")
def test_take_gives_the_queue_back_only_when_nothing_was_left():
    pq = holding(1, 2)
    assert pq.consuming
    pq.take(2, 0.0)
    assert pq.consuming, "the taker still works on them, and will ask again"
    assert pq.take(2, 0.0) == []
    assert not pq.consuming


@pytest.mark.behaviour("PQ-05")
def test_commit_ends_the_consuming_set():
    pq = holding(1, 2, 3, 7, 8)
    pq.take(2, 0.0)
    pq.take(2, 0.0)
    assert pq.commit() == 8
    assert (pq.count, pq.size, pq.taken_offsets) == (1, 10, [])
    assert waiting(pq) == [8]
    assert pq.commit() == -1
    assert (pq.count, pq.size) == (1, 10)


@pytest.mark.behaviour("PQ-05")
def test_commit_tells_the_largest_even_if_it_was_taken_before_a_late_one():
    pq = holding(5)
    pq.take(1, 0.0)
    pq.put(messages(3), None)
    pq.take(1, 0.0)
    assert pq.commit() == 6


@pytest.mark.behaviour("PQ-06")
def test_rollback_puts_all_back_in_order():
    pq = holding(1, 2, 3, 4)
    pq.take(2, 0.0)
    pq.take(1, 0.0)
    pq.rollback()
    assert pq.taken_offsets == []
    assert pq.commit() == -1
    assert (pq.first_offset, pq.last_offset, pq.count, pq.size) == (1, 4, 4, 40)
    assert pq.consuming
    assert waiting(pq) == [1, 2, 3, 4]


@pytest.mark.behaviour("PQ-06")
def test_some_are_consumed_again_in_order():
    pq = holding(1, 2, 3, 4, 5)
    taken = pq.take(4, 0.0)
    pq.consume_again([taken[2], taken[0]])
    assert pq.taken_offsets == [2, 4]
    assert (pq.first_offset, pq.last_offset, pq.count) == (1, 5, 5)
    again = pq.take(9, 0.0)
    assert offsets_of(again) == [1, 3, 5]
    assert again[0] is taken[0]
    assert pq.commit() == 6
    assert (pq.count, pq.size) == (0, 0)


@pytest.mark.behaviour("PQ-06")
@pytest.mark.parametrize("back_first", [[1, 2], [3], [2], [1, 3]])
def test_what_comes_back_in_parts_and_what_came_late_are_in_order(back_first):
    pq = holding(1, 2, 3, 6)
    taken = {each.queue_offset: each for each in pq.take(3, 0.0)}
    pq.consume_again([taken.pop(offset) for offset in back_first])
    pq.put(messages(5, 4, 7), None)
    pq.consume_again(list(taken.values()))
    assert waiting(pq) == [1, 2, 3, 4, 5, 6, 7]
    assert (pq.first_offset, pq.last_offset) == (1, 7)


@pytest.mark.behaviour("PQ-06")
def test_only_what_was_being_consumed_comes_back():
    pq = holding(1, 2)
    taken = pq.take(1, 0.0)
    pq.clear()
    pq.consume_again(taken)
    pq.rollback()
    pq.consume_again(messages(99))
    assert (pq.count, pq.size, pq.first_offset) == (0, 0, None)


# --- PQ-07: the offset safe to store --------------------------------------------------------------------------------


@pytest.mark.behaviour("PQ-07")
def test_remove_tells_the_offset_safe_to_store():
    pq = holding(10, 11, 12, 15)
    assert pq.remove(messages(11)) == 10
    assert pq.remove(messages(15)) == 10
    assert pq.remove(messages(10)) == 12
    assert pq.remove(messages(12)) == 16
    assert pq.remove(messages(12)) == -1
    assert (pq.count, pq.size) == (0, 0)


@pytest.mark.behaviour("PQ-07")
def test_remove_of_several_of_unknown_and_of_none():
    pq = holding(1, 2, 3, 4)
    assert pq.remove(messages(3, 1, 1, 77)) == 2
    assert (pq.count, pq.size) == (2, 20)
    assert pq.remove([]) == 2
    assert pq.remove(messages(4, 2)) == 5


@pytest.mark.behaviour("PQ-07")
def test_late_messages_hold_the_offset_back():
    pq = holding(10, 11)
    pq.put(messages(5, 7), None)
    assert pq.remove(messages(10)) == 5
    assert pq.remove(messages(5)) == 7
    assert pq.remove(messages(11)) == 7
    assert pq.last_offset == 7
    assert pq.remove(messages(7)) == 12


@pytest.mark.behaviour("PQ-07")
def test_after_it_was_empty_the_last_offset_is_that_of_what_came_since():
    # A reset may send the queue back: what lay between was not consumed again.
    pq = holding(100)
    assert pq.remove(messages(100)) == 101
    pq.put(messages(10, 11), None)
    assert pq.max_offset_seen == 11
    assert pq.remove(messages(10, 11)) == 12


# --- PQ-08: what hangs ----------------------------------------------------------------------------------------------


def started(offset: int, at: float) -> ReceivedMessage:
    each = message(offset)
    each.consume_started = at
    return each


def test_stale_is_what_began_before_and_is_not_finished():
    pq = ProcessQueue(QUEUE)
    old, edge, not_begun, late_but_old = started(1, 9.9), started(2, 10.0), message(3), started(4, 1.0)
    pq.put([old, edge, not_begun, late_but_old], None)
    assert pq.stale(10.0) == [old, late_but_old]
    assert pq.stale(10.1) == [old, edge, late_but_old]
    assert pq.stale(1.0) == []
    pq.remove([old])
    assert pq.stale(10.1) == [edge, late_but_old]
    assert old not in pq
    assert edge in pq


def test_stale_gives_the_lowest_offsets_and_no_more_than_sixteen():
    pq = ProcessQueue(QUEUE)
    offsets = list(range(40))
    random.Random(8).shuffle(offsets)
    for offset in offsets:
        pq.put([started(offset, 0.0)], None)
    assert offsets_of(pq.stale(1.0)) == list(range(16))
    assert offsets_of(pq.stale(1.0, limit=3)) == [0, 1, 2]
    assert pq.count == 40


def test_an_orderly_message_being_consumed_is_never_stale():
    pq = ProcessQueue(QUEUE)
    pq.put([started(1, 0.0)], None)
    taken = pq.take(1, 0.0)
    assert pq.stale(100.0) == []
    assert taken[0] not in pq


# --- PQ-09: lock, pull, drop ----------------------------------------------------------------------------------------


@pytest.mark.behaviour("PQ-09")
def test_a_lock_has_a_time_and_expires_after_thirty_seconds():
    pq = ProcessQueue(QUEUE, now=100.0)
    assert not pq.locked
    pq.set_locked(200.0)
    assert (pq.locked, pq.locked_at) == (True, 200.0)
    assert not pq.lock_expired(230.0)
    assert pq.lock_expired(230.001)
    pq.set_locked(231.0)
    assert not pq.lock_expired(261.0)
    pq.set_unlocked()
    assert (pq.locked, pq.locked_at) == (False, 231.0)
    assert pq.lock_expired(237.0, after=5.0)


def test_a_pull_expires_after_two_minutes():
    pq = ProcessQueue(QUEUE, now=100.0)
    assert not pq.pull_expired(220.0)
    assert pq.pull_expired(220.001)
    pq.last_pull_at = 220.0
    assert not pq.pull_expired(340.0)
    assert pq.pull_expired(221.5, after=1.0)


def test_clear_forgets_the_messages_and_nothing_else():
    pq = holding(5, 6, 2, 9)
    pq.put(messages(10), 30)
    pq.set_locked(1.0)
    pq.drop()
    pq.take(2, 3.0)
    pq.clear()
    assert (pq.count, pq.size, pq.first_offset, pq.last_offset, pq.span) == (0, 0, None, None, 0)
    assert pq.max_offset_seen == -1
    assert (pq.commit(), pq.remove(messages(9))) == (-1, -1)
    assert pq.dropped, "for ever"
    assert (pq.locked, pq.consuming, pq.backlog) == (True, True, 20)
    pq.put(messages(1), None)
    assert waiting(pq) == [1]


def test_repr_tells_its_state():
    pq = ProcessQueue(QUEUE)
    assert repr(pq) == "<ProcessQueue orders@broker-a:3 offsets=none count=0 size=0>"
    pq.put(messages(3, 4, 7, 1), None)
    pq.take(1, 0.0)
    pq.set_locked(1.0)
    pq.drop()
    expected = "<ProcessQueue orders@broker-a:3 offsets=3..7 taken=1 count=4 size=40 locked dropped consuming>"
    assert repr(pq) == expected
