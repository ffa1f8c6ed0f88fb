"""Work that comes again and again, on the broker's clock."""

from __future__ import annotations

import logging
from collections.abc import Callable

from rocketstream.clock import Clock, Timer

log = logging.getLogger("rocketstream.broker")


class Periodic:
    """Calls a function every so many seconds between `start` and `stop`; one that raises is logged and comes again.

    The seconds may be a function: then they are asked for before every turn, for a setting that may change.
    """

    def __init__(self, clock: Clock, seconds: float | Callable[[], float], work: Callable[[], None]) -> None:
        self._clock = clock
        self._seconds = seconds if callable(seconds) else lambda: seconds
        self._work = work
        self._timer: Timer | None = None

    def start(self) -> None:
        """Begin; the first call is one period from now."""
        self._timer = self._clock.call_later(self._seconds(), self._run)

    def stop(self) -> None:
        """End."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _run(self) -> None:
        self._timer = self._clock.call_later(self._seconds(), self._run)
        try:
            self._work()
        except Exception:
            log.exception("%s failed; it runs again in %g s", self._work.__qualname__, self._seconds())
