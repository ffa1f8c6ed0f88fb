"""Java's producers on an embedded broker, those of 5.5.0 and of 4.9.7: every kind of send, field by field.

What they sent is compared with what Java's consumer got and with what the broker keeps. Consumers are in
`test_embedded_java_consumers.py`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import pytest

from rocketstream.broker.names import HALF_TOPIC, SCHEDULE_TOPIC
from rocketstream.broker.settings import DELAY_LEVELS
from rocketstream.message import ReceivedMessage
from rocketstream.testing.plugin import EMBEDDED, VERSIONS, require_real
from rocketstream.wire.sysflag import COMPRESSED
from tests.bare_client import eventually
from tests.contract.clusters import require_target
from tests.interop.embedded_java import Stage, staged
from tests.interop.java_peer import JavaReceipt
from tests.interop.java_values import JavaMessage

TEXTS = {"ascii": "plain", "ümlaut": "größe", "中文": "订单 已付款", "emoji": "🚀 up", "עברית": "שלום"}
WHAT: Mapping[str, Any] = {"tags": "标签", "keys": "k1 ключ größe", "properties": TEXTS, "flag": 7}
BROKER = "broker-a"
CODECS = {"LZ4": 1, "ZSTD": 2, "ZLIB": 3}


@pytest.fixture(scope="module", params=VERSIONS)
def stage(request: pytest.FixtureRequest) -> Iterator[Stage]:
    require_target(request, EMBEDDED)
    require_real(request.param)
    with staged(request.param) as stage:
        yield stage


class Sent(NamedTuple):
    """A message that Java sent, and its receipt if there was one; `place` is its place in a batch."""

    body: bytes
    receipt: JavaReceipt | None = None
    place: int = 0
    more: Mapping[str, str] = {}


def check(stage: Stage, topic: str, sent: Sequence[Sent], consumed: Sequence[JavaMessage], now: int) -> None:
    """Each message arrived once, is what was sent, and what the broker keeps; all were stored at the time `now`."""
    assert sorted(message.body for message in consumed) == sorted(one.body for one in sent)
    by_body = {message.body: message for message in consumed}
    kept = {(message.queue_id, message.queue_offset): message for message in stage.stored(topic)}
    assert len(kept) == len(sent)
    for one in sent:
        message = by_body[one.body]
        assert (message.topic, message.tags, message.keys, message.flag) == (topic, "标签", "k1 ключ größe", 7)
        assert {**TEXTS, **one.more}.items() <= message.properties.items()
        assert (message.broker_name, message.reconsume_times, message.prepared_transaction_offset) == (BROKER, 0, 0)
        assert message.store_timestamp == now
        assert message.store_host == stage.broker.broker_address
        assert message.born_host.startswith("127.0.0.1:")
        # RocketMQ 5 does not add its own to the properties of a batch's messages.
        told = None if b"batch" in one.body else "DefaultCluster"
        assert message.properties.get("CLUSTER") == told
        if one.receipt is not None:
            check_receipt(one.receipt, message, one.place)
        check_kept(kept[message.queue_id, message.queue_offset], message)


def check_receipt(receipt: JavaReceipt, message: JavaMessage, place: int) -> None:
    assert receipt.status == "SEND_OK"
    assert message.message_id == receipt.message_id.split(",")[place]
    assert message.offset_message_id == receipt.offset_message_id.split(",")[place]
    assert (message.broker_name, message.queue_id) == (receipt.broker_name, receipt.queue_id)
    assert message.queue_offset == receipt.queue_offset + place


def check_kept(kept: ReceivedMessage, message: JavaMessage) -> None:
    """The record that the broker keeps is the one that Java read."""
    assert (kept.topic, kept.queue_offset, kept.commit_log_offset) == (
        message.topic,
        message.queue_offset,
        message.commit_log_offset,
    )
    assert (kept.born_timestamp, kept.born_host) == (message.born_timestamp, message.born_host)
    assert (kept.store_timestamp, kept.store_host) == (message.store_timestamp, message.store_host)
    assert (kept.flag, kept.body, kept.body_crc) == (message.flag, message.body, message.body_crc)
    assert kept.sys_flag == message.sys_flag & ~COMPRESSED
    assert (kept.offset_message_id, kept.message_id) == (message.offset_message_id, message.message_id)
    added = {"CONSUME_START_TIME", "MIN_OFFSET", "MAX_OFFSET"}  # by the consumer
    assert kept.properties == {name: value for name, value in message.properties.items() if name not in added}


def test_every_kind_of_send(stage: Stage, unique_topic: str, unique_group: str) -> None:
    java, topic = stage.java, unique_topic
    assert java.create_topic(topic, queues=4) == [BROKER]
    large = b"compress me " * 1000
    sent: list[Sent] = []

    def produce(*bodies: bytes, **how: Any) -> list[JavaReceipt]:
        more = {"__SHARDINGKEY": how["sharding_key"]} if "sharding_key" in how else {}
        receipts = java.produce(topic, bodies, **WHAT, **how)
        for number, body in enumerate(bodies):
            if how.get("mode") == "oneway":
                sent.append(Sent(body, None, 0, more))
            elif how.get("batch"):
                sent.append(Sent(body, receipts[0], number, more))
            else:
                sent.append(Sent(body, receipts[number], 0, more))
        return receipts

    everywhere = produce(*(b"sync %d" % number for number in range(8)))
    assert {receipt.queue_id for receipt in everywhere} == {0, 1, 2, 3}, "it goes around the queues"
    produce(*(b"async %d" % number for number in range(20)), mode="async")
    produce(*(b"one-way %d" % number for number in range(5)), mode="oneway")
    for mode in ("sync", "async", "oneway"):
        for receipt in produce(f"{mode} to a queue".encode(), mode=mode, queue=(BROKER, 3)):
            assert receipt.queue_id == 3
        produce(*(f"{mode} by key {number}".encode() for number in range(3)), mode=mode, sharding_key="订单")
    (batch,) = produce(*(b"batch %d" % number for number in range(10)), batch=10)
    assert len(set(batch.message_id.split(","))) == 10
    codecs = CODECS if java.version.startswith("5.") else {"ZLIB": 3}  # RocketMQ 4 knows that one only
    for codec in codecs:
        produce(codec.encode() + large, compress_over=100, compress_type=codec)
    produce("größe 订单 🚀".encode(), b"\x00\xff\x00")

    # One-way messages may still be on their way: a consumer waits for them.
    consumed = java.consume(unique_group, topic, count=len(sent))
    check(stage, topic, sent, consumed, stage.now)
    keyed = sorted((m for m in consumed if b"sync by key" in m.body), key=lambda m: m.queue_offset)
    assert len({message.queue_id for message in keyed}) == 1
    assert [m.body for m in keyed if not m.body.startswith(b"a")] == [b"sync by key %d" % n for n in range(3)]
    compressed = {message.body: message for message in consumed}
    for codec, bits in codecs.items():
        message = compressed[codec.encode() + large]
        assert message.store_size < 1000
        assert message.sys_flag >> 8 & 0b111 == bits


def test_a_topic_that_nobody_created(stage: Stage, unique_topic: str, unique_group: str) -> None:
    """It is made by the first send, with the queues that the producer wants: Java's four."""
    receipts = stage.java.produce(unique_topic, count=8)
    assert {receipt.queue_id for receipt in receipts} == {0, 1, 2, 3}
    config = stage.broker.run(lambda node: node.topics.get(unique_topic))
    assert (config.read_queue_nums, config.write_queue_nums, config.perm) == (4, 4, 6)
    assert len(stage.java.consume(unique_group, unique_topic, count=8)) == 8


