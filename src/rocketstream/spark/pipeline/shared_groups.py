"""The group offsets of a source that several queries read: what all of them have finished, and no more.

A source by itself writes its group's offsets as its own query goes on. Of several queries one may be ahead of the
others, and to a group only the one furthest behind counts. So their sources write nothing, and this does.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from rocketstream.cluster.names import with_namespace, without_namespace
from rocketstream.message import MessageQueue
from rocketstream.spark.group_offsets import GroupOffsets
from rocketstream.spark.link import link
from rocketstream.spark.offsets import Offsets, parse_offsets
from rocketstream.spark.options import ReadOptions
from rocketstream.spark.pipeline.frames import reader_count
from rocketstream.spark.pipeline.model import Pipeline, Source
from rocketstream.spark.pipeline.progress import Tally


def finished_by_all(queries: Iterable[Sequence[Offsets]]) -> Offsets:
    """For each queue that every query has read, the offset of the one furthest behind.

    A query may read a topic through several sources; the least of them counts there, too.
    """
    least: list[Offsets] = []
    for sources in queries:
        mine: Offsets = {}
        for offsets in sources:
            for queue, offset in offsets.items():
                mine[queue] = min(offset, mine.get(queue, offset))
        least.append(mine)
    if not least:
        return {}
    common = set.intersection(*(set(mine) for mine in least))
    return {queue: min(mine[queue] for mine in least) for queue in common}


class SharedGroup:
    """A source with a group, and the queries that read it."""

    def __init__(self, source: Source, tallies: Sequence[Tally]) -> None:
        self._options = ReadOptions.parse(source.options)
        self._tallies = tallies
        self._writer: GroupOffsets | None = None
        self._last: Offsets = {}

    def __repr__(self) -> str:
        return f"<SharedGroup {self._options.group} of {len(self._tallies)} queries>"

    def write(self) -> None:
        """Have written what all queries have finished, if it is more than before; does not wait."""
        finished = finished_by_all([self._ours(tally.ends) for tally in self._tallies])
        if finished and finished != self._last:
            self._last = finished
            if self._writer is None:
                self._writer = GroupOffsets(link(self._options.link), str(self._options.group))
            self._writer.finished(finished)

    def flush(self) -> None:
        """Wait for it, for a few seconds at most."""
        if self._writer is not None:
            self._writer.flush()

    def _ours(self, ends: Iterable[Mapping[str, Any]]) -> list[Offsets]:
        """Of what a query has finished, what is of this source's topics."""
        namespace = self._options.link.namespace
        return [
            {queue: offset for queue, offset in parse_offsets(end, namespace).items() if self._is_ours(queue)}
            for end in ends
        ]

    def _is_ours(self, queue: MessageQueue) -> bool:
        options = self._options
        if options.topic_pattern is not None:
            return (
                re.fullmatch(options.topic_pattern, without_namespace(options.link.namespace, queue.topic)) is not None
            )
        return queue.topic in {with_namespace(options.link.namespace, topic) for topic in options.topics}


def shared_groups(pipeline: Pipeline, readers: Mapping[str, Sequence[Tally]]) -> list[SharedGroup]:
    """The sources whose group offsets are to be written here; `readers` are the queries per source."""
    return [
        SharedGroup(source, readers[source.name])
        for source in pipeline.sources
        if reader_count(pipeline, source) > 1 and ReadOptions.parse(source.options).commit_offsets
    ]
