"""Ranges of queues: how much of each queue a batch reads, and which task reads what.

The rule of this file: pure planning. Nothing is asked of anybody; the same values give the same plan.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from rocketstream.message import MessageQueue
from rocketstream.spark.offsets import Offsets


class QueueRange(NamedTuple):
    """The messages of a queue from offset `start` up to, and without, offset `end`."""

    queue: MessageQueue
    start: int
    end: int

    def __str__(self) -> str:
        """For logs and errors: `orders@broker-a:3 [5, 12)`."""
        return f"{self.queue} [{self.start}, {self.end})"

    @property
    def size(self) -> int:
        """How many offsets it has; gaps count."""
        return max(self.end - self.start, 0)


def ranges_between(start: Mapping[MessageQueue, int], end: Mapping[MessageQueue, int]) -> list[QueueRange]:
    """The ranges that lie between two sets of offsets; a queue that `start` does not know begins at 0."""
    found = [QueueRange(queue, start.get(queue, 0), end[queue]) for queue in sorted(end)]
    return [one for one in found if one.size]


def admit(start: Mapping[MessageQueue, int], available: Mapping[MessageQueue, int], limit: int | None) -> Offsets:
    """Where a batch ends that reads at most `limit` messages, each queue as many as the others if it has them.

    Queues with little are read whole, and what they leave of their share goes to the others: a queue with a long
    backlog neither waits for the short ones nor makes them wait.
    """
    end = {queue: max(available[queue], start.get(queue, available[queue])) for queue in available}
    backlog = {queue: end[queue] - start.get(queue, end[queue]) for queue in end}
    if limit is None or sum(backlog.values()) <= limit:
        return end
    left, queues = limit, sorted(backlog, key=lambda queue: (backlog[queue], queue))
    granted: Offsets = {}
    for number, queue in enumerate(queues):
        granted[queue] = min(backlog[queue], left // (len(queues) - number))
        left -= granted[queue]
    return {queue: start.get(queue, end[queue]) + granted[queue] for queue in end}


def plan_partitions(
    ranges: Iterable[QueueRange], slots: int, min_partitions: int | None = None
) -> list[list[QueueRange]]:
    """The ranges of each task: about as many tasks as slots, of about the same size.

    Without `min_partitions` no more tasks than that; ranges are cut where a task is full, so that one long queue
    keeps all slots busy. The parts of a queue stay in order.
    """
    work = [one for one in ranges if one.size]
    total = sum(one.size for one in work)
    if not total:
        return []
    count = min(min_partitions or max(_useful(total, slots), 1), total)
    partitions: list[list[QueueRange]] = []
    taken = 0
    rest = list(reversed(work))
    for number in range(count):
        goal = total * (number + 1) // count
        tasks: list[QueueRange] = []
        while rest and taken < goal:
            queue, start, end = rest.pop()
            cut = min(end, start + goal - taken)
            tasks.append(QueueRange(queue, start, cut))
            taken += cut - start
            if cut < end:
                rest.append(QueueRange(queue, cut, end))
        partitions.append(tasks)
    return partitions


#: A task costs some 50 ms whatever it does: fewer messages than this are not worth another one.
_LEAST_PER_TASK = 2_000


def _useful(total: int, slots: int) -> int:
    return min(slots, -(-total // _LEAST_PER_TASK))


def describe(ranges: Sequence[QueueRange]) -> str:
    """For logs: how many messages of how many queues."""
    return f"{sum(one.size for one in ranges)} offsets of {len({one.queue for one in ranges})} queues"
