"""Notices a queue that has work and does not move, and says why; also members of a group that disagree.

The rule of this file: it only speaks, and not each time: once when a queue stands still, again after ten times as long.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping

from rocketstream.consumer.status import QueueStatus
from rocketstream.message import MessageQueue
from rocketstream.wire.bodies.subscription import SubscriptionData

log = logging.getLogger("rocketstream.consumer")

STILL_AFTER = 30.0


class Watchdog:
    """Remembers when each queue last moved."""

    def __init__(self, group: str) -> None:
        self._group = group
        self._seen: dict[MessageQueue, tuple[tuple[int, int], float, float]] = {}

    def look(self, queues: Iterable[QueueStatus], now: float) -> list[str]:
        """Complaints about queues that stand still though they have a lag, to be logged."""
        complaints: list[str] = []
        seen: dict[MessageQueue, tuple[tuple[int, int], float, float]] = {}
        for status in queues:
            if status.popped:  # what does not move there, the broker gives to another
                continue
            place = (status.stored_offset, status.cached_first if status.cached_first is not None else -1)
            old = self._seen.get(status.queue)
            if old is None or old[0] != place or not status.lag:
                seen[status.queue] = (place, now, STILL_AFTER)
                continue
            _, since, patience = old
            if now - since >= patience:
                complaints.append(self._complaint(status, now - since))
                patience *= 10
            seen[status.queue] = (place, since, patience)
        self._seen = seen
        return complaints

    @property
    def stalled(self) -> set[MessageQueue]:
        """The queues that were found to stand still when it last looked."""
        return {queue for queue, (_, _, patience) in self._seen.items() if patience > STILL_AFTER}

    def _complaint(self, status: QueueStatus, seconds: float) -> str:
        why = status.waits_for or "its last pull has not been answered"
        return (
            f"group {self._group}: {status.queue} has not moved for {seconds:.0f} s though {status.lag} messages wait"
            f" (stored offset {status.stored_offset}, {status.cached_count} cached): {why}"
        )


def differences(mine: Mapping[str, SubscriptionData], brokers: Mapping[str, SubscriptionData], group: str) -> list[str]:
    """How the subscriptions that a broker knows of a group differ from ours: then its members disagree."""
    found: list[str] = []
    for topic in sorted(mine.keys() | brokers.keys()):
        ours, others = mine.get(topic), brokers.get(topic)
        if others is None or (ours is not None and _same(ours, others)):
            continue  # what only we have may not have been told yet
        told = f"{others.expression_type} {others.sub_string!r}"
        own = f"to {ours.expression_type} {ours.sub_string!r}" if ours is not None else "not at all"
        found.append(
            f"another member of group {group} subscribes to topic {topic!r} with {told}, this one {own}: members of a"
            " group must subscribe to the same, or messages are lost to the group"
        )
    return found


def _same(one: SubscriptionData, other: SubscriptionData) -> bool:
    return (one.expression_type, one.sub_string, one.tags_set) == (
        other.expression_type,
        other.sub_string,
        other.tags_set,
    )
