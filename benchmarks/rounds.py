"""One client's turn in a benchmark: how many messages, how long, how much CPU."""

from __future__ import annotations

import resource
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Round:
    """What one turn came to."""

    who: str
    messages: int
    seconds: float
    cpu_seconds: float

    @property
    def rate(self) -> float:
        return self.messages / self.seconds

    @property
    def cpu_micros(self) -> float:
        return self.cpu_seconds / self.messages * 1e6

    def __str__(self) -> str:
        return f"{self.who:>6}: {self.rate:>9,.0f} messages/s  {self.cpu_micros:7.2f} µs CPU/message"


def cpu_seconds() -> float:
    """The CPU time of this process so far, all threads."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime
