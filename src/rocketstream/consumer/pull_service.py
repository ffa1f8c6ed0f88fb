"""The pull service of a client instance: it carries pull requests to their consumers, at once or after a delay.

The rule of this file: a request is never lost to an exception. A consumer that raises gets the same request again; only
the end of the service, or of the request's group, ends it, and says so (PULL-01).
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Protocol

from rocketstream.clock import Clock, Timer
from rocketstream.consumer.pop_request import Request

log = logging.getLogger("rocketstream.consumer")

# PULL-04, PULL-21: how long a request waits that could not be carried out.
AGAIN_AFTER_ERROR = 3.0


class Pulls(Protocol):
    """A consumer, as the service sees it."""

    def pull(self, request: Request) -> None:
        """Take one step with a request: pull, or come again later."""


class PullService:
    """One per client instance; it has no thread, for a pull is a pending request on the I/O thread."""

    def __init__(self, clock: Clock, consumer_of: Callable[[str], Pulls | None]) -> None:
        self._clock = clock
        self._consumer_of = consumer_of
        self._timers: dict[Request, Timer] = {}
        self._running = False

    def __repr__(self) -> str:
        return f"<PullService {'running' if self._running else 'stopped'}, {len(self._timers)} requests waiting>"

    async def start(self) -> None:
        """Begin to carry requests."""
        self._running = True

    async def stop(self) -> None:
        """Drop what waits."""
        self._running = False
        for request, timer in self._timers.items():
            timer.cancel()
            log.debug("the pull service is stopped: %r is dropped", request)
        self._timers.clear()

    def now(self, request: Request) -> None:
        """Have a request carried out at once."""
        if not self._running:
            log.warning("the pull service is stopped: %r is dropped", request)
            return
        consumer = self._consumer_of(request.group)
        if consumer is None:
            log.warning("there is no consumer of group %s any more: %r is dropped", request.group, request)
            return
        try:
            consumer.pull(request)
        except Exception:
            log.exception("pulling %s failed; again in %g s", request.queue, AGAIN_AFTER_ERROR)
            self.later(request, AGAIN_AFTER_ERROR)

    def later(self, request: Request, delay: float) -> None:
        """Have a request carried out after a delay."""
        if not self._running:
            log.warning("the pull service is stopped: %r is dropped", request)
            return
        self._timers[request] = self._clock.call_later(delay, self._due, request)

    def hurry(self, request: Request) -> None:
        """Have a request that waits carried out now: what it waited for has come."""
        timer = self._timers.pop(request, None)
        if timer is not None:
            timer.cancel()
            self.now(request)

    def _due(self, request: Request) -> None:
        self._timers.pop(request, None)
        self.now(request)
