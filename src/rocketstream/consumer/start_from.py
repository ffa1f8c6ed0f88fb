"""Where a group begins that has no offsets yet: at the end, at the beginning, or at a moment (REB-06)."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import ClassVar

from rocketstream.errors import ConfigurationError
from rocketstream.wire.codes import ConsumeFromWhere

_LATEST_MS = 253_402_300_799_999  # the end of the year 9999: micro- and nanoseconds are seen to be none

_NAMES = {
    ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET: "LAST",
    ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET: "FIRST",
}


@dataclass(frozen=True, slots=True, repr=False)
class StartFrom:
    """`StartFrom.LAST`, `StartFrom.FIRST`, or `StartFrom.at(moment)`."""

    where: ConsumeFromWhere
    timestamp_ms: int | None = None
    """Milliseconds since the epoch, of a start at a moment."""

    LAST: ClassVar[StartFrom]
    FIRST: ClassVar[StartFrom]

    def __post_init__(self) -> None:
        by_moment = self.where == ConsumeFromWhere.CONSUME_FROM_TIMESTAMP
        if self.where not in _NAMES and not by_moment:
            raise ConfigurationError(f"start_from={self.where!r} must be StartFrom.LAST, FIRST or at(moment)")
        if by_moment:
            _check_moment(self.timestamp_ms, self.timestamp_ms)
        elif self.timestamp_ms is not None:
            raise ConfigurationError(f"{self!r} has no timestamp, not even {self.timestamp_ms!r}")

    @classmethod
    def at(cls, moment: datetime | int) -> StartFrom:
        """A start with the first message stored at or after a moment: a `datetime`, or milliseconds since the epoch."""
        ms = round(moment.timestamp() * 1000) if isinstance(moment, datetime) else moment
        _check_moment(ms, moment)
        return cls(ConsumeFromWhere.CONSUME_FROM_TIMESTAMP, ms)

    def __repr__(self) -> str:
        name = _NAMES.get(self.where)
        return f"StartFrom.{name}" if name is not None else f"StartFrom.at({self.timestamp_ms!r})"


StartFrom.LAST = StartFrom(ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET)
StartFrom.FIRST = StartFrom(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET)


def _check_moment(ms: object, given: object) -> None:
    if isinstance(ms, bool) or not isinstance(ms, int) or not 0 <= ms <= _LATEST_MS:
        raise ConfigurationError(
            f"start_from: at({given!r}) must be a datetime, or milliseconds since the epoch from 0 to {_LATEST_MS}"
        )
