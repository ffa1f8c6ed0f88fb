"""A span's context between ours and Java: our messages carry it to a Java consumer, and a Java producer's to ours."""

from __future__ import annotations

import threading

import pytest

from rocketstream import ConsumeResult, Message, Producer, PushConsumer, StartFrom
from tests.bare_client import eventually
from tests.spans import Spans, id_of, linked


@pytest.mark.feature("otel/link")
def test_java_gets_our_context_and_we_read_javas(rocketmq_cluster, topic, unique_group, java_peer):
    spans = Spans()
    address = rocketmq_cluster.name_server_address
    with Producer(f"{unique_group}-p", address, otel=spans.provider, send_timeout=10.0) as producer:
        producer.send(Message(topic, b"ours"))
    (send,) = spans.sends()
    (heard,) = java_peer.consume(f"{unique_group}-j", topic, count=1)
    version, trace_id, span_id, _ = heard.properties["traceparent"].split("-")
    assert (version, int(trace_id, 16), int(span_id, 16)) == ("00", send.context.trace_id, id_of(send))

    # As the OpenTelemetry agent for Java has its producers send.
    java_peer.produce(topic, [b"java"], properties={"traceparent": f"00-{7:032x}-{9:016x}-01", "tracestate": "a=b"})
    seen = threading.Event()

    def listen(messages, context):
        if messages[0].body == b"java":
            seen.set()
        return ConsumeResult.SUCCESS

    consumer = PushConsumer(unique_group, address, listener=listen, start_from=StartFrom.FIRST, otel=spans.provider)
    consumer.subscribe(topic)
    with consumer:
        assert seen.wait(60)
        eventually(lambda: len(spans.processed()) == 2)
    assert sorted(map(linked, spans.processed())) == sorted([[id_of(send)], [9]])
    (theirs,) = [span.links[0].context for span in spans.processed() if linked(span) == [9]]
    assert (theirs.trace_id, theirs.trace_state.to_header()) == (7, "a=b")
