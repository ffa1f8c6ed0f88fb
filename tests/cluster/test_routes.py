"""Routes and broker addresses."""

from __future__ import annotations

import asyncio

import pytest

from rocketstream.cluster.brokers import BrokerAddress, BrokerTable
from rocketstream.cluster.name_servers import NameServers
from rocketstream.cluster.route import topic_route
from rocketstream.cluster.routes import RouteTable
from rocketstream.errors import BrokerError, BrokerNotFoundError, ProtocolError, TopicRouteNotFoundError
from rocketstream.message import MessageQueue
from rocketstream.remoting.client import RemotingClient
from rocketstream.wire.bodies.route import BrokerData, QueueData, TopicRouteData
from rocketstream.wire.codes import RequestCode, ResponseCode
from rocketstream.wire.command import response
from tests.scripted import ScriptedNameServer, eventually


@pytest.fixture
async def routes(clock, name_server):
    client = RemotingClient(clock=clock)
    client.start()
    yield RouteTable(NameServers(client, [name_server.address]), BrokerTable())
    await client.close()


def queues(name: str, reads: int, writes: int, perm: int = 6) -> QueueData:
    return QueueData(broker_name=name, read_queue_nums=reads, write_queue_nums=writes, perm=perm)


def test_queues_to_read_and_to_write_follow_counts_permissions_and_masters():
    route = topic_route(
        "t",
        TopicRouteData(
            queue_datas=(queues("b", 2, 1), queues("a", 1, 2), queues("r", 1, 1, perm=4), queues("w", 1, 1, perm=2)),
            broker_datas=(
                BrokerData(broker_name="a", broker_addrs={0: "a:1", 1: "a:2"}),
                BrokerData(broker_name="b", broker_addrs={1: "b:2"}),
                BrokerData(broker_name="w", broker_addrs={0: "w:1"}),
            ),
        ),
    )
    assert route.read_queues == (
        MessageQueue("t", "a", 0),
        MessageQueue("t", "b", 0),
        MessageQueue("t", "b", 1),
        MessageQueue("t", "r", 0),
    )
    assert route.write_queues == (MessageQueue("t", "a", 0), MessageQueue("t", "a", 1), MessageQueue("t", "w", 0))
    assert route.addresses == {"a:1", "a:2", "b:2", "w:1"}
    assert not route.ordered


def test_an_order_configuration_fixes_the_queues_to_write():
    data = TopicRouteData(queue_datas=(queues("a", 1, 1),), order_topic_conf="a:2;b:1")
    route = topic_route("t", data)
    assert route.ordered
    assert route.write_queues == (MessageQueue("t", "a", 0), MessageQueue("t", "a", 1), MessageQueue("t", "b", 0))
    with pytest.raises(ProtocolError, match="order configuration of topic 't' is 'a'"):
        topic_route("t", TopicRouteData(order_topic_conf="a"))


async def test_a_route_is_fetched_once_for_all_who_ask_and_then_cached(routes, name_server: ScriptedNameServer):
    name_server.set_route("t", {"a": {0: "127.0.0.1:1"}})
    answers = await asyncio.gather(*(routes.get("t") for _ in range(20)))
    assert all(answer is answers[0] for answer in answers)
    await routes.get("t")
    assert name_server.asked_for("t") == 1
    await routes.refresh("t")
    assert name_server.asked_for("t") == 2


async def test_a_caller_that_gives_up_does_not_take_the_route_from_the_others(routes, name_server):
    release = asyncio.Event()
    data = TopicRouteData(broker_datas=(BrokerData(broker_name="a", broker_addrs={0: "a:1"}),))

    async def slow(command):
        await release.wait()
        return response(command, ResponseCode.SUCCESS, body=data.encode())

    name_server.on(RequestCode.GET_ROUTEINFO_BY_TOPIC, slow)
    one, other = (asyncio.ensure_future(routes.get("t")) for _ in range(2))
    await name_server.until_received(1)
    one.cancel()
    release.set()
    assert (await other).brokers == {"a": {0: "a:1"}}


async def test_an_unknown_topic_is_an_error_that_names_it_and_keeps_what_was_known(routes, name_server):
    with pytest.raises(TopicRouteNotFoundError, match=f"topic 't' has no route at {name_server.address}"):
        await routes.get("t")
    name_server.set_route("t", {"a": {0: "127.0.0.1:1"}})
    route = await routes.get("t")
    name_server.routes.clear()
    with pytest.raises(TopicRouteNotFoundError):
        await routes.refresh("t")
    assert routes.cached("t") == route


