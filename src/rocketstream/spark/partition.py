"""What a task is given and how it reads it; and how errors come out of a reader: as their one sentence."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from pyspark.sql.datasource import InputPartition

from rocketstream.errors import RocketStreamError
from rocketstream.spark.link import Link, link
from rocketstream.spark.options import ReadOptions
from rocketstream.spark.pulling import read_ranges
from rocketstream.spark.ranges import QueueRange

if TYPE_CHECKING:
    import pyarrow as pa

Method = TypeVar("Method", bound=Callable[..., Any])


class RangesPartition(InputPartition):
    """What one task reads."""

    def __init__(self, ranges: Sequence[QueueRange]) -> None:
        super().__init__(None)
        self.ranges = tuple(ranges)

    def __repr__(self) -> str:
        return f"<RangesPartition {', '.join(map(str, self.ranges))}>"


def read_partition(partition: InputPartition, options: ReadOptions, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """One task's messages, read where it runs."""
    ranges = partition.ranges if isinstance(partition, RangesPartition) else ()
    if ranges:
        yield from read_ranges(link(options.link), ranges, options.pull_settings(), columns)


def reach(options: ReadOptions) -> Link:
    """The driver's link for a read, which waits for brokers as long as the read's user wants."""
    found = link(options.link)
    found.outage = options.outage
    return found


def plainly(method: Method) -> Method:
    """Let an error of ours leave without the way it came: Spark shows the whole of it to the user."""

    @functools.wraps(method)
    def run(*arguments: Any, **named: Any) -> Any:
        try:
            return method(*arguments, **named)
        except RocketStreamError as error:
            plain = error
        plain.__cause__ = plain.__context__ = None
        raise plain.with_traceback(None)

    return run  # type: ignore[return-value]
