"""When: the ways to name a place in a topic by time. Pure functions; what time it is comes in as an argument."""

from __future__ import annotations

import re
from datetime import datetime
from typing import Final, Literal, TypeAlias

from rocketstream.errors import ConfigurationError

EARLIEST: Final = "earliest"
LATEST: Final = "latest"

Moment: TypeAlias = Literal["earliest", "latest"] | datetime | int
"""The first message there is, the end, or a time: a `datetime` or milliseconds since the epoch."""

_AGO = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|m|h|d)(?:\s+ago)?")
_UNIT_MS: Final = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
# 2001 in milliseconds, 33658 in seconds: what is smaller was meant in seconds, or is an offset.
_MIN_MS: Final = 1_000_000_000_000
_MAX_MS: Final = 253_402_300_799_999
_SAME: Final = {"begin": EARLIEST, "end": LATEST}
_EXPECTED: Final = (
    "expected earliest, latest, a time such as 2026-03-01T12:00 (local unless it says which zone), a span such as 15m,"
    " 2h or 1d (ago), or milliseconds since the epoch (begin and end are earliest and latest)"
)


def resolve_moment(name: str, moment: object) -> Literal["earliest", "latest"] | int:
    """A `Moment` as "earliest", "latest" or milliseconds; `name` is the argument's, for the error."""
    if isinstance(moment, datetime):
        return round(moment.timestamp() * 1000)
    if moment == EARLIEST:
        return "earliest"
    if moment == LATEST:
        return "latest"
    if isinstance(moment, int) and not isinstance(moment, bool):
        if not _MIN_MS <= moment <= _MAX_MS:
            raise ConfigurationError(
                f"{name}={moment!r} is no time in milliseconds since the epoch (too small: seconds, or an offset?)"
            )
        return moment
    raise ConfigurationError(f"{name}={moment!r}: expected 'earliest', 'latest', a datetime or milliseconds")


def is_offset(text: str) -> bool:
    """Whether a number that a person types is too small to be a time: then it is an offset."""
    text = text.strip()
    return text.isascii() and text.isdigit() and int(text) < _MIN_MS


def parse_moment(name: str, text: str, now_ms: int) -> Literal["earliest", "latest"] | int:
    """What a person types; `name` is the option's, for the error."""
    text = text.strip()
    text = _SAME.get(text, text)
    if text in (EARLIEST, LATEST):
        return resolve_moment(name, text)
    if text == "now":
        return now_ms
    if text.isascii() and text.isdigit():
        return resolve_moment(name, int(text))
    if ago := _AGO.fullmatch(text.lower()):
        return now_ms - round(float(ago[1]) * _UNIT_MS[ago[2]])
    try:
        return resolve_moment(name, datetime.fromisoformat(text))
    except ValueError:
        raise ConfigurationError(f"{name} {text!r}: {_EXPECTED}") from None
