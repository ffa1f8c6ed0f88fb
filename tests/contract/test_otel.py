"""OpenTelemetry through a broker: what a message carries links its listeners' spans to the span of its send."""

from __future__ import annotations

import asyncio
import threading

import pytest
from opentelemetry.trace import StatusCode

from rocketstream import (
    ConsumeResult,
    Message,
    OpenTelemetry,
    OrderlyResult,
    Producer,
    StartFrom,
    TransactionProducer,
    TransactionState,
    aio,
)
from tests.bare_client import eventually
from tests.contract.consuming import Heard
from tests.spans import Spans, id_of, linked


@pytest.fixture
def spans() -> Spans:
    return Spans()


@pytest.mark.feature("otel/link", "otel/retry", "otel/batch")
def test_listeners_are_linked_to_sends_also_by_retries_and_batches(
    rocketmq_cluster, topic, unique_group, consume, spans
):
    def answer(messages, context):
        with spans.tracer.start_as_current_span("inner"):
            pass
        context.delay_level_when_next_consume = 1
        if messages[0].body == b"fails" and not messages[0].reconsume_times:
            raise ValueError("not yet")
        return ConsumeResult.SUCCESS

    heard = Heard(answer)
    consume(heard, topic, otel=spans.provider)
    with Producer(
        f"{unique_group}-p", rocketmq_cluster.name_server_address, otel=spans.provider, send_timeout=10.0
    ) as producer:
        with spans.tracer.start_as_current_span("outer") as outer:
            receipt = producer.send(Message(topic, b"fails", tags="a", keys=["k1", "k2"], properties={"mine": "kept"}))
        producer.send_batch([Message(topic, b"b1"), Message(topic, b"b2")])
        single, batch = spans.sends()
        heard.until_true(lambda: len(heard.deliveries) == 4)
        eventually(lambda: len(spans.processed()) == 4)
    assert single.parent.span_id == outer.get_span_context().span_id
    for delivery in heard.of(b"fails"):
        assert delivery.message.properties["mine"] == "kept"
        assert delivery.message.properties["traceparent"].split("-")[2] == f"{id_of(single):016x}"
    mine = [span for span in spans.processed() if linked(span) == [id_of(single)]]
    assert [span.attributes["messaging.message.id"] for span in mine] == [receipt.message_id] * 2
    assert [span.status.status_code for span in mine] == [StatusCode.ERROR, StatusCode.UNSET]
    assert [span.attributes.get("rocketstream.reconsume_times") for span in mine] == [None, 1]
    assert [event.attributes["exception.message"] for event in mine[0].events] == ["not yet"]
    assert mine[0].context.trace_id != single.context.trace_id, "a link, not a child"
    assert mine[0].attributes["messaging.rocketmq.message.keys"] == ("k1", "k2")
    assert [linked(span) for span in spans.processed() if span not in mine] == [[id_of(batch)]] * 2
    inner = {span.parent.span_id for span in spans.named("inner")}
    assert inner == {id_of(span) for span in spans.processed()}, "what a listener does belongs to its span"


@pytest.mark.feature("otel/transaction", "otel/orderly")
def test_transactions_asyncio_and_orderly_listeners(rocketmq_cluster, topic, unique_group, spans):
    address = rocketmq_cluster.name_server_address
    telemetry = OpenTelemetry(tracer_provider=spans.provider, parent=True)

    def execute(message, arg):
        return TransactionState.COMMIT

    with TransactionProducer(
        f"{unique_group}-t", address, execute=execute, check=lambda message: TransactionState.COMMIT, otel=telemetry
    ) as producer:
        producer.send(Message(topic, b"transaction"))

    async def main() -> None:
        seen = threading.Semaphore(0)

        async def listen(messages, context):
            with spans.tracer.start_as_current_span("inner"):
                await asyncio.sleep(0)
            seen.release()
            return OrderlyResult.SUCCESS

        async with aio.Producer(f"{unique_group}-a", address, otel=telemetry, send_timeout=10.0) as producer:
            await asyncio.gather(*(producer.send(Message(topic, b"asyncio")) for _ in range(3)))
        consumer = aio.PushConsumer(
            unique_group, address, listener=listen, orderly=True, start_from=StartFrom.FIRST, otel=telemetry
        )
        await consumer.subscribe(topic)
        async with consumer:
            for _ in range(4):
                assert await asyncio.to_thread(seen.acquire, timeout=60)
            await asyncio.to_thread(eventually, lambda: len(spans.processed()) == 4)

    asyncio.run(main())
    sends = spans.sends()
    assert sorted(span.attributes["messaging.rocketmq.message.type"] for span in sends) == [
        "normal",
        "normal",
        "normal",
        "transaction",
    ]
    assert {span.parent.span_id for span in spans.processed()} == {id_of(span) for span in sends}, "children"
    assert {span.parent.span_id for span in spans.named("inner")} == {id_of(span) for span in spans.processed()}
    assert len({span.context.trace_id for span in spans.ended}) == 4, "each message has a trace of its own"
