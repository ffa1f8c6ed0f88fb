"""The settings of the remoting layer, in one place, with RocketMQ's defaults (REM-03, REM-06, REM-12)."""

from __future__ import annotations

import ssl
from dataclasses import dataclass

from rocketstream.errors import ConfigurationError
from rocketstream.remoting.tls import Tls, context_of
from rocketstream.wire.codes import SerializeType
from rocketstream.wire.frame import MAX_FRAME_LENGTH


@dataclass(frozen=True, slots=True, kw_only=True)
class RemotingSettings:
    """How connections are made, bounded and given up."""

    connect_timeout: float = 3.0
    max_idle: float = 120.0
    """A connection on which nothing moved for so long is closed; 0 keeps it open."""
    dead_after: float = 3.0
    """A connection on which a request timed out and nothing at all was heard for so long is given up for dead."""
    scan_delay: float = 3.0
    scan_period: float = 1.0
    max_async_requests: int = 65_535
    max_one_way_requests: int = 65_535
    max_frame_length: int = MAX_FRAME_LENGTH
    socket_send_buffer: int | None = None
    socket_receive_buffer: int | None = None
    tls: Tls = False
    """True: verify the peer against the system's certificates; files or a context: exactly as they say."""
    serialize_type: SerializeType = SerializeType.JSON
    """The header encoding of requests; both are always read."""
    callback_threads: int = 4

    def __post_init__(self) -> None:
        _positive("connect_timeout", self.connect_timeout)
        _positive("scan_period", self.scan_period)
        _positive("max_async_requests", self.max_async_requests)
        _positive("max_one_way_requests", self.max_one_way_requests)
        _positive("callback_threads", self.callback_threads)
        _positive("max_frame_length", self.max_frame_length)
        if self.max_idle < 0 or self.scan_delay < 0:
            raise ConfigurationError(
                f"max_idle={self.max_idle!r} and scan_delay={self.scan_delay!r} must not be negative"
            )

    def ssl_context(self) -> ssl.SSLContext | None:
        """The context to connect with, or None for plain TCP."""
        return context_of(self.tls)


def _positive(name: str, value: float) -> None:
    if not value > 0:
        raise ConfigurationError(f"{name}={value!r} must be greater than 0")
