"""What holds the segments of a log: memory here, files in `files.py`."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Final, Protocol

from rocketstream.broker.refusal import Refusal
from rocketstream.broker.settings import BrokerSettings
from rocketstream.broker.store.index import LogIndex
from rocketstream.broker.store.segment import Segment, empty_memory
from rocketstream.wire.codes import ResponseCode


class Backing(Protocol):
    """Keeps segments."""

    @property
    def max_bytes(self) -> int | None:
        """The oldest segments go once there is more."""

    @property
    def refusal(self) -> Refusal | None:
        """Why nothing can be appended; None as long as it can."""

    def open(self, index: LogIndex) -> list[Segment]:
        """The segments that are there, in order, the last one open for appending; their messages go into the index."""

    def new_segment(self, last: Segment, room: int, index: LogIndex) -> Segment:
        """The segment after the last one, with room for at least so many bytes; the last one is complete."""

    def appended(self) -> None:
        """Something was put into the last segment."""

    def durable(self, position: int) -> Awaitable[None] | None:
        """What to wait for until the record at that position survives a crash."""

    def drop(self, segments: list[Segment], index: LogIndex) -> None:
        """Let go of the oldest segments; the index has already forgotten what is in them."""

    def save(self, index: LogIndex) -> None:
        """Make sure that what the log does not tell (deleted topics) survives a crash."""

    def close(self) -> None:
        """Write everything and let go of it."""

    def abandon(self) -> None:
        """Let go of it as a crash would: what is not written yet is lost."""


#: What is answered after the end, in Java's words.
SHUT_DOWN: Final = Refusal(
    ResponseCode.SERVICE_NOT_AVAILABLE, "service not available now: the message store has been shut down"
)


class Memory:
    """Segments that are gone with the process."""

    def __init__(self, settings: BrokerSettings) -> None:
        self.refusal: Refusal | None = None
        # Only whole segments go: with eight of them, at least seven eighths of the memory are used.
        self._segment_size = max(min(settings.segment_size, settings.max_memory // 8), 4096)
        # What is there when a segment begins: it may become full.
        self.max_bytes: int | None = settings.max_memory - self._segment_size

    def open(self, index: LogIndex) -> list[Segment]:
        """One empty segment."""
        return [Segment(0, empty_memory(self._segment_size))]

    def new_segment(self, last: Segment, room: int, index: LogIndex) -> Segment:
        """Another one."""
        return Segment(last.base + last.end, empty_memory(max(self._segment_size, room)))

    def appended(self) -> None:
        """There is nothing to do."""

    def durable(self, position: int) -> None:
        """Nothing here survives a crash: there is nothing to wait for."""

    def drop(self, segments: list[Segment], index: LogIndex) -> None:
        """Whoever still reads them keeps them."""

    def save(self, index: LogIndex) -> None:
        """There is nowhere to."""

    def close(self) -> None:
        """Take nothing any more."""
        self.refusal = SHUT_DOWN

    def abandon(self) -> None:
        """Take nothing any more."""
        self.refusal = SHUT_DOWN
