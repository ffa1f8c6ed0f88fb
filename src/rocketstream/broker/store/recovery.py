"""Finding the records of a segment again, whatever happened to its bytes.

The rule of this file: a record counts when its checksum and its own idea of where it lies are right. What does not
count is left out, and the caller is told how much and where.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Final, NamedTuple
from zlib import crc32

from rocketstream.broker.store.index import LogIndex
from rocketstream.broker.store.indexed_properties import indexed_properties, key_seed_of
from rocketstream.broker.store.queue_index import QueueIndex
from rocketstream.broker.store.segment import ENVELOPE, ENVELOPE_SIZE, Segment
from rocketstream.wire.record import BODY_AT, HOST_BITS, MAGIC_V1, MAGIC_V2, MIN_RECORD_SIZE

#: Total size, magic, body crc, queue id, flag, queue offset, commit-log offset, system flag.
_HEAD: Final = struct.Struct(">IIIiiqqi")
_U32: Final = struct.Struct(">I")
_MAGICS: Final = tuple(magic.to_bytes(4, "big") for magic in (MAGIC_V1, MAGIC_V2))
#: From the start of an envelope to the magic of its record.
_MAGIC_AT: Final = ENVELOPE_SIZE + 4
_WINDOW: Final = 1 << 20


class Damage(NamedTuple):
    """Bytes of a segment that are not records."""

    start: int
    end: int


def recover(segment: Segment, index: LogIndex) -> list[Damage]:
    """Enter every sound record of a segment into the index; tells what is between and after them."""
    found = _Finder(segment, index)
    damages: list[Damage] = []
    at, end = 0, segment.end
    while at < end:
        at = found.run(at)
        if at < end:
            following = next(_candidates(segment, at + 1), end)
            damages.append(Damage(at, following))
            at = following
    return damages


def _sound(view: memoryview, at: int, end: int, base: int) -> bool:
    """Whether an envelope with a sound record begins there."""
    if at + ENVELOPE_SIZE + MIN_RECORD_SIZE > end:
        return False
    size, checksum = ENVELOPE.unpack_from(view, at)
    record_at = at + ENVELOPE_SIZE
    if size < MIN_RECORD_SIZE or record_at + size > end or crc32(view[record_at : record_at + size]) != checksum:
        return False
    total, magic, _, _, _, _, position, _ = _HEAD.unpack_from(view, record_at)
    return bool(total == size and position == base + record_at and magic in (MAGIC_V1, MAGIC_V2))


def _candidates(segment: Segment, start: int) -> Iterator[int]:
    """Where sound records begin, from a byte on: whatever looks like the magic is tried."""
    view, end = segment.view, segment.end
    for window in range(start, end, _WINDOW):
        # A window reaches into the next one by what a magic that lies across the border needs.
        raw = bytes(view[window : min(window + _WINDOW + _MAGIC_AT + 4, end)])
        at = _next_magic(raw, 0)
        while at >= 0:
            if at >= _MAGIC_AT and _sound(view, window + at - _MAGIC_AT, end, segment.base):
                yield window + at - _MAGIC_AT
            at = _next_magic(raw, at + 1)


def _next_magic(raw: bytes, start: int) -> int:
    return min((at for at in (raw.find(magic, start) for magic in _MAGICS) if at >= 0), default=-1)


class _Finder:
    """Goes from record to record. The queues it meets are kept by their bytes: a start meets each a million times."""

    def __init__(self, segment: Segment, index: LogIndex) -> None:
        self._segment = segment
        self._index = index
        self._queues: dict[tuple[bytes, int], tuple[QueueIndex, int]] = {}

    def run(self, at: int) -> int:
        """Enter sound records from there on; returns where there is none."""
        segment = self._segment
        view, end, base = segment.view, segment.end, segment.base
        unpack_head, unpack_u32 = _HEAD.unpack_from, _U32.unpack_from
        newest_at = -1
        while _sound(view, at, end, base):
            at += ENVELOPE_SIZE
            size, magic, _, queue_id, _, offset, position, sys_flag = unpack_head(view, at)
            body_at = BODY_AT[(sys_flag & HOST_BITS) >> 4]
            topic_at = at + body_at + unpack_u32(view, at + body_at - 4)[0]
            if magic == MAGIC_V1:
                topic_end = topic_at + 1 + view[topic_at]
                topic_at += 1
            else:
                topic_end = topic_at + 2 + (view[topic_at] << 8 | view[topic_at + 1])
                topic_at += 2
            raw_topic = bytes(view[topic_at:topic_end])
            queue, deleted = self._queues.get((raw_topic, queue_id)) or self._meet(raw_topic, queue_id, position)
            tags_code = indexed_properties(bytes(view[topic_end + 2 : at + size]), queue.key_seed, segment, at)
            if position >= deleted:
                if offset == queue.base + len(queue.positions):
                    queue.positions.append(position)
                    queue.sizes.append(size)
                    queue.tags.append(tags_code)
                else:
                    self._index.place(queue.topic, queue_id, offset, position, size, tags_code)
                    self._queues.clear()
            newest_at = at
            at += size
        if newest_at >= 0:
            segment.newest = segment.timestamp_at(newest_at)
        return at

    def _meet(self, raw_topic: bytes, queue_id: int, position: int) -> tuple[QueueIndex, int]:
        topic = raw_topic.decode("utf-8", "replace")
        deleted = self._index.deleted.get(topic, 0)
        queue = self._index.queue(topic, queue_id)
        if queue is None:
            # One that was deleted is not entered: its messages are found by their keys only.
            queue = (
                self._index.new_queue(topic, queue_id)
                if position >= deleted
                else QueueIndex(topic, queue_id, b"", key_seed_of(topic))
            )
        if position >= deleted:
            self._queues[raw_topic, queue_id] = queue, deleted
        return queue, deleted
