"""Orderly consumption: the three locks, and how a round begins and ends."""

from __future__ import annotations

import asyncio
import random
import sys
import threading
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from rocketstream.clock import ManualClock
from rocketstream.consumer.process_queue import ProcessQueue
from rocketstream.consumer.results import OrderlyResult
from rocketstream.message import MessageQueue
from rocketstream.wire.codes import MessageModel, RequestCode
from tests.consumer.peers import TOPIC, request_of
from tests.consumer.pull_answers import illegal
from tests.consumer.stand_in import OTHER, QUEUE, Answers, OrderlyConsumer
from tests.scripted import eventually

SUCCESS, SUSPEND = OrderlyResult.SUCCESS, OrderlyResult.SUSPEND


@pytest.fixture
async def consumer(clock: ManualClock) -> AsyncIterator[Callable[..., OrderlyConsumer]]:
    async with OrderlyConsumer.maker(clock) as make:
        yield make


def held_listener() -> Answers:
    listener = Answers(SUCCESS)
    listener.hold()
    return listener


# --- ORD-02: one thread at a time -------------------------------------------------------------------------------------


@pytest.mark.behaviour("ORD-02")
async def test_a_regained_queue_waits_for_the_listener_of_its_earlier_assignment(consumer, clock):
    listener = held_listener()
    one = consumer(listener)
    old = one.deliver(0, 1)
    await eventually(lambda: listener.calls == [[0]])
    old.drop()
    new = one.deliver(0, 1)
    other = one.deliver(7, queue=OTHER)
    await eventually(lambda: listener.calls == [[0], [7]])
    for _ in range(3):
        await eventually(lambda: clock.pending == [pytest.approx(0.1)])
        await clock.advance(0.1)
    await eventually(lambda: clock.pending == [pytest.approx(0.1)])
    assert listener.calls == [[0], [7]]
    listener.go.release(10)
    await eventually(lambda: other.count == 0 and QUEUE not in one.service._held)
    await clock.advance(0.1)
    await eventually(lambda: new.count == 0)
    assert listener.calls == [[0], [7], [0], [1]]
    await eventually(lambda: one.core.stored == [(OTHER, 8, False), (QUEUE, 1, False), (QUEUE, 2, False)])
    assert old.count == 1  # its second message was never begun


@pytest.mark.behaviour("ORD-02")
async def test_a_round_that_begins_before_the_last_is_out_of_the_door(consumer, clock):
    """A round finds nothing more and gives the process queue back; at that moment a pull begins the next round."""
    listener = Answers(SUCCESS)
    one = consumer(listener)

    class Racing(ProcessQueue):
        def take(self, n: int, now: float) -> list[Any]:
            taken = super().take(n, now)
            if not taken and not raced:
                raced.append(True)
                listener.hold()
                one.pull(self, 5)
                while not clock.pending and [5] not in listener.calls:
                    pass
            return taken

    raced: list[bool] = []
    pq = Racing(QUEUE, now=clock.monotonic())
    pq.set_locked(clock.monotonic())
    one.pull(pq, 4)
    await eventually(lambda: raced != [] and QUEUE not in one.service._held)
    await clock.advance(0.01)
    await eventually(lambda: listener.calls == [[4], [5]])
    pq.drop()
    again = one.deliver(5)
    await eventually(lambda: clock.pending == [pytest.approx(0.1)])
    assert listener.calls == [[4], [5]]
    listener.go.release(10)
    await eventually(lambda: QUEUE not in one.service._held)
    await clock.advance(0.1)
    await eventually(lambda: again.count == 0)


@pytest.mark.behaviour("ORD-02")
async def test_listeners_of_a_queue_never_overlap_however_often_it_is_lost_and_regained(consumer, clock):
    running: dict[MessageQueue, list[int]] = {}
    overlaps: list[Any] = []
    calls: list[Any] = []

    def listen(given: Any, context: Any) -> OrderlyResult:
        mine = threading.get_ident()
        here = running.setdefault(context.queue, [])
        here.append(mine)
        for _ in range(given[0].queue_offset % 50):
            if here != [mine]:
                overlaps.append(context.queue)
        calls.append(context.queue)
        here.remove(mine)
        return SUCCESS

    one = consumer(listen)
    chance = random.Random(7)
    queues = [MessageQueue("t", "a", n) for n in range(4)]
    owned = {queue: one.won(queue) for queue in queues}
    offsets = dict.fromkeys(queues, 0)
    switching = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        rounds = 0
        while rounds < 1500 or len(calls) <= 1000:  # on a busy machine most of a queue is lost before it is begun
            rounds += 1
            queue = chance.choice(queues)
            if chance.random() < 0.3:
                owned[queue].drop()
                owned[queue] = one.won(queue)
            offsets[queue] += 3
            one.pull(owned[queue], *range(offsets[queue] - 3, offsets[queue]))
            if chance.random() < 0.3:
                await clock.advance(0.1)
                for pq in owned.values():
                    pq.set_locked(clock.monotonic())
        for _ in range(100):
            await clock.advance(0.1)
            if not any(pq.count for pq in owned.values()):
                break
            await asyncio.sleep(0.005)
    finally:
        sys.setswitchinterval(switching)
    assert overlaps == []
    assert [pq.count for pq in owned.values()] == [0] * 4
    await eventually(lambda: one.service._held == {})


