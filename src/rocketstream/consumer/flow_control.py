"""Whether a queue may be pulled now: pull, wait so long for this reason, or stop.

The rule of this file: it decides and does nothing. Values in, a decision out, in the order of Java's
`DefaultMQPushConsumerImpl.pullMessage`; the caller notes the time of the pull before it asks (PULL-03), schedules and
logs. The reason of a `Wait` is what `status()` shows.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum
from typing import Final, TypeAlias

from rocketstream.consumer.process_queue import ProcessQueue

#: Seconds until the next try, by what was in the way (PULL-04 to PULL-12, PULL-21).
AFTER_TROUBLE: Final = 3.0
WHILE_PAUSED: Final = 1.0
WHILE_FULL: Final = 0.050
AFTER_BROKER_FLOW_CONTROL: Final = 0.020

#: Of the waits for room the first, and then one of so many, is worth a warning.
WARN_EACH: Final = 1000

_MIB: Final = 1024 * 1024


class WaitReason(Enum):
    """Why a queue is not pulled now."""

    NOT_RUNNING = "the consumer is not running"
    PAUSED = "the consumer is suspended"
    ALL = "too many messages of all queues are cached"
    COUNT = "too many messages are cached"
    SIZE = "too many bytes are cached"
    SPAN = "the cached offsets are too far apart"
    NOT_LOCKED = "the queue is not locked at the broker"
    NO_SUBSCRIPTION = "the topic has no subscription"
    PULL_FAILED = "the last pull failed"
    SLAVE_BEHIND = "its master is away, and the slave has not got so far"
    BROKER_FLOW_CONTROL = "the broker asks for less"
    INTERVAL = "the pull interval"
    OFFSET_UNKNOWN = "the offset to begin with is unknown"
    TASK = "a Spark task has it, or is about to"


#: The reasons that end when messages are finished.
FULL: Final = frozenset({WaitReason.ALL, WaitReason.COUNT, WaitReason.SIZE, WaitReason.SPAN})


@dataclass(frozen=True, slots=True)
class Pull:
    """Pull now, from `offset` where it is another than the request's."""

    offset: int | None = None


@dataclass(frozen=True, slots=True)
class Wait:
    """Ask again in `seconds`; `text` tells a person why."""

    seconds: float
    reason: WaitReason
    text: str


@dataclass(frozen=True, slots=True)
class Drop:
    """Never pull for this process queue again."""

    reason: str


NextStep: TypeAlias = Pull | Wait | Drop

# Most pulls are allowed; they need not make an object each.
_PULL: Final = Pull()
_DROPPED: Final = Drop("the process queue is dropped")


def _plain_wait(seconds: float, reason: WaitReason) -> Wait:
    return Wait(seconds, reason, reason.value)


_NOT_RUNNING: Final = _plain_wait(AFTER_TROUBLE, WaitReason.NOT_RUNNING)
_PAUSED: Final = _plain_wait(WHILE_PAUSED, WaitReason.PAUSED)
_NOT_LOCKED: Final = _plain_wait(AFTER_TROUBLE, WaitReason.NOT_LOCKED)
_NO_SUBSCRIPTION: Final = _plain_wait(AFTER_TROUBLE, WaitReason.NO_SUBSCRIPTION)


@dataclass(slots=True)
class FlowLimits:
    """How much one queue may cache; pulling stops when there is more than this."""

    count: int = 1000
    size_bytes: int = 100 * _MIB
    span: int = 2000

    def divide(self, topic_count: int | None, topic_size_mib: int | None, owned_queues: int) -> FlowLimits:
        """These limits with the share of a queue in the topic's; None or -1 leaves a queue's own (PULL-09)."""
        limits = replace(self)
        if owned_queues > 0:
            if topic_count is not None and topic_count >= 0:
                limits.count = max(1, topic_count // owned_queues)
            if topic_size_mib is not None and topic_size_mib >= 0:
                limits.size_bytes = max(1, topic_size_mib // owned_queues) * _MIB
        return limits


_FULL_COUNTED: Final = frozenset({WaitReason.ALL, WaitReason.COUNT, WaitReason.SIZE})


class FlowCounters:
    """How often one consumer's queues had no room; the span has its own count, as in Java."""

    __slots__ = ("full", "span")

    def __init__(self) -> None:
        #: Waits for ALL, COUNT or SIZE.
        self.full = 0
        #: Waits for SPAN.
        self.span = 0

    def __repr__(self) -> str:
        return f"<FlowCounters full={self.full} span={self.span}>"

    def should_warn(self, reason: WaitReason) -> bool:
        """Count a wait; True for the first, the 1001st, the 2001st for want of room."""
        if reason is WaitReason.SPAN:
            self.span += 1
            return self.span % WARN_EACH == 1
        if reason in _FULL_COUNTED:
            self.full += 1
            return self.full % WARN_EACH == 1
        return False

    def warning(self, wait: Wait) -> str | None:
        """Count this wait; the text to log when it is one to log."""
        if not self.should_warn(wait.reason):
            return None
        return f"{wait.text}, times={self.span if wait.reason is WaitReason.SPAN else self.full}"


def next_step(
    pq: ProcessQueue,
    *,
    running: bool,
    paused: bool,
    subscribed: bool,
    orderly: bool,
    needs_lock: bool,
    limits: FlowLimits,
) -> NextStep:
    """What to do with the pull request of this process queue now."""
    if pq.dropped:
        return _DROPPED
    if not running:
        return _NOT_RUNNING
    if paused:
        return _PAUSED
    full = _room(pq, orderly, limits)
    if full is not None:
        return full
    if orderly and needs_lock and not pq.locked:
        return _NOT_LOCKED
    if not subscribed:
        return _NO_SUBSCRIPTION
    return _PULL


def _room(pq: ProcessQueue, orderly: bool, limits: FlowLimits) -> Wait | None:
    if pq.count > limits.count:
        return _full(pq, WaitReason.COUNT, f"more than {limits.count} messages are cached")
    if pq.size > limits.size_bytes:
        return _full(pq, WaitReason.SIZE, f"more than {limits.size_bytes / _MIB:g} MiB are cached")
    # Orderly messages finish in order: there the span says nothing that the count does not.
    if not orderly and (span := pq.span) > limits.span:
        return _full(pq, WaitReason.SPAN, f"the span {span} of the cached offsets is over {limits.span}")
    return None


def _full(pq: ProcessQueue, reason: WaitReason, why: str) -> Wait:
    queue = pq.queue
    text = (
        f"{queue.topic}@{queue.broker_name}:{queue.queue_id} is not pulled for now, {why}:"
        f" min_offset={pq.first_offset}, max_offset={pq.last_offset}, count={pq.count}, size={pq.size / _MIB:.1f} MiB"
    )
    return Wait(WHILE_FULL, reason, text)
