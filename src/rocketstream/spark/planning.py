"""Planning a read: which queues there are, from where to where each is read, and what each task gets.

The rule of this file: it runs on the driver, before the first task. What is wrong with a read and can be known then
(a topic that is missing, offsets that are not there, a filter that the broker does not take) is said here, in one
sentence.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping

from rocketstream.consumer.expressions import Sql
from rocketstream.errors import ConfigurationError
from rocketstream.message import MessageQueue
from rocketstream.spark.errors import DataLossError
from rocketstream.spark.link import Link
from rocketstream.spark.offsets import Offsets
from rocketstream.spark.options import Place, ReadOptions
from rocketstream.spark.ranges import QueueRange, describe, plan_partitions
from rocketstream.spark.slots import slots

log = logging.getLogger("rocketstream.spark")


class BatchPlanner:
    """Plans one batch read."""

    def __init__(self, options: ReadOptions, link: Link) -> None:
        self._options = options
        self._link = link

    def partitions(self) -> list[list[QueueRange]]:
        """The ranges of each task."""
        ranges = self.ranges()
        partitions = plan_partitions(ranges, slots(len(ranges)), self._options.min_partitions)
        log.info("batch read of %s in %d tasks", describe(ranges), len(partitions))
        return partitions

    def ranges(self) -> list[QueueRange]:
        """What is to be read of each queue."""
        options, link = self._options, self._link
        queues = queues_of(link, options)
        if not queues:
            wanted = options.topic_pattern or ", ".join(options.topics)
            raise ConfigurationError(f"no queue of {wanted!r} can be read: no topic is there, or none is readable")
        check_filters(link, options, queues)
        starting, ending = options.starting or Place("earliest"), options.ending or Place("latest")
        start, end = place_offsets(link, options, starting, queues), place_offsets(link, options, ending, queues)
        first, last = link.limits(queues)
        return [
            one
            for queue in queues
            if (one := self._range(QueueRange(queue, start[queue], end[queue]), first[queue], last[queue])).size
        ]

    def _range(self, wanted: QueueRange, first: int, last: int) -> QueueRange:
        """A range as far as it exists; what is missing of it is an error, or is said, as the user wants."""
        queue, start, end = wanted
        if end <= start:
            return QueueRange(queue, start, start)
        for gone, why in (
            (QueueRange(queue, start, min(first, end)), f"its messages begin at {first}"),
            (QueueRange(queue, max(last, start), end), f"its messages end at {last}"),
        ):
            if gone.size:
                missing(gone, why, fail=self._options.fail_on_data_loss)
        start = max(start, first)
        return QueueRange(queue, start, max(min(end, last), start))


def missing(gone: QueueRange, why: str, *, fail: bool) -> None:
    """Messages that were to be read are not there."""
    if fail:
        raise DataLossError(gone, why)
    log.warning("%s is not there and is passed over (failOnDataLoss=false): %s", gone, why)


def queues_of(link: Link, options: ReadOptions) -> list[MessageQueue]:
    """The queues that a read is of, as the name servers know them now."""
    if options.topic_pattern is None:
        return link.queues(options.topics)
    topics = link.topics(options.topic_pattern)
    return link.queues(topics, all_must_exist=False) if topics else []


def check_filters(link: Link, options: ReadOptions, queues: Iterable[MessageQueue]) -> None:
    """Refuse a condition that a broker does not take; tags are always taken."""
    if isinstance(options.expression, Sql):
        settings = options.pull_settings()
        for topic in sorted({queue.topic for queue in queues}):
            link.check_filter(settings.subscription(topic), settings.group)


def place_offsets(link: Link, options: ReadOptions, place: Place, queues: Iterable[MessageQueue]) -> Offsets:
    """Where a place is in each queue."""
    wanted = list(queues)
    if place.millis is not None:
        return link.offsets_at(wanted, place.millis, options.pull_settings().group)
    given = dict(place.offsets)
    for queue in sorted(set(given) - set(wanted)):
        raise ConfigurationError(
            f"offset {given[queue]} is given for queue {queue.queue_id} of topic {queue.topic!r} on broker"
            f" {queue.broker_name!r}, but there is no such queue"
        )
    others = [queue for queue in wanted if queue not in given]
    if place.name == "committed":
        found = _committed_or_first(link, options.group or "", others)
    else:
        first, last = link.limits(others)
        found = first if place.name == "earliest" else last
    return {**found, **given}


def _committed_or_first(link: Link, group: str, queues: list[MessageQueue]) -> Offsets:
    """Where a group stands; where it never was, at the first message: nothing is passed over unseen."""
    committed = link.committed(group, queues)
    first = link.min_offsets([queue for queue in queues if committed[queue] is None])
    return {queue: first[queue] if offset is None else offset for queue, offset in committed.items()}


def known_starts(link: Link, start: Mapping[MessageQueue, int], queues: Iterable[MessageQueue]) -> Offsets:
    """Where each queue begins: as `start` says, and new ones at their first message."""
    unknown = [queue for queue in queues if queue not in start]
    return {**start, **(link.min_offsets(unknown) if unknown else {})}
