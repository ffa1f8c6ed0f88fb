"""Which broker has which queues of a topic, and where it is: a name server's knowledge (RocketMQ's `RouteInfoManager`).

Values in, values out: who has registered what, and what follows from it for a topic's route.
"""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from rocketstream.broker.connection import ClientConnection
from rocketstream.wire.bodies.data_version import DataVersion
from rocketstream.wire.bodies.route import BrokerData, ClusterInfo, QueueData, TopicRouteData
from rocketstream.wire.bodies.topic import TopicConfig, TopicConfigSerializeWrapper
from rocketstream.wire.codes import Permission
from rocketstream.wire.headers.name_server import RegisterBrokerRequestHeader

log = logging.getLogger("rocketstream.broker")

MASTER_ID = 0
#: Seconds after which a broker that says nothing is taken for gone, unless it says otherwise itself.
_EXPIRY = 120.0
_WRITE = int(Permission.WRITE)
_READ_WRITE = int(Permission.READ | Permission.WRITE)


@dataclass(slots=True)
class Alive:
    """A broker that has registered."""

    last_seen: float
    expiry: float
    version: DataVersion
    connection: ClientConnection | None
    """None for the broker of this very process: it can't be silent."""
    ha_address: str


@dataclass(slots=True)
class KnownBroker:
    """A broker's addresses by id: 0 is the master."""

    cluster: str
    addresses: dict[int, str]
    zone: str | None = None
    acting_master: bool = False

    def data(self, name: str) -> BrokerData:
        """As clients are told."""
        return BrokerData(
            broker_name=name,
            cluster=self.cluster,
            broker_addrs=dict(self.addresses),
            zone_name=self.zone,
            enable_acting_master=self.acting_master,
        )


