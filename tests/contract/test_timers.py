"""Timer messages and their recall on RocketMQ 5; the clear refusal on 4.9."""

from __future__ import annotations

import base64
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest

from rocketstream import Message, Producer
from rocketstream.cluster.names import with_namespace
from rocketstream.errors import ConfigurationError, RecallFailedError, UnsupportedByBrokerError
from rocketstream.producer.timer import RecallHandle
from rocketstream.remoting.io_thread import IoThread
from rocketstream.testing import RocketMQCluster
from rocketstream.testing.plugin import EMBEDDED
from tests.bare_client import BareClient, eventually
from tests.contract.clusters import AnyCluster, in_its_time, new_waiting_cluster, require_target
from tests.stored import stored


def now_ms() -> int:
    return round(time.time() * 1000)


@pytest.fixture
def producer(rocketmq_cluster: RocketMQCluster, unique_group: str) -> Iterator[Producer]:
    with Producer(unique_group, rocketmq_cluster.name_server_address, send_timeout=10.0) as producer:
        yield producer


@pytest.mark.feature("produce/timers")
@pytest.mark.rocketmq_versions("5.5.0")
def test_a_timer_message_is_delivered_when_it_is_due(producer, client, topic):
    deliver_at = datetime.now(UTC) + timedelta(seconds=2.5)
    due = {
        b"delay": now_ms() + 1500,
        b"at": round(deliver_at.timestamp() * 1000),
        b"past": 0,
    }
    assert producer.send(Message(topic, b"delay", delay=1.5)).recall_handle
    assert producer.send_async(Message(topic, b"at", deliver_at=deliver_at)).result(30)
    producer.send(Message(topic, b"past", deliver_at=now_ms() - 60_000))
    eventually(lambda: len(stored(client, topic)) == 3, tries=1500)
    messages = {message.body: message for message in stored(client, topic)}
    assert set(messages) == set(due)
    # A broker's timer works in steps of a second, and delivers in the second that begins before the time is due.
    assert all(messages[body].store_timestamp >= due[body] - 1000 for body in due)
    assert "TIMER_OUT_MS" in messages[b"delay"].properties


@pytest.mark.rocketmq_versions("4.9.7")
@pytest.mark.parametrize("when", [{"delay": 1.0}, {"deliver_at": 4_000_000_000_000}])
@pytest.mark.parametrize("how", ["send", "send_async", "send_oneway"])
def test_4_9_would_deliver_it_at_once_so_it_is_not_sent(producer, client, topic, broker, how, when):
    def send() -> None:
        result = getattr(producer, how)(Message(topic, b"x", **when))
        if how == "send_async":
            result.result(30)

    with pytest.raises(UnsupportedByBrokerError) as caught:
        send()
    text = str(caught.value)
    assert text.startswith("timer messages (delay, deliver_at) need RocketMQ 5; broker ")
    assert text.endswith(f" at {broker} is 4.9.7: use delay_level")
    assert client.max_offset(topic) == 0


@pytest.mark.feature("produce/delay-levels")
def test_delay_levels_on_both(producer, client, topic):
    receipt = producer.send(Message(topic, b"x", delay_level=1))
    eventually(lambda: stored(client, topic), tries=1500)
    (message,) = stored(client, topic)
    assert message.message_id == receipt.message_id
    assert message.store_timestamp - message.born_timestamp >= 900


@pytest.fixture(scope="module", params=[EMBEDDED, "5.5.0"])
def recalling(request: pytest.FixtureRequest) -> Iterator[AnyCluster]:
    """A broker only recalls messages when told to."""
    require_target(request, request.param)
    with new_waiting_cluster(request.param, broker_config={"recallMessageEnable": "true"}) as cluster:
        yield cluster


@pytest.fixture
def recalling_client(recalling: AnyCluster) -> Iterator[BareClient]:
    client = BareClient(recalling.name_server_address, IoThread.shared())
    yield client
    client.close()


@pytest.mark.feature("produce/recall")
@pytest.mark.parametrize("namespace", [None, "shop"])
@pytest.mark.slow(12, "waits for a timer of nine seconds")
def test_a_recalled_message_is_not_delivered(recalling, recalling_client, unique_topic, unique_group, namespace):
    wrapped = with_namespace(namespace, unique_topic)
    recalling_client.create_topic(recalling.brokers[0].address, wrapped)
    with Producer(unique_group, recalling.name_server_address, namespace=namespace, send_timeout=10.0) as producer:
        recalled = producer.send(Message(unique_topic, b"recalled", delay=6))
        # Due after the recalled one: when it is there, the other one would be, too.
        producer.send(Message(unique_topic, b"delivered", delay=9))
        assert recalled.recall_handle is not None
        assert producer.recall(unique_topic, recalled.recall_handle) == recalled.message_id
        in_its_time(recalling, lambda: stored(recalling_client, wrapped))
        assert [message.body for message in stored(recalling_client, wrapped)] == [b"delivered"]

        with pytest.raises(RecallFailedError, match=r"it was due at \d{4}-.* which is past") as caught:
            producer.recall(unique_topic, recalled.recall_handle)
        assert caught.value.address == recalling.brokers[0].address
        assert caught.value.message_id == recalled.message_id
        with pytest.raises(ConfigurationError, match="does not fit the handle"):
            producer.recall("other", recalled.recall_handle)


@pytest.mark.rocketmq_versions("5.5.0")
def test_a_broker_that_recalls_nothing_says_what_to_configure(producer, topic):
    receipt = producer.send(Message(topic, b"x", delay=3600))
    with pytest.raises(UnsupportedByBrokerError, match="recallMessageEnable=true"):
        producer.recall(topic, receipt.recall_handle)


@pytest.mark.rocketmq_versions("4.9.7")
def test_4_9_cannot_recall(producer, client, topic, broker):
    name = client.queue(topic).broker_name
    parts = RecallHandle(topic, name, now_ms() + 60_000, "7F0000012F83C5E0A89B4D9323F60001")
    text = f"v1 {parts.topic} {parts.broker_name} {parts.due} {parts.message_id}"
    handle = base64.urlsafe_b64encode(text.encode()).decode()
    with pytest.raises(UnsupportedByBrokerError) as caught:
        producer.recall(topic, handle)
    assert str(caught.value) == f"recalling messages needs RocketMQ 5; broker {name} at {broker} is 4.9.7"
