"""When queues are shared out: each 20 s, at once when something has changed, never twice within a second (REB-01).

The rule of this file: it knows when, not how; whatever a pass raises is logged, and there is always a next one.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from typing import Protocol

from rocketstream.clock import Clock, Timer

log = logging.getLogger("rocketstream.consumer")

MIN_PAUSE = 1.0


class Rebalances(Protocol):
    """A consumer, as the service sees it."""

    @property
    def group(self) -> str:
        """Its group."""

    async def rebalance(self) -> bool:
        """Share out the queues of all its topics; False if that has to be done again soon."""


class RebalanceService:
    """One per client instance: one pass covers every consumer (REB-02)."""

    def __init__(self, clock: Clock, interval: float, consumers: Callable[[], Iterable[Rebalances]]) -> None:
        self._clock = clock
        self._interval = interval
        self._consumers = consumers
        self._timer: Timer | None = None
        self._due = 0.0
        self._last = float("-inf")
        self._pass: asyncio.Task[None] | None = None
        self._woken = False
        self._running = False
        self.passes = 0

    def __repr__(self) -> str:
        state = "rebalancing" if self._pass else f"next in {self._due - self._clock.monotonic():.3g} s"
        return f"<RebalanceService {state if self._running else 'stopped'}, {self.passes} passes>"

    async def start(self) -> None:
        """Begin to wait for the first turn."""
        self._running = True
        self._schedule(self._interval)

    async def stop(self) -> None:
        """End, the pass that is under way too."""
        self._running = False
        if self._timer is not None:
            self._timer.cancel()
        if self._pass is not None:
            self._pass.cancel()
            await asyncio.wait([self._pass])

    def wake(self) -> None:
        """Something has changed: rebalance as soon as that is allowed; call it on the I/O thread."""
        if not self._running:
            return
        if self._pass is not None:
            self._woken = True  # what it has read already may be old
            return
        self._schedule(max(self._last + MIN_PAUSE - self._clock.monotonic(), 0.0))

    def _schedule(self, delay: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._due = self._clock.monotonic() + delay
        self._timer = self._clock.call_later(delay, self._begin)

    def _begin(self) -> None:
        if self._running and self._pass is None:
            self._pass = asyncio.ensure_future(self._run())

    async def _run(self) -> None:
        self._woken = False
        self.passes += 1
        balanced = True
        for consumer in tuple(self._consumers()):
            try:
                balanced = await consumer.rebalance() and balanced
            except Exception:
                log.exception("the queues of group %s could not be shared out", consumer.group)
                balanced = False
        self._last = self._clock.monotonic()
        self._pass = None
        if self._running:
            self._schedule(MIN_PAUSE if self._woken or not balanced else self._interval)