def test_all_delay_levels(stage: Stage, unique_topic: str, unique_group: str) -> None:
    java, began = stage.java, stage.now
    java.create_topic(unique_topic, queues=1)
    consuming = java.start_consuming(unique_group, unique_topic, count=20, timeout=60)
    levels = range(len(DELAY_LEVELS) + 2)  # the last one is beyond the highest, and is that
    before = [stage.delayed(level) for level in range(1, 19)]
    receipts = [
        java.produce(unique_topic, [b"%d" % level], delay_level=level or None, **WHAT)[0] for level in reversed(levels)
    ]
    receipts.reverse()
    assert [receipt.status for receipt in receipts] == ["SEND_OK"] * 20
    assert [stage.delayed(level) - before[level - 1] for level in range(1, 19)] == [1] * 17 + [2]
    assert stage.count(unique_topic) == 1, "only the one without a delay"

    stage.advance(DELAY_LEVELS[-1])
    seen = {int(message.body): message for message in consuming.result(90)}

    assert sorted(seen) == list(levels)
    assert [message.queue_offset for message in sorted(seen.values(), key=lambda m: int(m.body))][:18] == list(
        range(18)
    )
    for level, message in seen.items():
        real = min(level, 18)
        assert message.store_timestamp - began == (1000 * DELAY_LEVELS[real - 1] if real else 0)
        assert (message.topic, message.queue_id, message.message_id) == (unique_topic, 0, receipts[level].message_id)
        assert (message.tags, message.keys, message.flag) == ("标签", "k1 ключ größe", 7)
        assert TEXTS.items() <= message.properties.items()
        assert message.properties.get("DELAY") == (str(real) if real else None)
        assert message.born_timestamp <= message.consumed_timestamp
        check_kept(stage.stored(unique_topic)[message.queue_offset], message)
    waited = stage.stored(SCHEDULE_TOPIC)
    assert {receipt.message_id for receipt in receipts[1:]} <= {message.message_id for message in waited}


