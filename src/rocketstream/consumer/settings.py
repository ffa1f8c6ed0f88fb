"""The settings of a consumer, with the Java consumer's defaults, checked before anything is opened (START-02).

Times are seconds. What is refused is refused with the name of the setting, its value and what is allowed.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import UnionType
from typing import TYPE_CHECKING, Any, Final

from rocketstream.cluster.names import check_group, check_wrapped_group
from rocketstream.cluster.settings import check_trace
from rocketstream.consumer.allocation import AllocateAveragely, AllocateStrategy, check_strategy
from rocketstream.consumer.hooks import ConsumeHook, FilterHook, QueueChange, QueueListener
from rocketstream.consumer.offset_store import OffsetStore
from rocketstream.consumer.start_from import StartFrom
from rocketstream.errors import ConfigurationError
from rocketstream.otel import OpenTelemetry, check_otel
from rocketstream.wire.codes import MessageModel

if TYPE_CHECKING:
    from opentelemetry.trace import TracerProvider

UNLIMITED: Final = 2**31 - 1
"""Java's `Integer.MAX_VALUE`: so often a message is consumed again in order, unless a setting says less."""
_MAX_RECONSUME_TIMES = 16
_SHUTDOWN_TIMEOUT = 30.0

_WHOLE: dict[str, tuple[int, int]] = {
    "consume_thread_min": (1, 1_000),
    "consume_thread_max": (1, 1_000),
    "adjust_thread_pool_threshold": (1, 2**31 - 1),
    "pull_batch_size": (1, 1_024),
    "pull_batch_size_in_bytes": (1, 1 << 30),
    "consume_message_batch_max_size": (1, 1_024),
    "pull_threshold_for_queue": (1, 65_535),
    "pull_threshold_size_for_queue": (1, 1_024),
    "consume_concurrently_max_span": (1, 65_535),
    "max_reconsume_times": (-1, UNLIMITED),
    "pop_batch_nums": (1, 32),
    "pop_threshold_for_queue": (1, 65_535),
}
_WHOLE_OR_NONE: dict[str, tuple[int, int]] = {
    "pull_threshold_for_topic": (1, 6_553_500),
    "pull_threshold_size_for_topic": (1, 102_400),
    "connect_broker_by_user": (0, 2**31 - 1),
}
_TOPIC_THRESHOLDS = ("pull_threshold_for_topic", "pull_threshold_size_for_topic")
_SECONDS: dict[str, tuple[float, float]] = {
    "pull_interval": (0, 65.535),
    "suspend_current_queue_time": (0.01, 30),
    "consume_timeout": (0.001, 604_800),
    "pop_invisible_time": (5, 300),
    "rebalance_interval": (0.001, 86_400),
    # A queue that was not pulled for 120 s counts as forgotten (PULL-03): a poll must end before that.
    "broker_suspend_max_time": (0, 90),
    "pull_timeout": (0.001, 110),
    "await_termination_when_shutdown": (0, 86_400),
}
_SWITCHES = ("orderly", "post_subscription_when_pull", "unit_mode", "client_rebalance")


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerSettings:
    """How messages are pulled, cached, consumed, tried again and shared out."""

    group: str
    """The group whose member it is."""
    model: MessageModel = MessageModel.CLUSTERING
    """Whether members share the messages, or every member gets every message (BROADCASTING)."""
    orderly: bool = False
    """Whether a queue's messages are consumed one after the other."""
    start_from: StartFrom = StartFrom.LAST
    """Where a group begins that has no offset yet."""
    consume_thread_min: int = 20
    """How many listeners run at a time."""
    consume_thread_max: int = 20
    """How many of them while there is a backlog."""
    adjust_thread_pool_threshold: int = 100_000
    """With so many messages waiting, the pool of listeners grows towards its maximum."""
    pull_batch_size: int = 32
    """How many messages a pull asks for."""
    pull_batch_size_in_bytes: int = 256 * 1024
    """And how many bytes of them, where the broker knows that limit."""
    consume_message_batch_max_size: int = 1
    """How many messages a listener gets at most in one call."""
    pull_threshold_for_queue: int = 1_000
    """With so many messages of a queue cached, it is not pulled."""
    pull_threshold_size_for_queue: int = 100
    """MiB of bodies of one queue that are cached."""
    pull_threshold_for_topic: int | None = None
    """Shared by the topic's queues of this consumer; None (or Java's -1, which becomes None): no such limit."""
    pull_threshold_size_for_topic: int | None = None
    """MiB, otherwise as `pull_threshold_for_topic`."""
    consume_concurrently_max_span: int = 2_000
    """With so many offsets from the first cached message to the last, a queue is not pulled; not when orderly."""
    pull_interval: float = 0.0
    """The pause between two pulls of a queue."""
    max_reconsume_times: int = -1
    """-1: 16 times, or without limit when orderly."""
    suspend_current_queue_time: float = 1.0
    """The pause of an ordered queue after a failure."""
    consume_timeout: float = 15 * 60.0
    """A message that its listener has not finished after so long is given back to the broker."""
    post_subscription_when_pull: bool = False
    """Whether every pull carries the expression, instead of the heartbeat alone."""
    allocate_strategy: AllocateStrategy = field(default_factory=AllocateAveragely)
    """How queues are shared out; the same for all members of a group."""
    offset_store: OffsetStore | None = None
    """None: at the brokers, or in a local file in broadcasting."""
    namespace: str | None = None
    """Wrapped around topics and the group on their way out, stripped on their way in."""
    unit_mode: bool = False
    """Java's setting of that name."""
    trace: bool | str = False
    """True: everything consumed is noted in RocketMQ's trace topic; a text: in a topic of that name."""
    otel: bool | OpenTelemetry | TracerProvider = False
    """True, or a TracerProvider: every call of the listener is a span of OpenTelemetry."""
    consume_hooks: Sequence[ConsumeHook] = ()
    """They see what is consumed, before and after."""
    filter_hooks: Sequence[FilterHook] = ()
    """They leave messages out before a listener gets them."""
    queue_listener: QueueListener | QueueChange | None = None
    """Told which queues a topic has and which are ours, when those change."""
    client_rebalance: bool = True
    """False: the brokers say which queues are whose."""
    pop_invisible_time: float = 60.0
    """How long a popped message is kept from others until it is acknowledged (5.x)."""
    pop_batch_nums: int = 32
    """How many messages a pop asks for."""
    pop_threshold_for_queue: int = 96
    """With so many popped messages of a queue not consumed, it is not popped."""
    rebalance_interval: float = 20.0
    """How often queues are shared out anew when nobody comes or goes."""
    broker_suspend_max_time: float = 15.0
    """How long a broker holds a pull back that finds nothing."""
    pull_timeout: float = 30.0
    """How long an answer to a pull is waited for: more than the broker holds it back."""
    await_termination_when_shutdown: float = 0.0
    """How long a shutdown waits for running listeners; 0: 30 s."""
    connect_broker_by_user: int | None = None
    """The broker id that every pull goes to, whatever the brokers suggest."""
    local_offset_dir: str | os.PathLike[str] | None = None
    """Where offsets are kept in broadcasting; None: in `~/.rocketstream_offsets`."""

    def __post_init__(self) -> None:
        check_group(self.group)
        check_wrapped_group(self.namespace, self.group)
        self._check_model_and_start()
        self._check_numbers()
        for name in _SWITCHES:
            value = getattr(self, name)
            if not isinstance(value, bool):
                raise ConfigurationError(f"{name}={value!r} must be True or False")
        check_strategy("allocate_strategy", self.allocate_strategy)
        self._check_offset_store()
        check_trace(self.trace)
        check_otel(self.otel)
        for name, kind in (("consume_hooks", ConsumeHook), ("filter_hooks", FilterHook)):
            self._check_hooks(name, kind)
        self._check_queue_listener()
        self._check_directory()

    def _check_model_and_start(self) -> None:
        model: object = self.model
        # LITE_SELECTIVE, 5.5's, is no push consumer's. An equal text is refused like any other value.
        if model not in (MessageModel.CLUSTERING, MessageModel.BROADCASTING) or not isinstance(model, MessageModel):
            raise ConfigurationError(f"model={model!r} must be MessageModel.CLUSTERING or MessageModel.BROADCASTING")
        start: object = self.start_from
        if not isinstance(start, StartFrom):
            raise ConfigurationError(
                f"start_from={start!r} must be StartFrom.LAST, StartFrom.FIRST or StartFrom.at(moment)"
            )

    def _check_numbers(self) -> None:
        for name, (low, high) in _WHOLE.items():
            value = getattr(self, name)
            if not _within(value, int, low, high):
                raise ConfigurationError(f"{name}={value!r} must be a whole number from {low} to {high}")
        for name, (low, high) in _WHOLE_OR_NONE.items():
            value = getattr(self, name)
            if name in _TOPIC_THRESHOLDS and _within(value, int, -1, -1):
                object.__setattr__(self, name, None)
            elif value is not None and not _within(value, int, low, high):
                raise ConfigurationError(f"{name}={value!r} must be a whole number from {low} to {high}, or None")
        for name, (least, most) in _SECONDS.items():
            value = getattr(self, name)
            if not _within(value, int | float, least, most):
                raise ConfigurationError(f"{name}={value!r} must be a number of seconds from {least} to {most}")
        if self.consume_thread_min > self.consume_thread_max:
            raise ConfigurationError(
                f"consume_thread_min={self.consume_thread_min} must not be above"
                f" consume_thread_max={self.consume_thread_max}"
            )
        if self.pull_timeout <= self.broker_suspend_max_time:
            raise ConfigurationError(
                f"pull_timeout={self.pull_timeout!r} must be above"
                f" broker_suspend_max_time={self.broker_suspend_max_time!r}: so long a broker holds a pull back"
            )

    def _check_offset_store(self) -> None:
        store: object = self.offset_store
        if not isinstance(store, OffsetStore | None):
            raise ConfigurationError(f"offset_store={store!r} must be an OffsetStore, or None")

    def _check_hooks(self, name: str, kind: type) -> None:
        hooks: object = getattr(self, name)
        if isinstance(hooks, str) or not isinstance(hooks, Sequence):
            raise ConfigurationError(f"{name}={hooks!r} must be a list of {kind.__name__}")
        for hook in hooks:
            if not isinstance(hook, kind):
                raise ConfigurationError(f"{name}: {hook!r} is not a {kind.__name__}")
        object.__setattr__(self, name, tuple(hooks))

    def _check_queue_listener(self) -> None:
        listener: object = self.queue_listener
        if isinstance(listener, type) or not (
            listener is None or isinstance(listener, QueueListener) or callable(listener)
        ):
            raise ConfigurationError(f"queue_listener={listener!r} must be a QueueListener, a function or None")

    def _check_directory(self) -> None:
        directory: object = self.local_offset_dir
        if directory is not None and (not isinstance(directory, str | os.PathLike) or not os.fspath(directory)):
            raise ConfigurationError(f"local_offset_dir={directory!r} must be the path of a directory, or None")

    @property
    def max_reconsume_times_concurrent(self) -> int:
        """After so many times a message goes to the dead-letter queue (CON-13)."""
        return _MAX_RECONSUME_TIMES if self.max_reconsume_times == -1 else self.max_reconsume_times

    @property
    def max_reconsume_times_orderly(self) -> int:
        """After so many times a message is sent back and its queue goes on (ORD-11)."""
        return UNLIMITED if self.max_reconsume_times == -1 else self.max_reconsume_times

    @property
    def shutdown_timeout(self) -> float:
        """How long a shutdown waits that is not told a time (REB-10)."""
        return self.await_termination_when_shutdown or _SHUTDOWN_TIMEOUT


def check_ready(subscriptions: Mapping[str, object], listener: object) -> None:
    """Refuse a consumer that would have nothing to consume, or nobody to give it to (START-02)."""
    if not subscriptions:
        raise ConfigurationError(f"subscriptions={subscriptions!r}: call subscribe(topic) before the start")
    if listener is None:
        raise ConfigurationError("listener=None: give one to the consumer, or call set_listener before the start")
    if isinstance(listener, type) or not callable(listener):
        raise ConfigurationError(f"listener={listener!r} must be a function of (messages, context)")


def _within(value: Any, kind: type | UnionType, low: float, high: float) -> bool:
    is_number = isinstance(value, kind) and not isinstance(value, bool)
    return is_number and bool(low <= value <= high)
