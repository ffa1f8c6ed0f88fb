"""What the driver tells a task, and what a task tells the driver.

The rule of this file: values and nothing else. What goes to executors is pickled by Spark; what comes back is JSON
text, so that a driver reads only what it expects.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from typing import Any

from rocketstream.cluster.settings import ClientSettings
from rocketstream.consumer.listener import Listener
from rocketstream.consumer.settings import ConsumerSettings
from rocketstream.message import MessageQueue
from rocketstream.wire.bodies.subscription import SubscriptionData


@dataclass(frozen=True, slots=True)
class Work:
    """What every task of a consumer needs; it is pickled once, when the consumer starts."""

    client: ClientSettings
    consumer: ConsumerSettings
    listener: Listener


@dataclass(frozen=True, slots=True)
class QueueState:
    """Where a consumer is in a queue.

    `finished` is the group's offset: everything before it is done. `position` is what is read next. What lies between
    was read: concurrent, it is done but for the offsets in `unfinished`; orderly, it waits for the listener's COMMIT.
    """

    finished: int
    position: int
    unfinished: tuple[int, ...] = ()
    times: tuple[tuple[int, int], ...] = ()
    """(offset, how often it failed) of messages that were put back: no broker counts that."""

    def wants(self, offset: int) -> bool:
        """Whether a message that was pulled is still to be consumed."""
        return offset >= self.position or offset in self.unfinished


@dataclass(frozen=True, slots=True)
class QueuePart:
    """A task's part of a queue: all of it that there is, as far as time allows."""

    queue: MessageQueue
    state: QueueState


@dataclass(frozen=True, slots=True)
class TaskPlan:
    """One task: the queues that it has, and for how long."""

    number: int
    parts: tuple[QueuePart, ...]
    subscriptions: dict[str, SubscriptionData]
    client_id: str
    """The driver's: under this name the queues are locked."""
    project: str | None
    round_time: float


@dataclass(frozen=True, slots=True)
class QueueResult:
    """What became of a queue in a task."""

    queue: MessageQueue
    state: QueueState
    broker_max: int
    """One past the newest message, as far as the task knows."""
    pause: float = 0.0
    """So long the queue is left alone (ORD-08, CON-11, PULL-21)."""
    look_first: bool = False
    """Whether the driver asks the broker before it plans the queue again: there was nothing more, or an error."""
    moved_to: int | None = None
    """Where the broker says that the group is now: the offset asked for is gone, or an operator has reset it."""


@dataclass(frozen=True, slots=True)
class LogLine:
    """What a task logged."""

    level: int
    text: str


@dataclass(frozen=True, slots=True)
class TaskResult:
    """What a task did."""

    number: int
    host: str
    queues: tuple[QueueResult, ...]
    counts: dict[str, dict[str, int]] = field(default_factory=dict)
    """Per topic, as `ConsumeStats.snapshot` has it."""
    log: tuple[LogLine, ...] = ()
    not_logged: int = 0
    """How many lines there were beyond those in `log`."""

    def to_json(self) -> str:
        """For the way back."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> TaskResult:
        """What `to_json` made."""
        fields: dict[str, Any] = json.loads(text)
        fields["queues"] = tuple(map(_queue_result, fields["queues"]))
        fields["log"] = tuple(LogLine(**line) for line in fields["log"])
        return cls(**fields)


def _queue_result(fields: dict[str, Any]) -> QueueResult:
    state = fields.pop("state")
    return QueueResult(
        queue=MessageQueue(*fields.pop("queue")),
        state=QueueState(
            state["finished"],
            state["position"],
            tuple(state["unfinished"]),
            tuple((offset, times) for offset, times in state["times"]),
        ),
        **fields,
    )
