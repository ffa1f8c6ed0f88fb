"""The settings that producers, consumers and operators' clients share, with the defaults of `docs/behaviours.md`."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any, Final, TypeVar

from rocketstream.cluster.name_servers import configured_name_servers
from rocketstream.cluster.names import check_namespace, check_one_namespace, check_topic
from rocketstream.errors import ConfigurationError
from rocketstream.remoting.acl import AnyCredentials, Credentials, RotatingCredentials
from rocketstream.remoting.hooks import RpcHook
from rocketstream.remoting.settings import RemotingSettings
from rocketstream.remoting.tls import Tls, check_tls

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

Own = TypeVar("Own", bound="DataclassInstance")

CLIENT_SETTINGS: Final = (
    "address_server",
    "unit_name",
    "namespace_v2",
    "vip_channel",
    "heartbeat_interval",
    "poll_name_server_interval",
    "api_timeout",
)
"""What producers and consumers take beside their own settings; consumers have one more (`persist_offset_interval`)."""

_INTERVALS = ("poll_name_server_interval", "heartbeat_interval", "persist_offset_interval", "api_timeout")


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientSettings:
    """How a client reaches a cluster. `make` reads the environment; the constructor takes what it is given."""

    name_servers: tuple[str, ...] | None
    """None: they come from the address server, and are asked for again as time goes by."""
    address_server: str | None = None
    """Where to ask for name servers if there are none."""
    unit_name: str | None = None
    """A part of the client id, and of the question to the address server."""
    namespace_v2: str | None = None
    """5.x: a namespace that travels beside the names, in every request's header, and leaves the names as they are."""
    vip_channel: bool = False
    """Whether sends, offsets, locks and operators' questions go to brokers' second port, two below the first."""
    credentials: AnyCredentials | None = None
    """With what requests are signed, for brokers with access control."""
    rpc_hooks: tuple[RpcHook, ...] = ()
    """They see every request and its answer, and can add to it."""
    remoting: RemotingSettings = field(default_factory=RemotingSettings)
    """Of connections: time-outs, buffers, TLS."""
    poll_name_server_interval: float = 30.0
    """How often routes are fetched again."""
    heartbeat_interval: float = 30.0
    """How often brokers are told that we are there."""
    persist_offset_interval: float = 5.0
    """How often a consumer's offsets are stored."""
    api_timeout: float = 3.0
    """Of requests that are neither sends nor pulls: routes, heartbeats, offsets."""

    def __post_init__(self) -> None:
        for name in _INTERVALS:
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
                raise ConfigurationError(f"{name}={value!r} must be a number of seconds")
            if not value > 0:
                raise ConfigurationError(f"{name}={value!r} must be greater than 0 seconds")
        for name in ("address_server", "unit_name"):
            value = getattr(self, name)
            if value is not None and (not isinstance(value, str) or not value.strip()):
                raise ConfigurationError(f"{name}={value!r} must be a text that is not empty, or None")
        check_namespace(self.namespace_v2, "namespace_v2")
        if not isinstance(self.vip_channel, bool):
            raise ConfigurationError(f"vip_channel={self.vip_channel!r} must be True or False")
        credentials: object = self.credentials
        if not isinstance(credentials, Credentials | RotatingCredentials | None):
            # Without the value: whatever it is, a secret is likely part of it.
            kind = type(credentials).__name__
            raise ConfigurationError(f"credentials must be Credentials(access_key, secret_key), not {kind}")
        check_tls(self.remoting.tls)
        for hook in self.rpc_hooks:
            if not isinstance(hook, RpcHook):
                raise ConfigurationError(f"rpc_hooks: {hook!r} is not an RpcHook")

    @classmethod
    def make(cls, name_servers: str | Sequence[str] | None = None, **others: object) -> ClientSettings:
        """Settings from what a user passes: name servers as text, list, or None for `$NAMESRV_ADDR`."""
        hooks = others.get("rpc_hooks", ())
        if isinstance(hooks, str) or not isinstance(hooks, Sequence):
            raise ConfigurationError(f"rpc_hooks={hooks!r} must be a list of RpcHook")
        others["rpc_hooks"] = tuple(hooks)
        return cls(name_servers=configured_name_servers(name_servers), **others)  # type: ignore[arg-type]


def make_settings(
    own: type[Own],
    whose: str,
    of_client: Sequence[str],
    others: dict[str, Any],
    *,
    group: str,
    name_servers: str | Sequence[str] | None,
    credentials: AnyCredentials | None,
    tls: Tls,
    rpc_hooks: Sequence[RpcHook],
) -> tuple[ClientSettings, Own]:
    """Sort what a user passed into the settings of the client, those named `of_client`, and of what it is a client for.

    What is neither is refused.
    """
    known = {one.name for one in fields(own)}
    client = {name: others.pop(name) for name in of_client if name in others}
    unknown = sorted(set(others) - known)
    if unknown:
        told = ", ".join(sorted({*known, *of_client} - {"group"}))
        raise ConfigurationError(f"unknown settings {', '.join(unknown)}; {whose} knows {told}")
    check_one_namespace(others.get("namespace"), client.get("namespace_v2"))
    settings = own(group=group, **others)  # type: ignore[call-arg]
    remoting = RemotingSettings(tls=tls)
    return (
        ClientSettings.make(name_servers, credentials=credentials, rpc_hooks=rpc_hooks, remoting=remoting, **client),
        settings,
    )


def check_trace(trace: object) -> None:
    """Refuse a `trace` that is neither a switch nor the name of a topic."""
    if isinstance(trace, bool):
        return
    try:
        check_topic(trace if isinstance(trace, str) else "")
    except ConfigurationError:
        raise ConfigurationError(f"trace={trace!r} must be True, False or the name of a topic") from None
