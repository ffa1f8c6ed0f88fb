"""`auto_batch`, the trace of sends and the asyncio producer, on the real brokers."""

from __future__ import annotations

import asyncio

import pytest

from rocketstream import Message, aio
from rocketstream.errors import ClientStateError, ConfigurationError
from rocketstream.producer import Producer, SendStatus
from rocketstream.wire.trace import TRACE_TOPIC
from tests.bare_client import eventually


def stored(client, topic, queues=1):
    """Everything in a topic by (queue id, offset)."""
    return {(message.queue_id, message.queue_offset): message for message in client.pull_all("reader", topic, queues)}


@pytest.mark.feature("produce/auto-batch")
def test_messages_that_leave_together_are_stored_and_answered_one_by_one(
    client, broker, unique_topic, rocketmq_cluster
):
    client.create_topic(broker, unique_topic, queues=2)
    with Producer("batching", rocketmq_cluster.name_server_address, auto_batch=True, send_timeout=10.0) as producer:
        futures = [
            producer.send_async(Message(unique_topic, b"body %d" % number, tags=f"t{number % 3}", keys=f"k{number}"))
            for number in range(2000)
        ]
        receipts = [future.result(30) for future in futures]
    assert all(receipt.status is SendStatus.OK for receipt in receipts)
    eventually(lambda: sum(client.max_offset(unique_topic, queue_id) for queue_id in range(2)) == 2000)
    found = stored(client, unique_topic, 2)
    assert len(found) == 2000
    for number, receipt in enumerate(receipts):
        message = found[receipt.queue.queue_id, receipt.queue_offset]
        assert message.body == b"body %d" % number
        assert message.message_id == receipt.message_id
        assert message.offset_message_id == receipt.offset_message_id
        assert (message.tags, message.keys) == (f"t{number % 3}", f"k{number}")
    batches = len({receipt.queue_offset - index for index, receipt in enumerate(receipts)})
    assert batches < 1000, "many shared a request"


def test_what_cannot_share_a_request_is_sent_alone(client, broker, topic, rocketmq_cluster):
    with Producer("batching", rocketmq_cluster.name_server_address, auto_batch=True, send_timeout=10.0) as producer:
        large = producer.send_async(Message(topic, b"x" * 10_000))
        keyed = producer.send_async(Message(topic, b"keyed", sharding_key="k"))
        queued = producer.send_async(Message(topic, b"queued"), queue=producer.queues(topic)[0])
        for future in (large, keyed, queued):
            future.result(30)
    eventually(lambda: client.max_offset(topic) == 3)
    messages = client.pull_all("reader", topic)
    assert {message.body for message in messages} == {b"x" * 10_000, b"keyed", b"queued"}
    assert min(message.body_size for message in messages if message.body[:1] == b"x") < 1000, "and compressed"


def test_shutting_down_sends_what_still_waits(client, broker, topic, rocketmq_cluster):
    producer = Producer(
        "batching", rocketmq_cluster.name_server_address, auto_batch=True, batch_max_delay=50, send_timeout=10.0
    )
    producer.start()
    futures = [producer.send_async(Message(topic, b"waiting")) for _ in range(3)]
    producer.shutdown()
    assert [future.result(0).status for future in futures] == [SendStatus.OK] * 3


def test_a_trace_tells_of_every_send(client, broker, topic, rocketmq_cluster):
    custom = f"{topic}-trace"
    client.create_topic(broker, custom)
    with Producer("tracing", rocketmq_cluster.name_server_address, trace=custom, send_timeout=10.0) as producer:
        plain = producer.send(Message(topic, b"one", tags="a", keys="k1 k2"))
        asynchronous = producer.send_async(Message(topic, b"two")).result(30)
    traces, records = [], {}

    def both_told() -> bool:  # in one message, or in two
        traces[:] = client.pull_all("reader", custom)
        lines = [line for trace in traces for line in trace.body.decode().split("\x02") if line]
        records.update({fields[5]: fields for fields in (line.split("\x01") for line in lines)})
        return {plain.message_id, asynchronous.message_id} <= records.keys()

    eventually(both_told)
    first = records[plain.message_id]
    assert first[0] == "Pub"
    assert first[3:5] == ["tracing", topic]
    assert first[6:10] == ["a", "k1 k2", broker, "3"]
    assert first[11:] == ["0", plain.offset_message_id, "true"]
    assert records[asynchronous.message_id][6:8] == ["null", "null"]
    assert plain.message_id in " ".join(trace.keys or "" for trace in traces)
    assert TRACE_TOPIC == "RMQ_SYS_TRACE_TOPIC"


async def test_the_asyncio_producer_sends_in_every_way(client, broker, topic, rocketmq_cluster):
    async with aio.Producer("aio", rocketmq_cluster.name_server_address, send_timeout=10.0) as producer:
        receipt = await producer.send(Message(topic, b"one", keys="k"))
        assert receipt.status is SendStatus.OK
        many = await asyncio.gather(*(producer.send(Message(topic, b"many")) for _ in range(50)))
        assert len({receipt.queue_offset for receipt in many}) == 50
        (batch,) = await producer.send_batch([Message(topic, b"batch") for _ in range(5)])
        assert batch.message_id.count(",") == 4
        await producer.send_oneway(Message(topic, b"one way"))
        assert len(await producer.queues(topic)) == 1
        with pytest.raises(ConfigurationError, match="empty body"):
            await producer.send(Message(topic, b""))
        cancelled = asyncio.ensure_future(producer.send(Message(topic, b"cancelled")))
        await asyncio.sleep(0)
        cancelled.cancel()
        with pytest.raises(asyncio.CancelledError):
            await cancelled
        assert "RUNNING" in repr(producer)
    with pytest.raises(ClientStateError, match="SHUTDOWN_ALREADY"):
        await producer.send(Message(topic, b"late"))