async def test_an_error_code_is_a_broker_error_with_its_words(routes, name_server):
    name_server.on(
        RequestCode.GET_ROUTEINFO_BY_TOPIC, lambda command: response(command, ResponseCode.SYSTEM_ERROR, "not today")
    )
    with pytest.raises(BrokerError, match=r"SYSTEM_ERROR \(1\) to GET_ROUTEINFO_BY_TOPIC: not today"):
        await routes.get("t")


async def test_changes_are_told_and_a_failing_topic_or_listener_does_not_stop_others(routes, name_server, caplog):
    told: list[str] = []

    def broken(route):
        raise RuntimeError("listener is broken")

    routes.on_change(broken)
    routes.on_change(lambda route: told.append(route.topic))
    name_server.set_route("t", {"a": {0: "127.0.0.1:1"}})
    name_server.set_route("u", {"a": {0: "127.0.0.1:1"}})
    await routes.refresh_all(["t", "gone", "%RETRY%g", "u"])
    assert sorted(told) == ["t", "u"]
    warnings = [record.message for record in caplog.records if record.levelname == "WARNING"]
    assert len(warnings) == 1
    assert "'gone' has no route" in warnings[0]
    assert "listener is broken" in caplog.text
    await routes.refresh_all(["t", "u"])
    assert len(told) == 2
    name_server.set_route("t", {"a": {0: "127.0.0.1:2"}})
    await routes.refresh_all(["t", "u"])
    assert told[2:] == ["t"]


async def test_a_broker_that_is_in_no_route_any_more_is_forgotten(routes, name_server):
    name_server.set_route("t", {"a": {0: "127.0.0.1:1", 1: "127.0.0.1:2"}, "b": {0: "127.0.0.1:3"}})
    await routes.get("t")
    assert routes.forget_offline_brokers() == []
    assert (await routes.broker("t", "b", 0)).address == "127.0.0.1:3"
    name_server.set_route("t", {"a": {0: "127.0.0.1:1"}})
    await routes.refresh("t")
    assert routes.forget_offline_brokers() == ["127.0.0.1:3"]
    with pytest.raises(BrokerNotFoundError, match=r"no address is known for broker 'b' \(id 0\) of topic 't'"):
        await routes.broker("t", "b", 0)
    assert name_server.asked_for("t") == 3, "the route was asked for once more before giving up"


def test_brokers_are_found_by_id_or_any_other_of_the_name():
    table = BrokerTable()
    table.update({"a": {0: "m", 2: "s2"}, "b": {3: "s3"}})
    table.set_version("a", "m", 433)
    assert table.master("a") == BrokerAddress("a", 0, "m", 433)
    assert table.find("a", 2) == BrokerAddress("a", 2, "s2", None)
    assert table.find("a", 1) == BrokerAddress("a", 2, "s2", None), "the next slave"
    assert table.find("a", 5).address == "m"
    assert table.find("a", 5, only_this=True) is None
    assert table.find("b", 0).address == "s3"
    assert table.find("b", 0).is_slave
    assert table.master("b") is None
    assert table.find("c", 0) is None
    assert [broker.address for broker in table] == ["m", "s2", "s3"]
    assert len(table) == 3


async def test_a_broker_that_cannot_be_reached_is_a_reason_to_look_at_its_routes(routes, name_server):
    name_server.set_route("t", {"a": {0: "a:1"}})
    name_server.set_route("u", {"b": {0: "b:1"}})
    await routes.refresh_all(["t", "u"])
    routes.suspect("a:1", 100.0)
    await eventually(lambda: name_server.asked_for("t") == 2 and not routes._in_flight)
    routes.suspect("a:1", 102.9)
    assert not routes._in_flight, "many requests fail, one look will do"
    name_server.set_route("t", {"a": {1: "a:2"}})
    routes.suspect("a:1", 103.1)
    await eventually(lambda: routes.cached("t").brokers == {"a": {1: "a:2"}} and not routes._in_flight)
    assert (name_server.asked_for("t"), name_server.asked_for("u")) == (3, 1)
    routes.suspect("a:1", 110.0)
    assert not routes._in_flight, "no route names it any more"
    await routes.close()
    routes.suspect("a:2", 110.0)
    assert not routes._in_flight, "it has ended"
