"""What Java's producers sent, read with `AdminClient.peek`: field by field what was asked for, what Java's receipts
say, and what Java's own consumer shows of the same messages.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pytest

from rocketstream import AdminClient, MessageQueue, ReceivedMessage
from rocketstream.testing import RocketMQCluster
from tests.bare_client import eventually
from tests.interop.fields import same
from tests.interop.java_peer import JavaPeer, JavaReceipt

TEXTS = {"ascii": "plain", "ümlaut": "größe", "中文": "订单 已付款", "emoji": "🚀 up", "עברית": "שלום"}
# The bits of the system flag that say with what a body was compressed.
CODECS = {"LZ4": 1 << 8, "ZSTD": 2 << 8, "ZLIB": 3 << 8}
WAIT = 60.0


@pytest.fixture
def admin(rocketmq_cluster: RocketMQCluster) -> Iterator[AdminClient]:
    with AdminClient(rocketmq_cluster.name_server_address) as admin:
        yield admin


@pytest.fixture
def cluster_admin(cluster: RocketMQCluster) -> Iterator[AdminClient]:
    with AdminClient(cluster.name_server_address) as admin:
        yield admin


def peeked(admin: AdminClient, topic: str, count: int) -> dict[str, ReceivedMessage]:
    """What is in a topic by id, once it is `count` messages: brokers list a message a moment after they stored it."""
    eventually(lambda: len(admin.peek(topic, count + 1)) >= count, tries=3000)
    messages = admin.peek(topic, count + 1)
    found = {message.message_id: message for message in messages}
    assert len(messages) == len(found) == count
    return found


def check(
    message: ReceivedMessage,
    body: bytes,
    receipt: JavaReceipt,
    *,
    place: int = 0,
    tags: str | None = None,
    keys: str | None = None,
    properties: Mapping[str, str] | None = None,
    flag: int = 0,
) -> None:
    """A message is what Java was told to send, where its receipt says; `place` is that in a batch."""
    assert receipt.status == "SEND_OK"
    assert message.body == body
    assert (message.tags, message.keys, message.flag) == (tags, keys, flag)
    assert {name: message.properties.get(name) for name in properties or {}} == dict(properties or {})
    assert message.message_id == _ids(receipt)[place]
    assert message.offset_message_id == receipt.offset_message_id.split(",")[place]
    assert message.queue == MessageQueue(message.topic, receipt.broker_name, receipt.queue_id)
    assert message.queue_offset == receipt.queue_offset + place
    assert message.reconsume_times == message.prepared_transaction_offset == 0


def same_in_java(peer: JavaPeer, group: str, messages: Mapping[str, ReceivedMessage]) -> None:
    """Java's consumer shows every message with the same fields."""
    (topic,) = {message.topic for message in messages.values()}
    javas = peer.consume(group, topic, count=len(messages), timeout=WAIT)
    assert sorted(java.message_id for java in javas) == sorted(messages)
    for java in javas:
        same(messages[java.message_id], java)


def test_all_kinds(
    rocketmq_cluster: RocketMQCluster, admin: AdminClient, java_peer: JavaPeer, unique_topic: str, unique_group: str
) -> None:
    """Plain, in many languages, in a batch and compressed: one run of Java's consumer, which takes seconds to start."""
    java_peer.create_topic(unique_topic, queues=4)
    sent: dict[str, tuple[bytes, JavaReceipt, int, dict[str, Any]]] = {}

    def produce(bodies: Sequence[bytes], *, how: Mapping[str, Any] | None = None, **what: Any) -> list[str]:
        """Have Java send, remember what, and return the ids."""
        receipts = java_peer.produce(unique_topic, bodies, **(how or {}), **what)
        ids = [(name, receipt, place) for receipt in receipts for place, name in enumerate(_ids(receipt))]
        for body, (name, receipt, place) in zip(bodies, ids, strict=True):
            sent[name] = body, receipt, place, what
        return [name for name, _, _ in ids]

    produce([b"bare"])
    produce([b"\0\1\2\xff", "zwölf 🚀 订单".encode()], tags="paid", keys="k1 k2", properties=TEXTS, flag=7)
    produce([b"in other letters"], tags="标签", keys="ключ clé 鍵", properties={"größe": "七"}, flag=-1)
    produce([b"x" * 4095])  # the largest that Java does not compress
    produce([b"batch %d" % number for number in range(10)], how={"batch": 10}, tags="b", keys="Büro", properties=TEXTS)
    large = b"compress me " * 1000
    compressed = {codec: produce([large], how={"compress_type": codec}, tags=codec)[0] for codec in CODECS}

    messages = peeked(admin, unique_topic, len(sent))
    for name, (body, receipt, place, what) in sent.items():
        check(messages[name], body, receipt, place=place, **what)
    for codec, name in compressed.items():
        assert messages[name].body_size < len(large) // 10, f"{codec}: it was stored compressed"
        if rocketmq_cluster.version.startswith("5."):  # the client of 4.9 knows zlib only
            assert messages[name].sys_flag & 0x700 == CODECS[codec]
    same_in_java(java_peer, unique_group, messages)

    # The other ways to a message lead to the same one.
    for name, (_, receipt, _, _) in sent.items():
        if "," not in receipt.message_id:
            assert admin.message(name, unique_topic).queue_offset == messages[name].queue_offset
            assert admin.message(receipt.offset_message_id).message_id == name
    eventually(lambda: len(admin.messages_by_key(unique_topic, "Büro")) == 10)
    tagged = admin.peek(unique_topic, 100, tags="标签 || paid")
    assert sorted(message.flag for message in tagged) == [-1, 7, 7]


