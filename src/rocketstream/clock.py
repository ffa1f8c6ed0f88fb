"""The one place where time comes from.

Nothing outside this file calls `time.*`, `asyncio.sleep` or `datetime.now`: whoever needs the time or a timer is given
a `Clock`. `SystemClock` is the real one. `ManualClock` stands still until a test moves it, and moving it runs whatever
is due, in order; so no test has to wait for time to pass.

`call_later` belongs to the thread that runs the event loop, like everything else that is owned by the I/O thread.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
import time
from collections.abc import Callable
from typing import Any, Protocol


class Timer(Protocol):
    """A scheduled call that can still be taken back."""

    def cancel(self) -> None:
        """Take the call back; harmless when it has already run."""


class Clock(Protocol):
    """What the client may ask of time."""

    def monotonic(self) -> float:
        """Seconds that never go back: for time-outs and intervals."""

    def wall(self) -> float:
        """Seconds since the epoch: for what people and brokers read."""

    def wall_ms(self) -> int:
        """Whole milliseconds since the epoch, as RocketMQ counts them: rounded down, so never in the future."""

    def call_later(self, delay: float, callback: Callable[..., Any], *args: Any) -> Timer:
        """Run `callback(*args)` on the running event loop after `delay` seconds."""

    async def sleep(self, delay: float) -> None:
        """Let `delay` seconds pass."""


class SystemClock:
    """The time of this machine."""

    # The function itself, not a method around it: workers ask twice per message.
    monotonic = staticmethod(time.monotonic)

    def wall(self) -> float:
        """Seconds since the epoch."""
        return time.time()

    def wall_ms(self) -> int:
        """Whole milliseconds since the epoch."""
        return time.time_ns() // 1_000_000

    def call_later(self, delay: float, callback: Callable[..., Any], *args: Any) -> Timer:
        """Schedule on the running event loop."""
        return asyncio.get_running_loop().call_later(delay, callback, *args)

    async def sleep(self, delay: float) -> None:
        """Suspend the calling task."""
        await asyncio.sleep(delay)


class _ManualTimer:
    __slots__ = ("args", "callback", "cancelled", "due")

    def __init__(self, due: float, callback: Callable[..., Any], args: tuple[Any, ...]) -> None:
        self.due = due
        self.callback = callback
        self.args = args
        self.cancelled = False

    def cancel(self) -> None:
        self.cancelled = True


class ManualClock:
    """Time that moves only when `advance` is called, from the loop that owns the timers."""

    # How often other tasks get a turn between two timers. A timer usually starts a task that starts another; a handful
    # of turns lets such a chain come to rest. Real sockets need more: wait for the effect instead.
    SETTLE_TURNS = 10

    def __init__(self, start: float = 1000.0, wall: float = 1_700_000_000.0) -> None:
        self._now = start
        self._wall_offset = wall - start
        self._order = itertools.count()
        self._timers: list[tuple[float, int, _ManualTimer]] = []

    def monotonic(self) -> float:
        """The time it was moved to."""
        return self._now

    def wall(self) -> float:
        """The wall time that belongs to it."""
        return self._now + self._wall_offset

    def wall_ms(self) -> int:
        """That in milliseconds; rounded, for a sum of floats is not exact."""
        return round(self.wall() * 1000)

    def call_later(self, delay: float, callback: Callable[..., Any], *args: Any) -> Timer:
        """Schedule for when the clock is moved that far."""
        timer = _ManualTimer(self._now + max(delay, 0.0), callback, args)
        heapq.heappush(self._timers, (timer.due, next(self._order), timer))
        return timer

    async def sleep(self, delay: float) -> None:
        """Suspend the calling task until the clock was moved that far."""
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def wake() -> None:
            if not waiter.done():
                waiter.set_result(None)

        timer = self.call_later(delay, wake)
        try:
            await waiter
        finally:
            timer.cancel()

    @property
    def pending(self) -> list[float]:
        """Seconds from now until each timer that is still to run, soonest first."""
        return [due - self._now for due, _, timer in sorted(self._timers, key=lambda t: t[:2]) if not timer.cancelled]

    async def advance(self, seconds: float) -> None:
        """Move time forward, running what falls due on the way in the order in which it is due."""
        end = self._now + seconds
        await self.settle()
        while self._timers and self._timers[0][0] <= end:
            due, _, timer = heapq.heappop(self._timers)
            if timer.cancelled:
                continue
            self._now = max(self._now, due)
            timer.callback(*timer.args)
            await self.settle()
        self._now = end
        await self.settle()

    async def settle(self) -> None:
        """Give the tasks that are ready a chance to run, without moving time."""
        for _ in range(self.SETTLE_TURNS):
            await asyncio.sleep(0)
