"""What a listener answers, and the context in which it is asked.

The rule of this file: values and nothing else. A context belongs to one call of the listener, which may change it; what
its fields then mean is decided where the answer is worked on (CON-07, CON-09, ORD-08, ORD-09).
"""

from __future__ import annotations

from enum import Enum
from typing import Final

from rocketstream.message import MessageQueue

ALL: Final = 2**31 - 1
"""`ack_index` of a batch of which no message failed: Java's `Integer.MAX_VALUE`."""


class ConsumeResult(Enum):
    """A concurrent listener's answer."""

    SUCCESS = "SUCCESS"
    RECONSUME_LATER = "RECONSUME_LATER"
    """All messages of the call have failed and come again through the retry topic."""


class OrderlyResult(Enum):
    """An orderly listener's answer."""

    SUCCESS = "SUCCESS"
    COMMIT = "COMMIT"
    """Without `auto_commit`: everything since the last commit is done."""
    ROLLBACK = "ROLLBACK"
    """Without `auto_commit`: everything since the last commit comes again, after a pause."""
    SUSPEND = "SUSPEND"
    """The messages of the call come again, after a pause of their queue."""


class ConsumeContext:
    """One call of a concurrent listener."""

    __slots__ = ("ack_index", "delay_level_when_next_consume", "queue")

    def __init__(self, queue: MessageQueue) -> None:
        self.queue = queue
        self.ack_index: int = ALL
        """The last message of the call that succeeded, from 0; -1: none did."""
        self.delay_level_when_next_consume: int = 0
        """When failed messages come again: 0, the broker chooses by their count; above, that level; -1, never (DLQ)."""

    def __repr__(self) -> str:
        return (
            f"ConsumeContext({self.queue!r}, ack_index={self.ack_index},"
            f" delay_level_when_next_consume={self.delay_level_when_next_consume})"
        )


class OrderlyContext:
    """One call of an orderly listener."""

    __slots__ = ("auto_commit", "queue", "suspend_current_queue_time")

    def __init__(self, queue: MessageQueue) -> None:
        self.queue = queue
        self.auto_commit: bool = True
        self.suspend_current_queue_time: float | None = None
        """Seconds that the queue pauses when its messages come again; None: as the setting says."""

    def __repr__(self) -> str:
        return (
            f"OrderlyContext({self.queue!r}, auto_commit={self.auto_commit},"
            f" suspend_current_queue_time={self.suspend_current_queue_time})"
        )
