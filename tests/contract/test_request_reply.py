"""Requests and their replies on the real brokers."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from rocketstream import Message, Producer, ReceivedMessage
from rocketstream.cluster.names import with_namespace
from rocketstream.errors import BrokerError, ReplyTimeoutError
from rocketstream.producer import SendContext, SendHook
from rocketstream.remoting.io_thread import IoThread
from rocketstream.testing import RocketMQCluster
from tests.bare_client import BareClient, eventually
from tests.contract.clusters import new_cluster
from tests.stored import stored


@pytest.fixture
def producer(rocketmq_cluster: RocketMQCluster, unique_group: str) -> Iterator[Callable[..., Producer]]:
    """Start producers; they are shut down at the end."""
    producers: list[Producer] = []

    def producer(**settings: Any) -> Producer:
        group = f"{unique_group}-{len(producers)}"
        made = Producer(group, rocketmq_cluster.name_server_address, **{"send_timeout": 10.0, **settings})
        made.start()
        producers.append(made)
        return made

    yield producer
    for one in producers:
        one.shutdown()


class Replier:
    """Reads a topic and replies to every message, on a thread of its own: with a body, or not at all."""

    def __init__(self, client: BareClient, topic: str, producer: Producer, answer: Callable[..., bytes | None]) -> None:
        self.requests: list[ReceivedMessage] = []
        self.errors: list[Exception] = []
        self._client, self._topic, self._producer, self._answer = client, topic, producer, answer
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Replier:
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._end.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._end.wait(0.02):
            for message in stored(self._client, self._topic)[len(self.requests) :]:
                self.requests.append(message)
                body = self._answer(message)
                try:
                    if body is not None:
                        self._producer.reply(message, body, keys="the-reply", properties={"answer": "ja"})
                except Exception as error:
                    self.errors.append(error)


@pytest.fixture
def reader(rocketmq_cluster: RocketMQCluster) -> Iterator[BareClient]:
    client = BareClient(rocketmq_cluster.name_server_address, IoThread.shared())
    yield client
    client.close()


@pytest.mark.feature("produce/request-reply")
def test_a_request_is_replied_to(producer, reader, topic):
    asking, answering = producer(), producer()
    with Replier(reader, topic, answering, lambda message: b"pong to " + message.body) as replier:
        reply = asking.request(Message(topic, b"ping", tags="t", properties={"mine": "1"}), timeout=30.0)
        again = asking.request(Message(topic, b"ping 2"), timeout=30.0)
    assert (reply.body, again.body) == (b"pong to ping", b"pong to ping 2")
    assert (reply.keys, reply.properties["answer"]) == ("the-reply", "ja")
    asked = replier.requests[0]
    assert (asked.tags, asked.properties["mine"]) == ("t", "1")
    assert asked.properties["REPLY_TO_CLIENT"] == asking.client_id
    assert asked.properties["TTL"] == "30000"
    assert reply.properties["CORRELATION_ID"] == asked.properties["CORRELATION_ID"]
    assert reply.properties["MSG_TYPE"] == "reply"
    assert reply.topic.endswith("_REPLY_TOPIC")
    assert reply.store_timestamp >= reply.born_timestamp > 0
    assert reply.store_host
    assert replier.errors == []


@pytest.mark.feature("produce/request-reply")
def test_many_requests_at_a_time_each_get_their_own_reply(producer, reader, topic):
    asking, answering = producer(), producer()
    with (
        Replier(reader, topic, answering, lambda message: message.body[::-1]) as replier,
        ThreadPoolExecutor(8) as pool,
    ):
        bodies = [f"request {number}".encode() for number in range(40)]
        replies = list(pool.map(lambda body: asking.request(Message(topic, body), timeout=60.0).body, bodies))
    assert replies == [body[::-1] for body in bodies]
    assert replier.errors == []
    assert len(asking.core.requests) == 0


def test_large_and_compressed_requests_and_replies(producer, reader, topic):
    asking, answering = producer(compression="zstd"), producer(compression="lz4")
    body = b"0123456789" * 50_000
    with Replier(reader, topic, answering, lambda message: message.body + b"!"):
        assert asking.request(Message(topic, body), timeout=60.0).body == body + b"!"


def test_no_reply_is_a_time_out_and_a_late_one_goes_nowhere(producer, reader, topic, caplog):
    asking, answering = producer(), producer()
    with pytest.raises(ReplyTimeoutError, match=rf"sent to topic '{topic}', but no reply came within 2 s") as caught:
        asking.request(Message(topic, b"hello?"), timeout=2.0)  # of which the send may take all but a moment
    assert len(asking.core.requests) == 0
    (request,) = stored(reader, topic)
    assert request.message_id == caught.value.message_id
    answering.reply(request, b"too late")  # the broker could hand it over: it does not know that nobody waits
    eventually(lambda: any("nobody waits for" in record.message for record in caplog.records))


def test_a_reply_to_somebody_who_is_gone_is_an_error(producer, reader, topic):
    asking, answering = producer(), producer()
    with pytest.raises(ReplyTimeoutError):
        asking.request(Message(topic, b"hello?"), timeout=2.0)
    gone = asking.client_id
    asking.shutdown()
    (request,) = stored(reader, topic)
    with pytest.raises(BrokerError, match=f"channel of <{gone}> not found"):
        answering.reply(request, b"x")


def test_requests_in_a_namespace(producer, reader, rocketmq_cluster, unique_topic):
    wrapped = with_namespace("shop", unique_topic)
    reader.create_topic(rocketmq_cluster.brokers[0].address, wrapped)
    asking, answering = producer(namespace="shop"), producer(namespace="shop")
    with Replier(reader, wrapped, answering, lambda message: b"pong"):
        assert asking.request(Message(unique_topic, b"ping"), timeout=30.0).body == b"pong"


@pytest.mark.long(25, "starts two brokers", real=True)
def test_the_reply_goes_through_the_broker_that_knows_who_asked(unique_topic, rocketmq_target, unique_group):
    """The topic is on one broker of two, so the other one has never heard of the producer."""
    through: list[str] = []

    class Watch(SendHook):
        def before_send(self, context: SendContext) -> None:
            through.append(context.queue.broker_name)

    with new_cluster(rocketmq_target, brokers=2) as cluster:
        client = BareClient(cluster.name_server_address, IoThread.shared())
        try:
            client.create_topic(cluster.brokers[1].address, unique_topic)
            names = cluster.name_server_address
            with (
                Producer(f"{unique_group}-a", names, send_timeout=10.0) as asking,
                Producer(f"{unique_group}-b", names, send_hooks=[Watch()], send_timeout=10.0) as answering,
                Replier(client, unique_topic, answering, lambda message: b"pong") as replier,
            ):
                for _ in range(8):
                    assert asking.request(Message(unique_topic, b"ping"), timeout=30.0).body == b"pong"
            assert replier.errors == []
            assert through == [cluster.brokers[1].broker_name] * 8
        finally:
            client.close()
