"""Static topics: logical queues with a name of their own, and the brokers that lead them now."""

from __future__ import annotations

import pytest

from rocketstream.cluster.brokers import BrokerTable
from rocketstream.cluster.name_servers import NameServers
from rocketstream.cluster.route import NO_LEADER, is_logical, logical_queues, topic_route
from rocketstream.cluster.routes import RouteTable
from rocketstream.errors import BrokerNotFoundError
from rocketstream.message import MessageQueue
from rocketstream.remoting.client import RemotingClient
from rocketstream.wire.bodies.route import BrokerData, QueueData, TopicQueueMappingInfo, TopicRouteData

NAME = "__syslo__global__"


def mapping(broker: str, *queue_ids: int, total: int = 3, epoch: int = 1, scope: str | None = "__global__"):
    return TopicQueueMappingInfo(
        topic="t", scope=scope, total_queues=total, bname=broker, epoch=epoch, curr_id_map={n: n for n in queue_ids}
    )


def queue(queue_id: int, name: str = NAME) -> MessageQueue:
    return MessageQueue("t", name, queue_id)


def static_route(**leaders: tuple[int, ...]) -> TopicRouteData:
    return TopicRouteData(
        queue_datas=tuple(
            QueueData(broker_name=name, read_queue_nums=len(some), write_queue_nums=len(some), perm=6)
            for name, some in leaders.items()
        ),
        broker_datas=tuple(BrokerData(broker_name=name, broker_addrs={0: f"{name}:1"}) for name in leaders),
        topic_queue_mapping_by_broker={name: mapping(name, *some) for name, some in leaders.items()},
    )


def test_queues_are_those_of_the_mapping():
    assert logical_queues("t", [mapping("a", 0, 2), mapping("b", 1)]) == {queue(0): "a", queue(1): "b", queue(2): "a"}
    assert logical_queues("t", []) == {}
    assert logical_queues("t", [mapping("a", 0, scope=None)]) == {}


def test_the_newest_mapping_counts_whatever_the_order():
    old, new = mapping("a", 0, 1, 2, epoch=1), mapping("b", 1, 2, total=4, epoch=2)
    expected = {queue(0): "a", queue(1): "b", queue(2): "b", queue(3): NO_LEADER}
    assert logical_queues("t", [old, new]) == expected
    assert logical_queues("t", [new, old]) == expected


def test_scopes_are_apart():
    mappings = [mapping("a", 0, total=1), mapping("b", 0, total=1, scope="mine")]
    assert logical_queues("t", mappings) == {queue(0): "a", queue(0, "__syslo__mine"): "b"}


def test_a_route_reads_and_writes_logical_queues():
    route = topic_route("t", static_route(a=(0, 2), b=(1,)))
    assert route.read_queues == route.write_queues == (queue(0), queue(1), queue(2))
    assert route.leaders == {queue(0): "a", queue(1): "b", queue(2): "a"}
    assert all(is_logical(one.broker_name) for one in route.read_queues)


def test_another_topic_has_none():
    data = TopicRouteData(queue_datas=(QueueData(broker_name="a", read_queue_nums=1, write_queue_nums=1, perm=6),))
    assert topic_route("t", data).leaders == {}
    assert not is_logical("a")


@pytest.fixture
async def routes(clock, name_server):
    client = RemotingClient(clock=clock)
    client.start()
    yield RouteTable(NameServers(client, [name_server.address]), BrokerTable())
    await client.close()


async def test_who_leads_a_queue_is_asked_for_by_the_queue(routes, name_server):
    name_server.routes["t"] = static_route(a=(0, 2), b=(1,))
    await routes.refresh("t")
    assert [routes.broker_name_of(queue(n)) for n in range(3)] == ["a", "b", "a"]
    assert routes.broker_name_of(MessageQueue("t", "a", 0)) == "a"
    assert (await routes.broker_of(queue(1), 0, only_this=True)).address == "b:1"


async def test_a_queue_that_moved_is_found_by_a_fresh_route(routes, name_server):
    name_server.routes["t"] = static_route(a=(0, 1, 2))
    await routes.refresh("t")
    routes._brokers.keep_only([])  # a has gone
    name_server.routes["t"] = static_route(b=(0, 1, 2))
    assert (await routes.broker_of(queue(1), 0, only_this=True)).address == "b:1"


async def test_a_queue_that_nobody_leads_is_a_clear_error(routes, name_server):
    name_server.routes["t"] = static_route(a=(0,))
    assert routes.broker_name_of(queue(2)) == NAME, "nothing is known of the topic yet"
    with pytest.raises(BrokerNotFoundError, match="no address is known for broker '__syslo__none__'"):
        await routes.broker_of(queue(2), 0, only_this=True)
