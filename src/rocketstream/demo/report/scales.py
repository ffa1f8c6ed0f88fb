"""From values to places on paper, and the round numbers that axes show."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Scale:
    """A straight line from values to places."""

    low: float
    high: float
    begin: float
    end: float

    def __call__(self, value: float) -> float:
        """The place of a value."""
        if self.high == self.low:
            return self.begin
        return self.begin + (value - self.low) / (self.high - self.low) * (self.end - self.begin)


def ticks(low: float, high: float, about: int = 5) -> list[float]:
    """Round numbers from `low` to `high`, about so many: multiples of 1, 2 or 5 times a power of ten."""
    span = high - low
    if span <= 0 or about < 1:
        return [low]
    power = 10.0 ** math.floor(math.log10(span / about))
    step = next(power * factor for factor in (1, 2, 5, 10) if span / (power * factor) <= about)
    first = math.ceil(low / step - 1e-9)
    last = math.floor(high / step + 1e-9)
    return [i * step for i in range(first, last + 1)]


def ceiling(values: Sequence[float], about: int = 4) -> float:
    """The end of an axis from 0 that all values fit under: a round number, or a little above the greatest."""
    top = max(values, default=0.0)
    if top < 1e-9:  # nothing, or nearly
        return 1.0
    step = ticks(0, top, about)
    width = step[1] - step[0] if len(step) > 1 else top
    return math.ceil(top / width - 1e-9) * width


def short(value: float) -> str:
    """A number for an axis: 950, 1.5k, 20k, 3M."""
    for limit, unit in ((1_000_000, "M"), (1_000, "k")):
        if abs(value) >= limit:
            return f"{value / limit:.1f}".removesuffix(".0") + unit
    return f"{value:.2f}".rstrip("0").rstrip(".") if value % 1 else str(int(value))


def milliseconds(value: float) -> str:
    """A time for people: 4 ms, 250 ms, 1.5 s."""
    return f"{value:.0f} ms" if value < 1_000 else f"{value / 1_000:.1f}".removesuffix(".0") + " s"
