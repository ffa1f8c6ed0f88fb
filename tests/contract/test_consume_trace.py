"""Traces of what was sent and consumed, on the real brokers."""

from __future__ import annotations

import time

import pytest

from rocketstream import Message, OrderlyResult, Producer
from rocketstream.consumer.push_consumer import PushConsumer
from rocketstream.consumer.results import ConsumeResult
from rocketstream.consumer.start_from import StartFrom
from rocketstream.wire.trace import ConsumeBeginTrace, ConsumeEndTrace, PublishTrace, RecallTrace, decode_traces
from tests.bare_client import eventually
from tests.contract.consuming import Heard


@pytest.fixture
def traces(client, broker, unique_group):
    """A trace topic of the test's own, and what is in it."""
    topic = f"traces-of-{unique_group}"
    client.create_topic(broker, topic)

    class Traces(str):
        def records(self):
            return decode_traces("".join(message.body.decode() for message in client.pull_all("reader", topic)))

    return Traces(topic)


@pytest.mark.feature("trace/topic")
@pytest.mark.feature("trace/consume")
@pytest.mark.behaviour("START-14")
def test_what_is_consumed_is_traced(rocketmq_cluster, client, broker, topic, unique_group):
    traces = f"traces-of-{unique_group}"
    client.create_topic(broker, traces)

    def records() -> list[list[str]]:
        text = "".join(message.body.decode() for message in client.pull_all("reader", traces))
        return [record.split("\x01") for record in text.split("\x02") if record]

    consumer = PushConsumer(
        unique_group,
        rocketmq_cluster.name_server_address,
        listener=lambda messages, context: ConsumeResult.SUCCESS,
        start_from=StartFrom.FIRST,
        trace=traces,
    )
    consumer.subscribe(topic)
    with consumer:
        client.send(topic, b"x", {"UNIQ_KEY": "ID-1", "KEYS": "k1 k2"})
        eventually(lambda: len(records()) >= 2)
    before, after = records()
    request = before[4]
    assert before[3:] == [unique_group, request, "ID-1", "0", "k1 k2"]
    assert before[0] == "SubBefore"
    assert after[:3] + after[4:7] + after[8:] == ["SubAfter", request, "ID-1", "true", "k1 k2", "0", unique_group]
    (stored,) = client.pull_all("reader", traces)
    assert set(stored.keys.split()) == {"ID-1", "k1", "k2"}, "by these a trace is found"


@pytest.mark.feature("trace/publish")
@pytest.mark.feature("trace/orderly")
def test_a_producer_and_a_consumer_that_keeps_order(rocketmq_cluster, topic, unique_group, consume, traces):
    heard = Heard(lambda messages, context: OrderlyResult.SUCCESS)
    consume(heard, topic, orderly=True, trace=traces)
    with Producer(
        f"{unique_group}-p", rocketmq_cluster.name_server_address, trace=traces, send_timeout=10.0
    ) as producer:
        single = producer.send(Message(topic, b"single", keys="k"))
        batch = producer.send_batch([Message(topic, b"a"), Message(topic, b"b")])
    ids = [single.message_id, *(one for receipt in batch for one in receipt.message_id.split(","))]
    eventually(lambda: len(traces.records()) >= 9)
    found = traces.records()
    for kind in (PublishTrace, ConsumeBeginTrace, ConsumeEndTrace):
        assert [one.message_id for one in found if isinstance(one, kind)] == ids
    published = [one for one in found if isinstance(one, PublishTrace)]
    assert published[0].offset_message_id == single.offset_message_id
    assert all(one.success for one in found if isinstance(one, ConsumeEndTrace))


@pytest.mark.feature("trace/recall")
@pytest.mark.rocketmq_versions("5.5.0")
def test_a_recall_is_traced(rocketmq_cluster, topic, unique_group, configure, traces):
    configure(recallMessageEnable=True)
    with Producer(
        f"{unique_group}-p", rocketmq_cluster.name_server_address, trace=traces, send_timeout=10.0
    ) as producer:
        receipt = producer.send(Message(topic, b"later", deliver_at=time.time_ns() // 1_000_000 + 60_000))
        producer.recall(topic, receipt.recall_handle)
    eventually(lambda: len(traces.records()) == 2)
    _, recalled = traces.records()
    assert isinstance(recalled, RecallTrace)
    assert (recalled.message_id, recalled.topic, recalled.success) == (receipt.message_id, topic, True)


@pytest.mark.feature("trace/switched-off")
def test_a_broker_that_wants_no_trace_gets_none(
    rocketmq_cluster, client, topic, unique_group, consume, configure, traces
):
    heard = Heard()
    configure(traceOn=False)
    consumer = consume(heard, topic, trace=traces)
    with Producer(
        f"{unique_group}-p", rocketmq_cluster.name_server_address, trace=traces, send_timeout=10.0
    ) as producer:
        producer.send(Message(topic, b"quiet"))
    heard.until(1)
    consumer.shutdown()
    found = traces.records()
    if rocketmq_cluster.version == "4.9.7":  # it tells the producers, but does not mark the messages for consumers
        found = [one for one in found if isinstance(one, PublishTrace)]
    assert found == []


@pytest.mark.feature("trace/never-in-the-way")
def test_a_trace_that_is_not_taken_is_counted_and_fails_nothing(
    rocketmq_cluster, admin, topic, unique_group, consume, caplog
):
    """Nobody may write to the trace topic."""
    heard = Heard()
    closed = f"traces-of-{unique_group}"
    admin.create_topic(closed, queues=1, permission="R")
    consumer = consume(heard, topic, trace=closed)
    with Producer(
        f"{unique_group}-p", rocketmq_cluster.name_server_address, trace=closed, send_timeout=10.0
    ) as producer:
        for number in range(20):
            producer.send(Message(topic, b"%d" % number))
        heard.until(20)
    consumer.shutdown()
    assert (producer.core._trace.dispatcher.dropped, consumer.core._trace.dropped) == (20, 40)
    assert any(f"traces for topic '{closed}' were dropped" in line for line in caplog.messages)