# --- ORD-03: while the listener runs ----------------------------------------------------------------------------------


@pytest.mark.behaviour("ORD-03")
@pytest.mark.parametrize("kind", ["threads", "own loop"])
async def test_whoever_gives_a_queue_away_waits_for_its_listener_up_to_a_limit(consumer, clock, kind):
    listener = held_listener()

    async def listen(given: Any, context: Any) -> object:
        return await asyncio.to_thread(listener, given, context)

    one = consumer(listener if kind == "threads" else listen)
    idle = one.won(OTHER)
    idle.drop()
    assert await one.service.listener_ended(idle, 1.0) is True
    pq = one.deliver(0, 1)
    await eventually(lambda: listener.calls == [[0]])
    pq.drop()
    waiting = asyncio.ensure_future(one.service.listener_ended(pq, 1.0))
    await clock.advance(0.999)
    assert not waiting.done()
    await clock.advance(0.001)
    assert await waiting is False
    waiting = asyncio.ensure_future(one.service.listener_ended(pq, 1.0))
    await clock.advance(0.5)
    assert not waiting.done()
    listener.go.release()
    assert await waiting is True
    assert await one.service.listener_ended(pq, 1.0) is True
    await clock.advance(1)
    assert (listener.calls, clock.pending) == ([[0]], [])


@pytest.mark.behaviour("ORD-03")
async def test_rebalance_unlocks_a_lost_queue_only_when_its_listener_has_ended(started, name_server, clock, a, caplog):
    name_server.set_route(TOPIC, {"a": {0: a.address}}, queues=2)
    listener = held_listener()
    core = await started(listener, orderly=True)
    await a.until_held(1)
    a.store("slow", queue_id=1)
    await eventually(lambda: listener.calls == [[0]])
    a.other_members.append("~another")  # sorts after us: it gets the second queue
    for _ in range(2):
        losing = asyncio.ensure_future(core.rebalance())
        await eventually(lambda: request_of(core, a.queue(1)).process_queue.dropped and 1.0 in map(soon, clock.pending))
        await clock.advance(0.999)
        assert not losing.done()
        await clock.advance(0.001)
        assert await losing is False
        assert a.unlock_requests == []
        assert a.locks[a.queue(1)] == core.client_id
    assert "a listener still runs on it" in caplog.text
    losing = asyncio.ensure_future(core.rebalance())
    await eventually(lambda: 1.0 in map(soon, clock.pending))
    listener.go.release()
    assert await losing is True
    assert [set(request.mq_set) for request in a.unlock_requests] == [{a.queue(1)}]
    assert core.rebalancer.assigned == (a.queue(0),)


def soon(seconds: float) -> float:
    return round(seconds, 6)


@pytest.mark.behaviour("ORD-03")
async def test_an_offset_is_corrected_only_when_the_listener_has_ended(started, clock, a):
    listener = held_listener()
    core = await started(listener, orderly=True)
    await a.until_held()
    a.store("slow")
    await eventually(lambda: listener.calls == [[0]])
    await a.until_held()
    pq = request_of(core, a.queue()).process_queue
    a.answer(illegal(5, min_offset=5, max_offset=9))
    await eventually(lambda: pq.dropped)
    await clock.advance(10)
    await eventually(lambda: a.offsets.get(("g", TOPIC, 0)) == 5)
    for _ in range(5):
        await clock.advance(1)
    assert (a.unlock_requests, a.pulled_offsets()[-1]) == ([], 1)
    listener.go.release(10)

    async def time_passes() -> None:
        while a.pulled_offsets()[-1] != 5:
            await clock.advance(1)
            await asyncio.sleep(0.001)

    await asyncio.wait_for(time_passes(), 60)
    assert [set(request.mq_set) for request in a.unlock_requests] == [{a.queue()}]
    assert request_of(core, a.queue()).process_queue is not pq


# --- ORD-04: one request per queue ------------------------------------------------------------------------------------


@pytest.mark.behaviour("ORD-04")
async def test_a_pull_that_adds_to_a_queue_being_consumed_submits_nothing(consumer, clock, monkeypatch):
    listener = held_listener()
    listener.answers = [SUCCESS, SUSPEND, SUCCESS]
    one = consumer(listener)
    submitted: list[Any] = []
    submit = one.service.pool.submit
    monkeypatch.setattr(one.service.pool, "submit", lambda work: submitted.extend(work) or submit(work))
    pq = one.won()
    assert one.pull(pq, 0) is True
    await eventually(lambda: listener.calls == [[0]])
    assert one.pull(pq, 1) is False
    assert one.pull(pq, 2, 3) is False
    listener.go.release(2)
    await eventually(lambda: clock.pending == [1.0])  # suspended: still in flight
    assert one.pull(pq, 4) is False
    assert submitted == [pq]
    listener.go.release(10)
    await clock.advance(1)
    await eventually(lambda: pq.count == 0 and not pq.consuming)
    assert listener.calls == [[0], [1], [1], [2], [3], [4]]
    assert submitted == [pq, pq]
    assert one.pull(pq, 5) is True
    await eventually(lambda: pq.count == 0)


