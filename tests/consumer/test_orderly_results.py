"""Orderly consumption: what a listener's answer does to its queue."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from rocketstream.clock import ManualClock
from rocketstream.consumer.hooks import ConsumeHook, ConsumeHookContext
from rocketstream.consumer.results import ConsumeResult, OrderlyResult
from rocketstream.consumer.topic_names import TopicNames
from rocketstream.wire.codes import RequestCode, ResponseCode
from tests.consumer.stand_in import QUEUE, Answers, OrderlyConsumer
from tests.scripted import eventually

SUCCESS, COMMIT, ROLLBACK, SUSPEND = OrderlyResult


@pytest.fixture
async def consumer(clock: ManualClock) -> AsyncIterator[Callable[..., OrderlyConsumer]]:
    async with OrderlyConsumer.maker(clock) as make:
        yield make


def answering(*answers: object, **settings: Any) -> Answers:
    """A listener that sets these in its context before it answers."""

    def with_settings(answer: object) -> Callable[..., object]:
        def answer_it(given: Any, context: Any) -> object:
            for name, value in settings.items():
                setattr(context, name, value)
            if isinstance(answer, BaseException):
                raise answer
            return answer

        return answer_it

    return Answers(*map(with_settings, answers))


# --- ORD-08, ORD-12: auto commit --------------------------------------------------------------------------------------


@pytest.mark.behaviour("ORD-08", "ORD-12")
@pytest.mark.parametrize("kind", ["threads", "own loop", "application's loop"])
@pytest.mark.parametrize("answer", [SUCCESS, COMMIT, ROLLBACK])
async def test_with_auto_commit_everything_but_suspend_commits(consumer, clock, caplog, kind, answer):
    listener = Answers(answer)

    async def listen(given: Any, context: Any) -> object:
        await asyncio.sleep(0)
        return listener(given, context)

    one = consumer(listener if kind == "threads" else listen, own_loop=kind == "own loop")
    pq = one.deliver(4, 5, 6)
    await eventually(lambda: one.core.stored_offsets == [5, 6, 7])
    assert one.core.stored == [(QUEUE, 5, False), (QUEUE, 6, False), (QUEUE, 7, False)]
    assert (listener.calls, pq.count, clock.pending) == ([[4], [5], [6]], 0, [])
    warnings = [r for r in caplog.records if f"returned {answer.name} with auto_commit" in r.getMessage()]
    assert len(warnings) == (0 if answer is SUCCESS else 3)
    assert one.core.stats.snapshot()["t"]["ok_messages"] == 3


@pytest.mark.behaviour("ORD-08")
@pytest.mark.parametrize(
    ("setting", "asked", "pause"),
    [
        (None, None, 1.0),
        (2.5, None, 2.5),
        (None, 5.0, 5.0),
        (None, 0.001, 0.010),
        (None, 0, 0.010),
        (None, 100, 30.0),
        (None, -1, 1.0),
    ],
)
async def test_suspend_puts_back_and_pauses_this_queue(consumer, clock, setting, asked, pause):
    asks = {} if asked is None else {"suspend_current_queue_time": asked}
    listener = answering(SUCCESS, SUSPEND, SUCCESS, **asks)
    settings = {} if setting is None else {"suspend_current_queue_time": setting}
    one = consumer(listener, **settings)
    pq = one.deliver(0, 1, 2)
    await eventually(lambda: clock.pending == [pytest.approx(pause)])
    assert (listener.calls, pq.count, pq.taken_offsets) == ([[0], [1]], 2, [])
    other = one.deliver(7, queue=QUEUE._replace(queue_id=1))
    await eventually(lambda: other.count == 0)  # only this queue pauses
    await clock.advance(pause - 0.0001)
    assert [1] not in listener.calls[2:]
    pq.set_locked(clock.monotonic())
    await clock.advance(0.0002)
    await eventually(lambda: pq.count == 0)
    assert listener.calls == [[0], [1], [7], [1], [2]]
    # A worker takes the last one out of its queue just before it tells the loop.
    await eventually(lambda: one.core.stats.snapshot()["t"]["ok_messages"] == 4)
    assert one.core.stats.snapshot()["t"]["failed_messages"] == 1


@pytest.mark.behaviour("ORD-12")
async def test_the_offset_of_a_lost_queue_is_not_stored(consumer):
    listener = Answers(SUCCESS)
    listener.hold()
    one = consumer(listener)
    pq = one.deliver(0)
    await eventually(lambda: listener.calls == [[0]])
    pq.drop()
    listener.go.release()
    assert await one.service.stop(60)
    assert one.core.stored == []


# --- ORD-09: no auto commit -------------------------------------------------------------------------------------------


@pytest.mark.behaviour("ORD-09", "ORD-12")
async def test_without_auto_commit_success_counts_and_commit_commits_all(consumer, clock):
    listener = answering(SUCCESS, SUCCESS, COMMIT, SUCCESS, auto_commit=False)
    one = consumer(listener)
    pq = one.deliver(0, 1, 2, 3)
    await eventually(lambda: not pq.consuming and one.core.stats.snapshot()["t"]["ok_messages"] == 4)
    assert listener.calls == [[0], [1], [2], [3]]
    assert one.core.stored == [(QUEUE, 3, False)]
    assert (pq.count, pq.taken_offsets, clock.pending) == (1, [3], [])


@pytest.mark.behaviour("ORD-09")
async def test_rollback_puts_everything_uncommitted_back_and_pauses(consumer, clock):
    listener = answering(COMMIT, SUCCESS, SUCCESS, ROLLBACK, COMMIT, auto_commit=False)
    one = consumer(listener, suspend_current_queue_time=2.0)
    pq = one.deliver(0, 1, 2, 3, 4)
    await eventually(lambda: clock.pending == [2.0])
    assert listener.calls == [[0], [1], [2], [3]]
    assert (pq.count, pq.taken_offsets, pq.first_offset) == (4, [], 1)
    assert one.core.stored_offsets == [1]
    await clock.advance(2)
    await eventually(lambda: one.core.stored_offsets[-1] == 5)
    assert listener.calls[4:] == [[1], [2], [3], [4]]


@pytest.mark.behaviour("ORD-09")
async def test_suspend_puts_only_this_batch_back_and_pauses(consumer, clock):
    listener = answering(SUCCESS, SUSPEND, COMMIT, auto_commit=False)
    one = consumer(listener, consume_message_batch_max_size=2)
    pq = one.deliver(0, 1, 2, 3, 4)
    await eventually(lambda: clock.pending == [1.0])
    assert (listener.calls, pq.taken_offsets, pq.first_offset) == ([[0, 1], [2, 3]], [0, 1], 2)
    assert one.core.stored == []
    await clock.advance(1)
    await eventually(lambda: pq.count == 0)
    assert listener.calls[2:] == [[2, 3], [4]]
    await eventually(lambda: one.core.stored_offsets == [4, 5])


# --- ORD-10: no answer ------------------------------------------------------------------------------------------------


@pytest.mark.behaviour("ORD-10")
@pytest.mark.parametrize("auto_commit", [True, False])
@pytest.mark.parametrize(
    ("answer", "logged"),
    [
        (None, "returned nothing"),
        (ConsumeResult.SUCCESS, "returned <ConsumeResult.SUCCESS"),
        (ValueError("no"), "raised ValueError: no"),
        (SystemExit(1), "raised SystemExit: 1"),
        (StopIteration(1), "raised StopIteration: 1"),
    ],
)
async def test_no_answer_or_an_exception_suspends(consumer, clock, caplog, answer, logged, auto_commit):
    listener = answering(answer, COMMIT, auto_commit=auto_commit)
    one = consumer(listener)
    pq = one.deliver(0, 1)
    await eventually(lambda: clock.pending == [1.0])
    assert (listener.calls, pq.count, pq.taken_offsets, one.core.stored) == ([[0]], 2, [], [])
    assert f"the listener of group g {logged}" in caplog.text
    await clock.advance(1)
    await eventually(lambda: one.core.stored_offsets == [1, 2])
    assert listener.calls == [[0], [0], [1]]


@pytest.mark.behaviour("ORD-10")
@pytest.mark.parametrize("own_loop", [True, False])
@pytest.mark.parametrize("answer", [None, ValueError("no"), SystemExit(1), asyncio.CancelledError()])
async def test_no_answer_of_an_async_listener_suspends(consumer, clock, own_loop, answer):
    listener = Answers(answer, SUCCESS)

    async def listen(given: Any, context: Any) -> object:
        return listener(given, context)

    one = consumer(listen, own_loop=own_loop)
    one.deliver(0, 1)
    await eventually(lambda: clock.pending == [1.0])
    await clock.advance(1)
    await eventually(lambda: one.core.stored_offsets == [1, 2])
    assert listener.calls == [[0], [0], [1]]


# --- ORD-11: too often ------------------------------------------------------------------------------------------------


@pytest.mark.behaviour("ORD-11")
async def test_by_default_a_message_fails_as_often_as_it_likes_and_is_counted(consumer, clock):
    times: list[int] = []

    def listen(given: Any, context: Any) -> OrderlyResult:
        times.append(given[0].reconsume_times)
        return SUSPEND

    one = consumer(listen)
    pq = one.deliver(0)
    for count in range(1, 41):
        await eventually(lambda: len(times) == count and clock.pending == [pytest.approx(1.0)])  # noqa: B023
        pq.set_locked(clock.monotonic())
        await clock.advance(1)
    await eventually(lambda: len(times) == 41)
    assert times == list(range(41))
    assert one.core.returned == []


@pytest.mark.behaviour("ORD-11")
@pytest.mark.parametrize("kind", ["threads", "own loop"])
async def test_past_the_maximum_it_is_sent_back_and_the_queue_goes_on(consumer, clock, kind):
    listener = Answers(SUSPEND, SUSPEND, SUSPEND, SUCCESS)

    async def listen(given: Any, context: Any) -> object:
        return listener(given, context)

    one = consumer(listener if kind == "threads" else listen, max_reconsume_times=2)
    pq = one.deliver(0, 1)
    for _ in range(2):
        await eventually(lambda: clock.pending == [pytest.approx(1.0)])
        assert one.core.returned == []
        await clock.advance(1)
    await eventually(lambda: one.core.stored_offsets == [1, 2])
    assert listener.calls == [[0], [0], [0], [1]]
    assert one.core.returned == [(0, QUEUE, -1)]
    assert (pq.count, clock.pending) == (0, [])


@pytest.mark.behaviour("ORD-11")
@pytest.mark.parametrize("unexpected", [False, True])
async def test_if_sending_back_fails_the_queue_pauses_and_tries_again(consumer, clock, unexpected):
    listener = Answers(SUSPEND, SUSPEND, SUCCESS)
    one = consumer(listener, max_reconsume_times=0)
    one.core.cannot_return = lambda message: len(one.core.returned) == 1
    if unexpected:
        one.core.return_error = ValueError("nobody thought of that")
    pq = one.deliver(0, 1)
    await eventually(lambda: clock.pending == [1.0])
    assert (listener.calls, pq.count, one.core.returned, one.core.stored) == ([[0]], 2, [(0, QUEUE, -1)], [])
    await clock.advance(1)
    await eventually(lambda: one.core.stored_offsets == [1, 2])
    assert listener.calls == [[0], [0], [1]]
    assert one.core.returned == [(0, QUEUE, -1)] * 2


async def test_without_auto_commit_what_was_sent_back_waits_for_a_commit(consumer):
    listener = answering(SUSPEND, SUCCESS, COMMIT, auto_commit=False)
    one = consumer(listener, max_reconsume_times=0)
    pq = one.deliver(0, 1, 2)
    await eventually(lambda: pq.count == 0)
    await eventually(lambda: one.core.stored == [(QUEUE, 3, False)])
    assert listener.calls == [[0], [1], [2]]


async def test_a_broker_makes_it_a_dead_letter(started, clock, a):
    a.plan(RequestCode.CONSUMER_SEND_MSG_BACK, ResponseCode.SUCCESS)
    core = await started(Answers(SUSPEND, SUCCESS), orderly=True, max_reconsume_times=0)
    await a.until_held()
    a.store("bad", "good")
    await eventually(lambda: core.offsets.read_memory(a.queue()) == 2)
    (command,) = a.requests(RequestCode.CONSUMER_SEND_MSG_BACK)
    assert (command.fields["delayLevel"], command.fields["offset"]) == ("-1", "1000")


# --- what else a round meets ------------------------------------------------------------------------------------------


class Noting(ConsumeHook):
    def __init__(self) -> None:
        self.notes: list[Any] = []

    def before(self, context: ConsumeHookContext) -> None:
        self.notes.append((context.queue, len(context.messages), context.success, context.status, context.return_type))

    after = before


@pytest.mark.parametrize(
    ("answer", "success", "status", "return_type"),
    [
        (SUCCESS, True, "SUCCESS", "SUCCESS"),
        (COMMIT, True, "COMMIT", "SUCCESS"),
        (ROLLBACK, False, "ROLLBACK", "FAILED"),
        (SUSPEND, False, "SUSPEND", "FAILED"),
        (None, False, "SUSPEND", "RETURNNULL"),
        (ValueError("no"), False, "SUSPEND", "EXCEPTION"),
    ],
)
async def test_hooks_see_every_call(consumer, clock, answer, success, status, return_type):
    started: list[float] = []
    listener = Answers(answer)
    hook = Noting()

    def listen(given: Any, context: Any) -> object:
        started.append(given[0].consume_started)
        return listener(given, context)

    one = consumer(listen, consume_hooks=[hook])
    one.deliver(0)
    await eventually(lambda: len(hook.notes) == 2)
    assert hook.notes == [(QUEUE, 1, None, "", ""), (QUEUE, 1, success, status, return_type)]
    assert started == [clock.monotonic()]


async def test_a_round_that_fails_unexpectedly_comes_again(consumer, clock, monkeypatch, caplog):
    one = consumer(Answers(SUCCESS))
    pq = one.won()
    with monkeypatch.context() as patch:
        patch.setattr(TopicNames, "shown_queue", lambda names, queue: 1 // 0)
        one.pull(pq, 0, 1)
        await eventually(lambda: clock.pending == [1.0])
    assert "ZeroDivisionError" in caplog.text
    assert (pq.count, pq.taken_offsets) == (2, [])
    await clock.advance(1)
    await eventually(lambda: one.core.stored_offsets == [1, 2])


async def test_a_refused_round_comes_again_after_5_s(consumer, clock, monkeypatch):
    listener = Answers(SUCCESS)
    one = consumer(listener)
    with monkeypatch.context() as patch:

        def no_more(thread: threading.Thread) -> None:
            raise RuntimeError("can't start new thread")

        patch.setattr(threading.Thread, "start", no_more)
        pq = one.deliver(0)
        assert clock.pending == [5.0]
    await clock.advance(5)
    await eventually(lambda: pq.count == 0)


async def test_a_stop_lets_the_listener_end_and_its_answer_count_and_begins_no_other(consumer, clock):
    listener = Answers(SUCCESS)
    listener.hold()
    one = consumer(listener)
    pq = one.deliver(0, 1)
    await eventually(lambda: listener.calls == [[0]])
    one.core.is_running = False
    assert await one.service.stop(0) is False
    assert one.core.stored == []
    stopping = asyncio.ensure_future(one.service.stop(60))
    listener.go.release(10)
    assert await stopping is True
    assert (listener.calls, one.core.stored_offsets, pq.count, clock.pending) == ([[0]], [1], 1, [])


async def test_an_ordered_pool_keeps_its_size_and_sends_nothing_away(consumer, clock):
    listener = Answers(SUCCESS)
    listener.hold()
    one = consumer(listener, consume_thread_min=2, consume_thread_max=9, adjust_thread_pool_threshold=1)
    one.deliver(0)
    await eventually(lambda: listener.calls == [[0]])
    await one.service.adjust(1_000_000)
    await clock.advance(10_000)
    await one.service.send_back_stale()
    assert (one.service.pool.size, one.core.returned) == (2, [])
    assert "1 queues being consumed" in repr(one.service)
    listener.go.release()
