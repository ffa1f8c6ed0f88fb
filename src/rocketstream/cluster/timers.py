"""Periodic tasks: one scheduler for all of a client instance's (START-11).

A task runs at a fixed rate. One that raises is logged and keeps its schedule; one that is still running when its time
comes again is left to finish, and that turn is skipped.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import TypeAlias

from rocketstream.clock import Clock, Timer

log = logging.getLogger("rocketstream.cluster")

Task: TypeAlias = Callable[[], Awaitable[None]]


class PeriodicTask:
    """One task with its schedule."""

    __slots__ = ("_clock", "_due", "_running", "_timer", "name", "period", "runs", "task")

    def __init__(self, name: str, initial: float, period: float, task: Task, clock: Clock) -> None:
        self.name = name
        self.period = period
        self.task = task
        self.runs = 0
        self._clock = clock
        self._running: asyncio.Task[None] | None = None
        self._due = clock.monotonic() + initial
        self._timer: Timer = clock.call_later(initial, self._fire)

    def __repr__(self) -> str:
        state = "running" if self._running else f"next in {self._due - self._clock.monotonic():.3g} s"
        return f"<PeriodicTask {self.name} each {self.period:g} s, {self.runs} runs, {state}>"

    def _fire(self) -> None:
        now = self._clock.monotonic()
        # A fixed rate, but a clock that jumped (a suspended laptop) does not bring a burst of missed turns.
        self._due = max(self._due + self.period, now)
        self._timer = self._clock.call_later(self._due - now, self._fire)
        if self._running is not None:
            log.debug("%s is still running; this turn is skipped", self.name)
            return
        self._running = asyncio.ensure_future(self._run())

    async def _run(self) -> None:
        self.runs += 1
        try:
            await self.task()
        except Exception:
            log.exception("the periodic task %s failed; it runs again in %g s", self.name, self.period)
        finally:
            self._running = None

    async def stop(self) -> None:
        """End the schedule, and the run that is under way."""
        self._timer.cancel()
        running = self._running
        if running is not None:
            running.cancel()
            await asyncio.wait([running])


class Timers:
    """The periodic tasks of a client instance."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._tasks: list[PeriodicTask] = []

    def __repr__(self) -> str:
        return f"<Timers {self._tasks}>"

    def every(self, name: str, initial: float, period: float, task: Task) -> PeriodicTask:
        """Run a task after `initial` seconds and then each `period` seconds."""
        periodic = PeriodicTask(name, initial, period, task, self._clock)
        self._tasks.append(periodic)
        return periodic

    async def end(self, task: PeriodicTask) -> None:
        """End one of them, whose owner ends before the instance does."""
        if task in self._tasks:
            self._tasks.remove(task)
        await task.stop()

    async def stop(self) -> None:
        """End them all."""
        for task in self._tasks:
            await task.stop()
        self._tasks.clear()
