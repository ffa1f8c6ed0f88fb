"""What a listener's answer means: which messages have failed, what becomes of an ordered queue.

Pure functions, so that every answer that a listener can give is tested: right ones, wrong ones, none, an exception.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from typing import NamedTuple

from rocketstream.consumer.results import ConsumeResult, OrderlyResult
from rocketstream.message import ReceivedMessage

# The pause of an ordered queue is kept between these, whatever a listener asks for (ORD-08).
MIN_SUSPEND = 0.010
MAX_SUSPEND = 30.0


def failed_messages(
    messages: Sequence[ReceivedMessage], result: object, ack_index: object
) -> Sequence[ReceivedMessage]:
    """The messages that are to come again (CON-06, CON-07): all of them unless the listener said SUCCESS.

    `ack_index` is the last one that succeeded; past the end means all, below zero means none.
    """
    if result is not ConsumeResult.SUCCESS:
        return messages
    if isinstance(ack_index, bool) or not isinstance(ack_index, int):
        return messages  # what it means cannot be told, and a message too often is better than one lost
    return messages[max(ack_index + 1, 0) :]


def complaint_about(result: object, error: BaseException | None, expected: type[Enum]) -> str | None:
    """What is wrong with a listener's answer, for the log; None if nothing is."""
    if error is not None:
        return f"raised {type(error).__name__}: {error}"
    if result is None:
        return f"returned nothing: a listener returns one of {', '.join(map(str, expected))}"
    if not isinstance(result, expected):
        return f"returned {result!r}: a listener returns one of {', '.join(map(str, expected))}"
    return None


def complaint_about_index(ack_index: object) -> str | None:
    """What is wrong with an `ack_index`, for the log; None if nothing is."""
    if isinstance(ack_index, int) and not isinstance(ack_index, bool):
        return None
    return f"set ack_index={ack_index!r}, which is no whole number: all messages of the call come again"


class QueueMove(Enum):
    """What happens to the messages of an ordered queue that a listener has seen."""

    COMMIT = "commit"
    """Everything taken so far is done."""
    KEEP = "keep"
    """Nothing yet: a later COMMIT or ROLLBACK decides."""
    ROLLBACK = "rollback"
    """Everything that is not committed comes again."""
    PUT_BACK = "put back"
    """The messages of this call come again."""


class OrderlyOutcome(NamedTuple):
    """What an answer does to its queue."""

    move: QueueMove
    pause: bool
    warning: str | None = None


_AUTO_COMMIT = {
    OrderlyResult.SUCCESS: OrderlyOutcome(QueueMove.COMMIT, False),
    OrderlyResult.COMMIT: OrderlyOutcome(
        QueueMove.COMMIT, False, "returned COMMIT with auto_commit: it counts as SUCCESS"
    ),
    OrderlyResult.ROLLBACK: OrderlyOutcome(
        QueueMove.COMMIT, False, "returned ROLLBACK with auto_commit: it counts as SUCCESS"
    ),
    OrderlyResult.SUSPEND: OrderlyOutcome(QueueMove.PUT_BACK, True),
}
_OWN_COMMIT = {
    OrderlyResult.SUCCESS: OrderlyOutcome(QueueMove.KEEP, False),
    OrderlyResult.COMMIT: OrderlyOutcome(QueueMove.COMMIT, False),
    OrderlyResult.ROLLBACK: OrderlyOutcome(QueueMove.ROLLBACK, True),
    OrderlyResult.SUSPEND: OrderlyOutcome(QueueMove.PUT_BACK, True),
}


def orderly_outcome(result: object, auto_commit: bool) -> OrderlyOutcome:
    """What an answer does to its queue (ORD-08, ORD-09); anything that is no answer is SUSPEND (ORD-10)."""
    answer = result if isinstance(result, OrderlyResult) else OrderlyResult.SUSPEND
    return (_AUTO_COMMIT if auto_commit else _OWN_COMMIT)[answer]


def suspend_time(asked: object, default: float) -> float:
    """How long an ordered queue pauses: what the listener asked for, or the setting, within bounds (ORD-08)."""
    seconds = asked if isinstance(asked, int | float) and not isinstance(asked, bool) and asked >= 0 else default
    return min(max(seconds, MIN_SUSPEND), MAX_SUSPEND)
