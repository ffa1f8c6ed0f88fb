"""A pop request: from which broker which topic is popped, and how many of its messages are still with us.

The rule of this file: values; who sends a pop, and when, is the popper's. A pop owns no queue: it leases messages. So
there are no offsets here and no locks, and losing a pop queue means only that nothing more is popped from it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, TypeAlias

from rocketstream.consumer.flow_control import Wait
from rocketstream.consumer.pull_request import PullRequest
from rocketstream.consumer.settings import ConsumerSettings
from rocketstream.consumer.start_from import StartFrom
from rocketstream.message import MessageQueue, ReceivedMessage
from rocketstream.wire.bodies.subscription import SubscriptionData
from rocketstream.wire.check_point import CheckPoint
from rocketstream.wire.codes import ConsumeFromWhere, ConsumeInitMode, MessageRequestMode
from rocketstream.wire.headers.pop import PopMessageRequestHeader

_FORGOTTEN_AFTER: Final = 120.0


class PopProcessQueue:
    """How many popped messages wait to be acknowledged."""

    __slots__ = ("dropped", "last_pull_at", "queue", "unacked")

    def __init__(self, queue: MessageQueue, *, now: float = 0.0) -> None:
        self.queue = queue
        self.dropped = False
        """Nothing more is popped; never undone."""
        self.last_pull_at = now
        """When it was last popped, or would have been."""
        self.unacked = 0

    def __repr__(self) -> str:
        queue = f"{self.queue.topic}@{self.queue.broker_name}:{self.queue.queue_id}"
        return f"<PopProcessQueue {queue} unacked={self.unacked}{' dropped' if self.dropped else ''}>"

    def found(self, count: int) -> None:
        """So many messages were popped."""
        self.unacked += count

    def done(self, count: int) -> None:
        """So many were acknowledged, failed, or are not ours any more."""
        self.unacked -= count

    def drop(self) -> None:
        """Stop popping here."""
        self.dropped = True

    def pull_expired(self, now: float) -> bool:
        """Whether it was forgotten: not popped for two minutes (as PULL-03)."""
        return now - self.last_pull_at > _FORGOTTEN_AFTER


class Lease:
    """What one answer brought from one queue: ours until the lease is over."""

    __slots__ = ("_points", "ends", "process_queue", "queue", "topic")

    def __init__(
        self,
        process_queue: PopProcessQueue,
        topic: str,
        queue: MessageQueue,
        ends: float,
        points: Mapping[int, CheckPoint],
    ) -> None:
        self.process_queue = process_queue
        self.topic = topic
        """The topic that was popped, as brokers know it."""
        self.queue = queue
        """Where the messages lie, as users know it."""
        self.ends = ends
        """In monotonic seconds, from when the answer came: the broker's clock may be another than ours."""
        self._points = points

    def point_of(self, message: ReceivedMessage) -> CheckPoint:
        """What names the message to its broker; whatever a listener did to its properties."""
        return self._points[id(message)]

    def __repr__(self) -> str:
        return f"<Lease of {self.queue} until {self.ends:.3f}>"

    def is_over(self, now: float) -> bool:
        """Whether its messages may be with another member by now (POP-02)."""
        return now >= self.ends


class PopRequest:
    """What the pull service carries around for one popped queue; queue id -1 is all queues of the broker."""

    __slots__ = (
        "_fields",
        "_fields_for",
        "group",
        "init_mode",
        "process_queue",
        "pulling_since",
        "queue",
        "rest",
        "waiting",
    )

    mode: Final = MessageRequestMode.POP

    def __init__(
        self, group: str, queue: MessageQueue, process_queue: PopProcessQueue, init_mode: ConsumeInitMode
    ) -> None:
        self.group = group
        self.queue = queue
        self.process_queue = process_queue
        self.init_mode = init_mode
        self.rest = 0
        """How many messages the broker had left at the last answer."""
        self.waiting: Wait | None = None
        """Why it is not being popped now, for `status()`."""
        self.pulling_since: float | None = None
        """When the pop that is under way was sent."""
        self._fields: dict[str, str] = {}
        self._fields_for: SubscriptionData | None = None

    def __repr__(self) -> str:
        state = f"waits: {self.waiting.reason.name}" if self.waiting else "popping" if self.pulling_since else "ready"
        return f"<PopRequest {self.queue}, {state}, {self.process_queue!r}>"

    def header(self, settings: ConsumerSettings, sub: SubscriptionData) -> dict[str, str]:
        """The fields of a pop of this queue, but for the time of its birth (POP-01); made once per subscription."""
        if self._fields_for is not sub:
            self._fields = PopMessageRequestHeader(
                consumer_group=self.group,
                topic=self.queue.topic,
                queue_id=self.queue.queue_id,
                max_msg_nums=settings.pop_batch_nums,
                invisible_time=round(settings.pop_invisible_time * 1000),
                poll_time=round(settings.broker_suspend_max_time * 1000),
                born_time=0,
                init_mode=int(self.init_mode),
                exp_type=sub.expression_type,
                exp=sub.sub_string,
                order=settings.orderly,
                bname=self.queue.broker_name,
            ).to_fields()
            self._fields_for = sub
        return self._fields.copy()


Request: TypeAlias = PullRequest | PopRequest
"""What there is for a queue, by its mode (PULL-22)."""


def init_mode_of(start: StartFrom) -> ConsumeInitMode:
    """Where pop begins for a group without offsets: at the oldest message or the newest; pops know no moment."""
    first = start.where is ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET
    return ConsumeInitMode.MIN if first else ConsumeInitMode.MAX
