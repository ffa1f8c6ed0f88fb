"""What a measurement is: its name and labels, and the value of a moment.

The rule of this file: plain values. Counting is adding numbers, without a lock: whoever counts owns what it counts, on
the I/O thread; whoever reads gets a copy.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, NamedTuple

#: Seconds that calls take: a listener's, a send's, a pull's.
SECONDS: Final = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
#: How many messages share a request.
BATCHES: Final = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0, 1024.0, 4096.0)


class Kind(StrEnum):
    """What may be done with a metric's numbers."""

    COUNTER = "counter"
    """It only grows; what counts is how fast."""
    GAUGE = "gauge"
    """How much there is at this moment."""
    HISTOGRAM = "histogram"
    """How often a value was at most so large."""


@dataclass(frozen=True, slots=True, eq=False)
class Metric:
    """One thing that is measured, in Prometheus's words."""

    name: str
    kind: Kind
    labels: tuple[str, ...]
    help: str
    bounds: tuple[float, ...] = ()
    """A histogram's: up to where each of its buckets goes; one more has the rest."""


class HistogramValue(NamedTuple):
    """What a histogram has seen so far."""

    counts: tuple[int, ...]
    """How many values are in each bucket, the last one without a bound."""
    total: float
    """All values together."""

    def plus(self, other: HistogramValue) -> HistogramValue:
        """Both together; their buckets are the same."""
        counts = tuple(mine + theirs for mine, theirs in zip(self.counts, other.counts, strict=True))
        return HistogramValue(counts, self.total + other.total)


Value = float | HistogramValue


class Sample(NamedTuple):
    """The value of a metric for one choice of labels, at one moment."""

    metric: Metric
    labels: tuple[str, ...]
    """The values of the metric's labels, in its order."""
    value: Value


class Histogram:
    """Counts values by size."""

    __slots__ = ("_bounds", "_counts", "_total")

    def __init__(self, bounds: tuple[float, ...] = SECONDS) -> None:
        self._bounds = bounds
        self._counts = [0] * (len(bounds) + 1)
        self._total = 0.0

    def __repr__(self) -> str:
        return f"<Histogram of {sum(self._counts)} values, {self._total:g} together>"

    def observe(self, value: float) -> None:
        """Count one value."""
        self._counts[bisect_left(self._bounds, value)] += 1
        self._total += value

    def observe_all(self, values: Sequence[float]) -> None:
        """Count many; those of the first bucket, mostly all of them, together."""
        first, bounds, counts = self._bounds[0], self._bounds, self._counts
        larger = [value for value in values if value > first]
        counts[0] += len(values) - len(larger)
        for value in larger:
            counts[bisect_left(bounds, value)] += 1
        self._total += sum(values)

    @property
    def value(self) -> HistogramValue:
        """What it has seen so far."""
        return HistogramValue(tuple(self._counts), self._total)
