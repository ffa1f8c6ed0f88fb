"""Projects of machines at the real name servers."""

from __future__ import annotations

import pytest

from rocketstream.cluster.client_id import local_ip
from rocketstream.cluster.projects import PROJECT_CONFIG
from rocketstream.consumer.push_consumer import PushConsumer
from rocketstream.consumer.results import ConsumeResult
from rocketstream.consumer.start_from import StartFrom
from rocketstream.message import ReceivedMessage
from rocketstream.wire.codes import RequestCode
from rocketstream.wire.headers.name_server import DeleteKVConfigRequestHeader, PutKVConfigRequestHeader
from tests.bare_client import eventually


@pytest.mark.behaviour("RES-05")
@pytest.mark.rocketmq_exclusive
def test_messages_of_a_project(rocketmq_cluster, client, broker, unique_topic, unique_group):
    name_server = rocketmq_cluster.name_server_address
    projected = f"{unique_topic}%PROJECT_dev%"
    client.create_topic(broker, projected)
    heard: list[ReceivedMessage] = []

    def listener(messages, context):
        heard.extend(messages)
        return ConsumeResult.SUCCESS

    mine = {"namespace": PROJECT_CONFIG, "key": local_ip()}
    client.ask(name_server, RequestCode.PUT_KV_CONFIG, PutKVConfigRequestHeader(**mine, value="dev"))
    try:
        consumer = PushConsumer(unique_group, name_server, listener=listener, start_from=StartFrom.FIRST)
        consumer.subscribe(projected)
        with consumer:
            client.send(projected, b"x")
            eventually(lambda: len(heard) == 1)
    finally:
        client.ask(name_server, RequestCode.DELETE_KV_CONFIG, DeleteKVConfigRequestHeader(**mine))
    (message,) = heard
    assert message.topic == unique_topic
    assert (message.properties["MIN_OFFSET"], message.properties["MAX_OFFSET"]) == ("0", "1")
    assert message.broker_name == rocketmq_cluster.brokers[0].name
