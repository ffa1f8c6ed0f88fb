"""A bound on how much is under way at once (REM-06)."""

from __future__ import annotations

import asyncio
from collections import deque

from rocketstream.clock import Clock
from rocketstream.errors import TooManyRequestsError
from rocketstream.remoting.deadline import done_before


class Permits:
    """A counting semaphore of the I/O thread whose waiters are served in order and give up at their deadline."""

    __slots__ = ("_clock", "_free", "_limit", "_waiters", "_what")

    def __init__(self, limit: int, what: str, clock: Clock) -> None:
        self._limit = limit
        self._free = limit
        self._what = what
        self._clock = clock
        self._waiters: deque[asyncio.Future[None]] = deque()

    def __repr__(self) -> str:
        return f"<Permits {self._what}: {self.in_use} of {self._limit} in use, {len(self._waiters)} waiting>"

    @property
    def in_use(self) -> int:
        """How many permits are out."""
        return self._limit - self._free

    def try_acquire(self) -> bool:
        """Take a permit if one can be had without waiting."""
        if self._free and not self._waiters:
            self._free -= 1
            return True
        return False

    async def acquire(self, address: str, deadline: float) -> None:
        """Take a permit, waiting for one until the deadline; pair with exactly one `release`."""
        if self.try_acquire():
            return
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters.append(waiter)
        try:
            granted = await done_before(self._clock, waiter, deadline)
        except BaseException:
            self._give_up(waiter)
            raise
        if not granted:
            self._give_up(waiter)
            raise TooManyRequestsError(
                address,
                f"{self._limit} {self._what} requests are under way and none ended within the time-out",
            )

    def release(self) -> None:
        """Give a permit back: to the first who waits, else to the stock."""
        while self._waiters:
            waiter = self._waiters.popleft()
            if not waiter.done():
                waiter.set_result(None)  # the permit passes on without touching the stock
                return
        self._free += 1

    def _give_up(self, waiter: asyncio.Future[None]) -> None:
        if waiter.done():
            # The permit arrived in the same moment in which its taker left.
            self.release()
        else:
            waiter.cancel()
            self._waiters.remove(waiter)
