"""Which queue a message goes to: round robin, away from the broker that just failed; by key; by latency if asked.

Values in, values out: the time is an argument.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

from rocketstream.message import MessageQueue
from rocketstream.wire.java import java_string_hash

# Java's MQFaultStrategy: a send that took at least so long ... keeps its broker out for so long (seconds).
LATENCY_STEPS = (0.050, 0.100, 0.550, 1.800, 3.000, 5.000, 15.000)
PENALTY_STEPS = (0.0, 0.0, 2.0, 5.0, 6.0, 10.0, 30.0)
# What a failed send counts as.
FAILURE_LATENCY = 10.0


def queue_for_key(queues: Sequence[MessageQueue], sharding_key: str) -> MessageQueue:
    """The queue that Java's SelectMessageQueueByHash chooses, so that both keep one key in one queue."""
    # Java's remainder has the sign of the hash code and is made positive after; that is this, for every int.
    return queues[abs(java_string_hash(sharding_key)) % len(queues)]


class LatencyTable:
    """Which brokers are to be left alone for a while because they were slow or failed."""

    __slots__ = ("_available_at",)

    def __init__(self) -> None:
        self._available_at: dict[str, float] = {}

    def __repr__(self) -> str:
        return f"<LatencyTable {self._available_at}>"

    def record(self, broker_name: str, latency: float, now: float) -> None:
        """A send to this broker took that long (`FAILURE_LATENCY` if it failed)."""
        self._available_at[broker_name] = now + penalty(latency)

    def available(self, broker_name: str, now: float) -> bool:
        """Whether this broker's penalty is over."""
        return self._available_at.get(broker_name, 0.0) <= now

    def least_bad(self, broker_names: Sequence[str]) -> str:
        """The broker whose penalty ends first, for when none is available."""
        return min(broker_names, key=lambda name: self._available_at.get(name, 0.0))


def penalty(latency: float) -> float:
    """How long a broker is left alone after a send that took `latency` seconds."""
    for step, seconds in zip(reversed(LATENCY_STEPS), reversed(PENALTY_STEPS), strict=True):
        if latency >= step:
            return seconds
    return 0.0


class QueueChooser:
    """Round robin over the queues of each topic."""

    __slots__ = ("_indexes", "latencies")

    def __init__(self, *, latency_fault_tolerance: bool = False) -> None:
        self._indexes: dict[str, int] = {}
        self.latencies = LatencyTable() if latency_fault_tolerance else None

    def choose(self, queues: Sequence[MessageQueue], avoid: str | None, now: float) -> MessageQueue:
        """The next queue, of another broker than `avoid` where there is one."""
        topic = queues[0].topic
        # A random start, so that many short-lived producers do not all write to queue 0.
        index = self._indexes.get(topic)
        if index is None:
            index = random.randrange(len(queues))
        chosen = self._search(queues, index, avoid, now)
        self._indexes[topic] = index + 1 if chosen is None else chosen + 1
        return queues[(index if chosen is None else chosen) % len(queues)]

    def _search(self, queues: Sequence[MessageQueue], index: int, avoid: str | None, now: float) -> int | None:
        latencies = self.latencies
        candidates = range(index, index + len(queues))
        if latencies is not None:
            for candidate in candidates:
                name = queues[candidate % len(queues)].broker_name
                if name != avoid and latencies.available(name, now):
                    return candidate
            best = latencies.least_bad(sorted({queue.broker_name for queue in queues} - {avoid or ""}) or [avoid or ""])
            return next((c for c in candidates if queues[c % len(queues)].broker_name == best), None)
        if avoid is None:
            return index
        return next((c for c in candidates if queues[c % len(queues)].broker_name != avoid), None)
