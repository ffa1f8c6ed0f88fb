"""The log: segments one after another, addressed by position."""

from __future__ import annotations

import logging
import struct
from bisect import bisect_right
from collections.abc import Iterator
from typing import Final

from rocketstream.broker.store.indexed_properties import has_key, key_hash, key_seed_of
from rocketstream.broker.store.segment import ENVELOPE_SIZE, Segment
from rocketstream.wire.properties import decode_properties
from rocketstream.wire.record import BODY_AT, HOST_BITS, MAGIC_V1, MAGIC_V2, MIN_RECORD_SIZE

log = logging.getLogger("rocketstream.broker")

_U32: Final = struct.Struct(">I")
_HASH: Final = struct.Struct("=I")
#: Total size, magic, ..., commit-log offset: what tells a record from other bytes.
_START: Final = struct.Struct(">II20xq")


class Log:
    """What is kept of the log: its oldest segments may be gone, the last one is appended to."""

    def __init__(self, segments: list[Segment]) -> None:
        self.segments = segments
        self.last = segments[-1]
        self._bases = [segment.base for segment in segments]

    @property
    def start(self) -> int:
        """The position of the first byte that is kept."""
        return self._bases[0]

    @property
    def end(self) -> int:
        """The position after the last byte."""
        return self.last.base + self.last.end

    @property
    def size(self) -> int:
        """How many bytes are kept."""
        return sum(segment.end for segment in self.segments)

    def add(self, segment: Segment) -> None:
        """Go on in another segment."""
        self.segments.append(segment)
        self._bases.append(segment.base)
        self.last = segment

    def drop(self, count: int) -> list[Segment]:
        """Let go of that many of the oldest segments; returns them."""
        dropped = self.segments[:count]
        del self.segments[:count]
        del self._bases[:count]
        return dropped

    def segment_of(self, position: int) -> Segment:
        """The segment that a position lies in; it must not be before the start."""
        return self.segments[bisect_right(self._bases, position) - 1]

    def record(self, position: int) -> bytes | None:
        """The whole record that begins at a position; None if none begins there."""
        if position < self._bases[0]:
            return None
        segment = self.segment_of(position)
        at = position - segment.base
        if at < ENVELOPE_SIZE or at + MIN_RECORD_SIZE > segment.end:
            return None
        size, magic, named = _START.unpack_from(segment.view, at)
        if named != position or magic not in (MAGIC_V1, MAGIC_V2) or at + size > segment.end:
            return None
        if segment.doubtful and not segment.is_sound(at, size):
            return None
        return bytes(segment.view[at : at + size])

    def timestamp(self, position: int) -> int:
        """The store time of the record that begins at a position."""
        segment = self.segment_of(position)
        return segment.timestamp_at(position - segment.base)

    def with_key(self, topic: str, key: str) -> Iterator[tuple[int, bytes]]:
        """Store time and bytes of the records of a topic with that key (or unique key), the newest first."""
        wanted = _HASH.pack(key_hash(key_seed_of(topic), key.encode("utf-8", "replace")))
        for segment in reversed(self.segments):
            hashes = segment.key_hashes.tobytes()
            hit = hashes.rfind(wanted)
            while hit >= 0:
                # Other than at multiples of four it is the end of one hash and the beginning of the next.
                if hit % 4 == 0:
                    # A message that names a key twice is found twice: so it is in RocketMQ.
                    at = segment.key_places[hit // 4]
                    record = self.record(segment.base + at)
                    if record is not None and _has(record, topic, key):
                        yield segment.timestamp_at(at), record
                hit = hashes.rfind(wanted, 0, hit + 3)


def _has(record: bytes, topic: str, key: str) -> bool:
    """Whether a record is of that topic and has that key: hashes may collide."""
    (sys_flag,) = _U32.unpack_from(record, 36)
    body_at = BODY_AT[(sys_flag & HOST_BITS) >> 4]
    at = body_at + _U32.unpack_from(record, body_at - 4)[0]
    size_bytes = 1 if _U32.unpack_from(record, 4)[0] == MAGIC_V1 else 2
    topic_size = int.from_bytes(record[at : at + size_bytes], "big")
    at += size_bytes
    if record[at : at + topic_size].decode("utf-8", "replace") != topic:
        return False
    return has_key(decode_properties(record[at + topic_size + 2 :].decode("utf-8", "replace")), key)