def test_timer_messages(stage: Stage, unique_topic: str, unique_group: str) -> None:
    java, began = stage.java, stage.now
    if java.version.startswith("4."):
        pytest.skip("the client of RocketMQ 4 has no timer messages")
    java.create_topic(unique_topic, queues=1)
    (delay,) = java.produce(unique_topic, [b"delay"], timer_delay_ms=2_500, **WHAT)
    (recalled,) = java.produce(unique_topic, [b"recalled"], timer_deliver_ms=began + 10_000, **WHAT)
    whole_second = (began // 1_000 + 3_600) * 1_000
    (at,) = java.produce(unique_topic, [b"deliver at"], timer_deliver_ms=whole_second, **WHAT)
    (past,) = java.produce(unique_topic, [b"in the past"], timer_deliver_ms=began - 1_000, **WHAT)
    assert recalled.recall_handle is not None
    assert java.recall(unique_topic, recalled.recall_handle) == recalled.message_id

    stage.advance(3_602)
    seen = java.consume(unique_group, unique_topic, count=3)

    by_body = {message.body: message for message in seen}
    assert set(by_body) == {b"delay", b"deliver at", b"in the past"}
    for receipt, due in ((delay, began + 2_500), (at, whole_second), (past, began)):
        (message,) = (message for message in seen if message.message_id == receipt.message_id)
        assert receipt.status == "SEND_OK"
        # The broker's wheel turns once a second.
        assert due - 1_000 <= message.store_timestamp <= due + 1_000
        if receipt is past:
            assert message.store_timestamp == began
            continue
        assert message.properties["TIMER_ENQUEUE_MS"] == str(began // 1_000 * 1_000)
        assert message.properties["TIMER_DEQUEUE_MS"] == str(message.store_timestamp)
        # Down to the second, and a whole one is the one before.
        assert message.properties["TIMER_OUT_MS"] == str((due - 1) // 1_000 * 1_000)
        assert (message.properties["REAL_TOPIC"], message.properties["REAL_QID"]) == (unique_topic, "0")
    for message in seen:
        assert (message.topic, message.tags, message.keys, message.flag) == (unique_topic, "标签", "k1 ключ größe", 7)
        assert TEXTS.items() <= message.properties.items()
    assert [by_body[body].queue_offset for body in (b"in the past", b"delay", b"deliver at")] == [0, 1, 2]


def test_request_and_reply(stage: Stage, unique_topic: str, unique_group: str) -> None:
    java = stage.java
    java.create_topic(unique_topic, queues=2)
    replying = java.start_replying(unique_group, unique_topic, count=3)
    asked = [java.start_request(unique_topic, f"Größe {number}? 🚀".encode()) for number in range(3)]

    replies = [java.reply_of(asking) for asking in asked]

    assert replying.result(60)["left"] == 0
    assert [reply.body.decode() for reply in replies] == [f"reply to Größe {number}? 🚀" for number in range(3)]
    requests = {message.body: message for message in stage.stored(unique_topic)}
    for number, reply in enumerate(replies):
        request = requests[f"Größe {number}? 🚀".encode()]
        assert reply.properties["CORRELATION_ID"] == request.properties["CORRELATION_ID"]
        assert reply.properties["REPLY_TO_CLIENT"] == request.properties["REPLY_TO_CLIENT"]
        assert reply.properties["MSG_TYPE"] == "reply"
        assert request.properties["TTL"] == "30000"


def test_transactions(stage: Stage, unique_topic: str, unique_group: str) -> None:
    """Committed, rolled back, and asked about: then committed."""
    java, began, before = stage.java, stage.now, stage.count(HALF_TOPIC)
    java.create_topic(unique_topic, queues=2)
    transacting = java.start_transacting(
        f"{unique_group}-p",
        unique_topic,
        ["COMMIT_MESSAGE", "ROLLBACK_MESSAGE", "UNKNOW"],
        checks=1,
        timeout=60,
        **WHAT,
    )
    eventually(lambda: stage.count(HALF_TOPIC) == before + 3 and stage.open_transactions() == 1)
    assert [message.body for message in stage.stored(unique_topic)] == [b"COMMIT_MESSAGE"]
    stage.wait_for_producer(f"{unique_group}-p")
    asked_at, now = stage.check_transactions()
    (committed, rolled_back, unknown) = transacting.result(90).receipts
    (asked,) = transacting.result().asked
    consumed = {message.message_id: message for message in java.consume(unique_group, unique_topic, count=2)}

    assert [one.status for one in (committed, rolled_back, unknown)] == ["SEND_OK"] * 3
    assert set(consumed) == {committed.message_id, unknown.message_id}
    kept = {message.message_id: message for message in stage.stored(unique_topic)}
    # A broker stores a half message anew before it asks about it, and forgets its flag.
    for receipt, body, flag in ((committed, b"COMMIT_MESSAGE", 7), (unknown, b"UNKNOW", 0)):
        message = consumed[receipt.message_id]
        assert (message.body, message.queue_id, message.broker_name) == (body, receipt.queue_id, BROKER)
        assert (message.tags, message.keys, message.flag) == ("标签", "k1 ключ größe", flag)
        assert TEXTS.items() <= message.properties.items()
        assert (message.properties["TRAN_MSG"], message.properties["PGROUP"]) == ("true", f"{unique_group}-p")
        assert message.properties["__transactionId__"] == receipt.message_id
        assert message.sys_flag == 8, "a committed transaction"
        assert 0 < message.prepared_transaction_offset < message.commit_log_offset
        assert not {"REAL_TOPIC", "REAL_QID"} & message.properties.keys()
        check_kept(kept[receipt.message_id], message)
    assert consumed[committed.message_id].store_timestamp == began
    assert asked_at <= consumed[unknown.message_id].store_timestamp <= now
    assert (asked.topic, asked.body, asked.properties["UNIQ_KEY"]) == (unique_topic, b"UNKNOW", unknown.message_id)
    assert (asked.tags, asked.keys, asked.flag) == ("标签", "k1 ключ größe", 7)
    assert TEXTS.items() <= asked.properties.items()
    assert asked.properties["TRANSACTION_CHECK_TIMES"] == "1"
    eventually(lambda: stage.open_transactions() == 0)


def test_a_transaction_that_is_rolled_back_when_asked(stage: Stage, unique_topic: str, unique_group: str) -> None:
    java, before = stage.java, stage.count(HALF_TOPIC)
    java.create_topic(unique_topic, queues=1)
    transacting = java.start_transacting(
        f"{unique_group}-p", unique_topic, ["UNKNOW"], checked="ROLLBACK_MESSAGE", checks=1, timeout=60
    )
    eventually(lambda: stage.count(HALF_TOPIC) == before + 1)
    stage.wait_for_producer(f"{unique_group}-p")
    stage.check_transactions()
    (asked,) = transacting.result(90).asked
    eventually(lambda: stage.open_transactions() == 0)
    halves = stage.count(HALF_TOPIC)
    stage.advance(120)
    assert asked.body == b"UNKNOW"
    assert stage.count(HALF_TOPIC) == halves, "it is not asked about again"
    assert stage.stored(unique_topic) == []


def test_a_transaction_that_nobody_knows(stage: Stage, unique_topic: str, unique_group: str) -> None:
    """It is asked about again and again, until the broker has had enough."""
    java, before = stage.java, stage.count(HALF_TOPIC)
    times = stage.broker.settings.transaction_check_max
    java.create_topic(unique_topic, queues=1)
    transacting = java.start_transacting(
        f"{unique_group}-p", unique_topic, ["UNKNOW"], checked="UNKNOW", checks=times, timeout=60
    )
    eventually(lambda: stage.count(HALF_TOPIC) == before + 1)
    stage.wait_for_producer(f"{unique_group}-p")
    for _ in range(times + 1):
        stage.advance(30)
    asked = transacting.result(90).asked
    assert sorted(int(one.properties["TRANSACTION_CHECK_TIMES"]) for one in asked) == list(range(1, times + 1))
    eventually(lambda: stage.open_transactions() == 0)
    (given_up,) = stage.stored("TRANS_CHECK_MAX_TIME_TOPIC")
    assert (given_up.body, given_up.properties["REAL_TOPIC"]) == (b"UNKNOW", unique_topic)
    assert stage.stored(unique_topic) == []
