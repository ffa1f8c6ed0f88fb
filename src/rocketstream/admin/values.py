"""What the operator's client answers: frozen values, each with a `to_dict()` made of JSON types only."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any


class Value:
    """A result. `to_dict` is what `--json` prints, so its names are a promise to scripts."""

    __slots__ = ()

    def to_dict(self) -> dict[str, Any]:
        """The value as JSON types, with what is computed from its fields."""
        return asdict(self)  # type: ignore[call-overload, no-any-return]


class TopicKind(StrEnum):
    """Whose topic it is."""

    NORMAL = "normal"
    RETRY = "retry"
    DLQ = "dlq"
    SYSTEM = "system"


# --- topics -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class TopicQueues(Value):
    """A topic's settings on one broker."""

    broker_name: str
    read_queues: int
    write_queues: int
    permission: str
    """"RW", "R", "W" or "" (neither)."""


@dataclass(frozen=True, slots=True)
class TopicInfo(Value):
    """A topic and where it is."""

    name: str
    kind: TopicKind
    brokers: tuple[TopicQueues, ...]
    """Empty when the name servers list a topic that no broker has any more."""

    @property
    def read_queues(self) -> int:
        """How many queues can be consumed, of all brokers."""
        return sum(broker.read_queues for broker in self.brokers)

    @property
    def write_queues(self) -> int:
        """How many queues can be sent to, of all brokers."""
        return sum(broker.write_queues for broker in self.brokers)


@dataclass(frozen=True, slots=True)
class RouteBroker(Value):
    """One broker of a route."""

    cluster: str | None
    broker_name: str
    addresses: dict[int, str]
    """Broker id → address; id 0 is the master."""
    read_queues: int
    write_queues: int
    permission: str


@dataclass(frozen=True, slots=True)
class RouteInfo(Value):
    """What the name servers say of a topic, just now."""

    topic: str
    brokers: tuple[RouteBroker, ...]
    order_configuration: str | None = None


@dataclass(frozen=True, slots=True)
class QueueRange(Value):
    """What one queue holds: offsets from `min_offset` up to, not including, `max_offset`."""

    topic: str
    broker_name: str
    queue_id: int
    min_offset: int
    max_offset: int
    last_store_timestamp: int | None
    """When its newest message was stored, in milliseconds; None when it is empty."""

    @property
    def messages(self) -> int:
        """How many offsets there are in it."""
        return self.max_offset - self.min_offset


# --- groups -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class GroupInfo(Value):
    """A group in a list: who is there, and how far behind it is."""

    group: str
    members: int
    model: str | None
    """CLUSTERING, BROADCASTING, ...; None when nobody is there to say."""
    consume_type: str | None
    """CONSUME_PASSIVELY (push), CONSUME_ACTIVELY (pull), CONSUME_POP; None when nobody is there to say."""
    lag: int | None
    """None when it has committed no offset, or was not asked for."""
    consume_tps: float | None


@dataclass(frozen=True, slots=True)
class Member(Value):
    """One client of a group."""

    client_id: str
    address: str | None
    language: str | None
    version: str
    brokers: tuple[str, ...]
    """The brokers that it is connected to."""


@dataclass(frozen=True, slots=True)
class Subscription(Value):
    """What a group asked of a topic."""

    topic: str
    expression: str
    expression_type: str


@dataclass(frozen=True, slots=True)
class GroupMembers(Value):
    """Who is in a group now, and what it asked for; no members means that it is offline."""

    group: str
    members: tuple[Member, ...]
    subscriptions: tuple[Subscription, ...] = ()
    model: str | None = None
    consume_type: str | None = None
    consume_from: str | None = None

    @property
    def online(self) -> bool:
        """Whether anybody is there."""
        return bool(self.members)


