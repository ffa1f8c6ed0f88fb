"""Which queues go into which task: pure decisions."""

from __future__ import annotations

from collections.abc import Mapping
from heapq import heapify, heapreplace
from typing import TypeVar

Queue = TypeVar("Queue")


def share(backlogs: Mapping[Queue, int], tasks: int) -> list[list[Queue]]:
    """Spread queues over at most so many tasks, with about the same number of messages in each.

    The longest first, each to the task that has least: no task has more than a third above the best there could be.
    Every queue is in one task and no task is empty.
    """
    if tasks < 1 or not backlogs:
        return []
    shares: list[list[Queue]] = [[] for _ in range(min(tasks, len(backlogs)))]
    loads = [(0, number) for number in range(len(shares))]
    heapify(loads)
    # A queue weighs something even if nobody knows of a message in it, so that such queues are spread too.
    for queue in sorted(backlogs, key=lambda queue: -backlogs[queue]):
        load, number = loads[0]
        shares[number].append(queue)
        heapreplace(loads, (load + max(backlogs[queue], 1), number))
    return shares
