"""How much happened in the last minute, hour and day: totals, sampled on the broker's clock."""

from __future__ import annotations

from collections import deque
from typing import Final, NamedTuple

from rocketstream.wire.bodies.stats import BrokerStatsData, BrokerStatsItem

#: How often a total is sampled for the last minute, hour and day, and how many samples that takes.
SAMPLE_INTERVAL: Final = 10.0
_SPANS: Final = ((1, 7), (60, 7), (360, 25))


class Sample(NamedTuple):
    """A total at a moment."""

    at: float
    total: int


class Counter:
    """A total and its samples; whoever owns it calls `sample` every `SAMPLE_INTERVAL` seconds."""

    __slots__ = ("_samples", "_turns", "total")

    def __init__(self) -> None:
        self.total = 0
        self._turns = 0
        self._samples: tuple[deque[Sample], ...] = tuple(deque(maxlen=count) for _, count in _SPANS)

    def sample(self, now: float) -> None:
        """Remember the total of this moment."""
        for (every, _), samples in zip(_SPANS, self._samples, strict=True):
            if self._turns % every == 0:
                samples.append(Sample(now, self.total))
        self._turns += 1

    @property
    def per_second(self) -> float:
        """How many a second in the last minute."""
        return _item(self._samples[0]).tps

    def data(self) -> BrokerStatsData:
        """What operators are told."""
        minute, hour, day = map(_item, self._samples)
        return BrokerStatsData(stats_minute=minute, stats_hour=hour, stats_day=day)


def _item(samples: deque[Sample]) -> BrokerStatsItem:
    if len(samples) < 2:
        return BrokerStatsItem()
    first, last = samples[0], samples[-1]
    # A reset takes a group's total back: that is not a negative speed.
    grown = max(0, last.total - first.total)
    seconds = last.at - first.at
    return BrokerStatsItem(sum=grown, tps=grown / seconds if seconds > 0 else 0.0, avgpt=0.0)
