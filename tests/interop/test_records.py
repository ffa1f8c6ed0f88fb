"""Messages between Java and us, field by field, over plain sends and pulls."""

from __future__ import annotations

import pytest

from rocketstream.message import ReceivedMessage
from rocketstream.wire.batch import BatchItem, encode_batch
from rocketstream.wire.compression import compress
from rocketstream.wire.properties import encode_properties
from rocketstream.wire.sysflag import Codec, with_codec
from tests.bare_client import BareClient, eventually
from tests.interop.fields import same
from tests.interop.java_peer import JavaPeer

TEXTS = {"ascii": "plain", "ümlaut": "größe", "中文": "订单 已付款", "emoji": "🚀 up"}


def both_see(client: BareClient, peer: JavaPeer, topic: str, group: str, count: int) -> list[ReceivedMessage]:
    """Pull and let Java consume the same messages; return ours after comparing each with Java's."""
    eventually(lambda: client.max_offset(topic) >= count)
    ours = client.pull_all(group, topic)
    javas = peer.consume(group, topic, count=count)
    assert len(ours) == len(javas) == count
    for mine, theirs in zip(ours, sorted(javas, key=lambda message: message.queue_offset), strict=True):
        same(mine, theirs)
    return ours


@pytest.fixture
def produced_by_java(client, java_peer, topic, unique_group):
    def produce(*bodies: bytes, **others) -> list[ReceivedMessage]:
        java_peer.produce(topic, list(bodies), queue=(client.queue(topic).broker_name, 0), **others)
        return both_see(client, java_peer, topic, unique_group, len(bodies))

    return produce


def test_plain_messages_of_java(produced_by_java):
    (one, two) = produced_by_java(b"one", "zwölf 🚀".encode(), tags="tag", keys="k1 k2", properties=TEXTS, flag=7)
    assert (one.body, one.tags, one.keys, one.flag) == (b"one", "tag", "k1 k2", 7)
    assert two.body.decode() == "zwölf 🚀"
    for name, text in TEXTS.items():
        assert one.properties[name] == text


def test_a_batch_of_java(client, java_peer, topic, unique_group):
    bodies = [b"batch %d" % number for number in range(10)]
    java_peer.produce(topic, bodies, batch=10, tags="b", queue=(client.queue(topic).broker_name, 0))
    ours = both_see(client, java_peer, topic, unique_group, 10)
    assert [message.body for message in ours] == bodies
    assert len({message.message_id for message in ours}) == 10


@pytest.mark.parametrize("codec", ["ZLIB", "LZ4", "ZSTD"])
def test_compressed_messages_of_java(produced_by_java, codec):
    body = b"compress me " * 1000
    small, large = produced_by_java(b"small", body, compress_type=codec)
    assert small.body == b"small"
    assert large.body == body
    assert large.body_size < len(body) // 10, "it was stored compressed"


def test_our_plain_messages_in_java(client, java_peer, topic, unique_group):
    client.send(topic, b"plain", {"TAGS": "t", "KEYS": "a b", **TEXTS}, flag=3, born_timestamp=1_700_000_000_123)
    (message,) = both_see(client, java_peer, topic, unique_group, 1)
    assert (message.flag, message.born_timestamp, message.tags) == (3, 1_700_000_000_123, "t")


def test_our_batch_in_java(client, java_peer, topic, unique_group):
    items = [BatchItem(b"item %d" % n, encode_properties({"TAGS": "t", "n": str(n)}), n) for n in range(5)]
    client.send(topic, encode_batch(items), batch=True)
    eventually(lambda: client.max_offset(topic) == 5)
    messages = both_see(client, java_peer, topic, unique_group, 5)
    assert [message.properties["n"] for message in messages] == ["0", "1", "2", "3", "4"]
    assert [message.flag for message in messages] == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("codec", list(Codec))
def test_our_compressed_messages_in_java(client, java_peer, topic, unique_group, codec):
    body = b"compress me too " * 1000
    client.send(topic, compress(body, codec), sys_flag=with_codec(0, codec))
    (message,) = both_see(client, java_peer, topic, unique_group, 1)
    assert message.body == body
