"""The Java peer does what its driver says: interop tests may trust it."""

from __future__ import annotations

import os
import zlib
from typing import Literal

import pytest

from rocketstream.testing import RocketMQCluster, resolve_jars
from tests.interop.java_peer import JavaPeer, JavaPeerError, compile_peer


def test_consumes_every_field_of_what_it_produced(
    rocketmq_cluster: RocketMQCluster, java_peer: JavaPeer, unique_topic: str, unique_group: str
) -> None:
    java_peer.create_topic(unique_topic, queues=4)
    [receipt] = java_peer.produce(
        unique_topic, [b"gr\xc3\xbc\xc3\x9fe"], tags="paid", keys="k1 k2", properties={"region": "eu"}, flag=7
    )

    [message] = java_peer.consume(unique_group, unique_topic, count=1)

    assert receipt.status == "SEND_OK"
    assert (message.topic, message.body, message.tags, message.keys) == (
        unique_topic,
        b"gr\xc3\xbc\xc3\x9fe",
        "paid",
        "k1 k2",
    )
    assert message.properties["region"] == "eu"
    assert message.flag == 7
    assert message.message_id == receipt.message_id
    assert message.offset_message_id == receipt.offset_message_id
    assert (message.broker_name, message.queue_id, message.queue_offset) == (
        receipt.broker_name,
        receipt.queue_id,
        receipt.queue_offset,
    )
    assert message.body_crc == zlib.crc32(message.body) & 0x7FFFFFFF
    assert message.store_host == rocketmq_cluster.brokers[0].address
    assert message.reconsume_times == 0


@pytest.mark.slow(10, "waits for two Java consumers to join and to read")
def test_tags_and_sql_choose(java_peer: JavaPeer, unique_topic: str, unique_group: str) -> None:
    java_peer.create_topic(unique_topic, queues=1)
    java_peer.produce(unique_topic, [b"a"], tags="a", properties={"amount": "50"})
    java_peer.produce(unique_topic, [b"b"], tags="b", properties={"amount": "150"})

    by_tag = java_peer.consume(unique_group + "t", unique_topic, count=1, expression="b")
    by_sql = java_peer.consume(unique_group + "s", unique_topic, count=1, expression="amount > 100", sql=True)

    assert [message.body for message in by_tag] == [b"b"]
    assert [message.body for message in by_sql] == [b"b"]


def test_a_sharding_key_keeps_to_one_queue(java_peer: JavaPeer, unique_topic: str) -> None:
    java_peer.create_topic(unique_topic, queues=8)
    one = {receipt.queue_id for receipt in java_peer.produce(unique_topic, count=4, sharding_key="42")}
    assert len(one) == 1
    assert java_peer.produce(unique_topic, count=1, queue=("broker-a", 5))[0].queue_id == 5


def test_a_batch_is_one_request_with_many_messages(java_peer: JavaPeer, unique_topic: str, unique_group: str) -> None:
    java_peer.create_topic(unique_topic, queues=1)
    bodies = [b"%d" % number for number in range(6)]
    receipts = java_peer.produce(unique_topic, bodies, batch=3)

    messages = java_peer.consume(unique_group, unique_topic, count=6, orderly=True)

    assert [len(receipt.message_id.split(",")) for receipt in receipts] == [3, 3]
    assert [message.body for message in messages] == bodies
    assert [message.queue_offset for message in messages] == list(range(6))


def test_compresses_above_a_size(java_peer: JavaPeer, unique_topic: str, unique_group: str) -> None:
    java_peer.create_topic(unique_topic, queues=1)
    java_peer.produce(unique_topic, [b"x" * 2000, b"y" * 20], compress_over=100)

    messages = java_peer.consume(unique_group, unique_topic, count=2, orderly=True)

    assert [message.body for message in messages] == [b"x" * 2000, b"y" * 20]
    assert messages[0].store_size < 1000


@pytest.mark.rocketmq_versions("5.5.0")  # RocketMQ 4 compresses with zlib only
@pytest.mark.parametrize(("codec", "bits"), [("LZ4", 1), ("ZSTD", 2), ("ZLIB", 3)])
def test_compresses_with(
    java_peer: JavaPeer, unique_topic: str, unique_group: str, codec: Literal["LZ4", "ZSTD", "ZLIB"], bits: int
) -> None:
    java_peer.create_topic(unique_topic, queues=1)
    java_peer.produce(unique_topic, [b"x" * 2000], compress_over=100, compress_type=codec)

    [message] = java_peer.consume(unique_group, unique_topic, count=1)

    assert message.body == b"x" * 2000
    assert message.store_size < 1000
    assert message.sys_flag >> 8 & 0b111 == bits


def test_consumes_while_it_produces(java_peer: JavaPeer, unique_topic: str, unique_group: str) -> None:
    java_peer.create_topic(unique_topic, queues=2)
    waiting = java_peer.start_consuming(unique_group, unique_topic, count=10)
    java_peer.produce(unique_topic, count=10)
    assert len(waiting.result(60)) == 10


def test_counts_for_benchmarks(java_peer: JavaPeer, unique_topic: str, unique_group: str) -> None:
    java_peer.create_topic(unique_topic, queues=4)
    assert java_peer.produce(unique_topic, count=5_000, size=200, batch=500, receipts=False) == []

    count = java_peer.consume_count(unique_group, unique_topic, count=5_000)

    assert count.complete
    assert count.messages == 5_000
    assert 0 < count.seconds <= count.seconds_since_start
    assert 0 < count.cpu_seconds <= count.cpu_seconds_since_start


def test_an_exception_there_is_an_error_here(java_peer: JavaPeer) -> None:
    with pytest.raises(JavaPeerError, match="unknown command"):
        java_peer.call("nonsense")
    java_peer.ping()


def test_a_peer_that_dies_fails_its_callers(rocketmq_cluster: RocketMQCluster, unique_group: str) -> None:
    with JavaPeer(rocketmq_cluster.version, rocketmq_cluster.name_server_address) as peer:
        peer.ping()
        waiting = peer.start_consuming(unique_group, "nowhere", count=1, timeout=60)
        os.kill(peer.pid, 9)
        with pytest.raises(JavaPeerError, match="is gone"):
            waiting.result(30)
        with pytest.raises(JavaPeerError, match="is gone"):
            peer.ping()


def test_is_compiled_once(rocketmq_cluster: RocketMQCluster) -> None:
    jars = resolve_jars(rocketmq_cluster.version)
    classes = compile_peer(jars)
    before = (classes / "JavaPeer.class").stat().st_mtime_ns
    assert compile_peer(jars) == classes
    assert (classes / "JavaPeer.class").stat().st_mtime_ns == before
