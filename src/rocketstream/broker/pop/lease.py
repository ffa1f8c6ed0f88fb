"""One lease: messages that a pop took, and which of them are still open."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple


class LeaseKey(NamedTuple):
    """What an acknowledgement says of the lease that it belongs to."""

    topic: str
    group: str
    queue_id: int
    start_offset: int
    pop_time: int


@dataclass(slots=True, eq=False, kw_only=True)
class Lease:
    """Messages of one queue that one pop took (RocketMQ's PopCheckPoint)."""

    topic: str
    """Where the messages lie: the topic, or a retry topic."""
    group: str
    queue_id: int
    start_offset: int
    pop_time: int
    invisible_time: int
    revive_queue_id: int
    offsets: tuple[int, ...]
    open: set[int]
    """The offsets that are not acknowledged."""
    log_offset: int = -1
    """Where it was written in its queue of the lease log; -1 if it was not."""
    renewals: int = 0
    """How often it was renewed because its messages could not be given back."""

    @property
    def key(self) -> LeaseKey:
        """What it is found by."""
        return LeaseKey(self.topic, self.group, self.queue_id, self.start_offset, self.pop_time)

    @property
    def ends_at(self) -> int:
        """The wall time in milliseconds at which it is over."""
        return self.pop_time + self.invisible_time
