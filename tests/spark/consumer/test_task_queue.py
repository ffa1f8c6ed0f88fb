"""Where a queue stands when its task ends: what is finished, what is read next, what comes again."""

from __future__ import annotations

from rocketstream.message import MessageQueue, ReceivedMessage
from rocketstream.spark.listening.task_parts import TaskQueue
from rocketstream.spark.listening.values import QueueState

QUEUE = MessageQueue("t", "b", 0)


def received(offset: int) -> ReceivedMessage:
    return ReceivedMessage("t", b"x", queue_offset=offset)


def task_queue(*offsets: int, begun: tuple[int, ...] = (), before: QueueState | None = None) -> TaskQueue:
    pq = TaskQueue(QUEUE, before or QueueState(0, 0), now=0.0)
    messages = [received(offset) for offset in offsets]
    for message in messages:
        if message.queue_offset in begun:
            message.consume_started = 1.0
    pq.put(messages, None)
    return pq


def finish(pq: TaskQueue, *offsets: int) -> None:
    pq.remove([received(offset) for offset in offsets])


# --- concurrent -----------------------------------------------------------------------------------------------------


def test_all_is_finished():
    pq = task_queue(0, 1, 2)
    finish(pq, 0, 1, 2)
    assert pq.concurrent_state(7) == QueueState(7, 7), "what the filter left out at the end is done too"


def test_what_was_not_begun_is_read_again():
    pq = task_queue(0, 1, 2, 3, begun=(0, 1))
    finish(pq, 0, 1)
    assert pq.concurrent_state(4) == QueueState(2, 2)


def test_what_no_broker_took_back_is_remembered_with_its_count_and_nothing_else_comes_again():
    pq = task_queue(0, 1, 2, 3, 4, begun=(0, 1, 2))
    for message in pq.stale(2.0):
        message.reconsume_times = 1
    finish(pq, 0, 2)
    state = pq.concurrent_state(5)
    assert state == QueueState(1, 3, unfinished=(1,), times=((1, 1),))
    assert [offset for offset in range(6) if state.wants(offset)] == [1, 3, 4, 5]


def test_nothing_was_pulled():
    assert task_queue().concurrent_state(5) == QueueState(5, 5)


# --- in order -------------------------------------------------------------------------------------------------------


def take(pq: TaskQueue, n: int = 1) -> list:
    messages = pq.take(n, 1.0)
    for message in messages:
        message.consume_started = 1.0
    return messages


def test_what_is_committed_is_finished():
    pq = task_queue(0, 1, 2)
    take(pq)
    pq.commit()
    assert pq.orderly_state(3) == QueueState(1, 1)


def test_a_queue_that_was_consumed_to_its_end():
    pq = task_queue(0, 1)
    take(pq, 2)
    pq.commit()
    assert pq.orderly_state(9) == QueueState(9, 9)


def test_a_message_that_is_put_back_keeps_its_count():
    pq = task_queue(0, 1)
    (message,) = take(pq)
    message.reconsume_times += 1
    pq.consume_again([message])
    assert pq.orderly_state(2) == QueueState(0, 0, times=((0, 1),))


def test_what_is_not_committed_waits_behind_the_position():
    pq = task_queue(0, 1, 2)
    take(pq, 2)
    assert pq.orderly_state(3) == QueueState(0, 2, unfinished=(0, 1))


def test_what_earlier_tasks_have_left_uncommitted_goes_on_waiting():
    before = QueueState(3, 5, unfinished=(3, 4), times=((3, 2),))
    pq = task_queue(5, 6, before=before)
    take(pq)
    assert pq.orderly_state(7) == QueueState(3, 6, unfinished=(3, 4, 5), times=((3, 2),))


def test_a_commit_covers_what_earlier_tasks_have_left():
    before = QueueState(3, 5, unfinished=(3, 4), times=((3, 2),))
    pq = task_queue(5, 6, before=before)
    take(pq)
    pq.commit()
    assert pq.orderly_state(7) == QueueState(6, 6)


def test_a_rollback_brings_back_what_earlier_tasks_have_had():
    pq = task_queue(5, 6, before=QueueState(3, 5, unfinished=(3, 4)))
    take(pq)
    pq.rollback()
    assert pq.goes_back
    assert pq.orderly_state(7) == QueueState(3, 3)


def test_a_rollback_after_a_commit_goes_back_to_that():
    pq = task_queue(5, 6, before=QueueState(3, 5, unfinished=(3, 4)))
    take(pq)
    pq.commit()
    take(pq)
    pq.rollback()
    assert not pq.goes_back
    assert pq.orderly_state(7) == QueueState(6, 6)


def test_a_suspend_leaves_what_earlier_tasks_have_had_where_it_is():
    pq = task_queue(5, 6, before=QueueState(3, 5, unfinished=(3, 4)))
    pq.consume_again(take(pq))
    assert not pq.goes_back
    assert pq.orderly_state(7) == QueueState(3, 5, unfinished=(3, 4))


def test_nothing_was_consumed():
    before = QueueState(3, 5, unfinished=(3, 4), times=((4, 1),))
    assert task_queue(before=before).orderly_state(5) == before
