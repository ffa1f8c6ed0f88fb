"""Reading a queue: which records a reader gets, and what it is told of its offset.

The answers are those of RocketMQ's `DefaultMessageStore.getMessage`, 5.x.
"""

from __future__ import annotations

import logging
from typing import Final

from rocketstream.broker.store.log import Log
from rocketstream.broker.store.queue_index import QueueIndex
from rocketstream.broker.store.segment import Segment
from rocketstream.broker.store.values import Match, Reading, ReadStatus

log = logging.getLogger("rocketstream.broker")

#: How many entries of a queue a read with a filter looks at (Java: maxFilterMessageSize / CQ_STORE_UNIT_SIZE).
FILTERED_ENTRIES: Final = 800
#: Java's least value of what a reader may ask for.
_LEAST_BYTES: Final = 100


def refused_reading(queue: QueueIndex | None, offset: int) -> Reading | None:
    """The answer to who asks for an offset that a queue does not have; None if it has it.

    As in 5.x, a queue that is not there reads like one without messages (4.9: NO_MATCHED_LOGIC_QUEUE).
    """
    end = 0 if queue is None else queue.end
    if queue is None or not end:
        return Reading(ReadStatus.NO_MESSAGE_IN_QUEUE, (), 0, 0, 0, 0)
    base = queue.base
    if offset < base:
        return Reading(ReadStatus.OFFSET_TOO_SMALL, (), 0, base, base, end)
    if offset == end:
        return Reading(ReadStatus.OFFSET_OVERFLOW_ONE, (), 0, offset, base, end)
    if offset > end:
        return Reading(ReadStatus.OFFSET_OVERFLOW_BADLY, (), 0, end, base, end)
    return None


def read_queue(
    the_log: Log, queue: QueueIndex, offset: int, max_count: int, limit: int, max_bytes: int, match: Match | None
) -> Reading:
    """Records from an offset on that the queue has: at most `limit` (or one), and `max_bytes` of them (or one)."""
    base, positions, sizes = queue.base, queue.positions, queue.sizes
    max_bytes = max(max_bytes, _LEAST_BYTES)
    status = ReadStatus.NO_MATCHED_MESSAGE
    pieces: list[memoryview] = []
    offsets: list[int] = []
    segment, low, high = the_log.last, 0, 0
    total = 0
    first = after = offset - base
    for entry in range(first, min(len(positions), first + max(FILTERED_ENTRIES, max_count))):
        size = sizes[entry]
        if total and (len(pieces) >= limit or total + size > max_bytes):
            break
        after = entry + 1
        position = positions[entry]
        if not low <= position < high:
            segment = the_log.segment_of(position)
            low, high = segment.base, segment.base + segment.end
        at = position - low
        if not size or (segment.doubtful and not segment.is_sound(at, size)):
            status = ReadStatus.MESSAGE_WAS_REMOVING
            if size:
                _make_hole(queue, entry, segment, at)
            continue
        record = segment.view[at : at + size]
        if match is not None and not match(queue.tags[entry], record.tobytes):
            status = ReadStatus.NO_MATCHED_MESSAGE
            continue
        pieces.append(record)
        offsets.append(base + entry)
        total += size
    if pieces:
        status = ReadStatus.FOUND
    return Reading(status, pieces, len(pieces), base + after, base, base + len(positions), offsets)


def _make_hole(queue: QueueIndex, entry: int, segment: Segment, at: int) -> None:
    """A record that was sound when its segment was completed is not any more: it is told once, and left out."""
    log.error(
        "%s is damaged: the record of %d bytes at %d, %s@%d offset %d, has another checksum than when it was written;"
        " it is left out",
        segment.path,
        queue.sizes[entry],
        at,
        queue.topic,
        queue.queue_id,
        queue.base + entry,
    )
    queue.sizes[entry] = 0
