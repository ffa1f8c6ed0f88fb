"""A topic's route as a value: which queues can be written and read, and where their brokers are. Nothing here asks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from rocketstream.cluster.brokers import MASTER_ID
from rocketstream.errors import ProtocolError
from rocketstream.message import MessageQueue
from rocketstream.wire.bodies.route import TopicQueueMappingInfo, TopicRouteData
from rocketstream.wire.codes import Permission

LOGICAL_BROKER_PREFIX: Final = "__syslo__"
"""How the broker name of a static topic's queues begins: they keep it when they move from broker to broker."""
NO_LEADER: Final = "__syslo__none__"


@dataclass(frozen=True, slots=True)
class TopicRoute:
    """What the name servers know of a topic."""

    topic: str
    read_queues: tuple[MessageQueue, ...]
    """The queues to consume from, sorted, so that every member of a group sees the same order."""
    write_queues: tuple[MessageQueue, ...]
    """The queues to send to, broker by broker; of brokers without a master there are none."""
    brokers: Mapping[str, Mapping[int, str]]
    """Broker name → broker id → address; id 0 is the master."""
    filter_servers: Mapping[str, tuple[str, ...]]
    """Broker address → addresses of its filter servers."""
    ordered: bool
    """Whether an operator fixed the queues of this topic (an order configuration), so that none may vanish."""
    leaders: Mapping[MessageQueue, str] = field(default_factory=dict)
    """Of a static topic (5.x): logical queue → the broker that has it now. Empty for every other topic."""

    def __str__(self) -> str:
        """For logs: how many queues, and where."""
        where = "; ".join(f"{name} {dict(by_id)}" for name, by_id in sorted(self.brokers.items()))
        return f"{len(self.read_queues)} queues to read, {len(self.write_queues)} to write, at {where or 'no broker'}"

    @property
    def addresses(self) -> frozenset[str]:
        """Every broker address in it."""
        return frozenset(address for by_id in self.brokers.values() for address in by_id.values())


def topic_route(topic: str, data: TopicRouteData) -> TopicRoute:
    """Read a route as RocketMQ's own client does."""
    brokers = {broker.broker_name: dict(broker.broker_addrs) for broker in data.broker_datas}
    reads: list[MessageQueue] = []
    writes: list[MessageQueue] = []
    for queues in sorted(data.queue_datas, key=lambda queues: queues.broker_name):
        name = queues.broker_name
        if queues.perm & Permission.READ:
            reads += (MessageQueue(topic, name, queue_id) for queue_id in range(queues.read_queue_nums))
        if queues.perm & Permission.WRITE and MASTER_ID in brokers.get(name, {}):
            writes += (MessageQueue(topic, name, queue_id) for queue_id in range(queues.write_queue_nums))
    leaders = logical_queues(topic, (data.topic_queue_mapping_by_broker or {}).values())
    if leaders:
        reads = writes = sorted(leaders)
    ordered = bool(data.order_topic_conf)
    if data.order_topic_conf:
        writes = _ordered_queues(topic, data.order_topic_conf)
    filter_servers = dict(data.filter_server_table)
    return TopicRoute(topic, tuple(sorted(reads)), tuple(writes), brokers, filter_servers, ordered, leaders)


def is_logical(broker_name: str) -> bool:
    """Whether a broker name stands for no broker, but for the queues of static topics."""
    return broker_name.startswith(LOGICAL_BROKER_PREFIX)


def logical_queues(topic: str, mappings: Iterable[TopicQueueMappingInfo]) -> dict[MessageQueue, str]:
    """The queues of a static topic, and who leads each, as Java reads them; the newest mapping of a queue counts.

    Their number never changes, so that a key stays with its queue: a queue that no broker leads now is listed too.
    """
    leaders: dict[MessageQueue, str] = {}
    totals: dict[str, int] = {}
    newest: dict[str, int] = {}
    for mapping in sorted(mappings, key=lambda mapping: mapping.epoch):
        if mapping.scope is None:
            continue
        name = LOGICAL_BROKER_PREFIX + mapping.scope.removeprefix("__")
        if mapping.epoch > newest.get(name, -1):
            newest[name], totals[name] = mapping.epoch, mapping.total_queues
        totals[name] = max(totals[name], mapping.total_queues)
        leaders.update({MessageQueue(topic, name, queue_id): mapping.bname or "" for queue_id in mapping.curr_id_map})
    every = [MessageQueue(topic, name, queue_id) for name, total in totals.items() for queue_id in range(total)]
    return {queue: leaders.get(queue, NO_LEADER) for queue in every}


def _ordered_queues(topic: str, configuration: str) -> list[MessageQueue]:
    """The queues of "broker-a:4;broker-b:4"."""
    queues: list[MessageQueue] = []
    for part in filter(None, configuration.split(";")):
        name, _, count = part.partition(":")
        if not name or not count.isdecimal():
            raise ProtocolError(
                f"the order configuration of topic {topic!r} is {configuration!r}, not broker:queues;broker:queues"
            )
        queues += (MessageQueue(topic, name, queue_id) for queue_id in range(int(count)))
    return queues
