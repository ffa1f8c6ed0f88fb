"""Names on every broker: namespaces of both kinds, units, and the VIP channel."""

from __future__ import annotations

import socket

import pytest

from rocketstream import AdminClient, ConsumeResult, Message, OrderlyResult, Producer, PushConsumer, StartFrom
from rocketstream.broker import EmbeddedBroker
from rocketstream.cluster.names import dlq_topic, retry_topic
from rocketstream.cluster.vip import VIP_CODES, vip_address
from rocketstream.errors import SendFailedError
from rocketstream.remoting.hooks import RpcHook
from rocketstream.testing import RocketMQCluster, ports
from rocketstream.wire.bodies.topic import TopicConfigSerializeWrapper, TopicList
from rocketstream.wire.codes import RequestCode
from rocketstream.wire.command import Command, request
from tests.bare_client import BareClient, eventually
from tests.contract.consuming import Heard

_UNIT, _UNIT_SUBSCRIPTION = 1, 2  # TopicSysFlag.java


class Asked(RpcHook):
    """Remembers every request: where it went, what it asked, and its fields."""

    inline = True

    def __init__(self) -> None:
        self.requests: list[tuple[str, int, dict[str, str]]] = []

    def before_request(self, address: str, request: Command) -> None:
        self.requests.append((address, int(request.code), dict(request.fields)))


@pytest.fixture
def asked() -> Asked:
    return Asked()


# --- namespaces -----------------------------------------------------------------------------------------------------


@pytest.mark.feature("names/namespace")
@pytest.mark.behaviour("START-13")
def test_a_namespace_holds_topics_groups_and_dead_letters(
    rocketmq_cluster: RocketMQCluster, client: BareClient, broker: str, unique_topic: str, unique_group: str
) -> None:
    address, shop = rocketmq_cluster.name_server_address, f"shop%{unique_topic}"
    client.create_topic(broker, shop)
    client.create_topic(broker, unique_topic)

    def never(messages, context):
        context.delay_level_when_next_consume = -1
        return ConsumeResult.RECONSUME_LATER

    inside, outside = Heard(never), Heard()
    with (
        Producer(f"{unique_group}-p", address, namespace="shop", send_timeout=10.0) as producer,
        AdminClient(address, namespace="shop") as admin,
    ):
        receipt = producer.send(Message(unique_topic, b"x"))
        assert receipt.queue.topic == unique_topic
        assert {queue.topic for queue in producer.queues(unique_topic)} == {unique_topic}
        client.send(unique_topic, b"y")
        for heard, namespace in ((inside, "shop"), (outside, None)):
            consumer = PushConsumer(
                unique_group, address, listener=heard, namespace=namespace, start_from=StartFrom.FIRST
            )
            consumer.subscribe(unique_topic)
            with consumer:
                heard.until(1)
                assert (heard.deliveries[0].topic, consumer.assignment[0].topic) == (unique_topic, unique_topic)
        dead = dlq_topic(unique_group)
        eventually(lambda: client.run(exists(client, dlq_topic(f"shop%{unique_group}"))))
        eventually(lambda: [message.body for message in admin.peek(dead, 5)] == [b"x"])
        assert unique_group in {group.group for group in admin.groups(lag=False)}
    assert (inside.bodies, outside.bodies) == ([b"x"], [b"y"]), "another namespace is another topic"


async def exists(client: BareClient, topic: str) -> bool:
    await client.instance.routes.refresh_all([topic])
    return client.instance.routes.cached(topic) is not None


@pytest.mark.feature("names/namespace-v2")
def test_a_namespace_may_travel_in_the_header(
    rocketmq_cluster: RocketMQCluster, topic: str, asked: Asked, unique_group: str
) -> None:
    """RocketMQ's own brokers read it and pass over it: they must take every request that has it."""
    settings = {"namespace_v2": "shop", "rpc_hooks": [asked], "trace": True}
    address, heard = rocketmq_cluster.name_server_address, Heard()
    consumer = PushConsumer(unique_group, address, listener=heard, **settings)
    consumer.subscribe(topic)
    with consumer, Producer(f"{unique_group}-p", address, **{"send_timeout": 10.0, **settings}) as producer:
        assert producer.send(Message(topic, b"1")).queue.topic == topic
        producer.send_batch([Message(topic, b"2"), Message(topic, b"3")])
        heard.until_heard(b"1", b"2", b"3")
    with AdminClient(address, namespace_v2="shop", rpc_hooks=[asked]) as admin:
        assert topic in {one.name for one in admin.topics()}
    assert {delivery.topic for delivery in heard.deliveries} == {topic}
    codes = {code for _, code, _ in asked.requests}
    needed = {"GET_ROUTEINFO_BY_TOPIC", "HEART_BEAT", "SEND_MESSAGE_V2", "SEND_BATCH_MESSAGE", "PULL_MESSAGE"}
    assert codes >= {int(RequestCode[name]) for name in (*needed, "UPDATE_CONSUMER_OFFSET", "UNREGISTER_CLIENT")}
    assert {(fields.get("nsd"), fields.get("ns")) for _, _, fields in asked.requests} == {("true", "shop")}
    assert not any("%" in fields.get("topic", "").removeprefix("%RETRY%") for _, _, fields in asked.requests)


# --- units ----------------------------------------------------------------------------------------------------------


