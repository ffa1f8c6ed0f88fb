"""The settings of a producer, with the Java producer's defaults."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from rocketstream.cluster.names import check_group, check_wrapped_group
from rocketstream.cluster.settings import check_trace
from rocketstream.errors import ConfigurationError
from rocketstream.otel import OpenTelemetry, check_otel
from rocketstream.producer.hooks import SendHook
from rocketstream.wire.compression import compress
from rocketstream.wire.sysflag import Codec

if TYPE_CHECKING:
    from opentelemetry.trace import TracerProvider

_CODECS = {"zlib": Codec.ZLIB, "lz4": Codec.LZ4, "zstd": Codec.ZSTD}
_RANGES: dict[str, tuple[float, float]] = {
    "send_timeout": (0.001, 86_400),
    "retries": (0, 100),
    "retries_async": (0, 100),
    "max_message_size": (1, 1 << 30),
    "compress_over": (0, 1 << 30),
    "compression_level": (0, 9),
    "default_topic_queue_nums": (1, 65_535),
    "max_async_messages": (1, 10_000_000),
    "max_async_bytes": (1, 1 << 40),
    "max_delay_level": (0, 1_000),
    "batch_max_bytes": (1, 1 << 30),
    "batch_max_delay": (0, 60),
}
_SECONDS = frozenset({"send_timeout", "batch_max_delay"})
_SWITCHES = ("retry_another_broker", "latency_fault_tolerance", "auto_batch", "unit_mode")


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerSettings:
    """How messages are checked, sent and tried again."""

    group: str
    """The group of producers: who is asked about a transaction, whom a broker counts."""
    send_timeout: float = 3.0
    """The budget of one send, retries included."""
    retries: int = 2
    """How many further attempts `send` and `send_batch` have."""
    retries_async: int = 2
    """The same for `send_async`."""
    retry_another_broker: bool = False
    """Whether a message that was stored less safely than asked (no slave, disk too slow) is sent to another broker."""
    max_message_size: int = 4 * 1024 * 1024
    """Larger bodies are refused, larger batches split; brokers have a limit of their own."""
    compress_over: int = 4096
    """Bodies of so many bytes and more are compressed."""
    compression: str = "zlib"
    """`zlib`, `lz4` or `zstd`."""
    compression_level: int = 5
    """From 0 to 9; `lz4` has no levels."""
    default_topic_queue_nums: int = 4
    """How many queues a topic gets that the broker creates on the first send."""
    max_delay_level: int = 18
    """How many delay levels the brokers have (`messageDelayLevel`)."""
    latency_fault_tolerance: bool = False
    """Whether brokers that failed or were slow are left alone for a while."""
    max_async_messages: int = 1_000
    """A broker refuses what waits in its queue for more than 200 ms: more under way makes it busy, not faster."""
    max_async_bytes: int = 100 * 1024 * 1024
    """And how many bytes of them."""
    auto_batch: bool = False
    """Whether messages of a topic that are sent with `send_async` leave together."""
    batch_max_bytes: int = 32 * 1024
    """When such a batch is full."""
    batch_max_delay: float = 0.010
    """And how long its first message waits."""
    namespace: str | None = None
    """Wrapped around topics and the group on their way out, stripped on their way in."""
    unit_mode: bool = False
    """Java's setting of that name."""
    trace: bool | str = False
    """True: every send is noted in RocketMQ's trace topic; a text: in a topic of that name."""
    otel: bool | OpenTelemetry | TracerProvider = False
    """True, or a TracerProvider: every send is a span of OpenTelemetry, and messages carry its context."""
    send_hooks: Sequence[SendHook] = field(default=())
    """They see every attempt, before and after."""

    def __post_init__(self) -> None:
        check_group(self.group)
        check_wrapped_group(self.namespace, self.group)
        for name, (low, high) in _RANGES.items():
            value = getattr(self, name)
            kind, what = (int | float, "number") if name in _SECONDS else (int, "whole number")
            if isinstance(value, bool) or not isinstance(value, kind) or not low <= value <= high:
                raise ConfigurationError(f"{name}={value!r} must be a {what} from {low} to {high}")
        for name in _SWITCHES:
            value = getattr(self, name)
            if not isinstance(value, bool):
                raise ConfigurationError(f"{name}={value!r} must be True or False")
        if not isinstance(self.compression, str) or self.compression not in _CODECS:
            raise ConfigurationError(f"compression={self.compression!r} must be one of {', '.join(_CODECS)}")
        check_trace(self.trace)
        check_otel(self.otel)
        compress(b"", self.codec)  # a package that is missing is missed now, not in the middle of the night
        self._check_hooks()

    def _check_hooks(self) -> None:
        hooks: object = self.send_hooks
        if isinstance(hooks, str) or not isinstance(hooks, Sequence):
            raise ConfigurationError(f"send_hooks={hooks!r} must be a list of SendHook")
        for hook in hooks:
            if not isinstance(hook, SendHook):
                raise ConfigurationError(f"send_hooks: {hook!r} is not a SendHook")

    @property
    def codec(self) -> Codec:
        """How bodies are compressed."""
        return _CODECS[self.compression]
