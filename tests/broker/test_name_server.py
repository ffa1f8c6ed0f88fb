"""The name server: who registers, who leaves, what clients and operators are told."""

from __future__ import annotations

import json
import struct
import zlib
from typing import Any

import pytest

from rocketstream.broker.dispatch import Dispatcher
from rocketstream.broker.name_server import NameServer
from rocketstream.broker.settings import BrokerSettings
from rocketstream.broker.state import StateFiles
from rocketstream.clock import ManualClock
from rocketstream.wire.bodies.data_version import DataVersion
from rocketstream.wire.bodies.route import ClusterInfo, QueueData, TopicRouteData
from rocketstream.wire.bodies.stats import KVTable
from rocketstream.wire.bodies.topic import RegisterBrokerBody, TopicConfig, TopicConfigSerializeWrapper, TopicList
from rocketstream.wire.codes import RequestCode, ResponseCode
from rocketstream.wire.command import Command
from rocketstream.wire.headers.name_server import RegisterBrokerRequestHeader
from tests.broker.parts import FakeConnection, ask, request, succeed


class Names:
    """A name server with brokers that a test makes."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.dispatcher = Dispatcher()
        self.state = StateFiles(None)
        self.service = NameServer(settings=BrokerSettings(port=9876), clock=self.clock, state=self.state)
        self.dispatcher.when_closed.append(self.service.on_closed)
        self.client = self.connect()

    def connect(self) -> FakeConnection:
        return FakeConnection(self.dispatcher, self.clock)

    async def register(
        self, name: str, topics: dict[str, int], *, broker_id: int = 0, version: int = 1, **more: Any
    ) -> FakeConnection:
        connection = more.pop("connection", None) or self.connect()
        command = registration(name, topics, broker_id=broker_id, version=version, **more)
        await succeed(self.service, connection, command)
        return connection

    async def route(self, topic: str) -> TopicRouteData | None:
        answer = await ask(self.service, self.client, request(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": topic}))
        if answer.code == ResponseCode.TOPIC_NOT_EXIST:
            assert answer.remark == f"No topic route info in name server for the topic: {topic}"
            return None
        return TopicRouteData.decode(answer.body)

    async def ok(self, code: RequestCode, fields: Any = None, body: bytes = b"") -> Command:
        return await succeed(self.service, self.client, request(code, fields, body))

    async def topics(self, code: RequestCode, fields: Any = None) -> frozenset[str]:
        return TopicList.decode((await self.ok(code, fields)).body).topic_list


def registration(
    name: str,
    topics: dict[str, int],
    *,
    broker_id: int = 0,
    version: int = 1,
    cluster: str = "C",
    timeout: int | None = None,
    compressed: bool = False,
    flag: int = 0,
) -> Command:
    configs = {
        topic: TopicConfig(topic_name=topic, read_queue_nums=queues, write_queue_nums=queues, topic_sys_flag=flag)
        for topic, queues in topics.items()
    }
    wrapper = TopicConfigSerializeWrapper(topic_config_table=configs, data_version=DataVersion(counter=version))
    body = RegisterBrokerBody(topic_config_serialize_wrapper=wrapper).encode()
    if compressed:
        lines = [f"{one} {queues} {queues} 6 SINGLE_TAG".encode() for one, queues in topics.items()]
        texts = [DataVersion(counter=version).encode(), None, *lines, b"[]", None]
        packed = b"".join(
            struct.pack(">i", len(lines) if place == 1 else 0) if text is None else struct.pack(">i", len(text)) + text
            for place, text in enumerate(texts)
        )
        body = zlib.compress(packed)
    header = RegisterBrokerRequestHeader(
        broker_name=name,
        broker_addr=f"{name}-{broker_id}:10911",
        cluster_name=cluster,
        ha_server_addr=f"{name}-{broker_id}:10912",
        broker_id=broker_id,
        heartbeat_timeout_millis=timeout,
        compressed=compressed,
        body_crc32=zlib.crc32(body) & 0x7FFFFFFF,
    )
    return request(RequestCode.REGISTER_BROKER, header, body)


@pytest.fixture
def names() -> Names:
    return Names()


@pytest.mark.parametrize("compressed", [False, True])
async def test_what_brokers_register_is_the_route(names, compressed):
    await names.register("a", {"orders": 4, "x": 1}, compressed=compressed)
    await names.register("b", {"orders": 2, "y": 1}, compressed=compressed)
    route = await names.route("orders")
    assert [(data.broker_name, data.write_queue_nums, data.perm) for data in route.queue_datas] == [
        ("a", 4, 6),
        ("b", 2, 6),
    ]
    assert {data.broker_name: data.broker_addrs for data in route.broker_datas} == {
        "a": {0: "a-0:10911"},
        "b": {0: "b-0:10911"},
    }
    assert await names.route("nothing") is None
    info = ClusterInfo.decode((await names.ok(RequestCode.GET_BROKER_CLUSTER_INFO)).body)
    assert info.cluster_addr_table == {"C": {"a", "b"}}
    assert info.broker_addr_table["a"].broker_addrs == {0: "a-0:10911"}


async def test_a_garbled_registration_is_refused(names):
    command = registration("a", {"orders": 4, "x": 1})
    command.body += b" "
    answer = await ask(names.service, names.client, command)
    assert (answer.code, answer.remark) == (ResponseCode.SYSTEM_ERROR, "crc32 not match")


async def test_one_topic_is_taken_of_a_broker_that_is_known(names):
    answer = await ask(names.service, names.client, registration("a", {"orders": 4}))
    assert (answer.code, answer.remark) == (ResponseCode.SYSTEM_ERROR, "register broker failed")
    connection = await names.register("a", {"x": 1, "y": 1})
    await names.register("a", {"orders": 4}, version=2, connection=connection)
    assert await names.route("orders") is not None
    assert await names.route("x") is not None, "what it does not mention stays"


async def test_a_slave_is_told_of_its_master_and_changes_no_topics(names):
    await names.register("a", {"orders": 4, "x": 1})
    answer = await succeed(names.service, names.connect(), registration("a", {"orders": 9, "z": 1}, broker_id=1))
    assert answer.fields == {"haServerAddr": "a-0:10912", "masterAddr": "a-0:10911"}
    route = await names.route("orders")
    assert route.queue_datas[0].write_queue_nums == 4
    assert route.broker_datas[0].broker_addrs == {0: "a-0:10911", 1: "a-1:10911"}
    group = (await names.ok(RequestCode.GET_BROKER_MEMBER_GROUP, {"clusterName": "C", "brokerName": "a"})).body
    assert json.loads(group)["brokerMemberGroup"]["brokerAddrs"] == {"0": "a-0:10911", "1": "a-1:10911"}


# --- leaving ----------------------------------------------------------------------------------------------------


async def test_who_says_good_bye_or_is_cut_off_is_forgotten(names):
    await names.register("a", {"orders": 4, "x": 1})
    connection = await names.register("b", {"orders": 2, "y": 1})
    connection.close()
    assert [data.broker_name for data in (await names.route("orders")).queue_datas] == ["a"]
    assert await names.route("y") is None
    fields = {"brokerName": "a", "brokerAddr": "a-0:10911", "clusterName": "C", "brokerId": "0"}
    await names.ok(RequestCode.UNREGISTER_BROKER, fields)
    assert await names.route("orders") is None
    assert ClusterInfo.decode((await names.ok(RequestCode.GET_BROKER_CLUSTER_INFO)).body).cluster_addr_table == {}


async def test_a_master_that_leaves_its_slave_leaves_its_topics(names):
    master = await names.register("a", {"orders": 4, "x": 1})
    await names.register("a", {"orders": 4, "x": 1}, broker_id=1)
    master.close()
    assert (await names.route("orders")).broker_datas[0].broker_addrs == {1: "a-1:10911"}


@pytest.mark.parametrize(("timeout", "seconds"), [(None, 120), (10_000, 10)])
async def test_who_is_silent_is_forgotten_and_who_says_something_is_not(names, timeout, seconds):
    names.service.start()
    silent = await names.register("a", {"orders": 4, "x": 1}, timeout=timeout)
    await names.register("b", {"orders": 4, "x": 1}, timeout=timeout)
    await names.clock.advance(seconds - 1)
    await names.ok(RequestCode.BROKER_HEARTBEAT, {"clusterName": "C", "brokerAddr": "b-0:10911", "brokerName": "b"})
    assert len((await names.route("orders")).queue_datas) == 2
    await names.clock.advance(6)
    assert [data.broker_name for data in (await names.route("orders")).queue_datas] == ["b"]
    assert silent.was_cut
    names.service.stop()


async def test_the_broker_of_this_process_is_never_silent(names):
    names.service.start()
    command = registration("a", {"orders": 4, "x": 1})
    header = RegisterBrokerRequestHeader.from_fields(command.fields)
    wrapper = RegisterBrokerBody.decode(command.body).topic_config_serialize_wrapper
    names.service.register(header, wrapper)
    await names.clock.advance(1000)
    assert await names.route("orders") is not None
    names.service.stop()


async def test_a_broker_asks_whether_it_has_to_register_again(names):
    await names.register("a", {"orders": 4, "x": 1}, version=5)
    fields = {"brokerName": "a", "brokerAddr": "a-0:10911", "clusterName": "C", "brokerId": "0"}
    for counter, changed in ((5, "false"), (6, "true")):
        answer = await names.ok(RequestCode.QUERY_DATA_VERSION, fields, DataVersion(counter=counter).encode())
        assert answer.fields == {"changed": changed}
        assert DataVersion.decode(answer.body).counter == 5


# --- operators --------------------------------------------------------------------------------------------------


async def test_a_wiped_permission_stays_until_the_broker_has_news(names):
    connection = await names.register("a", {"orders": 4, "x": 1})
    await names.register("b", {"orders": 4, "y": 1})

    async def permissions() -> dict[str, int]:
        return {data.broker_name: data.perm for data in (await names.route("orders")).queue_datas}

    answer = await names.ok(RequestCode.WIPE_WRITE_PERM_OF_BROKER, {"brokerName": "a"})
    assert answer.fields == {"wipeTopicCount": "2"}
    await names.register("a", {"orders": 4, "x": 1}, connection=connection)
    assert await permissions() == {"a": 4, "b": 6}
    answer = await names.ok(RequestCode.ADD_WRITE_PERM_OF_BROKER, {"brokerName": "a"})
    assert answer.fields == {"addTopicCount": "2"}
    assert await permissions() == {"a": 6, "b": 6}
    await names.ok(RequestCode.WIPE_WRITE_PERM_OF_BROKER, {"brokerName": "a"})
    await names.register("a", {"orders": 4, "x": 1}, version=2, connection=connection)
    assert await permissions() == {"a": 6, "b": 6}


async def test_routes_by_hand(names):
    await names.register("a", {"orders": 4, "x": 1})
    await names.register("b", {"orders": 4, "y": 1}, cluster="D")

    async def put(topic: str, broker: str) -> None:
        queues = QueueData(broker_name=broker, read_queue_nums=7, write_queue_nums=7, perm=6)
        body = TopicRouteData(queue_datas=(queues,), filter_server_table={}).encode()
        await names.ok(RequestCode.REGISTER_TOPIC_IN_NAMESRV, {"topic": topic}, body)

    await put("new", "a")
    await put("stray", "nobody")
    assert (await names.route("new")).queue_datas[0].read_queue_nums == 7
    assert await names.route("stray") is None
    await names.ok(RequestCode.DELETE_TOPIC_IN_NAMESRV, {"topic": "orders", "clusterName": "D"})
    assert [data.broker_name for data in (await names.route("orders")).queue_datas] == ["a"]
    await names.ok(RequestCode.DELETE_TOPIC_IN_NAMESRV, {"topic": "orders"})
    assert await names.route("orders") is None


async def test_lists_of_topics(names):
    await names.register("a", {"orders": 4, "x": 1})
    await names.register("b", {"u": 1, "v": 1}, cluster="D", flag=1)
    await names.register("c", {"s": 1, "t": 1}, cluster="E", flag=2)
    everything = {"orders", "x", "u", "v", "s", "t"}
    assert await names.topics(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER) == everything
    assert await names.topics(RequestCode.GET_TOPICS_BY_CLUSTER, {"cluster": "D"}) == {"u", "v"}
    assert await names.topics(RequestCode.GET_TOPICS_BY_CLUSTER, {"cluster": "?"}) == frozenset()
    assert await names.topics(RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS) == {"C", "D", "E", "a", "b", "c"}
    assert await names.topics(RequestCode.GET_UNIT_TOPIC_LIST) == {"u", "v"}
    assert await names.topics(RequestCode.GET_HAS_UNIT_SUB_TOPIC_LIST) == {"s", "t"}
    assert await names.topics(RequestCode.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST) == {"s", "t"}
    await names.ok(RequestCode.UPDATE_NAMESRV_CONFIG, None, b"enableAllTopicList=false\n")
    answer = await ask(names.service, names.client, request(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER))
    assert (answer.code, answer.remark) == (ResponseCode.SYSTEM_ERROR, "disable")


async def test_settings_by_key_outlast_it(names):
    place = {"namespace": "ORDER_TOPIC_CONFIG", "key": "orders"}
    answer = await ask(names.service, names.client, request(RequestCode.GET_KV_CONFIG, place))
    assert answer.code == ResponseCode.QUERY_NOT_FOUND
    assert answer.remark == "No config item, Namespace: ORDER_TOPIC_CONFIG Key: orders"
    await names.ok(RequestCode.PUT_KV_CONFIG, {**place, "value": "a:4"})
    assert (await names.ok(RequestCode.GET_KV_CONFIG, place)).fields == {"value": "a:4"}
    table = await names.ok(RequestCode.GET_KVLIST_BY_NAMESPACE, {"namespace": "ORDER_TOPIC_CONFIG"})
    assert KVTable.decode(table.body).table == {"orders": "a:4"}
    again = NameServer(settings=BrokerSettings(), clock=names.clock, state=names.state)
    assert (await succeed(again, names.client, request(RequestCode.GET_KV_CONFIG, place))).fields == {"value": "a:4"}
    await names.ok(RequestCode.DELETE_KV_CONFIG, place)
    assert (await ask(names.service, names.client, request(RequestCode.GET_KV_CONFIG, place))).code == 22
    empty = await ask(names.service, names.client, request(RequestCode.GET_KVLIST_BY_NAMESPACE, {"namespace": "?"}))
    assert empty.code == ResponseCode.QUERY_NOT_FOUND


async def test_the_order_of_a_topic_is_told_only_where_it_is_switched_on(names):
    await names.register("a", {"orders": 4, "x": 1})
    await names.ok(RequestCode.PUT_KV_CONFIG, {"namespace": "ORDER_TOPIC_CONFIG", "key": "orders", "value": "a:4"})
    assert (await names.route("orders")).order_topic_conf is None
    await names.ok(RequestCode.UPDATE_NAMESRV_CONFIG, None, b"# by hand\norderMessageEnable=true\n")
    assert (await names.route("orders")).order_topic_conf == "a:4"
    settings = (await names.ok(RequestCode.GET_NAMESRV_CONFIG)).body.decode().splitlines()
    assert {"orderMessageEnable=true", "listenPort=9876"} <= set(settings)
    locked = await ask(
        names.service, names.client, request(RequestCode.UPDATE_NAMESRV_CONFIG, None, b"kvConfigPath=/etc\n")
    )
    assert locked.code == ResponseCode.NO_PERMISSION
