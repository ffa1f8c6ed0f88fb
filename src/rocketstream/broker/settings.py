"""The settings of the embedded broker, in one place.

A running broker's settings may be changed (UPDATE_BROKER_CONFIG, see `java_settings`): every node has a copy of its
own, which its services share and read at the moment of use.
"""

from __future__ import annotations

import ssl
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from rocketstream.broker.users import User
from rocketstream.errors import ConfigurationError
from rocketstream.remoting.acl import Credentials
from rocketstream.wire.frame import MAX_FRAME_LENGTH

#: RocketMQ's `messageDelayLevel`, in seconds: level 1 is the first.
DELAY_LEVELS: tuple[int, ...] = (1, 5, 10, 30, 60, 120, 180, 240, 300, 360, 420, 480, 540, 600, 1200, 1800, 3600, 7200)


@dataclass(slots=True, kw_only=True)
class BrokerSettings:
    """What an embedded broker is told. Times are seconds, sizes bytes."""

    # --- who and where -------------------------------------------------------------------------------------------
    data: Path | None = None
    """Where messages are kept; None keeps them in memory."""
    host: str = "127.0.0.1"
    """The address to listen on, and the one that clients are told."""
    port: int = 0
    """The name server's port; 0 takes a free one."""
    broker_port: int = 0
    """The broker's own port; 0 takes a free one."""
    cluster_name: str = "DefaultCluster"
    """The name of its cluster."""
    broker_name: str = "broker-a"
    """Its own name."""
    name_servers: str | None = None
    """Register at these instead of running a name server of its own: "host:port;host:port"."""
    tls: ssl.SSLContext | None = None
    """With it, connections are encrypted; the context has the certificate."""
    name_server_tls: ssl.SSLContext | None = None
    """With which it registers at `name_servers`; None with `tls`: encrypted, whoever answers."""
    credentials: tuple[Credentials, ...] = ()
    """Who may do everything. With any, everybody else is refused."""
    users: tuple[User, ...] = ()
    """Who may do what (see `User`). With any, everybody else is refused."""

    region: str = "DefaultRegion"
    """Told with every message and to every sender; traces show it (RocketMQ: regionId)."""
    trace_on: bool = True
    """Whether clients that trace shall trace what is sent here (RocketMQ: traceOn)."""

    # --- topics and groups ---------------------------------------------------------------------------------------
    auto_create_topics: bool = True
    """Whether a topic is created by sending to it (RocketMQ: autoCreateTopicEnable)."""
    auto_create_groups: bool = True
    """Whether a group is created by its first member (RocketMQ: autoCreateSubscriptionGroup)."""
    default_queue_count: int = 8
    """Queues of a topic that is created by sending to it: at most this many, and not more than the sender asks for."""
    permission: int = 6
    """What may be done here at all: 4 reading, 2 writing (RocketMQ: brokerPermission)."""

    # --- sending -------------------------------------------------------------------------------------------------
    max_message_size: int = 4 * 1024 * 1024
    """Larger messages are refused."""
    max_frame_length: int = MAX_FRAME_LENGTH
    """A connection that sends larger requests is closed."""
    delay_levels: tuple[int, ...] = DELAY_LEVELS
    """How long messages of each delay level wait; level 1 is the first."""
    max_timer_delay: float = 3 * 24 * 3600.0
    """How far ahead a message may be timed."""
    recall_enabled: bool = True
    """Whether a timer message can be taken back (RocketMQ: recallMessageEnable)."""
    transaction_timeout: float = 6.0
    """When a half message is asked about for the first time."""
    transaction_check_interval: float = 30.0
    """How often it is looked for such messages."""
    transaction_check_max: int = 15
    """How often one is asked about before it is put aside."""

    # --- pulling -------------------------------------------------------------------------------------------------
    max_pull_messages: int = 32
    """Messages of one answer to a pull, whatever it asks for."""
    max_pull_bytes: int = 256 * 1024
    """And their bytes."""
    sql_filter: bool = True
    """Whether SQL92 subscriptions are taken (RocketMQ: enablePropertyFilter, off by default; here on)."""
    lock_expiry: float = 60.0
    """A queue's lock that is not renewed for so long is free."""
    client_expiry: float = 120.0
    """A client that was silent for so long is forgotten."""
    server_side_reset: bool = True
    """Whether the broker resets offsets by itself, at the next pull (RocketMQ: useServerSideResetOffset)."""
    notify_members: bool = True
    """Whether members are told when their group changes (RocketMQ: notifyConsumerIdsChangedEnable)."""

    # --- popping -------------------------------------------------------------------------------------------------
    pop_retry_topic_v2: bool = False
    """Whether what was popped in vain waits in `%RETRY%group+topic`, the newer name (RocketMQ: enableRetryTopicV2)."""
    read_pop_retry_topic_v1: bool = True
    """Whether what waits under the older name is popped then, too (RocketMQ: retrieveMessageFromPopRetryTopicV1)."""

    # --- keeping -------------------------------------------------------------------------------------------------
    flush: Literal["sync", "async"] = "sync"
    """With `data`: whether a send is answered after ("sync") or before it is on the disk."""
    segment_size: int = 64 * 1024 * 1024
    """With `data`: the size of its files."""
    max_memory: int = 1024 * 1024 * 1024
    """Without `data`: how many bytes of messages are kept; the oldest go first."""
    retention_bytes: int | None = None
    """With `data`: the oldest segments go once there is more."""
    retention_time: float | None = 72 * 3600.0
    """Segments whose newest message is older go; None keeps them."""
    persist_interval: float = 5.0
    """How often offsets are written to disk."""
    more: dict[str, str] = field(default_factory=dict)
    """Settings of RocketMQ's that mean nothing here: kept, and told to whoever asks."""

    @property
    def region_fields(self) -> dict[str, str]:
        """What every answer to a send, and every message, carries."""
        return {"MSG_REGION": self.region, "TRACE_ON": "true" if self.trace_on else "false"}

    @property
    def access_is_controlled(self) -> bool:
        """Whether it asks everybody who they are."""
        return bool(self.credentials or self.users)

    @property
    def own_credentials(self) -> Credentials | None:
        """With which it signs what it asks of others: the first that may do everything."""
        admins = [Credentials(one.access_key, one.secret_key) for one in self.users if one.admin]
        return next(iter((*self.credentials, *admins)), None)

    def __post_init__(self) -> None:
        self.users = tuple(self.users)
        if self.users and self.own_credentials is None:
            raise ConfigurationError("users: one of them must be admin=True, or there must be credentials")
        for name in ("port", "broker_port"):
            if not 0 <= getattr(self, name) < 65536:
                raise ConfigurationError(f"{name}={getattr(self, name)!r} is not a port: expected 0 to 65535")
        for name in (
            "default_queue_count",
            "max_message_size",
            "max_frame_length",
            "max_pull_messages",
            "max_pull_bytes",
            "segment_size",
            "max_memory",
            "lock_expiry",
            "client_expiry",
            "transaction_timeout",
            "transaction_check_interval",
            "persist_interval",
        ):
            if not getattr(self, name) > 0:
                raise ConfigurationError(f"{name}={getattr(self, name)!r} must be greater than 0")
        if self.flush not in ("sync", "async"):
            raise ConfigurationError(f"flush={self.flush!r} must be 'sync' or 'async'")
        if not self.delay_levels or any(seconds <= 0 for seconds in self.delay_levels):
            raise ConfigurationError(f"delay_levels={self.delay_levels!r} must be times greater than 0")
