"""Which nodes a cluster has and how each is configured: values in, nodes out; nothing is started here."""

from __future__ import annotations

import string
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rocketstream.errors import ConfigurationError
from rocketstream.testing import ports
from rocketstream.testing.jars import JarSet
from rocketstream.testing.java import Java
from rocketstream.testing.node import PROFILES, Launcher, Node, Profile

Setting = str | int | float | bool

#: The role of a broker within its group: these differ between a master and its slave.
_MASTER_ONLY = ("brokerRole", "brokerId")


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterSettings:
    """What was asked for; `RocketMQCluster` explains each."""

    brokers: int
    slaves: int
    name_servers: int
    broker_config: Mapping[str, Setting]
    slave_config: Mapping[str, Setting]
    name_server_config: Mapping[str, Setting]
    jvm_properties: Mapping[str, str]
    broker_jvm_properties: Mapping[str, str]
    jvm_options: Sequence[str]
    environment: Mapping[str, str]
    conf_files: Mapping[str, str]
    profile: Profile
    broker_heap: str
    name_server_heap: str
    name_server_port: int | None
    start_timeout: float

    def __post_init__(self) -> None:
        if not 1 <= self.brokers <= 26 or self.slaves < 0 or self.name_servers < 1:
            raise ConfigurationError(
                "a cluster has 1 to 26 brokers, 0 or more slaves of each, and 1 or more name servers; asked for were"
                f" brokers={self.brokers}, slaves={self.slaves}, name_servers={self.name_servers}"
            )
        if self.profile not in PROFILES:
            raise ConfigurationError(f"profile={self.profile!r} is not one of {', '.join(PROFILES)}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Ground:
    """What every node of a cluster stands on."""

    directory: Path
    java: Java
    jars: JarSet
    launcher: Launcher
    name_server_is_ready: Callable[[Node], bool]
    broker_is_ready: Callable[[Node], bool]


@dataclass(frozen=True, slots=True)
class Layout:
    """The nodes of a cluster."""

    name_servers: list[Node]
    brokers: list[Node]
    slaves: list[Node]


def lay_out(settings: ClusterSettings, ground: Ground) -> Layout:
    """Give every node its ports, directory and configuration."""
    name_servers = [_name_server(settings, ground, number) for number in range(1, settings.name_servers + 1)]
    addresses = ";".join(node.address for node in name_servers)
    brokers, slaves = [], []
    for letter in string.ascii_lowercase[: settings.brokers]:
        master = _broker(settings, ground, f"broker-{letter}", 0, addresses, master=None)
        brokers.append(master)
        for broker_id in range(1, settings.slaves + 1):
            slaves.append(_broker(settings, ground, f"broker-{letter}", broker_id, addresses, master=master))
    return Layout(name_servers, brokers, slaves)


def _name_server(settings: ClusterSettings, ground: Ground, number: int) -> Node:
    port = settings.name_server_port if number == 1 else None
    if port is None:
        port = ports.reserve(ports.NAME_SERVER_OFFSETS)
    elif not ports.is_free(port):
        raise ports.PortError(f"port {port} of 127.0.0.1 is taken: stop what listens there, or choose another port")
    name = f"namesrv-{number}"
    config: dict[str, Setting] = {"listenPort": port, "bindAddress": "127.0.0.1", **settings.name_server_config}
    return Node(
        name=name,
        role="name server",
        port=port,
        directory=ground.directory / name,
        config=_written(config),
        heap=settings.name_server_heap,
        jvm_properties={**_without_tls(settings), **settings.jvm_properties},
        is_ready=ground.name_server_is_ready,
        **_shared(settings, ground),
    )


def _broker(
    settings: ClusterSettings, ground: Ground, broker_name: str, broker_id: int, addresses: str, master: Node | None
) -> Node:
    port = ports.reserve(ports.BROKER_OFFSETS)
    name = broker_name if master is None else f"{broker_name}-slave-{broker_id}"
    directory = ground.directory / name
    config: dict[str, Setting] = {
        "brokerClusterName": "DefaultCluster",
        "brokerName": broker_name,
        "brokerId": broker_id,
        "listenPort": port,
        "haListenPort": port + 1,
        "bindAddress": "127.0.0.1",
        "brokerIP1": "127.0.0.1",
        "brokerIP2": "127.0.0.1",
        "namesrvAddr": addresses,
        "storePathRootDir": str(directory / "store"),
        "storePathCommitLog": str(directory / "store" / "commitlog"),
        **_COMMON,
        **(_SMALL if settings.profile == "test" else {}),
        **_replication(settings.slaves, master),
        **settings.broker_config,
    }
    if master is not None:
        config |= {key: value for key, value in _replication(settings.slaves, master).items() if key in _MASTER_ONLY}
        config |= {"brokerId": broker_id, **settings.slave_config}
    return Node(
        name=name,
        role="broker",
        port=port,
        directory=directory,
        config=_written(config),
        heap=settings.broker_heap,
        jvm_properties={
            **_DISK_LIMITS,
            **_without_tls(settings),
            **settings.jvm_properties,
            **settings.broker_jvm_properties,
        },
        is_ready=ground.broker_is_ready,
        broker_name=broker_name,
        broker_id=broker_id,
        **_shared(settings, ground),
    )


def _without_tls(settings: ClusterSettings) -> dict[str, str]:
    """Unless told otherwise, servers make a key for TLS whenever they start: more than half of the time that takes."""
    said = any(name.startswith("tls.") for name in (*settings.jvm_properties, *settings.broker_jvm_properties))
    return {} if said else {"tls.server.mode": "disabled"}


def _shared(settings: ClusterSettings, ground: Ground) -> dict[str, Any]:
    return {
        "java": ground.java,
        "jars": ground.jars,
        "launcher": ground.launcher,
        "jvm_options": (*PROFILES[settings.profile], *settings.jvm_options),
        "environment": settings.environment,
        "conf_files": settings.conf_files,
        "start_timeout": settings.start_timeout,
    }


_COMMON: Mapping[str, Setting] = {
    "autoCreateTopicEnable": True,
    "autoCreateSubscriptionGroup": True,
    "enablePropertyFilter": True,  # SQL92 filters
    "registerNameServerPeriod": 10_000,  # a name server that came back knows its brokers soon; less is not allowed
    # RocketMQ 5 burns a core until this interval is over for the first time (10 s unless told otherwise).
    "transactionMetricFlushInterval": 250,
    # It gathers commits and rollbacks for 3 s, and from the first one on burns a core for ever: it takes the time since
    # the last one, when there was none since, for time that it is late. Nothing is gathered, and it is never late.
    "transactionOpMsgMaxSize": 1,
    "transactionOpBatchInterval": 7 * 24 * 3600 * 1000,
    # A developer's disk is often fuller than a broker likes. It would refuse messages, or delete old ones.
    "diskMaxUsedSpaceRatio": 95,
    "cleanFileForciblyEnable": False,
}
_DISK_LIMITS = {
    # RocketMQ 5 takes at most 0.90 and 0.85, whatever we say; RocketMQ 4 takes these.
    "rocketmq.broker.diskSpaceWarningLevelRatio": "0.98",
    "rocketmq.broker.diskSpaceCleanForciblyRatio": "0.97",
}
#: For tests. The files are sparse, but they are mapped, counted and copied by tools as if they were not.
_SMALL: Mapping[str, Setting] = {
    "mappedFileSizeCommitLog": 64 * 1024 * 1024,
    "mappedFileSizeConsumeQueue": 50_000 * 20,
    # A broker refuses what waited for 200 ms (SYSTEM_BUSY): on a busy machine that would fail a test by chance.
    "waitTimeMillsInSendQueue": 10_000,
    "osPageCacheBusyTimeOutMills": 10_000,
    "maxHashSlotNum": 50_000,
    "maxIndexNum": 200_000,
    "timerFlushIntervalMs": 60_000,  # each flush of RocketMQ 5 compares 38 MB byte by byte: 0.2 cores at 1 s
}


def _replication(slaves: int, master: Node | None) -> Mapping[str, Setting]:
    if master is not None:
        # Its master's address it learns from the name server; RocketMQ 5 forgets one that is configured.
        return {"brokerRole": "SLAVE"}
    if slaves:
        # What was acknowledged is on the slaves too. (RocketMQ 4 needs only the role; RocketMQ 5 counts.)
        return {"brokerRole": "SYNC_MASTER", "totalReplicas": 1 + slaves, "inSyncReplicas": 1 + slaves}
    return {"brokerRole": "ASYNC_MASTER"}


def _written(config: Mapping[str, Setting]) -> dict[str, str]:
    """As a Java properties file has it."""
    return {key: str(value).lower() if isinstance(value, bool) else str(value) for key, value in config.items()}
