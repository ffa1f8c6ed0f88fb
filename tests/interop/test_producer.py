"""What our producer sends is what Java consumes, field by field: plain, in batches, compressed, request and reply.

Keys, delays and transactions, which need a cluster of their own, are in `test_producer_cluster.py`.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest

from rocketstream import AdminClient, Message, MessageQueue, Producer, SendReceipt, SendStatus
from rocketstream.testing import RocketMQCluster
from rocketstream.wire.sysflag import COMPRESSED
from tests.bare_client import BareClient, eventually
from tests.interop.java_peer import JavaMessage, JavaPeer
from tests.stored import stored

TEXTS = {"ascii": "plain", "ümlaut": "größe", "中文": "订单 已付款", "emoji": "🚀 up", "עברית": "שלום"}
# What brokers and Java's consumer put to the properties of every message.
ADDED = {"CONSUME_START_TIME", "MIN_OFFSET", "MAX_OFFSET", "CLUSTER", "MSG_REGION", "TRACE_ON"}


@pytest.fixture
def produce(rocketmq_cluster: RocketMQCluster, unique_group: str) -> Iterator[Callable[..., Producer]]:
    """Make producers of the cluster; they are shut down at the end."""
    producers: list[Producer] = []

    def produce(**settings: Any) -> Producer:
        group = f"{unique_group}-p{len(producers)}"
        producer = Producer(
            group, name_servers=rocketmq_cluster.name_server_address, **{"send_timeout": 10.0, **settings}
        )
        producer.start()
        producers.append(producer)
        return producer

    yield produce
    for producer in producers:
        producer.shutdown()


def sent_properties(java: JavaMessage) -> dict[str, str]:
    """The properties that the producer sent."""
    return {name: value for name, value in java.properties.items() if name not in ADDED}


def check(java: JavaMessage, message: Message, receipt: SendReceipt, *, number: int = 0, store_host: str) -> None:
    """Every field that Java sees is what was sent, and what the receipt said; `number` is the place in a batch."""
    assert receipt.status is SendStatus.OK
    assert java.body == message.body
    assert (java.topic, java.tags, java.keys, java.flag) == (message.topic, message.tags, message.keys, message.flag)
    assert java.message_id == receipt.message_id.split(",")[number]
    assert java.offset_message_id == receipt.offset_message_id.split(",")[number]
    assert MessageQueue(java.topic, java.broker_name, java.queue_id) == receipt.queue
    assert java.queue_offset == receipt.queue_offset + number
    assert java.store_host == store_host
    assert java.born_host.startswith("127.0.0.1:")
    assert 0 <= java.store_timestamp - java.born_timestamp < 60_000
    assert java.reconsume_times == java.prepared_transaction_offset == 0
    own = {"TAGS": message.tags, "KEYS": message.keys, "UNIQ_KEY": java.message_id, "WAIT": "true"}
    expected = message.properties | {name: value for name, value in own.items() if value is not None}
    # A broker of 4.9 takes this one out of single messages before it stores them.
    assert sent_properties(java) | {"WAIT": "true"} == expected


def by_id(messages: Sequence[JavaMessage]) -> dict[str, JavaMessage]:
    found = {message.message_id: message for message in messages}
    assert len(found) == len(messages), "each came once"
    return found


@pytest.mark.feature("produce/send", "produce/queue")
def test_java_consumes_all_kinds(
    rocketmq_cluster: RocketMQCluster,
    java_peer: JavaPeer,
    produce: Callable[..., Producer],
    unique_topic: str,
    unique_group: str,
) -> None:
    """One run of Java's consumer, which takes seconds to start, for all that is there at once."""
    (broker_name,) = java_peer.create_topic(unique_topic, queues=4)
    producer = produce()
    sent: list[tuple[Message, SendReceipt, int]] = []

    def singly(message: Message, sender: Producer = producer, **how: Any) -> str:
        receipt = sender.send(message, **how)
        sent.append((message, receipt, 0))
        return receipt.message_id

    singly(Message(unique_topic, b"bare"))
    singly(Message(unique_topic, "zwölf 🚀 订单".encode(), tags="paid", keys=["k1", "k2"], properties=TEXTS, flag=7))
    singly(Message(unique_topic, b"\0\1\2\xff", tags="标签", keys="ключ clé 鍵", flag=-1))
    singly(Message(unique_topic, b"x" * 4095))  # the largest that is not compressed
    third = MessageQueue(unique_topic, broker_name, 3)
    singly(Message(unique_topic, b"to the third"), queue=third)
    assert sent[-1][1].queue == third
    asynchronous = Message(unique_topic, b"later", tags="async")
    sent.append((asynchronous, producer.send_async(asynchronous).result(30), 0))

    large = b"compress me " * 1000
    compressed = {
        codec: singly(Message(unique_topic, large, properties={"codec": codec}), produce(compression=codec))
        for codec in ("zlib", "lz4", "zstd")
    }

    batch = [
        Message(
            unique_topic, f"number {number} 号".encode(), tags=f"t{number}", properties={"n": str(number)}, flag=number
        )
        for number in range(50)
    ]
    (receipt,) = producer.send_batch(batch)
    assert receipt.message_id.count(",") == receipt.offset_message_id.count(",") == 49
    sent += [(message, receipt, number) for number, message in enumerate(batch)]
    over_the_limit = [Message(unique_topic, bytes([65 + number]) * 1000) for number in range(10)]
    receipts = produce(max_message_size=4_000).send_batch(over_the_limit)
    assert len(receipts) > 1
    places = [(receipt, number) for receipt in receipts for number in range(receipt.message_id.count(",") + 1)]
    sent += [(message, *place) for message, place in zip(over_the_limit, places, strict=True)]

    seen = by_id(java_peer.consume(unique_group, unique_topic, count=len(sent)))
    assert len(seen) == len(sent)
    for message, receipt, number in sent:
        java = seen[receipt.message_id.split(",")[number]]
        check(java, message, receipt, number=number, store_host=rocketmq_cluster.brokers[0].address)
        if java.message_id not in compressed.values():
            assert java.sys_flag == 0
            assert java.body_crc == zlib.crc32(java.body) & 0x7FFFFFFF
    for codec, bits in {"lz4": 1, "zstd": 2, "zlib": 3}.items():
        java = seen[compressed[codec]]
        assert java.store_size < len(large) // 10, f"{codec}: it was stored compressed"
        # Java of 5.x says that the body it hands over is not compressed any more; Java of 4.9 forgets to.
        assert java.sys_flag & ~COMPRESSED == bits << 8