@dataclass(frozen=True, slots=True)
class QueueProgress(Value):
    """How far a group is in one queue."""

    topic: str
    broker_name: str
    queue_id: int
    broker_offset: int
    """Where the next message will be stored."""
    consumer_offset: int
    """The next message that the group will get after a restart; 0 also when it has committed none."""
    last_consumed_timestamp: int | None
    """When the last message before `consumer_offset` was stored."""
    client_id: str | None = None
    """Who has the queue now; None when nobody is known to."""

    @property
    def lag(self) -> int:
        """How many messages are still to be consumed."""
        return self.broker_offset - self.consumer_offset

    def to_dict(self) -> dict[str, Any]:
        """With the lag."""
        return {**asdict(self), "lag": self.lag}


@dataclass(frozen=True, slots=True)
class GroupProgress(Value):
    """How far a group is in all its queues."""

    group: str
    queues: tuple[QueueProgress, ...]
    consume_tps: float
    members: int

    @property
    def lag(self) -> int | None:
        """The sum over the queues; None when it has committed no offset: then nobody knows where it will begin."""
        return sum(queue.lag for queue in self.queues) if self.queues else None

    def to_dict(self) -> dict[str, Any]:
        """With the lag, in total and per queue."""
        return {
            "group": self.group,
            "lag": self.lag,
            "consume_tps": self.consume_tps,
            "members": self.members,
            "queues": [queue.to_dict() for queue in self.queues],
        }


@dataclass(frozen=True, slots=True)
class QueueReset(Value):
    """What a reset does to one queue."""

    topic: str
    broker_name: str
    queue_id: int
    old_offset: int | None
    """None when the group had committed none."""
    new_offset: int
    end_offset: int
    """Where the next message will be stored."""

    @property
    def skipped(self) -> int:
        """How many messages the group will not see; 0 too when it had no offset: then nobody knows."""
        return 0 if self.old_offset is None else max(self.new_offset - self.old_offset, 0)

    @property
    def again(self) -> int:
        """How many messages it will see once more."""
        return 0 if self.old_offset is None else max(self.old_offset - self.new_offset, 0)

    def to_dict(self) -> dict[str, Any]:
        """With what is skipped and what comes again."""
        return {**asdict(self), "skipped": self.skipped, "again": self.again}


@dataclass(frozen=True, slots=True)
class OffsetReset(Value):
    """What a reset did, or would do."""

    group: str
    topic: str
    queues: tuple[QueueReset, ...]
    dry_run: bool
    online: bool
    """Whether members were there; those may take some fifteen seconds to follow."""

    @property
    def skipped(self) -> int:
        """How many messages the group will not see."""
        return sum(queue.skipped for queue in self.queues)

    @property
    def again(self) -> int:
        """How many messages it will see once more."""
        return sum(queue.again for queue in self.queues)

    def to_dict(self) -> dict[str, Any]:
        """With what is skipped and what comes again, in total and per queue."""
        return {
            "group": self.group,
            "topic": self.topic,
            "dry_run": self.dry_run,
            "online": self.online,
            "skipped": self.skipped,
            "again": self.again,
            "queues": [queue.to_dict() for queue in self.queues],
        }


# --- brokers ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class BrokerInfo(Value):
    """One broker process. What it could not be asked is None, and `problem` says why."""

    cluster: str | None
    broker_name: str
    broker_id: int
    address: str
    version: str | None = None
    in_tps: float | None = None
    """Messages stored per second, over the last ten seconds."""
    out_tps: float | None = None
    in_today: int | None = None
    """Messages stored since midnight."""
    out_today: int | None = None
    boot_timestamp: int | None = None
    disk_used: float | None = None
    """The part of the store's disk that is used, 0 to 1."""
    problem: str | None = None
    runtime: dict[str, str] = field(default_factory=dict, repr=False)
    """Everything that it said of itself, in its own words."""

    @property
    def is_master(self) -> bool:
        """Whether it takes messages."""
        return self.broker_id == 0


@dataclass(frozen=True, slots=True)
class ClusterReport(Value):
    """The name servers and all brokers that they know."""

    name_servers: tuple[str, ...]
    brokers: tuple[BrokerInfo, ...]
