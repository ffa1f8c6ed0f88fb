"""The id that the sink gives to each row: who wrote it, in which partition, and which row it is.

    <query id>:<batch>:<partition>:<digest of the row>:<how many rows like it came before in its partition>

A stream's query id is that of its checkpoint, so a batch that is written again, by a task that is tried again or by a
query that is started again, gives its rows the ids that they had. A batch write has an id of its own and batch 0.

The rule of this file: a row is known by its bytes, not by where it stands. Tasks that read several queues, or the far
side of a shuffle, see their rows in another order when they are tried again: numbers would then be given to other rows,
and whoever drops duplicates by them would drop rows that are not there twice.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from hashlib import blake2b
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from rocketstream.errors import ConfigurationError

ROW_ID: Final = "SPARK_ROW_ID"
"""The property that carries the id."""

Digests = npt.NDArray[np.uint64]
Counts = npt.NDArray[np.int64]

# What Spark's stream execution tells its tasks.
_QUERY_ID: Final = "sql.streaming.queryId"
_BATCH_ID: Final = "streaming.sql.batchId"

_PATTERN: Final = re.compile(r"([A-Za-z0-9_.-]{1,128}):(\d{1,19}):(\d{1,10}):([0-9a-f]{16}):(\d{1,19})", re.ASCII)
_WRITE_ID: Final = re.compile(r"[A-Za-z0-9_.-]{1,128}", re.ASCII)
_DIGEST_BYTES: Final = 8
_STRETCH: Final = 1 << 22
"""So many rows of a partition are compared with one another; more would take more memory (8 bytes each)."""


class RowId(NamedTuple):
    """An id in its parts; messages with equal ids are copies of one row."""

    write_id: str
    """The id of the streaming query, or of the batch write."""
    batch: int
    partition: int
    digest: str
    """16 hexadecimal digits of a hash of the row."""
    copy: int
    """How many equal rows came before it in its partition."""

    def __str__(self) -> str:
        return f"{self.write_id}:{self.batch}:{self.partition}:{self.digest}:{self.copy}"


def parse_row_id(text: str) -> RowId:
    """The parts of the property `SPARK_ROW_ID` of a message."""
    found = _PATTERN.fullmatch(text)
    if found is None:
        raise ConfigurationError(f"{text!r} is no row id: <query id>:<batch>:<partition>:<digest>:<copy>")
    write_id, batch, partition, digest, copy = found.groups()
    return RowId(write_id, int(batch), int(partition), digest, int(copy))


class TaskId(NamedTuple):
    """What the ids of all rows of one task have in common; a task that is tried again has the same."""

    write_id: str
    batch: int
    partition: int

    def __str__(self) -> str:
        return f"{self.write_id}:{self.batch}:{self.partition}"


class RowIds:
    """Gives the rows of one task their ids, as they come."""

    def __init__(self, task: TaskId, *, stretch: int = _STRETCH) -> None:
        self._start = f"{task}:".encode()
        self._stretch = stretch
        self._rows = 0
        self._copies = CopyCounter()

    def __repr__(self) -> str:
        return f"<RowIds {self._start.decode()} {self._rows} rows, {len(self._copies)} kept>"

    def next(self, rows: Sequence[bytes]) -> pa.Array:
        """The ids of the rows that come next, as binary; each is given by all of its bytes."""
        stretch = self._rows // self._stretch
        hashes = b"".join(_digests(rows, stretch))
        digests = np.frombuffer(hashes, ">u8").astype(np.uint64)
        copies = pa.array(self._copies.count(digests)).cast(pa.string()).cast(pa.binary())
        self._rows += len(rows)
        if self._rows // self._stretch != stretch:
            self._copies = CopyCounter()  # the next rows have another salt, so no digest of these comes again
        # All digits of all rows at once: the hash is the only Python code per row here.
        digits = pa.py_buffer(hashes.hex().encode())
        hexadecimal = pa.Array.from_buffers(pa.binary(2 * _DIGEST_BYTES), len(rows), [None, digits])
        return pc.binary_join_element_wise(self._start, hexadecimal.cast(pa.binary()), b":", copies, b"")


def _digests(rows: Sequence[bytes], stretch: int) -> Iterator[bytes]:
    # To copy a hash that is begun takes less time than to begin one.
    begun = blake2b(digest_size=_DIGEST_BYTES, salt=stretch.to_bytes(8, "big"))
    for row in rows:
        one = begun.copy()
        one.update(row)
        yield one.digest()


class CopyCounter:
    """Counts how often each digest has come before, in 8 bytes for each that came.

    Digests are kept in sorted arrays that grow by halves, like the levels of a log-structured tree: each is looked up
    in a few of them, and moved a few times.
    """

    __slots__ = ("_levels",)

    def __init__(self) -> None:
        self._levels: list[Digests] = []

    def __repr__(self) -> str:
        return f"<CopyCounter of {len(self)} digests>"

    def __len__(self) -> int:
        return sum(map(len, self._levels))

    def count(self, digests: Digests) -> Counts:
        """For each digest, how many equal ones came before: earlier, or ahead of it in the array."""
        order = np.argsort(digests, kind="stable")
        found = digests[order]
        begins = np.ones(len(found), bool)
        begins[1:] = found[1:] != found[:-1]
        starts = np.flatnonzero(begins)
        before = np.arange(len(found)) - np.repeat(starts, np.diff(starts, append=len(found)))
        for level in self._levels:
            before += np.searchsorted(level, found, "right") - np.searchsorted(level, found, "left")
        self._keep(found)
        copies = np.empty(len(found), np.int64)
        copies[order] = before
        return copies

    def _keep(self, found: Digests) -> None:
        levels = self._levels
        levels.append(found)
        while len(levels) > 1 and len(levels[-1]) * 2 >= len(levels[-2]):
            last = levels.pop()
            levels[-1] = np.sort(np.concatenate((levels[-1], last)), kind="stable")


def check_write_id(write_id: str) -> None:
    """Refuse a `writeId` that would make ids that cannot be taken apart."""
    if not _WRITE_ID.fullmatch(write_id):
        raise ConfigurationError(
            f"writeId={write_id!r} must be 1 to 128 letters, digits and _ . -, so that row ids can be taken apart"
        )


def batch_task(write_id: str, partition: int) -> TaskId:
    """The task of a batch write."""
    return TaskId(write_id, 0, partition)


def stream_task(local_property: Callable[[str], str | None], partition: int) -> TaskId:
    """The task of a micro-batch; `local_property` is that of its `TaskContext`."""
    query_id, batch = local_property(_QUERY_ID), local_property(_BATCH_ID)
    if not query_id or not batch:
        # Ids that are not stable would be worse than none: readers drop by them.
        raise ConfigurationError(
            f"Spark told the task neither its query nor its batch ({_QUERY_ID}={query_id!r}, {_BATCH_ID}={batch!r}):"
            " rows cannot be given stable ids"
        )
    return TaskId(query_id, int(batch), partition)
