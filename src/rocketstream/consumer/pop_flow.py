"""What to do with a pop request, with its answer, with a popped message that failed.

The rule of this file: it decides and does nothing, as `flow_control` for pulls. In the order of Java's
`DefaultMQPushConsumerImpl.popMessage` and with its times.
"""

from __future__ import annotations

from typing import Final

from rocketstream.consumer.flow_control import AFTER_TROUBLE, WHILE_FULL, WHILE_PAUSED, Drop, NextStep, Pull, Wait
from rocketstream.consumer.flow_control import WaitReason as Why
from rocketstream.consumer.pop_request import PopProcessQueue
from rocketstream.wire.codes import PopStatus

DELAYS: Final = (10, 30, 60, 120, 180, 240, 300, 360, 420, 480, 540, 600, 1200, 1800, 3600, 7200)
"""Seconds until a message comes again, by how often it has failed before (Java's `popDelayLevel`)."""
STRAIGHT_TO_DLQ: Final = -1

# A broker that finds nothing holds a pop back. One that answers at once (its clock may be far ahead) would be asked
# thousands of times a second.
_TOO_SOON: Final = 0.5
_AFTER_TOO_SOON: Final = 1.0


def next_pop(pq: PopProcessQueue, *, running: bool, paused: bool, subscribed: bool, limit: int) -> NextStep:
    """What to do with the pop request of this queue now (POP-03)."""
    if pq.dropped:
        return Drop("the pop queue is dropped")
    if not running:
        return Wait(AFTER_TROUBLE, Why.NOT_RUNNING, Why.NOT_RUNNING.value)
    if paused:
        return Wait(WHILE_PAUSED, Why.PAUSED, Why.PAUSED.value)
    if pq.unacked > limit:
        queue = pq.queue
        text = (
            f"{queue.topic}@{queue.broker_name}:{queue.queue_id} is not popped for now, more than {limit} messages"
            f" are not acknowledged: {pq.unacked}"
        )
        return Wait(WHILE_FULL, Why.COUNT, text)
    if not subscribed:
        return Wait(AFTER_TROUBLE, Why.NO_SUBSCRIPTION, Why.NO_SUBSCRIPTION.value)
    return Pull()


def after_nothing(status: PopStatus, took: float, poll_time: float) -> Wait | None:
    """When to pop again after an answer without messages (POP-01); None: at once."""
    if status is PopStatus.POLLING_FULL:
        return Wait(AFTER_TROUBLE, Why.BROKER_FLOW_CONTROL, "the broker has too many waiting pops")
    if status is PopStatus.POLLING_NOT_FOUND and took < min(_TOO_SOON, poll_time):
        return Wait(_AFTER_TOO_SOON, Why.BROKER_FLOW_CONTROL, "the broker does not hold pops back")
    return None


def delay_of(failed_before: int, level: int) -> int:
    """Seconds until a message comes again: by the listener's level, or by how often it has failed (POP-02)."""
    return DELAYS[min(level if level > 0 else failed_before, len(DELAYS) - 1)]


def is_given_up(failed_before: int, level: int, max_times: int) -> bool:
    """Whether a failed message has had its tries, or its listener wants no more: it goes to the dead letters."""
    return level == STRAIGHT_TO_DLQ or failed_before >= max_times
