"""The event loops that run `async` listeners: the application's own, or one that is made for them."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from rocketstream.consumer.workers import LoopWorkers
from tests.scripted import eventually


class Gate:
    """`async` work that waits until it is let go, from whichever thread."""

    def __init__(self) -> None:
        self.begun: list[Any] = []
        self.cancelled: list[Any] = []
        self.threads: set[threading.Thread] = set()
        self._open = threading.Event()
        self._waiting: list[tuple[asyncio.AbstractEventLoop, asyncio.Future[None]]] = []

    async def __call__(self, work: Any) -> None:
        self.threads.add(threading.current_thread())
        loop = asyncio.get_running_loop()
        future = loop.create_future()
        if not self._open.is_set():
            self._waiting.append((loop, future))
            self.begun.append(work)
            try:
                await future
            except asyncio.CancelledError:
                for _ in range(5):
                    await asyncio.sleep(0)  # cleaning up takes its time
                self.cancelled.append(work)
                raise
        else:
            self.begun.append(work)

    def open(self) -> None:
        self._open.set()
        for loop, future in self._waiting:
            loop.call_soon_threadsafe(lambda future=future: future.done() or future.set_result(None))


@pytest.fixture(params=["own loop", "application's loop"])
async def loops(request) -> AsyncIterator[Callable[..., LoopWorkers[Any]]]:
    made: list[LoopWorkers[Any]] = []

    def loops(run: Callable[[Any], Any], size: int = 20) -> LoopWorkers[Any]:
        loop = asyncio.get_running_loop() if request.param == "application's loop" else None
        made.append(LoopWorkers(run, size, "test-loop", loop))
        return made[-1]

    yield loops
    for workers in made:
        assert await workers.stop(60)


async def test_work_begins_in_order_so_many_at_a_time(loops):
    gate = Gate()
    workers = loops(gate, 3)
    workers.submit(range(5))
    workers.submit(range(5, 10))
    await eventually(lambda: len(gate.begun) == 3 and workers.backlog == 7)
    assert gate.begun == [0, 1, 2]
    assert repr(workers) == "<LoopWorkers 3 of 3 running, 7 waiting>"
    gate.open()
    await eventually(lambda: gate.begun == list(range(10)))


async def test_everything_runs_once(loops):
    done: list[int] = []

    async def run(piece: int) -> None:
        if piece % 7 == 0:
            await asyncio.sleep(0)
        done.append(piece)

    workers = loops(run)
    for first in range(0, 5000, 10):
        workers.submit(range(first, first + 10))
    await eventually(lambda: len(done) == 5000)
    assert sorted(done) == list(range(5000))


async def test_the_application_has_its_listeners_on_its_own_loop():
    gate = Gate()
    gate.open()
    workers: LoopWorkers[int] = LoopWorkers(gate, 3, "test-loop", asyncio.get_running_loop())
    workers.submit([1])
    await eventually(lambda: gate.begun == [1])
    assert gate.threads == {threading.current_thread()}
    assert await workers.stop(60)


async def test_without_one_they_have_a_loop_in_a_thread_that_ends_with_them():
    gate = Gate()
    gate.open()
    workers: LoopWorkers[int] = LoopWorkers(gate, 3, "test-loop")
    workers.submit([1])
    await eventually(lambda: gate.begun == [1])
    (thread,) = gate.threads
    assert (thread.name, thread.daemon) == ("test-loop", True)
    assert await workers.stop(60)
    await eventually(lambda: not thread.is_alive())


async def test_a_slow_piece_holds_back_no_other(loops):
    gate, done = Gate(), []

    async def run(piece: int) -> None:
        if piece < 2:
            await gate(piece)
        else:
            done.append(piece)

    workers = loops(run, 3)
    workers.submit(range(100))
    await eventually(lambda: done == list(range(2, 100)))
    gate.open()


@pytest.mark.parametrize("error", [ValueError("no"), SystemExit(1), asyncio.CancelledError()])
async def test_what_work_raises_ends_neither_the_loop_nor_other_work(loops, caplog, error):
    done: list[int] = []

    async def run(piece: int) -> None:
        if piece % 2:
            raise error
        done.append(piece)

    workers = loops(run, 2)
    with caplog.at_level(logging.CRITICAL + 1):
        workers.submit(range(10))
        await eventually(lambda: done == [0, 2, 4, 6, 8])
        workers.submit([10])
        await eventually(lambda: done[-1] == 10)


async def test_a_bigger_size_is_used_at_once_and_a_smaller_one_from_now_on(loops):
    gate = Gate()
    workers = loops(gate, 1)
    workers.submit(range(10))
    await eventually(lambda: gate.begun == [0])
    workers.resize(3)
    await eventually(lambda: gate.begun == [0, 1, 2])
    assert (workers.size, workers.backlog) == (3, 7)
    workers.resize(1)
    gate.open()
    await eventually(lambda: gate.begun == list(range(10)))
    assert workers.size == 1


async def test_a_smaller_size_lets_fewer_run():
    running: set[int] = set()
    most: list[int] = []

    async def run(piece: int) -> None:
        running.add(piece)
        most.append(len(running))
        await asyncio.sleep(0)
        running.discard(piece)

    workers: LoopWorkers[int] = LoopWorkers(run, 5, "test-loop", asyncio.get_running_loop())
    workers.resize(2)
    workers.submit(range(20))
    await eventually(lambda: len(most) == 20)
    assert max(most) == 2
    assert await workers.stop(60)


@pytest.mark.parametrize("own", [True, False])
async def test_a_stop_waits_for_what_runs_and_forgets_the_rest(own):
    gate = Gate()
    workers: LoopWorkers[int] = LoopWorkers(gate, 2, "test-loop", None if own else asyncio.get_running_loop())
    workers.submit(range(10))
    await eventually(lambda: len(gate.begun) == 2)
    stopping = asyncio.ensure_future(workers.stop(60))
    await eventually(lambda: workers.backlog == 0)
    assert not stopping.done()
    with pytest.raises(RuntimeError, match="stopped"):
        workers.submit([10])
    gate.open()
    assert await stopping is True
    assert gate.begun == [0, 1]
    assert gate.cancelled == []
    assert await workers.stop(0) is True


@pytest.mark.parametrize("own", [True, False])
async def test_what_does_not_end_in_time_is_cancelled_and_may_clean_up(own):
    gate = Gate()
    workers: LoopWorkers[int] = LoopWorkers(gate, 2, "test-loop", None if own else asyncio.get_running_loop())
    workers.submit(range(3))
    await eventually(lambda: len(gate.begun) == 2)
    assert await workers.stop(0) is False
    await eventually(lambda: sorted(gate.cancelled) == [0, 1])
    if own:
        (thread,) = gate.threads
        await eventually(lambda: not thread.is_alive())


def test_a_stop_after_the_applications_loop_has_ended():
    async def make() -> LoopWorkers[int]:
        return LoopWorkers(Gate(), 2, "test-loop", asyncio.get_running_loop())

    workers = asyncio.run(make())
    workers.resize(5)
    with pytest.raises(RuntimeError, match="closed"):
        workers.submit([1])
    assert asyncio.run(workers.stop(60)) is True
