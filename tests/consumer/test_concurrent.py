"""Concurrent consumption: how work goes out to listeners, and how what succeeded comes back."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from rocketstream.clock import ManualClock
from rocketstream.consumer.hooks import ConsumeHook, ConsumeHookContext
from rocketstream.consumer.process_queue import ProcessQueue
from rocketstream.consumer.results import ALL, ConsumeResult
from rocketstream.message import MessageQueue
from tests.consumer.peers import RETRY, TOPIC, Heard
from tests.consumer.stand_in import OTHER, QUEUE, Answers, ConcurrentConsumer
from tests.scripted import eventually

SUCCESS, LATER = ConsumeResult.SUCCESS, ConsumeResult.RECONSUME_LATER


@pytest.fixture
async def consumer(clock: ManualClock) -> AsyncIterator[Callable[..., ConcurrentConsumer]]:
    async with ConcurrentConsumer.maker(clock) as make:
        yield make


# --- CON-01, CON-02: pieces, threads, refusal -------------------------------------------------------------------------


@pytest.mark.behaviour("CON-01")
@pytest.mark.parametrize(
    ("batch", "pieces"),
    [
        (None, [[0], [1], [2], [3], [4]]),
        (2, [[0, 1], [2, 3], [4]]),
        (5, [[0, 1, 2, 3, 4]]),
        (32, [[0, 1, 2, 3, 4]]),
    ],
)
async def test_messages_go_out_in_pieces_of_the_batch_size(consumer, batch, pieces):
    listener = Answers(SUCCESS)
    settings = {} if batch is None else {"consume_message_batch_max_size": batch}
    one = consumer(listener, consume_thread_min=1, **settings)
    pq = one.deliver(0, 1, 2, 3, 4)
    await eventually(lambda: pq.count == 0)
    assert listener.calls == pieces


@pytest.mark.behaviour("CON-01")
@pytest.mark.parametrize(("settings", "threads"), [({}, 20), ({"consume_thread_min": 3, "consume_thread_max": 7}, 3)])
async def test_as_many_listeners_run_at_a_time_as_there_are_threads(consumer, settings, threads):
    listener = Answers(SUCCESS)
    listener.hold()
    one = consumer(listener, **settings)
    pq = one.deliver(*range(25))
    await eventually(lambda: len(listener.calls) == threads)
    assert (one.service.pool.size, one.service.pool.backlog) == (threads, 25 - threads)
    assert listener.offsets == list(range(threads))
    listener.go.release(25)
    await eventually(lambda: pq.count == 0)
    assert len(listener.calls) == 25


@pytest.mark.behaviour("CON-02")
async def test_a_refused_request_comes_again_after_5_s(consumer, clock, monkeypatch, caplog):
    listener = Answers(SUCCESS)
    one = consumer(listener)
    take, refused = one.service.pool.submit, []

    def refuse(work: Any) -> None:
        refused.append(clock.monotonic())
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(one.service.pool, "submit", refuse)
    pq = one.deliver(0, 1)
    lost = one.deliver(7, queue=OTHER)
    assert "2 consume requests were refused, again in 5 s: can't start new thread" in caplog.text
    await clock.advance(4.999)
    assert refused == [1000.0, 1000.0]
    lost.drop()
    await clock.advance(0.001)
    assert refused[2:] == [1005.0, 1005.0]
    monkeypatch.setattr(one.service.pool, "submit", take)
    await clock.advance(4.999)
    assert (pq.count, clock.pending[:1]) == (2, [pytest.approx(0.001)])
    await clock.advance(0.001)
    await eventually(lambda: pq.count == 0)
    assert listener.offsets == [0, 1]
    assert clock.pending == []


async def test_what_is_refused_at_the_end_does_not_come_again(consumer, clock):
    one = consumer(Answers(SUCCESS))
    await one.service.stop(60)
    one.deliver(0)
    one.core.is_running = False
    await clock.advance(5)
    assert clock.pending == []
    one.deliver(1)
    assert clock.pending == []


# --- CON-03: dropped --------------------------------------------------------------------------------------------------


@pytest.mark.behaviour("CON-03")
async def test_a_queue_lost_before_the_listener_is_called_and_one_lost_while_it_runs(consumer):
    for answer in (SUCCESS, LATER, ValueError("no"), None):
        listener = Answers(answer)
        listener.hold()
        one = consumer(listener, consume_thread_min=1)
        during = one.deliver(0)
        before = one.deliver(5, 6)
        await eventually(lambda: listener.calls == [[0]])  # noqa: B023
        before.drop()
        during.drop()
        after = one.deliver(9, queue=OTHER)
        listener.go.release(9)
        await eventually(lambda: after.count == 0)  # noqa: B023
        assert listener.calls == [[0], [9]]
        assert (during.count, before.count) == (1, 2)
        assert {queue for queue, _, _ in one.core.stored} == {OTHER}
        assert one.core.returned_offsets == ([] if answer is SUCCESS else [9])


@pytest.mark.behaviour("CON-03")
async def test_an_async_listener_is_not_called_for_a_lost_queue(consumer):
    listener = Answers(SUCCESS)

    async def listen(given: Any, context: Any) -> object:
        return listener(given, context)

    one = consumer(listen, own_loop=False)
    lost = one.deliver(0)
    lost.drop()
    kept = one.deliver(1)
    await eventually(lambda: kept.count == 0)
    assert (listener.calls, lost.count) == ([[1]], 1)


async def test_a_queue_lost_while_its_message_goes_back_is_left_alone(consumer, clock):
    one = consumer(Answers(LATER))
    one.core.before_return = asyncio.get_running_loop().create_future()
    pq = one.deliver(0)
    await eventually(lambda: one.core.returned_offsets == [0])
    before = list(one.core.stored)
    pq.drop()
    one.core.before_return.set_result(None)
    assert await one.service.stop(60)
    assert (pq.count, one.core.stored, clock.pending) == (1, before, [])


async def test_a_queue_can_be_given_away_at_any_time(consumer):
    one = consumer(Answers(SUCCESS))
    pq = ProcessQueue(QUEUE)
    one.service.queue_lost(pq)
    assert await one.service.listener_ended(pq, 0) is True


# --- CON-04: the topic of a retried message ---------------------------------------------------------------------------


@pytest.mark.behaviour("CON-04")
async def test_a_retried_message_shows_its_real_topic(started, name_server, a):
    name_server.set_route(RETRY, {"a": {0: a.address}}, queues=1)
    a.offsets["g", RETRY, 0] = 0
    heard = Heard()
    core = await started(heard)
    await a.until_held(topic=RETRY)
    a.store("again", topic=RETRY, properties={"RETRY_TOPIC": TOPIC})
    await heard.until(1)
    a.store("lost its name", topic=RETRY)
    await heard.until(2)
    assert [message.topic for message in heard.messages] == [TOPIC, RETRY]
    assert [context.queue for context in heard.contexts] == [MessageQueue(RETRY, "a", 0)] * 2
    await eventually(lambda: core.offsets.read_memory(MessageQueue(RETRY, "a", 0)) == 2)


# --- CON-05: hooks ----------------------------------------------------------------------------------------------------


class Noting(ConsumeHook):
    def __init__(self) -> None:
        self.notes: list[Any] = []

    def before(self, context: ConsumeHookContext) -> None:
        context.properties["noted"] = "yes"
        offsets = [message.queue_offset for message in context.messages]
        self.notes.append((context.group, context.queue, offsets, context.success, context.status, context.return_type))

    def after(self, context: ConsumeHookContext) -> None:
        assert context.properties == {"noted": "yes"}
        offsets = [message.queue_offset for message in context.messages]
        self.notes.append((context.group, context.queue, offsets, context.success, context.status, context.return_type))


class Broken(ConsumeHook):
    def before(self, context: ConsumeHookContext) -> None:
        raise ValueError("broken before")

    def after(self, context: ConsumeHookContext) -> None:
        raise SystemExit("broken after")


OUTCOMES = [
    (SUCCESS, True, "SUCCESS", "SUCCESS"),
    (LATER, False, "RECONSUME_LATER", "FAILED"),
    ("wrong", False, "RECONSUME_LATER", "FAILED"),
    (None, False, "RECONSUME_LATER", "RETURNNULL"),
    (ValueError("no"), False, "RECONSUME_LATER", "EXCEPTION"),
]


@pytest.mark.behaviour("CON-05")
@pytest.mark.parametrize("kind", ["threads", "own loop", "application's loop"])
@pytest.mark.parametrize(("answer", "success", "status", "return_type"), OUTCOMES)
async def test_hooks_see_every_call_before_and_after(consumer, clock, kind, answer, success, status, return_type):
    listener = Answers(lambda given, context: started.extend(m.consume_started for m in given) or SUCCESS, answer)
    started: list[float] = []

    async def listen(given: Any, context: Any) -> object:
        return listener(given, context)

    hook = Noting()
    one = consumer(
        listener if kind == "threads" else listen,
        own_loop=kind == "own loop",
        consume_hooks=[hook, Broken()],
        consume_message_batch_max_size=2,
        consume_thread_min=1,
    )
    one.deliver(3, 4)
    await eventually(lambda: len(hook.notes) == 2)
    one.deliver(5)
    await eventually(lambda: len(hook.notes) == 4)
    assert hook.notes[0] == ("g", QUEUE, [3, 4], None, "", "")
    assert hook.notes[1] == ("g", QUEUE, [3, 4], True, "SUCCESS", "SUCCESS")
    assert hook.notes[2] == ("g", QUEUE, [5], None, "", "")
    assert hook.notes[3] == ("g", QUEUE, [5], success, status, return_type)
    assert started == [clock.monotonic()] * 2
    assert await one.service.stop(60)
    assert one.core.returned_offsets == ([] if success else [5])


@pytest.mark.parametrize(
    ("seconds", "answer", "return_type"),
    [(900, SUCCESS, "TIME_OUT"), (900, LATER, "TIME_OUT"), (899.9, SUCCESS, "SUCCESS"), (900, None, "RETURNNULL")],
)
async def test_a_call_that_took_too_long_is_a_time_out_for_hooks(consumer, clock, seconds, answer, return_type):
    async def listen(given: Any, context: Any) -> object:
        await clock.advance(seconds)
        return answer

    hook = Noting()
    one = consumer(listen, own_loop=False, consume_hooks=[hook])
    pq = one.deliver(1)
    await eventually(lambda: pq.count == 0)
    assert hook.notes[-1][5] == return_type
    assert hook.notes[-1][3] is (answer is SUCCESS)


# --- CON-12: what is finished -----------------------------------------------------------------------------------------


@pytest.mark.behaviour("CON-12")
async def test_the_smallest_offset_left_is_stored_increase_only(consumer):
    gates = {offset: threading.Event() for offset in range(10, 14)}
    one = consumer(lambda given, context: gates[given[0].queue_offset].wait(60) and SUCCESS)
    pq = one.deliver(10, 11, 12, 13)
    for ended, left, stored in [(12, 3, 10), (10, 2, 11), (11, 1, 13), (13, 0, 14)]:
        gates[ended].set()
        await eventually(lambda: pq.count == left)  # noqa: B023
        assert one.core.stored[-1] == (QUEUE, stored, True)
    assert one.core.stored_offsets == [10, 11, 13, 14]
    assert one.core.stats.snapshot()["t"]["ok_messages"] == 4


@pytest.mark.behaviour("CON-12")
async def test_a_lost_queue_stores_nothing(consumer):
    """Lost between the end of its listener and the account of it."""
    listener = Answers(SUCCESS)
    one = consumer(listener)
    pq = one.deliver(10)
    while not one.service._ended:
        pass  # the loop is not given a turn
    pq.drop()
    await asyncio.sleep(0)
    assert (one.core.stored, pq.count) == ([], 1)


async def test_calls_that_end_together_are_accounted_for_together(consumer):
    wake_ups: list[Any] = []
    loop = asyncio.get_running_loop()

    class Counting:
        def call_soon_threadsafe(self, *work: Any) -> None:
            wake_ups.append(work)
            loop.call_soon_threadsafe(*work)

    one = consumer(Answers(SUCCESS))
    one.service._io_loop = Counting()
    pq = one.deliver(*range(100))
    other = one.deliver(*range(50), queue=OTHER)
    while len(one.service._ended) < 150:
        pass  # the loop is not given a turn
    assert "150 calls to account for" in repr(one.service)
    await asyncio.sleep(0)
    assert (pq.count, other.count) == (0, 0)
    assert one.core.stored == [(QUEUE, 100, True), (OTHER, 50, True)]
    assert 1 <= len(wake_ups) <= one.service.pool.size  # one, unless threads looked at the same moment


async def test_context_starts_with_everything_acknowledged(consumer):
    listener = Answers(SUCCESS)
    one = consumer(listener)
    pq = one.deliver(1)
    await eventually(lambda: pq.count == 0)
    (context,) = listener.contexts
    assert (context.queue, context.ack_index, context.delay_level_when_next_consume) == (QUEUE, ALL, 0)


# --- CON-14: the size of the pool -------------------------------------------------------------------------------------


@pytest.mark.behaviour("CON-14")
async def test_the_pool_grows_and_shrinks_by_one_between_its_bounds(consumer):
    one = consumer(Answers(SUCCESS), consume_thread_min=2, consume_thread_max=4, adjust_thread_pool_threshold=100)
    sizes = []
    for cached in (99, 100, 5000, 5000, 99, 80, 79, 0, 0):
        await one.service.adjust(cached)
        sizes.append(one.service.pool.size)
    assert sizes == [2, 3, 4, 4, 4, 4, 3, 2, 2]


@pytest.mark.behaviour("CON-14")
async def test_each_minute_the_pool_is_adjusted_to_what_is_cached(started, clock, a):
    listener = Answers(SUCCESS)
    listener.hold()
    core = await started(listener, consume_thread_min=1, consume_thread_max=3, adjust_thread_pool_threshold=5)
    await a.until_held()
    a.store(*"abcdefgh")
    await eventually(lambda: len(listener.calls) == 1)
    sizes = [core.consumption.pool.size]
    for _ in range(3):
        await clock.advance(60)
        sizes.append(core.consumption.pool.size)
    assert sizes == [1, 2, 3, 3]
    listener.go.release(100)
    await eventually(lambda: core.offsets.read_memory(a.queue()) == 8)
    for _ in range(3):
        await clock.advance(60)
        sizes.append(core.consumption.pool.size)
    assert sizes[4:] == [2, 1, 1]
