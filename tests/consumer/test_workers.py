"""The threads that run listeners: everything runs once, nothing waits for something slow, no end is lost."""

from __future__ import annotations

import asyncio
import logging
import random
import sys
import threading
from collections import deque
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from rocketstream.consumer.workers import ThreadWorkers
from tests.scripted import eventually


class Gate:
    """Work that waits until it is let go, and tells that it has begun."""

    def __init__(self) -> None:
        self.begun: list[Any] = []
        self.open = threading.Event()

    def __call__(self, work: Any) -> None:
        self.begun.append(work)
        assert self.open.wait(60)


@pytest.fixture
async def threads() -> AsyncIterator[Callable[..., ThreadWorkers[Any]]]:
    made: list[ThreadWorkers[Any]] = []

    def threads(run: Callable[[Any], None], size: int = 20) -> ThreadWorkers[Any]:
        made.append(ThreadWorkers(run, size, "test-worker"))
        return made[-1]

    yield threads
    for workers in made:
        assert await workers.stop(60)


async def test_one_thread_runs_work_in_the_order_in_which_it_came(threads):
    done: list[int] = []
    workers = threads(done.append, 1)
    for first in range(0, 1000, 10):
        workers.submit(range(first, first + 10))
    await eventually(lambda: len(done) == 1000)
    assert done == list(range(1000))
    assert workers.threads == 1


async def test_work_begins_in_the_order_in_which_it_came(threads):
    gate = Gate()
    workers = threads(gate, 3)
    workers.submit(range(10))
    await eventually(lambda: len(gate.begun) == 3)
    assert set(gate.begun) == {0, 1, 2}
    assert workers.backlog == 7
    gate.open.set()
    await eventually(lambda: len(gate.begun) == 10)


async def test_a_hundred_thousand_pieces_on_twenty_threads_each_run_once(threads):
    """No wake-up is lost, whatever the threads do when: sleepers, newcomers and submits meet as they like."""
    done: deque[int] = deque()
    chance = random.Random(5)
    work_of = [chance.choice((0, 0, 0, 1, 5, 50)) for _ in range(997)]

    def run(piece: int) -> None:
        for _ in range(work_of[piece % 997]):
            pass
        done.append(piece)

    workers = threads(run)
    switching = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        submitted = 0
        while submitted < 100_000:
            size = min(chance.choice((1, 1, 2, 3, 32, 200)), 100_000 - submitted)
            workers.submit(range(submitted, submitted + size))
            submitted += size
            if chance.random() < 0.2:
                # As a consumer that has caught up: everything goes to sleep, then one piece comes.
                await eventually(lambda: len(done) == submitted)  # noqa: B023
        await eventually(lambda: len(done) == 100_000)
    finally:
        sys.setswitchinterval(switching)
    assert sorted(done) == list(range(100_000))
    assert workers.backlog == 0
    assert workers.threads <= 20


async def test_slow_pieces_hold_nobody_back_until_every_thread_has_one(threads):
    gate, done = Gate(), []
    workers = threads(lambda piece: gate(piece) if piece < 19 else done.append(piece), 20)
    workers.submit(range(19))
    workers.submit(range(19, 1000))
    await eventually(lambda: len(done) == 981)
    assert len(gate.begun) == 19
    gate.open.set()


async def test_as_many_threads_as_slow_pieces_and_no_more(threads):
    gate = Gate()
    workers = threads(gate, 20)
    workers.submit(range(25))
    await eventually(lambda: len(gate.begun) == 20)
    assert (workers.threads, workers.backlog, workers.size) == (20, 5, 20)
    assert repr(workers) == "<ThreadWorkers running, 20 of 20 threads, 5 waiting>"
    gate.open.set()
    await eventually(lambda: len(gate.begun) == 25)


async def test_work_that_comes_while_a_thread_lies_down_wakes_all_that_are_needed(threads):
    """Two slow pieces come at the very moment at which the only thread goes to sleep: both begin."""
    gate = Gate()
    workers = threads(lambda piece: None if piece == "first" else gate(piece), 20)

    class Bed(deque):
        def append(self, entry: None) -> None:
            super().append(entry)
            if not sent:
                sent.append(True)
                workers.submit(["slow", "slower"])

    sent: list[bool] = []
    workers._sleepers = Bed()
    workers._ready.append("first")
    workers._start_thread()
    await eventually(lambda: len(gate.begun) == 2)
    gate.open.set()


async def test_work_that_comes_just_before_a_thread_lies_down_is_seen(threads):
    """Whoever brings it finds nobody asleep and nobody to start: the thread has to look again before it sleeps."""
    done: list[str] = []
    workers = threads(done.append, 1)

    class Bed(deque):
        def append(self, entry: None) -> None:
            if not sent:
                sent.append(True)
                workers.submit(["just now"])
            super().append(entry)

    sent: list[bool] = []
    workers._sleepers = Bed()
    workers._ready.append("first")
    workers._start_thread()
    await eventually(lambda: done == ["first", "just now"])


@pytest.mark.parametrize("error", [ValueError("no"), SystemExit(1), KeyboardInterrupt(), GeneratorExit()])
async def test_what_work_raises_ends_no_thread(threads, caplog, error):
    done: list[int] = []

    def run(piece: int) -> None:
        if piece % 2:
            raise error
        done.append(piece)

    workers = threads(run, 1)
    with caplog.at_level(logging.CRITICAL + 1):
        workers.submit(range(10))
        await eventually(lambda: done == [0, 2, 4, 6, 8])
        workers.submit([10])
        await eventually(lambda: done[-1] == 10)
    assert workers.threads == 1


