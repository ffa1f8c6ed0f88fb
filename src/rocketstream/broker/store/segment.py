"""A stretch of the log: envelopes, each with one record.

     0 size of the record 4       8 record (`wire.record`)
     4 CRC32 of the record 4

The rule of this file: what was appended never changes, so readers are given views of it and nothing is copied. The
memory is mapped, not allocated: pages that nothing was written to cost nothing, and a segment that is dropped lives on
until its last reader has let go.
"""

from __future__ import annotations

import mmap
import struct
from array import array
from pathlib import Path
from typing import Final
from zlib import crc32

from rocketstream.wire.record import HOST_BITS
from rocketstream.wire.sysflag import BORN_HOST_V6

ENVELOPE: Final = struct.Struct(">II")
ENVELOPE_SIZE: Final = ENVELOPE.size
_TIMESTAMP: Final = struct.Struct(">q")
_SYS_FLAG_AT: Final = 39  # the last byte of the flag: the bits for IPv6 are in it
assert HOST_BITS < 256


class Segment:
    """Part of the log that begins at a position (`base`) and is `end` bytes long so far."""

    __slots__ = (
        "base",
        "capacity",
        "doubtful",
        "end",
        "key_hashes",
        "key_places",
        "newest",
        "path",
        "settled",
        "view",
        "written",
    )

    def __init__(self, base: int, view: memoryview, *, end: int = 0, path: Path | None = None) -> None:
        self.base = base
        self.view = view
        self.capacity = len(view)
        self.end = end
        self.path = path
        """Its file; None in memory."""
        self.written = end
        """How much of it is in the file."""
        self.settled = True
        """Whether it may be dropped: False while it is still to be written."""
        self.doubtful = False
        """Whether nobody has looked at its records since it was opened: each is checked when it is read."""
        self.newest = 0
        """The store time of its last message."""
        self.key_hashes = array("I")
        self.key_places = array("I")
        """Where the record with that key begins, counted from `base`: 4 bytes are enough."""

    def __repr__(self) -> str:
        return f"<Segment {self.base} to {self.base + self.end}{f' in {self.path}' if self.path else ''}>"

    def is_sound(self, at: int, size: int) -> bool:
        """Whether the record that is to begin at a byte of this segment has that size and its checksum."""
        its_size, checksum = ENVELOPE.unpack_from(self.view, at - ENVELOPE_SIZE)
        return bool(its_size == size and crc32(self.view[at : at + size]) == checksum)

    def timestamp_at(self, at: int) -> int:
        """The store time of the record that begins at a byte of this segment."""
        at += 68 if self.view[at + _SYS_FLAG_AT] & BORN_HOST_V6 else 56
        timestamp: int = _TIMESTAMP.unpack_from(self.view, at)[0]
        return timestamp


def empty_memory(size: int) -> memoryview:
    """That many bytes which take memory only where they are written."""
    return memoryview(mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS))


def mapped_file(path: Path) -> memoryview:
    """The bytes of a file, read when they are looked at."""
    with path.open("rb") as file:
        if not file.seek(0, 2):
            return memoryview(b"")
        return memoryview(mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ))