# --- ORD-05: the end of a round ---------------------------------------------------------------------------------------


@pytest.mark.behaviour("ORD-05")
async def test_a_round_ends_when_the_queue_is_dropped(consumer, clock):
    listener = held_listener()
    one = consumer(listener)
    pq = one.deliver(0, 1, 2)
    await eventually(lambda: listener.calls == [[0]])
    pq.drop()
    listener.go.release(10)
    await eventually(lambda: QUEUE not in one.service._held)
    assert await one.service.stop(60)
    assert (listener.calls, clock.pending, one.core.stored) == ([[0]], [], [])


@pytest.mark.behaviour("ORD-05")
@pytest.mark.parametrize("loss", ["unlocked", "expired"])
async def test_a_round_ends_without_the_lock_and_asks_for_it_in_10_ms(consumer, clock, loss):
    listener = held_listener()
    one = consumer(listener)
    pq = one.deliver(0, 1)
    await eventually(lambda: listener.calls == [[0]])
    if loss == "unlocked":
        pq.set_unlocked()
    else:
        await clock.advance(30.001)
    listener.go.release(10)
    await eventually(lambda: clock.pending == [pytest.approx(0.010)])
    assert listener.calls == [[0]]
    assert one.core.stored_offsets == [1]  # what was done is done
    now = clock.monotonic()
    await clock.advance(0.009)
    assert one.core.locked == []
    await clock.advance(0.001)
    assert one.core.locked == [(pytest.approx(now + 0.010), QUEUE)]
    await clock.advance(0.010)
    await eventually(lambda: pq.count == 0)


@pytest.mark.behaviour("ORD-05")
@pytest.mark.parametrize(("seconds", "goes_on"), [(60.0, True), (60.001, False)])
async def test_after_60_s_it_is_the_turn_of_other_queues(consumer, clock, seconds, goes_on):
    listener = held_listener()
    one = consumer(listener, consume_thread_min=1)
    pq = one.deliver(0, 1)
    other = one.deliver(7, queue=OTHER)
    await eventually(lambda: listener.calls == [[0]])
    await clock.advance(seconds)
    for each in (pq, other):
        each.set_locked(clock.monotonic())
    listener.go.release()
    await eventually(lambda: len(listener.calls) == 2)
    assert listener.calls[1] == ([1] if goes_on else [7])
    if not goes_on:
        await eventually(lambda: clock.pending == [pytest.approx(0.010)])
    listener.go.release(10)
    await clock.advance(0.010)
    await eventually(lambda: pq.count == other.count == 0)


# --- ORD-06, ORD-07, ORD-13: the broker's lock ------------------------------------------------------------------------


@pytest.mark.behaviour("ORD-06", "ORD-07")
@pytest.mark.parametrize("loss", ["unlocked", "expired"])
async def test_without_the_lock_a_round_does_not_begin(consumer, clock, loss):
    """The lock is asked for in 100 ms; refused: consume in 3 s; granted: in 10 ms."""
    listener = Answers(SUCCESS)
    one = consumer(listener)
    pq = one.won(locked=loss == "expired")
    if loss == "expired":
        await clock.advance(30.001)
    one.core.lock_grants = [False, True]
    one.pull(pq, 0)
    await eventually(lambda: clock.pending == [pytest.approx(0.100)])
    await clock.advance(0.099)
    assert one.core.locked == []
    await clock.advance(0.001)
    assert len(one.core.locked) == 1
    assert clock.pending == [pytest.approx(3.0)]
    await clock.advance(3.0)  # a round begins, and finds no lock again
    await eventually(lambda: clock.pending == [pytest.approx(0.100)])
    await clock.advance(0.100)
    assert len(one.core.locked) == 2
    assert clock.pending == [pytest.approx(0.010)]
    assert (pq.locked, pq.locked_at) == (True, clock.monotonic())
    assert listener.calls == []
    await clock.advance(0.010)
    await eventually(lambda: pq.count == 0)
    assert listener.calls == [[0]]


@pytest.mark.behaviour("ORD-13")
async def test_broadcasting_needs_no_locks(started, clock, a, tmp_path):
    listener = Answers(SUCCESS)
    core = await started(
        listener, orderly=True, model=MessageModel.BROADCASTING, local_offset_dir=tmp_path, consume_thread_min=3
    )
    await a.until_held()
    a.store(*"abc")
    await eventually(lambda: core.offsets.read_memory(a.queue()) == 3)
    await clock.advance(61)
    a.store("d")
    await eventually(lambda: core.offsets.read_memory(a.queue()) == 4)
    assert listener.calls == [[0], [1], [2], [3]]
    assert not request_of(core, a.queue()).process_queue.locked
    await core.shutdown()
    assert a.requests(RequestCode.LOCK_BATCH_MQ) == a.requests(RequestCode.UNLOCK_BATCH_MQ) == []
