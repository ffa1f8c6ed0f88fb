"""The threads (or the event loop) that run listeners: they take work, run it, and decide nothing.

The rule of this file: handing over costs no lock and no wake-up per piece of work. Work lies in a deque; a worker that
has run one piece takes the next without waiting. Only a worker that finds nothing goes to sleep, and only one sleeper
is woken at a time: it wakes the next one if there is more to do. So a fast listener keeps one thread busy, and twenty
slow ones have twenty threads within a millisecond.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
from collections import deque
from collections.abc import Awaitable, Callable, Iterable
from queue import SimpleQueue
from typing import Any, Generic, Protocol, TypeVar

from rocketstream.remoting.io_thread import new_event_loop

log = logging.getLogger("rocketstream.consumer")

WorkT = TypeVar("WorkT")
TakenT = TypeVar("TakenT", contravariant=True)


class Pool(Protocol[TakenT]):
    """Whoever runs work off the I/O thread. All methods are called on the I/O thread."""

    @property
    def size(self) -> int:
        """How many pieces of work may run at a time."""

    @property
    def backlog(self) -> int:
        """How much work waits."""

    def submit(self, work: Iterable[TakenT]) -> None:
        """Take work; `RuntimeError` if nobody would run it (CON-02): then nothing was taken."""

    def resize(self, size: int) -> None:
        """Let more or fewer run at a time, from now on (CON-14)."""

    async def stop(self, timeout: float) -> bool:
        """Forget what has not begun, let what runs end; False if some of it still runs after `timeout` seconds."""


class ThreadWorkers(Generic[WorkT]):
    """Daemon threads that call `run(work)`. They are started as they are needed."""

    def __init__(self, run: Callable[[WorkT], None], size: int, name: str) -> None:
        self._run = run
        self._size = size
        self._name = name
        self._ready: deque[WorkT] = deque()
        self._sleepers: deque[None] = deque()
        self._alarm: SimpleQueue[None] = SimpleQueue()
        self._lock = threading.Lock()
        self._threads = 0
        self._started = 0
        self._stopping = False
        self._ringing = False
        self._all_gone: Callable[[], object] | None = None

    def __repr__(self) -> str:
        state = "stopping" if self._stopping else "running"
        return f"<ThreadWorkers {state}, {self._threads} of {self._size} threads, {len(self._ready)} waiting>"

    @property
    def size(self) -> int:
        """How many threads there may be."""
        return self._size

    @property
    def threads(self) -> int:
        """How many there are."""
        return self._threads

    @property
    def backlog(self) -> int:
        """How much work waits."""
        return len(self._ready)

    def submit(self, work: Iterable[WorkT]) -> None:
        """Take work, in its order."""
        if self._stopping:
            raise RuntimeError("the workers have been stopped")
        if not self._threads:
            self._start_thread()
        self._ready.extend(work)
        # Whoever was rung for and is not up yet will see this too, and wake the next if there is more than one piece.
        if not self._ringing:
            self._wake_one()

    def resize(self, size: int) -> None:
        """Threads above the new size leave when they have nothing to do; new ones come with the work."""
        self._size = size
        for _ in range(max(0, self._threads - size)):
            try:
                self._sleepers.pop()
            except IndexError:
                return  # the others look when their work is done
            self._alarm.put(None)

    async def stop(self, timeout: float) -> bool:
        """Forget what has not begun, let what runs end."""
        loop = asyncio.get_running_loop()
        gone = asyncio.Event()
        self._ready.clear()
        with self._lock:
            self._stopping = True
            self._all_gone = lambda: loop.call_soon_threadsafe(gone.set)
            remaining = self._threads
        for _ in range(remaining):
            self._alarm.put(None)
        if not remaining:
            return True
        try:
            await asyncio.wait_for(gone.wait(), timeout)
        except TimeoutError:
            return False
        return True

    def _wake_one(self) -> None:
        try:
            self._sleepers.pop()
        except IndexError:
            if self._threads < self._size:
                try:
                    self._start_thread()
                except RuntimeError as error:  # the system's limit: those that run will get to it
                    log.warning("no further consume thread could be started: %s", error)
        else:
            self._ringing = True  # before the put: the one who hears it clears it
            self._alarm.put(None)

    def _start_thread(self) -> None:
        with self._lock:
            if self._stopping or self._threads >= self._size:
                return
            self._threads += 1
            self._started += 1
            name = f"{self._name}-{self._started}"
        self._ringing = True
        try:
            threading.Thread(target=self._main, name=name, daemon=True).start()
        except RuntimeError:
            self._ringing = False
            with self._lock:
                self._threads -= 1
            raise

    def _main(self) -> None:
        ready, run = self._ready, self._run
        self._ringing = False
        if len(ready) > 1:
            self._wake_one()
        while True:
            try:
                work = ready.popleft()
            except IndexError:
                if not self._sleep():
                    return
                continue
            try:
                run(work)
            except BaseException:
                log.exception("a consume thread's work raised; it goes on with the next")

    def _sleep(self) -> bool:
        """Wait for work; False if this thread is to leave."""
        with self._lock:
            if self._stopping or self._threads > self._size:
                self._threads -= 1
                if self._stopping and not self._threads and self._all_gone is not None:
                    self._tell_all_gone(self._all_gone)
                return False
        self._sleepers.append(None)
        if self._ready:
            # Something came between the last look and the bed.
            try:
                self._sleepers.pop()
            except IndexError:
                pass  # whoever took our entry has rung for us, and relies on us to wake the next
            else:
                return True
        self._alarm.get()
        self._ringing = False
        if len(self._ready) > 1:
            self._wake_one()
        return True

    @staticmethod
    def _tell_all_gone(tell: Callable[[], object]) -> None:
        try:
            tell()
        except RuntimeError:  # nobody waits any more: the loop is closed
            log.debug("the last consume thread ended after its consumer")


class LoopWorkers(Generic[WorkT]):
    """An event loop that awaits `run(work)`, for `async def` listeners: the starter's own, or one made for it."""

    def __init__(
        self,
        run: Callable[[WorkT], Awaitable[None]],
        size: int,
        name: str,
        loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        self._run = run
        self._size = size
        self._name = name
        self._ready: deque[WorkT] = deque()
        self._running: set[asyncio.Task[None]] = set()
        self._stopping = False
        self._idle: Callable[[], object] | None = None
        self._own_loop = loop is None
        self._loop = loop or self._start_loop(name)

    def __repr__(self) -> str:
        return f"<LoopWorkers {len(self._running)} of {self._size} running, {len(self._ready)} waiting>"

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """Where the work runs."""
        return self._loop

    @property
    def size(self) -> int:
        """How many calls may run at a time."""
        return self._size

    @property
    def backlog(self) -> int:
        """How much work waits."""
        return len(self._ready)

    def submit(self, work: Iterable[WorkT]) -> None:
        """Take work, in its order."""
        if self._stopping:
            raise RuntimeError("the workers have been stopped")
        self._loop.call_soon_threadsafe(self._begin, list(work))

    def resize(self, size: int) -> None:
        """Let more or fewer run at a time."""
        self._size = size
        with contextlib.suppress(RuntimeError):  # the loop is closed: nothing waits any more
            self._loop.call_soon_threadsafe(self._fill)

    async def stop(self, timeout: float) -> bool:
        """Forget what has not begun, let what runs end; what does not end in time is cancelled."""
        if self._stopping:
            return True
        self._stopping = True
        here = asyncio.get_running_loop()
        idle = asyncio.Event()
        try:
            self._loop.call_soon_threadsafe(self._when_idle, lambda: here.call_soon_threadsafe(idle.set))
        except RuntimeError:  # the application's loop is closed: so is everything that ran on it
            return True
        ended = True
        try:
            await asyncio.wait_for(idle.wait(), timeout)
        except TimeoutError:
            ended = False
            with contextlib.suppress(RuntimeError):  # the application has closed its loop meanwhile
                self._loop.call_soon_threadsafe(self._cancel_all)
        if self._own_loop:
            self._loop.call_soon_threadsafe(self._loop.stop)
        return ended

    @staticmethod
    def _start_loop(name: str) -> asyncio.AbstractEventLoop:
        loop = new_event_loop()
        threading.Thread(target=_run_loop, args=(loop,), name=name, daemon=True).start()
        return loop

    def _begin(self, work: list[WorkT]) -> None:
        self._ready.extend(work)
        self._fill()

    def _fill(self) -> None:
        if self._stopping:
            self._ready.clear()
        while self._ready and len(self._running) < self._size:
            task = self._loop.create_task(self._one(self._ready.popleft()))
            self._running.add(task)
            task.add_done_callback(self._ended)

    async def _one(self, work: WorkT) -> None:
        try:
            await self._run(work)
        except (Exception, SystemExit):  # SystemExit would end the loop, and with it all the others
            log.exception("a listener's work raised; the others go on")

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._running.discard(task)
        self._fill()
        if not self._running and self._idle is not None:
            self._idle()

    def _when_idle(self, tell: Callable[[], object]) -> None:
        self._ready.clear()
        self._idle = tell
        if not self._running:
            tell()

    def _cancel_all(self) -> None:
        for task in self._running:
            task.cancel()


def _run_loop(loop: asyncio.AbstractEventLoop) -> None:
    asyncio.set_event_loop(loop)
    try:
        loop.run_forever()
        cancelled = asyncio.all_tasks(loop)  # those that did not end in time: they may clean up
        if cancelled:
            loop.run_until_complete(asyncio.wait(cancelled))
    finally:
        loop.close()