def test_java_sends_the_same(
    java_peer: JavaPeer, produce: Callable[..., Producer], unique_topic: str, unique_group: str
) -> None:
    """To a consumer, a message of ours and one of Java's differ in nothing but ids, times and places."""
    (broker_name,) = java_peer.create_topic(unique_topic, queues=1)
    queue = (broker_name, 0)
    large = b"compress me " * 1000
    plain: dict[str, Any] = {"tags": "t", "keys": "a b", "properties": TEXTS, "flag": 5}
    java_peer.produce(unique_topic, [b"plain"], queue=queue, **plain)
    java_peer.produce(unique_topic, [large], queue=queue)
    java_peer.produce(unique_topic, [b"one", b"two"], queue=queue, batch=2, tags="b")
    java_peer.produce(unique_topic, [b"by key"], sharding_key="42")
    producer = produce()
    producer.send(Message(unique_topic, b"plain", **plain))
    producer.send(Message(unique_topic, large))
    producer.send_batch([Message(unique_topic, b"one", tags="b"), Message(unique_topic, b"two", tags="b")])
    producer.send(Message(unique_topic, b"by key", sharding_key="42"))

    seen = java_peer.consume(unique_group, unique_topic, count=10, orderly=True)
    assert len(seen) == 10
    for theirs, ours in zip(seen[:5], seen[5:], strict=True):
        assert ours.body == theirs.body
        assert (ours.tags, ours.keys, ours.flag, ours.sys_flag) == (
            theirs.tags,
            theirs.keys,
            theirs.flag,
            theirs.sys_flag,
        )
        assert sent_properties(ours) | {"UNIQ_KEY": ""} == sent_properties(theirs) | {"UNIQ_KEY": ""}
        assert len(ours.message_id) in (32, 56)  # over IPv4 or IPv6; Java prefers the latter


