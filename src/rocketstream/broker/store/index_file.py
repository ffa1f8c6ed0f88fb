"""The index of a complete segment as a file next to it, so that a start need not look at every record.

A complete segment never changes, so neither does its index: it is written once. It is never trusted blindly: with a
wrong checksum, or if it is about a segment of another size, the segment is scanned.

    magic 8, CRC32 of the rest 4, size of the JSON 4, JSON, then the arrays of each queue and of the keys
"""

from __future__ import annotations

import json
import os
import struct
import sys
from array import array
from bisect import bisect_left
from pathlib import Path
from typing import Any, Final
from zlib import crc32

from rocketstream.broker.store.index import LogIndex
from rocketstream.broker.store.segment import Segment

_MAGIC: Final = b"RSINDEX1"
_HEAD: Final = struct.Struct(">8sII")


def index_of(segment: Segment, index: LogIndex) -> list[bytes]:
    """The pieces of the index file of a segment: as long as it is the last one."""
    queues: list[list[Any]] = []
    pieces: list[bytes] = []
    for queue in index.queues():
        first = bisect_left(queue.positions, segment.base)
        count = len(queue.positions) - first
        if count:
            queues.append([queue.topic, queue.queue_id, queue.base + first, count])
            pieces += [column[first:].tobytes() for column in (queue.positions, queue.sizes, queue.tags)]
    pieces += [segment.key_hashes.tobytes(), segment.key_places.tobytes()]
    header = {
        "base": segment.base,
        "end": segment.end,
        "newest": segment.newest,
        "keys": len(segment.key_hashes),
        "order": sys.byteorder,
        "queues": queues,
    }
    return [json.dumps(header).encode(), *pieces]


def write_index(path: Path, pieces: list[bytes]) -> None:
    """Write the index file of the segment whose file is `path`."""
    checksum = 0
    for piece in pieces:
        checksum = crc32(piece, checksum)
    temporary = path.with_suffix(".index.new")
    with temporary.open("wb") as file:
        file.write(_HEAD.pack(_MAGIC, checksum, len(pieces[0])))
        file.writelines(pieces)
    os.replace(temporary, path.with_suffix(".index"))


def load_index(segment: Segment, index: LogIndex) -> bool:
    """Enter what the index file of a segment tells; False, and nothing was done, if there is no sound one."""
    assert segment.path is not None
    try:
        raw = segment.path.with_suffix(".index").read_bytes()
    except FileNotFoundError:
        return False
    if len(raw) < _HEAD.size:
        return False
    magic, checksum, size = _HEAD.unpack_from(raw)
    view = memoryview(raw)[_HEAD.size :]
    if magic != _MAGIC or crc32(view) != checksum:
        return False
    header = json.loads(bytes(view[:size]))
    if (header["base"], header["end"], header["order"]) != (segment.base, segment.end, sys.byteorder):
        return False
    at = size
    for topic, queue_id, offset, count in header["queues"]:
        positions, sizes, tags = array("Q"), array("I"), array("i")
        for column in (positions, sizes, tags):
            column.frombytes(view[at : at + count * column.itemsize])
            at += count * column.itemsize
        deleted = bisect_left(positions, index.deleted.get(topic, 0))
        if deleted < count:
            index.place_several(topic, queue_id, offset + deleted, positions[deleted:], sizes[deleted:], tags[deleted:])
    for column in (segment.key_hashes, segment.key_places):
        column.frombytes(view[at : at + header["keys"] * column.itemsize])
        at += header["keys"] * column.itemsize
    segment.newest = header["newest"]
    return True
