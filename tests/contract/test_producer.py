"""The producer on the real brokers: what it says of a send is what a pull finds."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from typing import Any

import pytest

from rocketstream.errors import BrokerError, NameServerError, TopicRouteNotFoundError
from rocketstream.message import Message, MessageQueue, ReceivedMessage
from rocketstream.producer import Producer, SendReceipt, SendStatus
from rocketstream.producer.queue_choice import queue_for_key
from rocketstream.wire.codes import ResponseCode
from rocketstream.wire.compression import compress
from rocketstream.wire.message_id import decode_offset_id, decode_unique_id
from rocketstream.wire.record_decoder import decode_records
from rocketstream.wire.sysflag import Codec, codec_of
from tests.bare_client import eventually

QUEUES = 4


@pytest.fixture
def make(rocketmq_cluster, unique_group) -> Iterator[Callable[..., Producer]]:
    """Start producers of the cluster; they are shut down at the end."""
    producers: list[Producer] = []

    def make(**settings: Any) -> Producer:
        producer = Producer(unique_group, rocketmq_cluster.name_server_address, **{"send_timeout": 10.0, **settings})
        producer.start()
        producers.append(producer)
        return producer

    yield make
    for producer in producers:
        producer.shutdown()


@pytest.fixture
def producer(make) -> Producer:
    return make()


@pytest.fixture
def orders(client, broker, unique_topic) -> str:
    """A topic with four queues."""
    client.create_topic(broker, unique_topic, queues=QUEUES)
    return unique_topic


def stored(client, topic: str, count: int, queues: int = QUEUES) -> dict[str, ReceivedMessage]:
    """The messages of a topic by their unique id, once there are that many: queues learn of them a moment later."""
    eventually(lambda: sum(client.max_offset(topic, n) for n in range(queues)) >= count)
    messages = client.pull_all("reader", topic, queues)
    assert len(messages) == count
    return {message.message_id: message for message in messages}


def check(receipt: SendReceipt, message: ReceivedMessage) -> None:
    """What a receipt says of a message is what was stored."""
    assert receipt.status is SendStatus.OK
    assert receipt.message_id == message.message_id
    assert receipt.offset_message_id == message.offset_message_id
    assert receipt.queue == message.queue
    assert receipt.queue_offset == message.queue_offset


@pytest.mark.feature("produce/send")
def test_a_receipt_is_what_a_pull_finds(client, producer, orders, broker):
    sent = Message(orders, b"body", tags="paid", keys=["k1", "k2"], properties={"a": "b"}, flag=7)
    receipts = [producer.send(sent) for _ in range(8)]
    found = stored(client, orders, 8)
    assert len(found) == 8, "each send has an id of its own"
    for receipt in receipts:
        message = found[receipt.message_id]
        check(receipt, message)
        assert (message.topic, message.body, message.tags, message.keys) == (orders, b"body", "paid", "k1 k2")
        assert (message.properties["a"], message.flag) == ("b", 7)
        assert decode_offset_id(receipt.offset_message_id).store_host == broker
        assert decode_unique_id(receipt.message_id, message.store_timestamp).pid > 0
        assert abs(message.born_timestamp - message.store_timestamp) < 60_000
    assert {receipt.queue.queue_id for receipt in receipts} == set(range(QUEUES)), "round robin"


@pytest.mark.feature("produce/queue")
def test_a_given_queue_a_key_and_a_selector(client, producer, orders):
    queues = producer.queues(orders)
    assert [queue.queue_id for queue in queues] == list(range(QUEUES))
    for queue in queues:
        assert producer.send(Message(orders, b"queue"), queue=queue).queue == queue
    for key in ("42", "order-1", "polygenelubricants", "中文"):
        wanted = queue_for_key(queues, key)
        for _ in range(2):
            assert producer.send(Message(orders, b"key"), sharding_key=key).queue == wanted
            assert producer.send(Message(orders, b"key", sharding_key=key)).queue == wanted
    chosen = producer.send(Message(orders, b"selector"), selector=lambda queues, message, arg: queues[arg], arg=2)
    assert chosen.queue == queues[2]
    found = stored(client, orders, QUEUES + 16 + 1)
    assert {message.properties.get("__SHARDINGKEY") for message in found.values()} == {
        None,
        "42",
        "order-1",
        "polygenelubricants",
        "中文",
    }


@pytest.mark.feature("produce/queue")
def test_the_order_of_a_key_is_kept(client, producer, orders):
    for number in range(50):
        producer.send(Message(orders, b"%d" % number), sharding_key="one key")
    bodies = [int(message.body) for message in stored(client, orders, 50).values()]
    assert bodies == list(range(50))


@pytest.mark.feature("produce/oneway")
def test_one_way(client, producer, orders):
    for number in range(10):
        producer.send_oneway(Message(orders, b"%d" % number))
    assert {int(message.body) for message in stored(client, orders, 10).values()} == set(range(10))


@pytest.mark.feature("produce/async")
@pytest.mark.parametrize("auto_batch", [False, True], ids=["single", "auto_batch"])
def test_asynchronous_sends(client, make, orders, auto_batch):
    producer = make(auto_batch=auto_batch, max_async_messages=50)
    futures: dict[int, Future[SendReceipt]] = {}
    for number in range(500):
        futures[number] = producer.send_async(Message(orders, b"%d" % number))
    receipts = {number: future.result() for number, future in futures.items()}
    found = stored(client, orders, 500)
    for number, receipt in receipts.items():
        message = found[receipt.message_id]
        check(receipt, message)
        assert int(message.body) == number


@pytest.mark.feature("produce/async")
def test_a_shutdown_waits_for_what_is_under_way(client, make, orders):
    producer = make()
    futures = [producer.send_async(Message(orders, b"x")) for _ in range(200)]
    producer.shutdown()
    assert all(future.done() for future in futures)
    assert len(stored(client, orders, 200)) == len({future.result().message_id for future in futures}) == 200


def test_many_threads_send_with_one_producer(client, producer, orders):
    receipts: list[SendReceipt] = []

    def work(number: int) -> None:
        for index in range(50):
            receipts.append(producer.send(Message(orders, b"%d %d" % (number, index))))

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    found = stored(client, orders, 200)
    assert set(found) == {receipt.message_id for receipt in receipts}
    for receipt in receipts:
        check(receipt, found[receipt.message_id])


@pytest.mark.feature("produce/batch")
def test_a_batch_is_stored_as_single_messages_with_their_own_ids(client, producer, orders):
    messages = [Message(orders, b"%d" % n, tags=f"t{n}", keys=f"k{n}", properties={"n": str(n)}) for n in range(20)]
    (receipt,) = producer.send_batch(messages)
    ids = receipt.message_id.split(",")
    offset_ids = receipt.offset_message_id.split(",")
    found = stored(client, orders, 20)
    assert len(ids) == len(offset_ids) == 20
    for number, (message_id, offset_id) in enumerate(zip(ids, offset_ids, strict=True)):
        message = found[message_id]
        assert (message.queue, message.queue_offset) == (receipt.queue, receipt.queue_offset + number)
        assert message.offset_message_id == offset_id
        assert (int(message.body), message.tags, message.keys) == (number, f"t{number}", f"k{number}")
        assert message.properties["n"] == str(number)


def test_a_batch_of_thousands(client, producer, orders):
    queue = producer.queues(orders)[1]
    receipts = producer.send_batch([Message(orders, b"%d" % number) for number in range(3000)], queue=queue)
    found = stored(client, orders, 3000)
    assert [int(message.body) for message in found.values()] == list(range(3000))
    assert ",".join(receipt.message_id for receipt in receipts).split(",") == list(found)


@pytest.mark.feature("produce/batch")
def test_a_batch_over_the_limit_is_split_and_keeps_its_order(client, make, orders):
    producer = make(max_message_size=10_000)
    queue = producer.queues(orders)[0]
    receipts = producer.send_batch([Message(orders, b"%05d" % n * 200) for n in range(40)], queue=queue)
    assert len(receipts) > 4
    found = list(stored(client, orders, 40).values())
    assert [message.body[:5] for message in found] == [b"%05d" % n for n in range(40)]
    assert [receipt.queue_offset for receipt in receipts] == sorted(receipt.queue_offset for receipt in receipts)


@pytest.mark.parametrize("size", [100_000, 4 * 1024 * 1024 - 1000])
def test_large_messages_and_batches_up_to_the_brokers_limit(client, make, orders, size):
    producer = make(compress_over=1 << 30, send_timeout=30)
    body = bytes(range(256)) * (size // 256)
    receipts = [producer.send(Message(orders, body))]
    receipts += producer.send_batch([Message(orders, body), Message(orders, body)], timeout=30)
    found = stored(client, orders, 3)
    assert {message.body for message in found.values()} == {body}
    assert set(",".join(receipt.message_id for receipt in receipts).split(",")) == set(found)


@pytest.mark.feature("produce/compression")
@pytest.mark.parametrize(
    ("name", "codec"), [("zlib", Codec.ZLIB), ("lz4", Codec.LZ4), ("zstd", Codec.ZSTD)], ids=["zlib", "lz4", "zstd"]
)
def test_compression_there_and_back(client, make, orders, name, codec):
    producer = make(compression=name, compress_over=100)
    body = "compress me, 压缩我; ".encode() * 500
    producer.send(Message(orders, body))
    producer.send(Message(orders, b"short"))
    large, short = sorted(stored(client, orders, 2).values(), key=lambda message: -len(message.body))
    assert (large.body, short.body) == (body, b"short")
    assert codec_of(large._stored_sys_flag) is codec
    assert large.store_size < 1000 + len(compress(body, codec))
    assert short._stored_sys_flag & 1 == 0


@pytest.mark.parametrize(
    "text", ["grüße", "中文属性", "Ελληνικά", "עברית", "русский", "日本語", "emoji 😀🚀", "a=b;c d", '{"json": "yes"}']
)
def test_texts_in_several_languages(client, producer, orders, text):
    sent = Message(orders, text.encode(), tags=text, keys=text, properties={"name": text, text: "value"})
    receipt = producer.send(sent)
    (batched,) = producer.send_batch([sent])
    for message in stored(client, orders, 2).values():
        assert message.message_id in (receipt.message_id, batched.message_id)
        assert (message.body.decode(), message.tags, message.keys) == (text, text, text)
        assert (message.properties["name"], message.properties[text]) == (text, "value")


@pytest.mark.parametrize("level", [1, 3, 18])
def test_a_delay_level_waits_where_delayed_messages_wait(client, producer, orders, level):
    receipt = producer.send(Message(orders, b"later", tags="t", delay_level=level))
    assert receipt.status is SendStatus.OK
    assert receipt.queue.topic == orders
    # The message lies in the schedule topic, with where it is to go; its queue learns of it a moment later.
    schedule = MessageQueue("SCHEDULE_TOPIC_XXXX", receipt.queue.broker_name, level - 1)
    eventually(lambda: client.max_offset(schedule.topic, schedule.queue_id) > receipt.queue_offset)
    waiting = client.pull("reader", schedule.topic, receipt.queue_offset, queue_id=schedule.queue_id)
    message = decode_records(waiting.body, queue=schedule).messages[0]
    assert message.message_id == receipt.message_id
    assert message.properties["DELAY"] == str(level)
    assert message.properties["REAL_TOPIC"] == orders
    assert message.properties["TAGS"] == "t"


def test_a_topic_is_created_by_the_first_send(client, make, unique_topic):
    producer = make(default_topic_queue_nums=3)
    receipts = [producer.send(Message(unique_topic, b"%d" % number)) for number in range(9)]
    assert {receipt.queue.queue_id for receipt in receipts} <= set(range(3))

    def has_its_queues() -> bool:
        try:
            return len(producer.queues(unique_topic)) == 3
        except TopicRouteNotFoundError:  # the broker stores first, and tells its name server then
            return False

    eventually(has_its_queues)
    found = stored(client, unique_topic, 9, queues=3)
    for receipt in receipts:
        check(receipt, found[receipt.message_id])


def test_a_namespace_is_around_the_topic_at_the_broker_and_nowhere_else(client, broker, make, unique_topic):
    client.create_topic(broker, f"ns%{unique_topic}", queues=QUEUES)
    producer = make(namespace="ns")
    receipt = producer.send(Message(unique_topic, b"x"))
    assert receipt.queue.topic == unique_topic
    assert {queue.topic for queue in producer.queues(unique_topic)} == {unique_topic}
    (message,) = stored(client, f"ns%{unique_topic}", 1).values()
    assert message.message_id == receipt.message_id
    assert message.properties["INSTANCE_ID"] == "ns"


def test_what_a_broker_refuses_is_told_in_its_words(make, orders, broker):
    producer = make(max_message_size=8 * 1024 * 1024, compress_over=1 << 30, send_timeout=30)
    with pytest.raises(BrokerError) as caught:
        producer.send(Message(orders, b"x" * (5 * 1024 * 1024)))
    assert caught.value.code == ResponseCode.MESSAGE_ILLEGAL
    assert caught.value.address == broker
    assert caught.value.remark


def test_the_largest_properties_that_pass_our_check_are_taken(client, producer, orders):
    # A broker adds properties of its own (region, trace switch, cluster) to ours.
    sent = Message(orders, b"x", properties={"a": "x" * 32_400})
    assert producer.send(sent).status is SendStatus.OK
    (message,) = stored(client, orders, 1).values()
    assert message.properties["a"] == "x" * 32_400


def test_a_name_server_that_is_not_there_is_told_at_the_start(unique_group):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # and nobody listens; let go of, anybody might
        nobody = f"127.0.0.1:{taken.getsockname()[1]}"
        producer = Producer(unique_group, nobody)
        with pytest.raises(NameServerError, match=f"no name server can be reached: {nobody}: cannot connect"):
            producer.start()
        producer.shutdown()


def test_one_dead_name_server_of_two_is_no_matter(rocketmq_cluster, unique_group, client, orders):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # and nobody listens; let go of, anybody might
        nobody = f"127.0.0.1:{taken.getsockname()[1]}"
        with Producer(unique_group, [nobody, rocketmq_cluster.name_server_address]) as producer:
            assert producer.send(Message(orders, b"x")).status is SendStatus.OK