class RouteTable:
    """Brokers, clusters and the queues of topics."""

    def __init__(self) -> None:
        self.brokers: dict[str, KnownBroker] = {}
        self.clusters: dict[str, set[str]] = {}
        self.topics: dict[str, dict[str, QueueData]] = {}
        self.alive: dict[tuple[str, str], Alive] = {}
        """By cluster and address."""

    # --- registering ---------------------------------------------------------------------------------------------

    def register(
        self,
        header: RegisterBrokerRequestHeader,
        wrapper: TopicConfigSerializeWrapper,
        connection: ClientConnection | None,
        now: float,
        zone: str | None = None,
    ) -> bool:
        """Take a broker's registration; False for one that tells of a single topic before it was introduced."""
        name, address, broker_id = header.broker_name, header.broker_addr, header.broker_id
        self.clusters.setdefault(header.cluster_name, set()).add(name)
        broker = self.brokers.get(name)
        is_first = broker is None
        if broker is None:
            broker = self.brokers[name] = KnownBroker(header.cluster_name, {})
        broker.zone, broker.acting_master = zone, bool(header.enable_acting_master)
        for other in [one for one, where in broker.addresses.items() if where == address and one != broker_id]:
            del broker.addresses[other]
        if broker_id not in broker.addresses and len(wrapper.topic_config_table) == 1:
            log.warning("broker %s (%s) told of one topic before it registered as a whole: not taken", name, address)
            return False
        is_first = is_first or broker_id not in broker.addresses
        broker.addresses[broker_id] = address
        version = wrapper.data_version or DataVersion()
        if broker_id == MASTER_ID:
            is_changed = is_first or self.version_of(header.cluster_name, address) != version
            for config in wrapper.topic_config_table.values():
                # What has not changed at the broker keeps what was said here: a permission that was wiped.
                if is_changed or name not in self.topics.get(config.topic_name, {}):
                    self._take(name, config)
        timeout = header.heartbeat_timeout_millis
        expiry = _EXPIRY if timeout is None else timeout / 1000
        self.alive[header.cluster_name, address] = Alive(now, expiry, version, connection, header.ha_server_addr)
        return True

    def _take(self, broker_name: str, config: TopicConfig) -> None:
        self.topics.setdefault(config.topic_name, {})[broker_name] = QueueData(
            broker_name=broker_name,
            read_queue_nums=config.read_queue_nums,
            write_queue_nums=config.write_queue_nums,
            perm=config.perm,
            topic_sys_flag=config.topic_sys_flag,
        )

    def register_topic(self, topic: str, queues: Iterable[QueueData]) -> None:
        """Put a topic's queues on brokers that are known."""
        found = {data.broker_name: data for data in queues}
        if found and all(name in self.brokers for name in found):
            self.topics.setdefault(topic, {}).update(found)

    def master_of(self, header: RegisterBrokerRequestHeader) -> tuple[str | None, str | None]:
        """Whom a slave follows: the replication address and the address of its master."""
        if header.broker_id == MASTER_ID:
            return None, None
        master = self.brokers[header.broker_name].addresses.get(MASTER_ID)
        alive = None if master is None else self.alive.get((header.cluster_name, master))
        return (None, None) if alive is None else (alive.ha_address, master)

    def version_of(self, cluster: str, address: str) -> DataVersion | None:
        """The version of a broker's topics that was registered last."""
        alive = self.alive.get((cluster, address))
        return None if alive is None else alive.version

    def seen(self, cluster: str, address: str, now: float) -> None:
        """A broker has said something."""
        alive = self.alive.get((cluster, address))
        if alive is not None:
            alive.last_seen = now

    # --- leaving -------------------------------------------------------------------------------------------------

    def unregister(self, cluster: str, address: str, name: str) -> None:
        """Forget an address of a broker, and with its last one the broker and its queues."""
        self.alive.pop((cluster, address), None)
        broker = self.brokers.get(name)
        if broker is None:
            return
        for broker_id in [one for one, where in broker.addresses.items() if where == address]:
            del broker.addresses[broker_id]
        if broker.addresses:
            return
        del self.brokers[name]
        members = self.clusters.get(cluster, set())
        members.discard(name)
        if not members:
            self.clusters.pop(cluster, None)
        for topic in [topic for topic, queues in self.topics.items() if name in queues]:
            self._forget_queues(topic, name)

    def _forget_queues(self, topic: str, broker_name: str) -> None:
        queues = self.topics[topic]
        queues.pop(broker_name, None)
        if not queues:
            del self.topics[topic]

    def lost(self, is_lost: Callable[[Alive], bool]) -> list[ClientConnection]:
        """Forget every broker of which that is true; returns their connections."""
        gone = [(key, alive) for key, alive in self.alive.items() if is_lost(alive)]
        for (cluster, address), _ in gone:
            for name in [name for name, broker in self.brokers.items() if address in broker.addresses.values()]:
                log.warning("broker %s (%s) is gone", name, address)
                self.unregister(cluster, address, name)
            self.alive.pop((cluster, address), None)
        return [alive.connection for _, alive in gone if alive.connection is not None]

    def delete_topic(self, topic: str, cluster: str | None) -> None:
        """Forget a topic's route, in one cluster or everywhere."""
        if not cluster:
            self.topics.pop(topic, None)
            return
        for name in self.clusters.get(cluster, set()):
            if topic in self.topics:
                self._forget_queues(topic, name)

    def set_write_permission(self, broker_name: str, allowed: bool) -> int:
        """Let topics of a broker take messages or not; returns how many there are."""
        count = 0
        for queues in self.topics.values():
            data = queues.get(broker_name)
            if data is not None:
                perm = _READ_WRITE if allowed else data.perm & ~_WRITE
                queues[broker_name] = dataclasses.replace(data, perm=perm)
                count += 1
        return count

    # --- asking --------------------------------------------------------------------------------------------------

    def route(self, topic: str, order_config: str | None = None) -> TopicRouteData | None:
        """A topic's route; None if nobody has it."""
        queues = self.topics.get(topic, {})
        brokers = tuple(self.brokers[name].data(name) for name in queues if name in self.brokers)
        if not brokers:
            return None
        return TopicRouteData(
            queue_datas=tuple(queues.values()),
            broker_datas=brokers,
            filter_server_table={},
            order_topic_conf=order_config,
        )

    def cluster_info(self) -> ClusterInfo:
        """All brokers, and which cluster has which."""
        return ClusterInfo(
            broker_addr_table={name: broker.data(name) for name, broker in self.brokers.items()},
            cluster_addr_table={cluster: frozenset(members) for cluster, members in self.clusters.items()},
        )

    def topics_of_cluster(self, cluster: str) -> frozenset[str]:
        """The topics that a cluster's brokers have."""
        members = self.clusters.get(cluster, set())
        return frozenset(topic for topic, queues in self.topics.items() if members & queues.keys())

    def topics_with(self, wanted: Callable[[int], bool]) -> frozenset[str]:
        """The topics whose system flag is as wanted."""
        return frozenset(
            topic for topic, queues in self.topics.items() if wanted(next(iter(queues.values())).topic_sys_flag)
        )