@pytest.mark.feature("produce/batch")
def test_a_batch_of_thousands(
    java_peer: JavaPeer, produce: Callable[..., Producer], unique_topic: str, unique_group: str
) -> None:
    """Their ids are more than the properties of one message can hold (32 KiB), so they must not be in one place."""
    java_peer.create_topic(unique_topic, queues=1)
    (receipt,) = produce().send_batch([Message(unique_topic, b"%d" % number) for number in range(2_000)])
    seen = by_id(java_peer.consume(unique_group, unique_topic, count=2_000))
    assert {int(message.body): message.message_id for message in seen.values()} == dict(
        enumerate(receipt.message_id.split(","))
    )


@pytest.mark.feature("produce/oneway")
def test_oneway_messages_arrive(
    java_peer: JavaPeer, produce: Callable[..., Producer], unique_topic: str, unique_group: str
) -> None:
    java_peer.create_topic(unique_topic, queues=4)
    producer = produce()
    bodies = {b"%d" % number for number in range(20)}
    for body in bodies:
        producer.send_oneway(Message(unique_topic, body))
    assert {message.body for message in java_peer.consume(unique_group, unique_topic, count=20)} == bodies


@pytest.mark.feature("produce/auto-batch")
def test_automatic_batches_arrive_as_single_messages(
    java_peer: JavaPeer, produce: Callable[..., Producer], unique_topic: str, unique_group: str
) -> None:
    java_peer.create_topic(unique_topic, queues=4)
    producer = produce(auto_batch=True)
    messages = [Message(unique_topic, b"%d" % number, tags=f"t{number % 3}") for number in range(500)]
    receipts = [future.result(30) for future in [producer.send_async(message) for message in messages]]

    seen = by_id(java_peer.consume(unique_group, unique_topic, count=500))
    assert len(seen) == 500
    for message, receipt in zip(messages, receipts, strict=True):
        java = seen[receipt.message_id]
        assert (java.body, java.tags) == (message.body, message.tags)
        assert java.queue_offset == receipt.queue_offset
        assert java.offset_message_id == receipt.offset_message_id
        assert java.queue_id == receipt.queue.queue_id


@pytest.mark.feature("produce/request-reply")
def test_java_replies_to_our_request(
    java_peer: JavaPeer, produce: Callable[..., Producer], unique_topic: str, unique_group: str
) -> None:
    java_peer.create_topic(unique_topic, queues=1)
    replying = java_peer.start_replying(unique_group, unique_topic, count=2)
    producer = produce()
    for text in ("wer da? 谁 🚀", "again"):
        reply = producer.request(Message(unique_topic, text.encode()), timeout=60.0)
        assert reply.body.decode() == f"reply to {text}"
    assert replying.result(90)["left"] == 0


@pytest.mark.feature("produce/request-reply")
def test_we_reply_to_javas_request(
    rocketmq_cluster: RocketMQCluster,
    client: BareClient,
    java_peer: JavaPeer,
    produce: Callable[..., Producer],
    unique_topic: str,
) -> None:
    java_peer.create_topic(unique_topic, queues=1)
    asking = java_peer.start_request(unique_topic, "wer da? 谁 🚀".encode(), timeout=60.0)
    eventually(lambda: stored(client, unique_topic))
    (request,) = stored(client, unique_topic)
    with AdminClient(rocketmq_cluster.name_server_address) as admin:

        def is_known() -> bool:
            """Java's heartbeat may be late on a busy machine; without it the broker can't find who asks."""
            members = admin.producer_connections("java-peer-requester", unique_topic).members
            return request.properties["REPLY_TO_CLIENT"] in {member.client_id for member in members}

        eventually(is_known)
    receipt = produce().reply(request, f"nur ich: {request.body.decode()}".encode(), properties={"größe": "七"})
    assert receipt.status is SendStatus.OK
    reply = java_peer.reply_of(asking)
    assert reply.body.decode() == "nur ich: wer da? 谁 🚀"
    assert reply.properties["größe"] == "七"
    assert reply.properties["CORRELATION_ID"] == request.properties["CORRELATION_ID"]
