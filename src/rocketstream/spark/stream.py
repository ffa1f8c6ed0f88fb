"""A stream of messages: what Spark's micro-batches ask, answered by a `StreamPlanner`.

The rule of this file: it translates between Spark's dictionaries and our offsets, and decides nothing. The planner is
made at the first question: Spark makes and pickles readers in several processes, of which one asks.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow

from rocketstream.errors import ConfigurationError
from rocketstream.spark.offsets import Offsets, offsets_json, parse_offsets
from rocketstream.spark.options import ReadOptions
from rocketstream.spark.partition import RangesPartition, plainly, reach, read_partition
from rocketstream.spark.stream_planning import StreamPlanner

if TYPE_CHECKING:
    import pyarrow as pa

log = logging.getLogger("rocketstream.spark")


class RocketMQStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads topics batch by batch, from offsets that Spark keeps in its checkpoint."""

    def __init__(self, options: ReadOptions, columns: Sequence[str]) -> None:
        if options.ending is not None:
            raise ConfigurationError("endingOffsets and endingTimestamp are for batch reads: a stream has no end")
        self._options = options
        self._columns = tuple(columns)
        self._planner: StreamPlanner | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_planner": None}

    def _plan(self) -> StreamPlanner:
        if self._planner is None:
            self._planner = StreamPlanner(self._options, reach(self._options))
        return self._planner

    def _json(self, offsets: Offsets) -> dict[str, Any]:
        return offsets_json(offsets, self._options.link.namespace)

    def _offsets(self, value: dict[str, Any]) -> Offsets:
        return parse_offsets(value, self._options.link.namespace, "the checkpoint's offset")

    @plainly
    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        """Where a new query begins."""
        return self._json(self._plan().initial())

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """How much a batch reads at most."""
        most = self._options.max_offsets_per_trigger
        return ReadAllAvailable() if most is None else ReadMaxRows(most)

    @plainly
    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        """Where the next batch ends."""
        most = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        return self._json(self._plan().latest(self._offsets(start), most))

    @plainly
    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802
        """The ends of the queues, so that progress reports show how far behind the query is."""
        return self._json(self._plan().report())

    @plainly
    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Remember what there is now: that much is read, in as many batches as it takes, and no more."""
        self._plan().prepare_available_now()

    @plainly
    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """The tasks of a batch."""
        planned = self._plan().partitions(self._offsets(start), self._offsets(end))
        return [RangesPartition(ranges) for ranges in planned]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """One task's messages."""
        return read_partition(partition, self._options, self._columns)

    def commit(self, end: dict[str, Any]) -> None:
        """Everything before `end` is finished."""
        try:
            planner = self._plan()
            if planner.group is not None:
                planner.group.finished(self._offsets(end))
        except Exception:  # to raise here would end the query, for what is written again with the next batch
            log.warning("the offsets of a finished batch are not written to the group yet", exc_info=True)

    def stop(self) -> None:
        """Write the group's offsets that are still to be written."""
        if self._planner is not None:
            self._planner.stop()
