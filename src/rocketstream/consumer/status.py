"""What a running consumer says of itself: per queue where it is, and why it waits if it does.

The rule of this file: it looks and explains; nothing is changed by being asked.
"""

from __future__ import annotations

from dataclasses import dataclass

from rocketstream.consumer.pop_request import PopRequest
from rocketstream.consumer.process_queue import ProcessQueue
from rocketstream.consumer.pull_request import PullRequest
from rocketstream.message import MessageQueue

# How long a message is with its listener before that is given as a reason.
_LONG = 1.0


@dataclass(frozen=True, slots=True)
class QueueStatus:
    """One queue of a consumer."""

    queue: MessageQueue
    next_offset: int
    """What will be pulled next."""
    stored_offset: int
    """Where the group would go on if this consumer ended now; -1 if nothing was finished yet."""
    cached_count: int
    cached_bytes: int
    cached_first: int | None
    cached_last: int | None
    lag: int
    """How many messages of the queue are not finished, as far as the last answer of the broker knows."""
    locked: bool
    """Orderly only: whether the broker's lock is ours."""
    dropped: bool
    last_pull_ago: float
    """Seconds since it was last pulled, or would have been but for `waits_for`."""
    waits_for: str | None
    """Why it does not move, in words; None while it does."""
    popped: bool = False
    """Whether its messages are leased one by one: then it has no offsets, and what is cached is not acknowledged."""


@dataclass(frozen=True, slots=True)
class ConsumerStatus:
    """A whole consumer."""

    group: str
    client_id: str
    state: str
    paused: bool
    queues: tuple[QueueStatus, ...]
    threads: int
    waiting_for_threads: int
    problems: dict[str, str]
    """Topics without queues, and why."""

    @property
    def lag(self) -> int:
        """The lag of all queues."""
        return sum(queue.lag for queue in self.queues)


def queue_status(
    request: PullRequest, stored_offset: int, now: float, *, needs_lock: bool, shown: MessageQueue
) -> QueueStatus:
    """What there is to say of one queue."""
    pq = request.process_queue
    oldest = pq.oldest()
    return QueueStatus(
        queue=shown,
        next_offset=request.next_offset,
        stored_offset=stored_offset,
        cached_count=pq.count,
        cached_bytes=pq.size,
        cached_first=pq.first_offset,
        cached_last=pq.last_offset,
        lag=max(request.broker_max - (request.next_offset if oldest is None else oldest.queue_offset), 0),
        locked=pq.locked,
        dropped=pq.dropped,
        last_pull_ago=now - pq.last_pull_at,
        waits_for=reason_to_wait(request, now, needs_lock=needs_lock),
    )


def pop_status(request: PopRequest, now: float, *, shown: MessageQueue) -> QueueStatus:
    """What there is to say of a queue that is popped."""
    pq = request.process_queue
    return QueueStatus(
        queue=shown,
        next_offset=-1,
        stored_offset=-1,
        cached_count=pq.unacked,
        cached_bytes=0,
        cached_first=None,
        cached_last=None,
        lag=request.rest + pq.unacked,
        locked=False,
        dropped=pq.dropped,
        last_pull_ago=now - pq.last_pull_at,
        waits_for=request.waiting.text if request.waiting is not None else None,
        popped=True,
    )


def reason_to_wait(request: PullRequest, now: float, *, needs_lock: bool) -> str | None:
    """Why a queue does not move, the most telling reason first; None if there is none to see."""
    pq = request.process_queue
    if pq.dropped:
        return "it was dropped and is about to be taken anew or given away"
    busy = listener_busy(pq, now)
    waiting = request.waiting
    if waiting is not None:
        return f"{waiting.text}; {busy}" if busy else waiting.text
    if needs_lock and not pq.locked:
        return "the broker has not given us its lock"
    return busy


def listener_busy(pq: ProcessQueue, now: float) -> str | None:
    """What the listener is doing with the first message, if it has had it for long."""
    first = pq.oldest()
    if first is None:
        return None
    started = first.consume_started
    if started is None:
        return f"message {first.queue_offset} waits for a thread"
    if now - started < _LONG:
        return None
    return f"the listener has had message {first.queue_offset} for {now - started:.0f} s"
