"""Routes, heartbeats and membership on the real brokers."""

from __future__ import annotations

import queue

import pytest

from rocketstream.errors import ClientStateError, TopicRouteNotFoundError
from rocketstream.message import MessageQueue
from rocketstream.wire.bodies.members import ConsumerConnection, ConsumerListByGroup, ProducerConnection
from rocketstream.wire.codes import ConsumeFromWhere, ConsumeType, MessageModel, RequestCode
from rocketstream.wire.command import PROTOCOL_VERSION, Command
from rocketstream.wire.headers.group import (
    GetConsumerConnectionListRequestHeader,
    GetConsumerListByGroupRequestHeader,
    GetProducerConnectionListRequestHeader,
)
from tests.bare_client import BareConsumer, BareProducer, eventually


def test_a_route_names_queues_and_brokers(client, broker, unique_topic):
    with pytest.raises(TopicRouteNotFoundError, match=unique_topic):
        client.run(client.instance.routes.get(unique_topic))
    client.create_topic(broker, unique_topic, queues=3)
    route = client.run(client.instance.routes.get(unique_topic))
    (name,) = route.brokers
    assert route.brokers == {name: {0: broker}}
    assert route.read_queues == route.write_queues == tuple(MessageQueue(unique_topic, name, i) for i in range(3))


@pytest.mark.behaviour("START-15")
def test_what_a_heartbeat_says_is_what_the_broker_knows(client, broker, topic, unique_group):
    member = BareConsumer(
        unique_group,
        topic,
        expression="a || b",
        consume_type=ConsumeType.CONSUME_PASSIVELY,
        message_model=MessageModel.BROADCASTING,
        consume_from_where=ConsumeFromWhere.CONSUME_FROM_TIMESTAMP,
    )
    client.instance.register_consumer(member)
    client.instance.register_producer(BareProducer(f"{unique_group}-producer", topic))
    assert client.run(client.instance.heartbeat()) == 1
    answer = client.ask(
        broker,
        RequestCode.GET_CONSUMER_CONNECTION_LIST,
        GetConsumerConnectionListRequestHeader(consumer_group=unique_group),
    )
    known = ConsumerConnection.decode(answer.body)
    (connection,) = known.connection_set
    assert connection.client_id == client.instance.client_id
    assert connection.language == "PYTHON"
    assert connection.version == PROTOCOL_VERSION
    assert known.consume_type is ConsumeType.CONSUME_PASSIVELY
    assert known.message_model is MessageModel.BROADCASTING
    assert known.consume_from_where is ConsumeFromWhere.CONSUME_FROM_TIMESTAMP
    assert known.subscription_table[topic].tags_set == {"a", "b"}
    assert known.subscription_table[topic].code_set == {ord("a"), ord("b")}
    answer = client.ask(
        broker,
        RequestCode.GET_PRODUCER_CONNECTION_LIST,
        GetProducerConnectionListRequestHeader(producer_group=f"{unique_group}-producer"),
    )
    (producer,) = ProducerConnection.decode(answer.body).connection_set
    assert (producer.client_id, producer.language) == (client.instance.client_id, "PYTHON")


def test_a_heartbeat_tells_the_brokers_version(client, broker, topic, unique_group, rocketmq_cluster):
    client.instance.register_consumer(BareConsumer(unique_group, topic))
    client.run(client.instance.heartbeat())
    found = client.instance.brokers.master(rocketmq_cluster.brokers[0].name)
    assert found.version == {"5.5.0": 513, "4.9.7": 407}[rocketmq_cluster.version]


def members(client, broker, group):
    header = GetConsumerListByGroupRequestHeader(consumer_group=group)
    answer = client.ask(broker, RequestCode.GET_CONSUMER_LIST_BY_GROUP, header)
    return set(ConsumerListByGroup.decode(answer.body).consumer_id_list)


@pytest.mark.behaviour("START-05")
def test_groups_of_one_client_share_its_one_connection(client, broker, topic, unique_group):
    groups = [f"{unique_group}-{number}" for number in range(3)]
    for group in groups:
        client.instance.register_consumer(BareConsumer(group, topic))
    client.run(client.instance.heartbeat())
    addresses = set()
    for group in groups:
        header = GetConsumerConnectionListRequestHeader(consumer_group=group)
        answer = client.ask(broker, RequestCode.GET_CONSUMER_CONNECTION_LIST, header)
        addresses |= {connection.client_addr for connection in ConsumerConnection.decode(answer.body).connection_set}
    assert len(addresses) == 1, "the broker sees one connection"
    with pytest.raises(ClientStateError, match="already has a consumer of group"):
        client.instance.register_consumer(BareConsumer(groups[0], topic))


def test_members_come_and_go_and_the_broker_tells_the_others(connect, client, broker, topic, unique_group):
    told: queue.Queue[str] = queue.Queue()

    def on_change(address: str, command: Command) -> None:
        told.put(command.fields["consumerGroup"])

    client.instance.remoting.register_processor(RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, on_change)
    client.instance.register_consumer(BareConsumer(unique_group, topic))
    client.run(client.instance.heartbeat())
    other = connect()
    other.instance.register_consumer(BareConsumer(unique_group, topic))
    other.run(other.instance.routes.get(topic))
    while not told.empty():
        told.get()
    other.run(other.instance.heartbeat())
    assert told.get(timeout=30) == unique_group
    assert members(client, broker, unique_group) == {client.instance.client_id, other.instance.client_id}
    while not told.empty():
        told.get()
    other.run(other.instance.unregister_consumer(unique_group))
    assert told.get(timeout=30) == unique_group
    assert members(client, broker, unique_group) == {client.instance.client_id}


@pytest.mark.behaviour("START-11")
def test_timers_keep_routes_and_heartbeats_going_by_themselves(connect, broker, topic, unique_group):
    client = connect(heartbeat_interval=0.2, poll_name_server_interval=0.2)
    client.instance.register_consumer(BareConsumer(unique_group, topic))
    eventually(lambda: client.instance.brokers.master(client.queue(topic).broker_name).version)
    assert members(client, broker, unique_group) == {client.instance.client_id}
