"""Reading ranges of queues on executors: as answers to pulls, or as Arrow batches.

The rule of this file: what comes out is all of each range that exists and is wanted, in order per queue, however the
brokers fare meanwhile within a bound; or an error. Pulls run ahead on the I/O thread (`pulls`); here their answers
become columns, on the thread that asks for them.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from queue import Empty

import pyarrow as pa
import pyarrow.compute as pc

from rocketstream.cluster.names import without_namespace
from rocketstream.errors import CorruptMessageError, MissingCodecError
from rocketstream.spark.link import Link
from rocketstream.spark.pull_settings import PullSettings
from rocketstream.spark.pulls import Pulls
from rocketstream.spark.ranges import QueueRange
from rocketstream.wire.columns import COLUMNS, Pulled, Unreadable, read_columns

__all__ = ["PullSettings", "Pulled", "pull_ranges", "read_ranges"]

log = logging.getLogger("rocketstream.spark")

#: More rows than this are given to Spark in parts: a broker may answer with as many as it was asked for.
_MOST_ROWS = 10_000
_LOOK_EVERY = 5.0


def pull_ranges(link: Link, ranges: Sequence[QueueRange], settings: PullSettings) -> Iterator[Pulled]:
    """The answers to pulls of some ranges, in order per queue.

    Messages outside of a range may be in an answer: the offsets of each `Pulled` say which are wanted. So may be
    messages with another tag of the same hash code, which brokers can't tell apart.
    """
    for group in _groups(link, ranges, settings):
        yield from group


def read_ranges(
    link: Link, ranges: Sequence[QueueRange], settings: PullSettings, columns: Sequence[str] = COLUMNS
) -> Iterator[pa.RecordBatch]:
    """The messages of some ranges as Arrow batches of 4,000 to 10,000 rows (the last one: what is left)."""
    reader = _ColumnReader(settings, columns, link.settings.namespace)
    for group in _groups(link, ranges, settings):
        batch = reader.read(group)
        for start in range(0, batch.num_rows, _MOST_ROWS):
            yield batch.slice(start, _MOST_ROWS)


def _groups(link: Link, ranges: Sequence[QueueRange], settings: PullSettings) -> Iterator[list[Pulled]]:
    pulls = Pulls(link, ranges, settings)
    link.io.check(repr(link))
    link.io.call_soon(pulls.start)
    try:
        while True:
            try:
                group = pulls.groups.get(timeout=_LOOK_EVERY)
            except Empty:
                link.io.check(repr(link))  # who would bring the next one must still be there
                continue
            if group is None:
                return
            if isinstance(group, BaseException):
                raise group
            size = sum(len(pulled.body) for pulled in group)
            yield group
            pulls.took(size)
    finally:
        link.io.call_soon(pulls.stop)


class _ColumnReader:
    """Answers as the columns that are asked for, tags compared, topics as their users know them."""

    def __init__(self, settings: PullSettings, columns: Sequence[str], namespace: str | None) -> None:
        self._settings = settings
        self._columns = list(columns)
        self._namespace = namespace

    def read(self, group: list[Pulled]) -> pa.RecordBatch:
        tags = {topic: self._settings.subscription(topic).tags_set for topic in {one.queue.topic for one in group}}
        if not any(tags.values()):
            return self._shown(self._read(group, self._columns))
        # Brokers compare hash codes; of two tags with the same one both arrive.
        columns = [*self._columns, *({"tags"} - set(self._columns))]
        parts = []
        for topic, wanted in tags.items():
            batch = self._read([one for one in group if one.queue.topic == topic], columns)
            if wanted:
                batch = batch.filter(pc.is_in(batch.column("tags"), pa.array(sorted(wanted), pa.string())))
            parts.append(batch.select(self._columns))
        (joined,) = pa.Table.from_batches(parts).combine_chunks().to_batches() or [parts[0]]
        return self._shown(joined)

    def _read(self, group: list[Pulled], columns: Sequence[str]) -> pa.RecordBatch:
        batch, unreadable = read_columns(group, columns)
        for one in unreadable:
            self._report(one)
        return batch

    def _report(self, one: Unreadable) -> None:
        what = f"{one.queue}: message {one.queue_offset}" if one.queue_offset is not None else f"{one.queue}: an answer"
        if isinstance(one.error, MissingCodecError):
            raise one.error
        if self._settings.fail_on_data_loss:
            raise CorruptMessageError(f"{what} cannot be read ({one.error}); failOnDataLoss=false goes on without it")
        log.warning("%s cannot be read and is passed over (failOnDataLoss=false): %s", what, one.error)

    def _shown(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        if self._namespace is None or "topic" not in self._columns:
            return batch
        at = self._columns.index("topic")
        encoded = batch.column(at).dictionary_encode()
        names = [without_namespace(self._namespace, name) for name in encoded.dictionary.to_pylist()]
        shown = pa.array(names, pa.string()).take(encoded.indices)
        return batch.set_column(at, batch.schema.field(at), shown)
