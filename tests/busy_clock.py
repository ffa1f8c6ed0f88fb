"""A clock for tests of what gives way when a program is busy."""

from __future__ import annotations

from rocketstream.clock import ManualClock


class BusyClock(ManualClock):
    """Time that passes while it is looked at, as if others had the processor; all of it is computing."""

    step = 0.0

    def monotonic(self) -> float:
        now = super().monotonic()
        self._now += self.step
        return now
