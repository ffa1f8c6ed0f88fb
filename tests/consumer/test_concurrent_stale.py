"""Messages that a listener does not finish: they do not hold up the offset for ever (PQ-08)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from rocketstream.clock import ManualClock
from rocketstream.consumer.results import ConsumeResult
from tests.consumer.stand_in import OTHER, QUEUE, Answers, ConcurrentConsumer
from tests.scripted import eventually

SUCCESS = ConsumeResult.SUCCESS


class Hanging:
    """An `async` listener, each call of which ends when the test says so."""

    def __init__(self) -> None:
        self.running: dict[int, asyncio.Future[object]] = {}

    async def __call__(self, messages: Any, context: Any) -> object:
        end = self.running[messages[0].queue_offset] = asyncio.get_running_loop().create_future()
        return await end

    async def begun(self, count: int) -> None:
        await eventually(lambda: len(self.running) == count)

    def end(self, *offsets: int, answer: object = SUCCESS) -> None:
        for offset in offsets or list(self.running):
            if not self.running[offset].done():
                self.running[offset].set_result(answer)


@pytest.fixture
async def consumer(clock: ManualClock) -> AsyncIterator[Callable[..., ConcurrentConsumer]]:
    async with ConcurrentConsumer.maker(clock) as make:
        yield make


@pytest.mark.behaviour("PQ-08")
async def test_what_hangs_for_15_minutes_is_sent_back_with_level_3_at_most_16_per_pass(consumer, clock):
    listener = Hanging()
    one = consumer(listener, own_loop=False, consume_thread_min=20)
    pq = one.deliver(*range(100, 120))
    await listener.begun(20)
    await clock.advance(900)
    await one.service.send_back_stale()
    assert one.core.returned == []
    await clock.advance(0.001)
    await one.service.send_back_stale()
    assert one.core.returned == [(offset, QUEUE, 3) for offset in range(100, 116)]
    assert (pq.count, pq.first_offset, one.core.stored[-1]) == (4, 116, (QUEUE, 116, True))
    await one.service.send_back_stale()
    assert one.core.returned_offsets == list(range(100, 120))
    assert (pq.count, one.core.stored[-1]) == (0, (QUEUE, 120, True))
    listener.end()


@pytest.mark.behaviour("PQ-08")
async def test_what_is_finished_meanwhile_is_not_sent_back(consumer, clock):
    """Before the pass; and during it, while a message before it is on its way back."""
    listener = Hanging()
    one = consumer(listener, own_loop=False)
    pq = one.deliver(0, 1, 2, 3)
    await listener.begun(4)
    await clock.advance(901)
    listener.end(1)
    await eventually(lambda: pq.count == 3)
    one.core.before_return = asyncio.get_running_loop().create_future()
    passing = asyncio.ensure_future(one.service.send_back_stale())
    await eventually(lambda: one.core.returned_offsets == [0])
    listener.end(2)
    await eventually(lambda: pq.count == 2)
    one.core.before_return.set_result(None)
    await passing
    assert one.core.returned_offsets == [0, 3]
    assert pq.count == 0
    listener.end()


@pytest.mark.behaviour("PQ-08")
async def test_it_is_looked_for_each_15_minutes(started, clock, a):
    listener = Answers(SUCCESS)
    listener.hold()
    core = await started(listener)
    await a.until_held()
    a.store("slow")
    await eventually(lambda: listener.calls == [[0]])
    (task,) = [task for task in core._periodic if task.name == "send stale messages back"]
    assert (task.period, task.runs) == (900.0, 0)
    await clock.advance(899)
    assert task.runs == 0
    await clock.advance(1)
    assert (task.runs, a.sent_back) == (1, [])
    await clock.advance(900)
    await eventually(lambda: len(a.sent_back) == 1)
    assert task.runs == 2
    assert (a.sent_back[0].fields["delayLevel"], a.sent_back[0].fields["offset"]) == ("3", "1000")
    await eventually(lambda: core.offsets.read_memory(a.queue()) == 1)
    listener.go.release()


async def test_what_only_waits_for_a_thread_is_not_stale(consumer, clock):
    listener = Hanging()
    one = consumer(listener, own_loop=False, consume_thread_min=1)
    one.deliver(0, 1)
    await listener.begun(1)
    await clock.advance(901)
    await one.service.send_back_stale()
    assert one.core.returned_offsets == [0]
    listener.end()
    await listener.begun(2)
    listener.end()


async def test_what_nobody_takes_back_stays_for_the_next_pass(consumer, clock):
    listener = Hanging()
    one = consumer(listener, own_loop=False)
    pq, lost = one.deliver(0), one.deliver(5, queue=OTHER)
    await listener.begun(2)
    await clock.advance(901)
    lost.drop()
    one.core.cannot_return = lambda message: True
    await one.service.send_back_stale()
    assert (pq.count, one.core.returned_offsets, one.core.stored) == (1, [0], [])
    one.core.cannot_return = lambda message: False
    await one.service.send_back_stale()
    assert (pq.count, one.core.returned_offsets, one.core.stored) == (0, [0, 0], [(QUEUE, 1, True)])
    listener.end()


async def test_the_late_answer_of_a_stale_message_changes_nothing(consumer, clock):
    listener = Hanging()
    one = consumer(listener, own_loop=False)
    pq = one.deliver(0, 1)
    await listener.begun(2)
    await clock.advance(901)
    listener.end(1)
    await eventually(lambda: pq.count == 1)
    await one.service.send_back_stale()
    assert one.core.stored_offsets[-1] == 2
    listener.end(0)
    assert await one.service.stop(60)
    assert (pq.count, pq.size, one.core.stored_offsets[-1]) == (0, 0, 2)


@pytest.mark.behaviour("PQ-08")
async def test_what_was_sent_back_already_is_not_sent_back_again_when_it_fails_at_last(consumer, clock):
    listener = Hanging()
    one = consumer(listener, own_loop=False)
    one.deliver(7)
    await listener.begun(1)
    await clock.advance(900.001)
    await one.service.send_back_stale()
    listener.end(7, answer=ConsumeResult.RECONSUME_LATER)
    await eventually(lambda: not one.service.pool._running)
    await clock.settle()
    one.service.settle()
    await clock.settle()
    assert one.core.returned == [(7, QUEUE, 3)]
