r"""The properties of many messages at once: where each name and value lies, found with numpy.

The rule of this file: it reads what `properties.decode_properties` reads, or says of which rows it cannot tell.
Those are bytes that are no UTF-8 (they are replaced by a rule that only a decoder knows) and a name that comes twice
(the first one's place, the last one's value).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from rocketstream.wire.record_table import Mask, Positions, RecordTable, gather

_NAME_END: Final = 1
_VALUE_END: Final = 2
_WORD: Final = 8
# What of a word's bytes belongs to a name, by the name's size.
_WORD_MASKS: Final = np.array([(1 << 8 * size) - 1 for size in range(_WORD + 1)], dtype="<u8")
# Odd numbers without a pattern: they spread names over all values of a word.
_SPREAD: Final = (np.uint64(0x9E3779B97F4A7C15), np.uint64(0xC2B2AE3D27D4EB4F), np.uint64(0x165667B19E3779F9))
# With so many properties in a row, comparing each with each is still quicker than sorting all.
_FEW: Final = 24


def cut(buffer: Any, starts: Positions, ends: Positions, kind: Any, rows: Any = None) -> Any:
    """An Arrow array of pieces of a buffer, which lie in it one after the other.

    `rows` (Arrow, may have nulls) says which piece each row shows; without, each piece is a row.
    """
    # The pieces and the gaps between them alternate, so that they make an array without a copy; take leaves the gaps.
    edges = np.empty(2 * len(starts) + 1, dtype=np.int32)
    edges[0:-1:2] = starts
    edges[1::2] = ends
    edges[-1] = edges[-2] if len(starts) else 0
    pieces = pa.Array.from_buffers(kind, 2 * len(starts), [None, pa.py_buffer(edges), pa.py_buffer(buffer)])
    return pieces.take(pa.array(np.arange(0, 2 * len(starts), 2)) if rows is None else rows)


def is_utf8(text: bytes) -> bool:
    """Whether a decoder takes these bytes as they are."""
    try:
        text.decode()
    except UnicodeDecodeError:
        return False
    return True


@dataclass(frozen=True, slots=True)
class PropertyTable:
    """The properties of some records, one entry for each that counts, row after row.

    `text` has every row's encoded properties with a separator before each row and after the last.
    """

    text: npt.NDArray[np.uint8]
    row_starts: Positions
    first: Positions
    name_at: Positions
    name_end: Positions
    value_end: Positions
    row: Positions
    name_size: Positions
    #: The first eight bytes of each name as a number, zeros after a shorter one: two such names compare at once.
    name_word: npt.NDArray[Any]

    @classmethod
    def read(cls, buffer: bytes, records: RecordTable) -> PropertyTable:
        # A row is cut out with the byte before it, which then becomes the separator.
        rows = cut(buffer, records.properties_at - 1, records.ends, pa.binary())
        row_starts = np.frombuffer(rows.buffers()[1], np.int32, len(rows) + 1).astype(np.int64)
        size = int(row_starts[-1])
        # A word may be read at the last byte.
        text = np.zeros(size + 1 + _WORD, dtype=np.uint8)
        text[:size] = np.frombuffer(rows.buffers()[2], np.uint8, size)
        text[row_starts] = _VALUE_END

        separators = np.flatnonzero((text - np.uint8(_NAME_END)) < 2)  # one comparison for both: 0 - 1 is 255
        ends_value = text[separators] == _VALUE_END
        # A name ends at the first separator of its kind after the other kind; those after it belong to the value.
        ends_name = np.flatnonzero(~ends_value[1:] & ends_value[:-1]) + 1
        name_at, name_end = separators[ends_name - 1] + 1, separators[ends_name]
        if ends_value[ends_name + 1].all():
            value_end = separators[ends_name + 1]
        else:
            value_ends = separators[ends_value]
            value_end = value_ends[np.searchsorted(value_ends, name_end)]
        counts = (name_end > name_at) & (value_end > name_end + 1)
        if not counts.all():
            name_at, name_end, value_end = name_at[counts], name_end[counts], value_end[counts]
        first = np.searchsorted(name_at, row_starts)
        row = np.repeat(np.arange(len(rows)), np.diff(first))
        name_size = name_end - name_at
        name_word = gather(text, name_at, "<u8") & _WORD_MASKS[np.minimum(name_size, _WORD)]
        return cls(text, row_starts, first, name_at, name_end, value_end, row, name_size, name_word)

    def unreadable(self) -> Mask:
        """Which rows are not UTF-8."""
        text = self.text.tobytes()
        unreadable = np.zeros(len(self.row_starts) - 1, dtype=np.bool_)
        if not is_utf8(text):
            edges = self.row_starts.tolist()
            for row in range(len(unreadable)):
                unreadable[row] = not is_utf8(text[edges[row] : edges[row + 1]])
        return unreadable

    def repeating(self) -> Mask:
        """Which rows have a name twice, and perhaps more: names that differ only in their middle look alike here."""
        last = gather(self.text, np.maximum(self.name_at, self.name_end - _WORD), "<u8")
        last &= _WORD_MASKS[np.minimum(self.name_size, _WORD)]
        marks = (self.name_word * _SPREAD[0]) ^ (last * _SPREAD[1])
        marks ^= (self.name_size + (self.row << 16)).astype(np.uint64) * _SPREAD[2]
        rows = np.zeros(len(self.row_starts) - 1, dtype=np.bool_)
        most = int(np.diff(self.first).max(initial=0))
        if most <= _FEW:
            for distance in range(1, most):
                rows[self.row[distance:][marks[distance:] == marks[:-distance]]] = True
        else:
            order = np.argsort(marks, kind="stable")
            rows[self.row[order[1:][marks[order[1:]] == marks[order[:-1]]]]] = True
        return rows

    def maps(self) -> Any:
        """All properties, as Arrow's map of each row; for rows that do not repeat a name."""
        names = cut(self.text, self.name_at, self.name_end, pa.string())
        values = cut(self.text, self.name_end + 1, self.value_end, pa.string())
        return pa.MapArray.from_arrays(pa.array(self.first.astype(np.int32)), names, values)

    def values(self, name: str) -> Any:
        """The value of one property of each row, null where there is none; its name has at most eight bytes."""
        raw = name.encode()
        word = np.uint64(int.from_bytes(raw, "little"))
        found = np.flatnonzero((self.name_word == word) & (self.name_size == len(raw)))
        piece = np.full(len(self.row_starts) - 1, -1, dtype=np.int64)
        # Of equal names in a row the last counts, as numpy keeps the last of several assignments.
        piece[self.row[found]] = np.arange(len(found))
        return cut(
            self.text, self.name_end[found] + 1, self.value_end[found], pa.string(), pa.array(2 * piece, mask=piece < 0)
        )
