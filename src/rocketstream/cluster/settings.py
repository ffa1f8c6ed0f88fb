"""The settings that producers, consumers and operators' clients share, with the defaults of `docs/behaviours.md`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from rocketstream.cluster.name_servers import configured_name_servers
from rocketstream.errors import ConfigurationError
from rocketstream.remoting.acl import Credentials
from rocketstream.remoting.hooks import RpcHook
from rocketstream.remoting.settings import RemotingSettings

_INTERVALS = ("poll_name_server_interval", "heartbeat_interval", "persist_offset_interval", "api_timeout")


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientSettings:
    """How a client reaches a cluster. `make` reads the environment; the constructor takes what it is given."""

    name_servers: tuple[str, ...] | None
    """None: they come from the address server, and are asked for again as time goes by."""
    address_server: str | None = None
    unit_name: str | None = None
    credentials: Credentials | None = None
    rpc_hooks: tuple[RpcHook, ...] = ()
    remoting: RemotingSettings = field(default_factory=RemotingSettings)
    poll_name_server_interval: float = 30.0
    heartbeat_interval: float = 30.0
    persist_offset_interval: float = 5.0
    api_timeout: float = 3.0

    def __post_init__(self) -> None:
        for name in _INTERVALS:
            value = getattr(self, name)
            if not value > 0:
                raise ConfigurationError(f"{name}={value!r} must be greater than 0 seconds")

    @classmethod
    def make(cls, name_servers: str | Sequence[str] | None = None, **others: object) -> ClientSettings:
        """Settings from what a user passes: name servers as text, list, or None for `$NAMESRV_ADDR`."""
        return cls(name_servers=configured_name_servers(name_servers), **others)  # type: ignore[arg-type]
