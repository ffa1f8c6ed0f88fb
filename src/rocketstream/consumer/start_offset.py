"""Where a consumer begins in a queue that it has just got (REB-06).

The rule of this file: a stored offset wins; without one the start position decides; whatever cannot be found out
raises `OffsetUnknownError`. Nothing is ever pulled from a guess.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Protocol

from rocketstream.cluster.names import RETRY_PREFIX
from rocketstream.consumer.offset_store import UNKNOWN_OFFSET, OffsetStore, ReadFrom
from rocketstream.consumer.start_from import StartFrom
from rocketstream.errors import OffsetUnknownError
from rocketstream.message import MessageQueue
from rocketstream.wire.codes import ConsumeFromWhere


class OffsetAsker(Protocol):
    """Who can be asked about a queue."""

    async def max_offset(self, queue: MessageQueue) -> int:
        """The offset that the next message will get."""

    async def min_offset(self, queue: MessageQueue) -> int:
        """The offset of the oldest message that is still there."""

    async def search(self, queue: MessageQueue, timestamp_ms: int) -> int:
        """The first message that was stored at a time or later."""


class Place(Enum):
    """A place in a queue that only its broker knows."""

    MAX = "the end"
    MIN = "the beginning"
    TIME = "a time"


@dataclass(frozen=True, slots=True)
class Ask:
    """The broker has to be asked where a place is."""

    place: Place
    timestamp_ms: int | None = None


def decide_start(stored: int, start_from: StartFrom, is_retry: bool) -> int | Ask:
    """Where to begin: the stored offset, 0, or what the broker has to be asked.

    A group's retry topic is read from its start: what is in it failed for this group and for no other. Only a start by
    time begins at its end, as in Java.
    """
    if stored >= 0:
        return stored
    if stored != UNKNOWN_OFFSET:
        raise ValueError(f"a stored offset is -1 or more, not {stored}")
    if start_from.where is ConsumeFromWhere.CONSUME_FROM_TIMESTAMP:
        return Ask(Place.MAX) if is_retry else Ask(Place.TIME, start_from.timestamp_ms)
    if is_retry:
        return 0
    if start_from.where is ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET:
        # Java begins at 0 and is then told OFFSET_ILLEGAL where the oldest messages are gone already.
        return Ask(Place.MIN)
    return Ask(Place.MAX)


async def start_offset(queue: MessageQueue, store: OffsetStore, start_from: StartFrom, ask: OffsetAsker) -> int:
    """Where to begin in a queue, or `OffsetUnknownError`: then leave the queue alone until the next rebalance."""
    try:
        stored = await store.read(queue, ReadFrom.STORE)
        decision = decide_start(stored, start_from, queue.topic.startswith(RETRY_PREFIX))
        offset = decision if isinstance(decision, int) else await _answer(queue, decision, ask)
    except Exception as error:  # a user's own store may raise anything
        raise OffsetUnknownError(queue, str(error) or type(error).__name__) from error
    if offset < 0:
        raise OffsetUnknownError(queue, f"the broker says {offset} to the question for {decision}")
    return offset


async def _answer(queue: MessageQueue, question: Ask, ask: OffsetAsker) -> int:
    if question.place is Place.MAX:
        return await ask.max_offset(queue)
    if question.place is Place.MIN:
        return await ask.min_offset(queue)
    if question.timestamp_ms is None:
        raise ValueError("a start by time needs its time")
    return await ask.search(queue, question.timestamp_ms)
