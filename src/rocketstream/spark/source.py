"""RocketMQ as a data source of Spark: `spark.read.format("rocketmq")` and its three sisters.

The rule of this file: it joins what Spark asks for with who knows it. Where a read begins and ends is `planning`'s,
how tasks read is `pulling`'s, streams are `stream`'s, writing is `sink`'s.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from rocketstream.spark.options import ReadOptions
from rocketstream.spark.partition import RangesPartition, plainly, reach, read_partition
from rocketstream.spark.planning import BatchPlanner
from rocketstream.spark.schema import columns_of, full_schema

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.datasource import DataSourceStreamWriter, DataSourceWriter


class RocketMQDataSource(DataSource):
    """Topics of RocketMQ, to read and to write."""

    @classmethod
    def name(cls) -> str:
        """What `format(...)` is given."""
        return "rocketmq"

    @plainly
    def schema(self) -> StructType:
        """All columns of a message."""
        ReadOptions.parse(self.options)
        return full_schema()

    @plainly
    def reader(self, schema: StructType) -> DataSourceReader:
        """A batch read."""
        return RocketMQReader(ReadOptions.parse(self.options), columns_of(schema))

    @plainly
    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        """A stream."""
        from rocketstream.spark.stream import RocketMQStreamReader

        return RocketMQStreamReader(ReadOptions.parse(self.options), columns_of(schema))

    @plainly
    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """A batch write."""
        from rocketstream.spark.sink import make_writer

        return make_writer(self.options, schema, overwrite)

    @plainly
    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802
        """The sink of a stream."""
        from rocketstream.spark.sink import make_stream_writer

        return make_stream_writer(self.options, schema, overwrite)


class RocketMQReader(DataSourceReader):
    """Reads ranges of queues that are fixed when the read is planned."""

    def __init__(self, options: ReadOptions, columns: Sequence[str]) -> None:
        self._options = options
        self._columns = tuple(columns)

    @plainly
    def partitions(self) -> Sequence[InputPartition]:
        """Find out what there is and cut it into tasks."""
        planner = BatchPlanner(self._options, reach(self._options))
        return [RangesPartition(ranges) for ranges in planner.partitions()] or [RangesPartition(())]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """One task's messages."""
        return read_partition(partition, self._options, self._columns)
