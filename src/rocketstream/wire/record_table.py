"""Where the fields of many stored records lie, found for all of them at once with numpy.

The rule of this file: positions and numbers in arrays, one entry per record, and no Python statement per record but
the step from one record's size to the next record's, where responses are few. It says which records are sound; what to
do with those that are not is `record_decoder`'s to know. The layout is in `record`.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from rocketstream.wire.record import BODY_AT, HOST_BITS, MAGIC_V1, MAGIC_V2, MIN_RECORD_SIZE
from rocketstream.wire.sysflag import BORN_HOST_V6, STORE_HOST_V6

Positions = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]

# Up to the born host all records are alike; what follows moves with the sizes of the two hosts.
_HEAD: Final = np.dtype(
    [
        ("total", ">u4"),
        ("magic", ">u4"),
        ("body_crc", ">u4"),
        ("queue_id", ">i4"),
        ("flag", ">i4"),
        ("queue_offset", ">i8"),
        ("commit_log_offset", ">i8"),
        ("sys_flag", ">i4"),
        ("born_timestamp", ">i8"),
    ]
)
_TAIL: Final = np.dtype([("reconsume_times", ">i4"), ("prepared_transaction_offset", ">i8"), ("body_size", ">u4")])
_BODY_AT: Final = np.array(BODY_AT, dtype=np.int64)
_IPV4_HOST: Final = 8
_IPV6_MORE: Final = 12
_COMMIT_LOG_OFFSET_AT: Final = 28
_SIZE: Final = struct.Struct(">I")
# A step of numpy over all responses costs what so many single steps cost.
_WORTH_IT: Final = 48


def gather(buffer: bytes | npt.NDArray[np.uint8], positions: Positions, dtype: npt.DTypeLike) -> npt.NDArray[Any]:
    """The values of a packed type at any positions of a buffer; a position too near to its end reads its last bytes.

    Opaque bytes are gathered and then looked at as the type, because numpy copies those without a look at each field.
    """
    wanted = np.dtype(dtype)
    if len(buffer) < wanted.itemsize:
        buffer = bytes(buffer).ljust(wanted.itemsize, b"\0")
    every = np.ndarray((len(buffer) - wanted.itemsize + 1,), f"V{wanted.itemsize}", buffer=buffer, strides=(1,))
    return every[np.minimum(positions, len(every) - 1)].view(wanted)


def record_starts(buffer: bytes, start: int, end: int) -> list[int] | None:
    """Where each record between two positions begins; None when their sizes do not lead from the one to the other."""
    starts: list[int] = []
    append, size_at = starts.append, _SIZE.unpack_from
    position = start
    while position < end:
        if end - position < MIN_RECORD_SIZE:
            return None
        append(position)
        (size,) = size_at(buffer, position)
        if size < MIN_RECORD_SIZE:
            return None
        position += size
    return starts if position == end else None


def response_starts(buffer: bytes, sizes: Sequence[int]) -> tuple[Positions, Positions, list[int]]:
    """Where each record of some responses that lie end to end begins, and which response it is of.

    Third, the responses whose records' sizes do not lead to their ends: their records are left out. Many responses are
    walked side by side, a record of each at a time, for as long as there are enough of them to be worth it.
    """
    ends = np.cumsum(sizes, dtype=np.int64)
    at = ends - np.array(sizes, np.int64)
    wrong = np.zeros(len(ends), bool)
    walked = np.flatnonzero(at < ends)
    starts: list[Positions] = []
    parts: list[Positions] = []
    while len(walked) >= _WORTH_IT:
        here, end = at[walked], ends[walked]
        following = here + gather(buffer, here, ">u4")
        sound = (following - here >= MIN_RECORD_SIZE) & (following <= end)
        wrong[walked[~sound]] = True
        starts.append(here)
        parts.append(walked)
        at[walked] = following
        walked = walked[sound & (following < end)]
    for part in walked.tolist():
        found = record_starts(buffer, int(at[part]), int(ends[part]))
        if found is None:
            wrong[part] = True
        else:
            starts.append(np.array(found, np.int64))
            parts.append(np.full(len(found), part, np.int64))
    every, of = (np.concatenate(arrays) if arrays else np.empty(0, np.int64) for arrays in (starts, parts))
    order = np.argsort(every, kind="stable")
    every, of = every[order], of[order]
    if wrong.any():
        every, of = every[~wrong[of]], of[~wrong[of]]
    return every, of, np.flatnonzero(wrong).tolist()


@dataclass(frozen=True, slots=True)
class RecordTable:
    """Records of one buffer, a column for each thing to know about them.

    `part` says which response a record is of. A column is not to be trusted where `sound` is false.
    """

    part: Positions
    starts: Positions
    ends: Positions
    head: npt.NDArray[Any]
    store_host_at: Positions
    store_host_size: Positions
    store_timestamp: npt.NDArray[Any]
    tail: npt.NDArray[Any]
    body_at: Positions
    body_end: Positions
    topic_at: Positions
    topic_end: Positions
    properties_at: Positions
    sound: Mask

    @classmethod
    def read(cls, buffer: bytes, begin: Positions, part: Positions) -> RecordTable:
        """The table of the records that begin at these positions; each has at least the smallest record's size."""
        head = gather(buffer, begin, _HEAD)
        ends = begin + head["total"]
        sys_flag = head["sys_flag"].astype(np.int64)
        body_at = begin + _BODY_AT[(sys_flag & HOST_BITS) >> 4]
        store_timestamp_at = begin + (_HEAD.itemsize + _IPV4_HOST) + _IPV6_MORE * (sys_flag & BORN_HOST_V6 != 0)
        tail = gather(buffer, body_at - _TAIL.itemsize, _TAIL)
        body_end = body_at + tail["body_size"]
        topic_sizes = gather(buffer, body_end, ">u2").astype(np.int64)
        is_v1 = head["magic"] == MAGIC_V1
        topic_at = body_end + np.where(is_v1, 1, 2)
        topic_end = topic_at + np.where(is_v1, topic_sizes >> 8, topic_sizes)
        properties_at = topic_end + 2
        properties_end = properties_at + gather(buffer, topic_end, ">u2")
        return cls(
            part=part,
            starts=begin,
            ends=ends,
            head=head,
            store_host_at=store_timestamp_at + 8,
            store_host_size=_IPV4_HOST + _IPV6_MORE * (sys_flag & STORE_HOST_V6 != 0),
            store_timestamp=gather(buffer, store_timestamp_at, ">i8"),
            tail=tail,
            body_at=body_at,
            body_end=body_end,
            topic_at=topic_at,
            topic_end=topic_end,
            properties_at=properties_at,
            # A field that was read past the buffer's end also ends past it, so the sum tells.
            sound=(is_v1 | (head["magic"] == MAGIC_V2)) & (properties_end == ends),
        )

    def __len__(self) -> int:
        return len(self.starts)

    def select(self, wanted: Mask) -> RecordTable:
        """The same for some of the records."""
        if wanted.all():
            return self
        return RecordTable(**{column.name: getattr(self, column.name)[wanted] for column in fields(self)})

    def topic(self, buffer: bytes) -> bytes | None:
        """The topic of all records; None when they have several."""
        sizes = self.topic_end - self.topic_at
        if not len(sizes) or (sizes != sizes[0]).any():
            return None
        topic = buffer[self.topic_at[0] : self.topic_end[0]]
        if not topic:
            return topic
        topics = gather(buffer, self.topic_at, f"V{len(topic)}").view(np.uint8).reshape(-1, len(topic))
        return topic if (topics == np.frombuffer(topic, np.uint8)).all() else None

    def offset_ids(self, buffer: bytes) -> list[tuple[Positions, bytes]]:
        """The offset ids of the records by their length: which rows, and the digits of all of them, end to end."""
        ids: list[tuple[Positions, bytes]] = []
        for size in (_IPV4_HOST, _IPV4_HOST + _IPV6_MORE):
            rows = np.flatnonzero(self.store_host_size == size)
            host = gather(buffer, self.store_host_at[rows], f"V{size}").view(np.uint8).reshape(-1, size)
            offset = gather(buffer, self.starts[rows] + _COMMIT_LOG_OFFSET_AT, "V8").view(np.uint8).reshape(-1, 8)
            ids.append((rows, np.hstack((host, offset)).tobytes().hex().upper().encode()))
        return ids