@pytest.mark.slow(20, "waits for a Java consumer to join and to read")
def test_keys_in_order(cluster_admin: AdminClient, peer: JavaPeer, unique_topic: str, unique_group: str) -> None:
    """On two brokers: what has the same sharding key is in one queue, in its order."""
    peer.create_topic(unique_topic, queues=4)
    bodies = [b"%d" % number for number in range(10)]
    keys = ["订单", "заказ", "🚀", "größe", *map(str, range(12))]
    sent = {key: peer.produce(unique_topic, bodies, sharding_key=key, properties={"key": key}) for key in keys}

    messages = peeked(cluster_admin, unique_topic, len(keys) * len(bodies))
    for key, receipts in sent.items():
        for body, receipt in zip(bodies, receipts, strict=True):
            check(messages[receipt.message_id], body, receipt, properties={"key": key, "__SHARDINGKEY": key})
    order: dict[str, list[ReceivedMessage]] = defaultdict(list)
    for message in cluster_admin.peek(unique_topic, 1000):
        order[message.properties["key"]].append(message)
    for key in keys:
        assert [message.body for message in order[key]] == bodies
        assert len({message.queue for message in order[key]}) == 1
    assert {message.broker_name for message in messages.values()} == {"broker-a", "broker-b"}
    same_in_java(peer, unique_group, messages)


@pytest.mark.slow(11, "waits for delays of some seconds")
def test_delay_levels(cluster_admin: AdminClient, peer: JavaPeer, unique_topic: str, unique_group: str) -> None:
    peer.create_topic(unique_topic, queues=2)
    what: dict[str, Any] = {"tags": "delayed", "keys": "ключ", "properties": TEXTS, "flag": 3}
    sent = {
        level: peer.produce(unique_topic, [b"level %d" % level], delay_level=level or None, **what)[0]
        for level in (3, 2, 1, 0)
    }

    messages = peeked(cluster_admin, unique_topic, 4)
    for level, receipt in sent.items():
        message = messages[receipt.message_id]
        if not level:
            check(message, b"level 0", receipt, **what)
        assert (message.topic, message.body) == (unique_topic, b"level %d" % level)
        assert (message.tags, message.keys, message.flag) == ("delayed", "ключ", 3)
        assert TEXTS.items() <= message.properties.items()
        assert message.properties.get("DELAY") == (str(level) if level else None)
        # The receipt has the place where it waited; here is where it was stored when its time had come.
        assert message.broker_name == receipt.broker_name
        assert message.store_timestamp - message.born_timestamp >= 1000 * level
    same_in_java(peer, unique_group, messages)


def test_transactions(cluster_admin: AdminClient, peer: JavaPeer, unique_topic: str, unique_group: str) -> None:
    """Committed, rolled back, and committed when the broker asked."""
    peer.create_topic(unique_topic, queues=1)
    what: dict[str, Any] = {"tags": "tx", "keys": "clé", "properties": TEXTS, "flag": 5}
    committed, _, asked = peer.transact(
        f"{unique_group}-p",
        unique_topic,
        ["COMMIT_MESSAGE", "ROLLBACK_MESSAGE", "UNKNOW"],
        checks=1,
        timeout=WAIT,
        **what,
    )

    # The one that was asked about comes last: what was rolled back has had its chance.
    messages = peeked(cluster_admin, unique_topic, 2)
    # A broker stores a half message anew before it asks about it, and forgets its flag (renewHalfMessageInner).
    for receipt, body, flag in ((committed, b"COMMIT_MESSAGE", 5), (asked, b"UNKNOW", 0)):
        message = messages[receipt.message_id]
        assert (message.topic, message.body, message.broker_name) == (unique_topic, body, receipt.broker_name)
        assert (message.tags, message.keys, message.flag) == ("tx", "clé", flag)
        assert TEXTS.items() <= message.properties.items()
        assert message.sys_flag == 8, "a committed transaction"
        assert message.properties["TRAN_MSG"] == "true"
        assert message.properties["PGROUP"] == f"{unique_group}-p"
        assert 0 < message.prepared_transaction_offset < message.commit_log_offset
    same_in_java(peer, unique_group, messages)


def _ids(receipt: JavaReceipt) -> list[str]:
    return receipt.message_id.split(",")
