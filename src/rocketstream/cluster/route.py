"""A topic's route as a value: which queues can be written and read, and where their brokers are. Nothing here asks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from rocketstream.cluster.brokers import MASTER_ID
from rocketstream.errors import ProtocolError
from rocketstream.message import MessageQueue
from rocketstream.wire.bodies.route import TopicRouteData
from rocketstream.wire.codes import Permission


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
    ordered = bool(data.order_topic_conf)
    if data.order_topic_conf:
        writes = _ordered_queues(topic, data.order_topic_conf)
    return TopicRoute(topic, tuple(sorted(reads)), tuple(writes), brokers, dict(data.filter_server_table), ordered)


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
