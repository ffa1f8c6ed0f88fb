"""The settings of a lite pull consumer, with Java's names and defaults, checked before anything is opened.

What it shares with the push consumer is checked there, and carried on as a `ConsumerSettings`.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any, Final

from rocketstream.consumer.allocation import AllocateAveragely, AllocateStrategy
from rocketstream.consumer.hooks import ConsumeHook, FilterHook, QueueChange, QueueListener
from rocketstream.consumer.offset_store import OffsetStore
from rocketstream.consumer.settings import ConsumerSettings
from rocketstream.consumer.start_from import StartFrom
from rocketstream.errors import ConfigurationError
from rocketstream.otel import OpenTelemetry
from rocketstream.wire.codes import MessageModel

if TYPE_CHECKING:
    from opentelemetry.trace import TracerProvider

_WHOLE: Final[dict[str, tuple[int, int]]] = {
    "pull_threshold_for_all": (1, 6_553_500),
    "consume_max_span": (1, 65_535),
}
_SECONDS: Final[dict[str, tuple[float, float]]] = {
    "auto_commit_interval": (0.1, 86_400),
    "poll_timeout": (0, 86_400),
}
# What the push consumer has not, or calls by another name.
_OWN: Final = frozenset({*_WHOLE, *_SECONDS, "auto_commit"})


@dataclass(frozen=True, slots=True, kw_only=True)
class LitePullSettings:
    """How messages are pulled ahead of `poll`, and how what was polled is committed."""

    group: str
    """The group whose member it is."""
    model: MessageModel = MessageModel.CLUSTERING
    """CLUSTERING: members share the queues; BROADCASTING: each has them all, and its offsets in a file."""
    start_from: StartFrom = StartFrom.LAST
    """Where a group begins that has no offset yet."""
    auto_commit: bool = True
    """Whether what was polled counts as consumed with the next poll, and is committed from time to time."""
    auto_commit_interval: float = 5.0
    """How often that is."""
    poll_timeout: float = 5.0
    """How long a `poll` without a time-out of its own waits."""
    pull_batch_size: int = 32
    """How many messages one pull brings, and so one poll gives, at most."""
    pull_batch_size_in_bytes: int = 256 * 1024
    """How many bytes one pull brings at most."""
    pull_threshold_for_queue: int = 1_000
    """How many messages of one queue are pulled ahead."""
    pull_threshold_size_for_queue: int = 100
    """MiB of bodies of one queue that are pulled ahead."""
    pull_threshold_for_all: int = 10_000
    """How many messages of all queues are pulled ahead."""
    consume_max_span: int = 2_000
    """How far apart the offsets of one queue may be that are pulled ahead."""
    allocate_strategy: AllocateStrategy = field(default_factory=AllocateAveragely)
    """How members share the queues of a topic; all members must have the same."""
    offset_store: OffsetStore | None = None
    """None: at the brokers, or in a local file in broadcasting."""
    namespace: str | None = None
    """Wrapped around topics and the group on their way out, stripped on their way in."""
    unit_mode: bool = False
    """Java's setting of that name."""
    trace: bool | str = False
    """True: everything polled is noted in RocketMQ's trace topic; a text: in a topic of that name."""
    otel: bool | OpenTelemetry | TracerProvider = False
    """True, or a TracerProvider: every poll that gives something is a span of OpenTelemetry."""
    consume_hooks: Sequence[ConsumeHook] = ()
    """They see what a poll gives."""
    filter_hooks: Sequence[FilterHook] = ()
    """They leave messages out that were pulled."""
    queue_listener: QueueListener | QueueChange | None = None
    """Told when the queues of a topic, or those of them that this consumer has, have changed."""
    rebalance_interval: float = 20.0
    """How often queues are shared out anew, if nothing has changed."""
    broker_suspend_max_time: float = 20.0
    """How long a broker holds a pull back that finds nothing."""
    pull_timeout: float = 30.0
    """How long an answer to a pull is waited for: more than the broker holds it back."""
    connect_broker_by_user: int | None = None
    """The broker id that every pull goes to, whatever the brokers suggest."""
    local_offset_dir: str | os.PathLike[str] | None = None
    """Where offsets are kept in broadcasting; None: in `~/.rocketstream_offsets`."""

    def __post_init__(self) -> None:
        for name, (low, high) in _WHOLE.items():
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
                raise ConfigurationError(f"{name}={value!r} must be a whole number from {low} to {high}")
        for name, (least, most) in _SECONDS.items():
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int | float) or not least <= value <= most:
                raise ConfigurationError(f"{name}={value!r} must be a number of seconds from {least} to {most}")
        auto_commit: object = self.auto_commit
        if not isinstance(auto_commit, bool):
            raise ConfigurationError(f"auto_commit={auto_commit!r} must be True or False")
        self.for_consumer()

    def for_consumer(self) -> ConsumerSettings:
        """The same for the parts that both kinds of consumer have; its subscription travels with each pull."""
        shared: dict[str, Any] = {one.name: getattr(self, one.name) for one in fields(self) if one.name not in _OWN}
        return ConsumerSettings(
            **shared, consume_concurrently_max_span=self.consume_max_span, post_subscription_when_pull=True
        )