async def test_what_work_raises_is_logged(threads, caplog):
    workers = threads(lambda piece: 1 // piece, 1)
    workers.submit([0])
    await eventually(lambda: "ZeroDivisionError" in caplog.text)
    assert "a consume thread's work raised" in caplog.text


async def test_a_bigger_size_is_used_with_the_next_work(threads):
    gate = Gate()
    workers = threads(gate, 1)
    workers.submit(range(5))
    await eventually(lambda: gate.begun == [0])
    workers.resize(3)
    workers.submit([5])
    await eventually(lambda: len(gate.begun) == 3)
    assert (workers.threads, workers.size) == (3, 3)
    gate.open.set()
    await eventually(lambda: sorted(gate.begun) == [0, 1, 2, 3, 4, 5])


async def test_sleeping_threads_above_a_smaller_size_leave(threads):
    gate, names = Gate(), set()

    def run(piece: int) -> None:
        names.add(threading.current_thread().name)
        gate(piece)

    workers = threads(run, 5)
    workers.submit(range(5))
    await eventually(lambda: len(gate.begun) == 5)
    gate.open.set()
    await eventually(lambda: len(workers._sleepers) == 5)
    workers.resize(2)
    await eventually(lambda: workers.threads == 2)
    await eventually(lambda: sum(thread.name in names for thread in threading.enumerate()) == 2)
    workers.submit(range(5, 105))
    await eventually(lambda: len(gate.begun) == 105)
    assert workers.threads == 2


async def test_busy_threads_above_a_smaller_size_leave_when_their_work_is_done(threads):
    gate = Gate()
    workers = threads(gate, 5)
    workers.submit(range(5))
    await eventually(lambda: len(gate.begun) == 5)
    workers.resize(1)
    assert workers.threads == 5
    gate.open.set()
    await eventually(lambda: workers.threads == 1)
    workers.submit([5])
    await eventually(lambda: len(gate.begun) == 6)


async def test_a_stop_waits_for_what_runs_and_forgets_the_rest():
    gate, ended = Gate(), []

    def run(piece: int) -> None:
        gate(piece)
        ended.append(piece)

    workers: ThreadWorkers[int] = ThreadWorkers(run, 2, "test-worker")
    workers.submit(range(10))
    await eventually(lambda: len(gate.begun) == 2)
    stopping = asyncio.ensure_future(workers.stop(60))
    await asyncio.sleep(0)
    assert workers.backlog == 0
    assert not stopping.done()
    assert "stopping" in repr(workers)
    gate.open.set()
    assert await stopping is True
    assert sorted(ended) == [0, 1]
    assert workers.threads == 0


async def test_a_stop_with_idle_threads_or_none():
    workers: ThreadWorkers[int] = ThreadWorkers(lambda piece: None, 3, "test-worker")
    assert await workers.stop(0) is True
    done: list[int] = []
    workers = ThreadWorkers(done.append, 3, "test-worker")
    workers.submit(range(100))
    await eventually(lambda: len(done) == 100)
    assert await workers.stop(60) is True
    assert workers.threads == 0
    assert await workers.stop(0) is True


async def test_a_stop_says_that_something_still_runs_and_that_ends_later():
    gate = Gate()
    workers: ThreadWorkers[int] = ThreadWorkers(gate, 2, "test-worker")
    workers.submit([1])
    await eventually(lambda: gate.begun == [1])
    assert await workers.stop(0) is False
    gate.open.set()
    await eventually(lambda: workers.threads == 0)


def test_a_thread_that_ends_after_the_loop_is_closed_ends_quietly(caplog):
    gate = Gate()

    async def main() -> ThreadWorkers[int]:
        workers: ThreadWorkers[int] = ThreadWorkers(gate, 2, "late-worker")
        workers.submit([1])
        await eventually(lambda: gate.begun == [1])
        assert await workers.stop(0) is False
        return workers

    asyncio.run(main())
    late = [thread for thread in threading.enumerate() if thread.name.startswith("late-worker")]
    gate.open.set()
    for thread in late:
        thread.join(60)
    assert caplog.records == []


async def test_stopped_workers_refuse_work():
    workers: ThreadWorkers[int] = ThreadWorkers(lambda piece: None, 2, "test-worker")
    await workers.stop(0)
    with pytest.raises(RuntimeError, match="stopped"):
        workers.submit([1])


async def test_when_no_thread_can_be_started_work_is_refused_and_not_taken(threads, monkeypatch):
    done: list[int] = []
    workers = threads(done.append, 2)

    def no_more(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", no_more)
        with pytest.raises(RuntimeError, match="can't start new thread"):
            workers.submit([1])
        assert (workers.threads, workers.backlog) == (0, 0)
    workers.submit([2])
    await eventually(lambda: done == [2])


async def test_when_no_further_thread_can_be_started_the_others_do_the_work(threads, monkeypatch, caplog):
    gate = Gate()
    workers = threads(gate, 1)
    workers.submit([0])
    await eventually(lambda: gate.begun == [0])
    workers.resize(2)

    def no_more(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", no_more)
        workers.submit([1, 2])
    assert "no further consume thread could be started: can't start new thread" in caplog.text
    assert (workers.threads, gate.begun) == (1, [0])
    gate.open.set()
    await eventually(lambda: gate.begun == [0, 1, 2])
