"""What is popped and not acknowledged: the leases, and when each one is over.

Everything is in memory; with a data directory each lease and each acknowledgement is also written to the lease log.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable, Iterable, Iterator

from rocketstream.broker.pop.lease import Lease, LeaseKey
from rocketstream.broker.pop.lease_log import LeaseLog
from rocketstream.clock import Clock, Timer


class Leases:
    """All that is out. `ended` is called with a lease whose time is over and which has open messages."""

    def __init__(self, *, clock: Clock, log: LeaseLog | None, ended: Callable[[Lease], None]) -> None:
        self._clock = clock
        self._log = log
        self._ended = ended
        self._live: dict[LeaseKey, Lease] = {}
        self._ends: list[tuple[int, int, Lease]] = []
        self._order = itertools.count()
        self._timer: Timer | None = None
        self._timer_at = 0
        self.last_position: int | None = None
        """Where the lease log was written last: what to wait for until all that was said here survives a crash."""

    def __repr__(self) -> str:
        return f"<Leases {len(self._live)} out>"

    def __len__(self) -> int:
        return len(self._live)

    def __iter__(self) -> Iterator[Lease]:
        return iter(self._live.values())

    def get(self, key: LeaseKey) -> Lease | None:
        """A lease that is out."""
        return self._live.get(key)

    def add(self, lease: Lease) -> None:
        """Lease messages."""
        if self._log is not None:
            stored = self._log.leased(lease)
            lease.log_offset = stored.queue_offset
            self.last_position = stored.position
        self.restore(lease)

    def restore(self, lease: Lease) -> None:
        """Take over a lease that is in the log."""
        self._live[lease.key] = lease
        heapq.heappush(self._ends, (lease.ends_at, next(self._order), lease))
        if len(self._ends) > 2 * len(self._live) + 1024:
            self._ends = [entry for entry in self._ends if self._is_live(entry[2])]
            heapq.heapify(self._ends)
        self._schedule()

    def acknowledge(self, key: LeaseKey, offsets: Iterable[int]) -> None:
        """Messages are done; what is not out any more is nobody's concern."""
        lease = self._live.get(key)
        if lease is None:
            return
        done = lease.open.intersection(offsets)
        if done:
            self.close(lease, done)

    def close(self, lease: Lease, done: Iterable[int]) -> None:
        """Messages of a lease have been acknowledged or given back."""
        done = sorted(done)
        if self._log is not None:
            self.last_position = self._log.acknowledged(lease, done).position
        lease.open.difference_update(done)
        if not lease.open and self._is_live(lease):
            del self._live[lease.key]

    def drop(self, lease: Lease) -> None:
        """Forget a lease whose topic or group is gone."""
        if self._is_live(lease):
            del self._live[lease.key]

    def _is_live(self, lease: Lease) -> bool:
        return self._live.get(lease.key) is lease

    # --- time -------------------------------------------------------------------------------------------------------

    def stop(self) -> None:
        """Let nothing end any more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _schedule(self) -> None:
        while self._ends and not self._is_live(self._ends[0][2]):
            heapq.heappop(self._ends)
        if not self._ends:
            return
        at = self._ends[0][0]
        if self._timer is not None:
            if self._timer_at <= at:
                return
            self._timer.cancel()
        self._timer_at = at
        self._timer = self._clock.call_later(max(0.0, (at - self._clock.wall_ms()) / 1000), self._run)

    def _run(self) -> None:
        self._timer = None
        now = self._clock.wall_ms()
        while self._ends and self._ends[0][0] <= now:
            lease = heapq.heappop(self._ends)[2]
            if self._is_live(lease):
                self._ended(lease)
        self._schedule()