@pytest.mark.feature("names/unit")
def test_what_a_unit_makes_is_marked_as_its_own(
    rocketmq_cluster: RocketMQCluster, client: BareClient, broker: str, unique_topic: str, unique_group: str
) -> None:
    address, heard = rocketmq_cluster.name_server_address, Heard()
    unit = {"unit_mode": True, "unit_name": "shanghai"}
    with Producer(f"{unique_group}-p", address, **unit, send_timeout=10.0) as producer:
        assert producer.client_id.endswith("@shanghai")
        producer.send(Message(unique_topic, b"x"))  # the broker makes the topic
        eventually(lambda: client.run(exists(client, unique_topic)))
        consumer = PushConsumer(unique_group, address, listener=heard, **unit)
        consumer.subscribe(unique_topic)
        with consumer:
            assert consumer.client_id.endswith("@shanghai")
            heard.until_heard(b"x")
            eventually(lambda: {unique_topic, retry_topic(unique_group)} <= set(topic_flags(client, broker)))
    flags = topic_flags(client, broker)
    assert (flags[unique_topic], flags[retry_topic(unique_group)]) == (_UNIT, _UNIT_SUBSCRIPTION)
    eventually(lambda: unique_topic in listed(client, RequestCode.GET_UNIT_TOPIC_LIST))
    eventually(lambda: retry_topic(unique_group) in listed(client, RequestCode.GET_HAS_UNIT_SUB_TOPIC_LIST))


def topic_flags(client: BareClient, broker: str) -> dict[str, int]:
    answer = client.ask(broker, RequestCode.GET_ALL_TOPIC_CONFIG)
    table = TopicConfigSerializeWrapper.decode(answer.body).topic_config_table
    return {name: config.topic_sys_flag for name, config in table.items()}


def listed(client: BareClient, code: RequestCode) -> frozenset[str]:
    _, answer = client.run(client.instance.name_servers.ask(request(code), 10.0))
    return TopicList.decode(answer.body).topic_list if answer.body else frozenset()


# --- the VIP channel ------------------------------------------------------------------------------------------------


@pytest.fixture
def channel(rocketmq_cluster: RocketMQCluster) -> str:
    return vip_address(rocketmq_cluster.brokers[0].address)


@pytest.mark.rocketmq_real
@pytest.mark.feature("names/vip")
@pytest.mark.parametrize("orderly", [False, True], ids=["concurrent", "orderly"])
def test_the_second_port_takes_what_java_sends_there(
    rocketmq_cluster: RocketMQCluster, topic: str, asked: Asked, channel: str, unique_group: str, orderly: bool
) -> None:
    address, own = rocketmq_cluster.name_server_address, rocketmq_cluster.brokers[0].address
    settings = {"vip_channel": True, "rpc_hooks": [asked]}

    def fail_once(messages, context):
        if orderly:
            return OrderlyResult.SUCCESS
        context.delay_level_when_next_consume = 1
        return ConsumeResult.SUCCESS if messages[0].reconsume_times else ConsumeResult.RECONSUME_LATER

    heard = Heard(fail_once)
    consumer = PushConsumer(
        unique_group, address, listener=heard, orderly=orderly, start_from=StartFrom.FIRST, **settings
    )
    consumer.subscribe(topic)
    with Producer(f"{unique_group}-p", address, **{"send_timeout": 10.0, **settings}) as producer, consumer:
        producer.send(Message(topic, b"1"))
        producer.send_batch([Message(topic, b"2"), Message(topic, b"3")])
        producer.send_async(Message(topic, b"4")).result(10.0)
        producer.send_oneway(Message(topic, b"5"))
        heard.until(5 if orderly else 10)
    with AdminClient(address, **settings) as admin:
        assert admin.consumer_progress(unique_group, topic=topic).queues
        assert admin.peek(topic, 5)
    name_server = rocketmq_cluster.name_servers[0].address
    to_brokers = [(where, code) for where, code, _ in asked.requests if where != name_server]
    assert {where for where, code in to_brokers if code in VIP_CODES} == {channel}
    assert {where for where, code in to_brokers if code not in VIP_CODES} == {own}
    went_there = {code for where, code in to_brokers if where == channel}
    needed = ["SEND_MESSAGE_V2", "SEND_BATCH_MESSAGE", "QUERY_CONSUMER_OFFSET", "UPDATE_CONSUMER_OFFSET"]
    needed += ["GET_CONSUMER_LIST_BY_GROUP", "LOCK_BATCH_MQ" if orderly else "CONSUMER_SEND_MSG_BACK"]
    assert went_there >= {int(RequestCode[name]) for name in needed}


def test_a_broker_without_the_second_port_says_how_to_do_without(unique_group: str) -> None:
    with socket.socket() as nobody:
        own = ports.reserve((-2, 0))  # both, or another might have the broker's
        channel = own - 2
        nobody.bind(("127.0.0.1", channel))  # taken, and nobody listens
        with EmbeddedBroker(broker_port=own) as broker:
            assert vip_address(broker.broker_address) == f"127.0.0.1:{channel}"
            producer = Producer(unique_group, broker.address, vip_channel=True, retries=0, send_timeout=10.0)
            with producer, pytest.raises(SendFailedError) as raised:
                producer.send(Message("anything", b"x"))
    assert f"127.0.0.1:{channel}: " in str(raised.value)
    assert "with vip_channel=False its own port is used" in str(raised.value)
