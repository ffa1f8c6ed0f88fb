"""What an answer to a pull means for a reader that must have every message of a range.

The rule of this file: pure. An offset asked, an answer, and what is to be done now: take it, go on somewhere else,
say that messages are gone, or ask again because a broker that comes back from a crash may still find them.
"""

from __future__ import annotations

import struct
from typing import Final, NamedTuple

from rocketstream.remoting.replies import PullResult
from rocketstream.wire.codes import PullStatus

_QUEUE_OFFSET: Final = struct.Struct(">q")
_QUEUE_OFFSET_AT: Final = 20


class Step(NamedTuple):
    """What follows from an answer."""

    next_offset: int
    """Where to go on; the offset asked itself means: ask again, in a moment."""
    lost: tuple[int, int] | None = None
    """Offsets whose messages the broker does not have any more."""
    take: bool = False
    """Whether its body holds messages of the range."""
    why: str = ""
    """For a range that cannot be read: what the broker said."""


def next_step(asked: int, end: int, result: PullResult, *, filtered: bool) -> Step:
    """What an answer to a pull at offset `asked`, of a range that ends at `end`, means."""
    status, following = result.status, result.next_offset
    if status is PullStatus.FOUND:
        if following <= asked:
            return Step(asked, why=f"the answer goes on at {following}")
        first = first_offset(result.body)
        # Every offset has a message; where none was filtered out, a gap is what retention has taken.
        lost = (asked, min(first, end)) if not filtered and first is not None and first > asked else None
        return Step(following, lost, take=first is None or first < end)
    if status is PullStatus.NO_MATCHED_MSG:
        if following <= asked:
            return Step(asked, why="it has no message there just now")
        return Step(following, None if filtered else (asked, min(following, end)))
    if status is PullStatus.OFFSET_ILLEGAL and asked < following <= result.max_offset:
        return Step(following, (asked, min(following, end)))
    return Step(asked, why=f"its messages end at {result.max_offset}")


def first_offset(body: bytes) -> int | None:
    """The queue offset of the first message of an answer."""
    if len(body) < _QUEUE_OFFSET_AT + _QUEUE_OFFSET.size:
        return None
    offset: int = _QUEUE_OFFSET.unpack_from(body, _QUEUE_OFFSET_AT)[0]
    return offset


_LEAST_ASKED: Final = 64


def next_ask(asked_for: int, got: int, ask: int, most: int) -> int:
    """How many messages to ask for next, after so many were asked for and came.

    Brokers make room for as many as they are asked for before they look for them, and at their defaults give 32. So
    who gets less than it asked for asks for not much more, and who gets all asks for more.
    """
    if got >= asked_for:
        return min(max(ask, 2 * asked_for), most)
    return min(max(2 * got, _LEAST_ASKED), most)
