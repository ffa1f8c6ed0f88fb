"""OpenTelemetry: what is refused, what spans say, on which threads they end, and that no tracer fails a message."""

from __future__ import annotations

import asyncio
import sys
import threading

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.trace import SpanKind, StatusCode

from rocketstream import Message, OpenTelemetry
from rocketstream.consumer.hooks import ConsumeHookContext
from rocketstream.consumer.results import ConsumeResult, OrderlyResult
from rocketstream.consumer.settings import ConsumerSettings
from rocketstream.consumer.spans import SpanHook
from rocketstream.errors import ConfigurationError, SendFailedError
from rocketstream.message import MessageQueue
from rocketstream.producer.settings import ProducerSettings
from rocketstream.wire.batch import decode_batch
from rocketstream.wire.codes import ResponseCode
from rocketstream.wire.properties import decode_properties
from tests.bare_client import eventually
from tests.consumer.peers import ConsumerBroker, make_core
from tests.consumer.pull_answers import TOPIC, record
from tests.producer.peers import running_producers
from tests.scripted import ScriptedNameServer
from tests.scripted import eventually as eventually_here
from tests.spans import Spans, id_of, linked


@pytest.fixture
def spans() -> Spans:
    return Spans()


def parent_in(properties: dict[str, str]) -> int:
    """The span that a message says it comes from."""
    version, _, span_id, _ = properties["traceparent"].split("-")
    assert version == "00"
    return int(span_id, 16)


# --- the setting ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("settings", [ProducerSettings, ConsumerSettings])
@pytest.mark.parametrize(
    ("otel", "sentence"),
    [
        ("yes", "otel='yes' must be True, False, a TracerProvider or an OpenTelemetry"),
        (1, "otel=1 must be True, False, a TracerProvider or an OpenTelemetry"),
        (OpenTelemetry(parent=1), r"OpenTelemetry\(parent=1\) must be True or False"),
        (OpenTelemetry(tracer_provider=7), r"OpenTelemetry\(tracer_provider=7\) must be a TracerProvider, or None"),
    ],
)
def test_what_is_no_telemetry_is_refused(settings, otel, sentence):
    with pytest.raises(ConfigurationError, match=f"^{sentence}$"):
        settings(group="g", otel=otel)


@pytest.mark.parametrize("settings", [ProducerSettings, ConsumerSettings])
def test_a_missing_package_is_one_sentence(settings, monkeypatch):
    monkeypatch.setitem(sys.modules, "opentelemetry.trace", None)
    with pytest.raises(ConfigurationError) as refused:
        settings(group="g", otel=True)
    assert str(refused.value) == "otel=True needs the package opentelemetry-api: pip install 'rocketstream[otel]'"
    settings(group="g", otel=False)


@pytest.mark.parametrize("settings", [ProducerSettings, ConsumerSettings])
@pytest.mark.parametrize("otel", [True, False, TracerProvider(shutdown_on_exit=False), OpenTelemetry()])
def test_what_is_taken(settings, otel):
    assert settings(group="g", otel=otel).otel is otel


# --- sends ----------------------------------------------------------------------------------------------------------


def test_what_the_span_of_a_send_says(spans):
    with running_producers(otel=spans.provider) as running:
        message = Message("t", b"12345", tags="a", keys=["k1", "k2"], sharding_key="s", properties={"mine": "kept"})
        with spans.tracer.start_as_current_span("outer") as outer:
            receipt = running.producer.send(message)
        (span,) = spans.sends()
        assert message.properties == {"mine": "kept"}, "the caller's message stays as it is"
        properties = running.broker.properties()
        running.namespaced.send(Message("t", b"x", delay_level=3))
        delayed = spans.sends()[-1].attributes
        client_id = running.producer.client_id
    assert parent_in(properties) == id_of(span)
    assert properties["mine"] == "kept"
    assert (span.name, span.kind, span.status.status_code) == ("send t", SpanKind.PRODUCER, StatusCode.UNSET)
    assert span.parent.span_id == outer.get_span_context().span_id
    assert dict(span.attributes) == {
        "messaging.system": "rocketmq",
        "messaging.operation.name": "send",
        "messaging.operation.type": "send",
        "messaging.destination.name": "t",
        "messaging.destination.partition.id": str(receipt.queue.queue_id),
        "messaging.client.id": client_id,
        "messaging.message.id": receipt.message_id,
        "messaging.message.body.size": 5,
        "messaging.rocketmq.client_group": "g",
        "messaging.rocketmq.message.type": "fifo",
        "messaging.rocketmq.message.group": "s",
        "messaging.rocketmq.message.tag": "a",
        "messaging.rocketmq.message.keys": ("k1", "k2"),
        "rocketstream.queue_offset": receipt.queue_offset,
    }
    assert delayed["messaging.rocketmq.message.type"] == "delay"
    assert delayed["messaging.rocketmq.message.delay_time_level"] == 3
    assert delayed["messaging.rocketmq.namespace"] == "ns"
    assert delayed["messaging.destination.name"] == "t"


def test_a_send_that_fails(spans):
    with running_producers(otel=spans.provider, retries=1) as running:
        running.broker.always = ResponseCode.SYSTEM_ERROR
        with pytest.raises(SendFailedError):
            running.producer.send(Message("t", b"x"))
        with pytest.raises(SendFailedError):
            running.producer.send_async(Message("t", b"x"), timeout=1.0).result()
        eventually(lambda: len(spans.sends()) == 2)
        assert len(running.broker.sends) >= 3
    assert {parent_in(running.broker.properties(n)) for n in (0, 1)} == {id_of(spans.sends()[0])}, "one span for all"
    for span in spans.sends():
        assert (span.status.status_code, span.attributes["error.type"]) == (StatusCode.ERROR, "SendFailedError")
        (event,) = span.events
        assert event.name == "exception"


def test_a_batch_is_one_span_however_many_requests_it_takes(spans):
    with running_producers(otel=spans.provider, max_message_size=2000) as running:
        receipts = running.producer.send_batch([Message("t", bytes(500)) for _ in range(8)])
        assert len(receipts) > 1
        (span,) = spans.sends()
        carried = [
            decode_properties(item.properties)
            for command in running.broker.sends
            for item in decode_batch(command.body)
        ]
        assert [parent_in(properties) for properties in carried] == [id_of(span)] * 8
        assert span.attributes["messaging.batch.message_count"] == 8
        assert span.attributes["messaging.message.body.size"] == 4000
        running.broker.script.extend([ResponseCode.SUCCESS, ResponseCode.MESSAGE_ILLEGAL])
        mine = [Message("t", bytes(500)) for _ in range(8)]
        with pytest.raises(Exception, match="MESSAGE_ILLEGAL"):
            running.producer.send_batch(mine)
        assert [message.properties for message in mine] == [{}] * 8, "the caller's messages stay as they are"
    assert [s.status.status_code for s in spans.sends()] == [StatusCode.UNSET, StatusCode.ERROR]


def test_messages_that_share_a_request_have_a_span_each(spans):
    with running_producers(otel=spans.provider, auto_batch=True, batch_max_delay=0.2) as running:
        for future in [running.producer.send_async(Message("t", b"x")) for _ in range(3)]:
            future.result()
        (command,) = running.broker.sends
        eventually(lambda: len(spans.sends()) == 3)
    carried = [parent_in(decode_properties(item.properties)) for item in decode_batch(command.body)]
    assert sorted(carried) == sorted(map(id_of, spans.sends()))


def test_spans_end_on_the_callers_thread_or_on_a_hook_thread(spans):
    with running_producers(otel=spans.provider) as running:
        for _ in range(2):
            running.producer.send(Message("t", b"x"))
        assert spans.ended_on == ["MainThread"] * 2
        for future in [running.producer.send_async(Message("t", b"x")) for _ in range(20)]:
            future.result()
        running.producer.send_oneway(Message("t", b"x"))
    assert len(spans.sends()) == 23, "what was sent has ended when the producer has"
    assert all(name.startswith("rocketstream-send-hook") for name in spans.ended_on[2:])


def test_the_end_of_a_producer_waits_for_the_last_spans(spans):
    slow = threading.Event()
    on_end = spans.on_end

    def on_slow_end(span):
        slow.wait(0.2)  # an exporter that takes its time
        on_end(span)

    spans.on_end = on_slow_end
    with running_producers(otel=spans.provider) as running:
        running.producer.send_async(Message("t", b"x")).result()
        assert not spans.sends()
    assert len(spans.sends()) == 1


class Broken(TracerProvider):
    """A provider that works until a span is made, or until it is ended."""

    def __init__(self, where: str) -> None:
        super().__init__(shutdown_on_exit=False)
        self.where = where

    def get_tracer(self, *args, **others):
        tracer = super().get_tracer(*args, **others)
        start = tracer.start_span

        def start_span(*args, **others):
            if self.where == "start":
                raise RuntimeError("no span")
            span = start(*args, **others)
            span.end = lambda *_: (_ for _ in ()).throw(RuntimeError("no end"))
            return span

        tracer.start_span = start_span
        return tracer


@pytest.mark.parametrize("where", ["start", "end"])
def test_a_tracer_that_raises_fails_no_send_and_is_told_of_once(where, caplog):
    with running_producers(otel=Broken(where)) as running:
        running.producer.send(Message("t", b"x"))
        running.producer.send_batch([Message("t", b"x")] * 2)
        running.producer.send_async(Message("t", b"x")).result()
        running.producer.send_oneway(Message("t", b"x"))
        eventually(lambda: len(running.broker.sends) == 4)
    told = [record for record in caplog.records if record.name == "rocketstream.otel" and record.levelname == "ERROR"]
    assert len(told) == 1
    assert told[0].exc_info is not None


# --- listeners ------------------------------------------------------------------------------------------------------


def sent_by(spans: Spans) -> tuple[int, dict[str, str]]:
    """A span of some sender, and the properties that carry it."""
    span = spans.tracer.start_span("sender")
    context = span.get_span_context()
    return context.span_id, {"traceparent": f"00-{context.trace_id:032x}-{context.span_id:016x}-01"}


def called(hook: SpanHook, messages, *, success=True, status="SUCCESS", error=None) -> ConsumeHookContext:
    context = ConsumeHookContext("g", MessageQueue("t", "a", 3), messages)
    hook.before(context)
    context.success, context.status, context.error = success, status, error
    hook.after(context)
    return context


class Received:
    """As much of a received message as a span looks at."""

    def __init__(self, properties: dict[str, str], **others: object) -> None:
        self.topic, self.body, self.message_id, self.queue_offset = "t", b"12345", "ID", 9
        self.tags, self.keys, self.reconsume_times = "a", "k1 k2", 0
        self.properties = properties
        self.__dict__.update(others)


def hook_of(spans: Spans, **settings: object) -> SpanHook:
    telemetry = OpenTelemetry(tracer_provider=spans.provider, **settings)
    return SpanHook(ConsumerSettings(group="g", namespace="ns"), telemetry, "client-1")


def test_what_the_span_of_a_listener_says(spans):
    sender, properties = sent_by(spans)
    called(hook_of(spans), [Received(properties, reconsume_times=2)])
    (span,) = spans.ended
    assert (span.name, span.kind, span.parent, linked(span)) == ("process t", SpanKind.CONSUMER, None, [sender])
    assert dict(span.attributes) == {
        "messaging.system": "rocketmq",
        "messaging.operation.name": "process",
        "messaging.operation.type": "process",
        "messaging.destination.name": "t",
        "messaging.destination.partition.id": "3",
        "messaging.client.id": "client-1",
        "messaging.consumer.group.name": "g",
        "messaging.rocketmq.client_group": "g",
        "messaging.rocketmq.namespace": "ns",
        "messaging.rocketmq.consumption_model": "clustering",
        "messaging.message.id": "ID",
        "messaging.message.body.size": 5,
        "messaging.rocketmq.message.tag": "a",
        "messaging.rocketmq.message.keys": ("k1", "k2"),
        "rocketstream.queue_offset": 9,
        "rocketstream.reconsume_times": 2,
    }


def test_a_batch_has_a_link_to_each_sender_once(spans):
    first, one = sent_by(spans)
    second, two = sent_by(spans)
    called(hook_of(spans, parent=True), [Received(p) for p in (one, two, one, {}, {"traceparent": "nonsense"})])
    (span,) = spans.ended
    assert (linked(span), span.parent) == ([first, second], None), "one of many senders is no parent"
    assert span.attributes["messaging.batch.message_count"] == 5
    assert "messaging.message.id" not in span.attributes


def test_as_a_child_of_its_sender(spans):
    sender, properties = sent_by(spans)
    called(hook_of(spans, parent=True), [Received(properties)])
    called(hook_of(spans, parent=True), [Received({})])
    child, root = spans.ended
    assert (child.parent.span_id, linked(child)) == (sender, [])
    assert (root.parent, linked(root)) == (None, [])


@pytest.mark.parametrize(
    ("error", "kind", "events"), [(None, "RECONSUME_LATER", 0), (ValueError("no"), "ValueError", 1)]
)
def test_what_is_no_success_is_an_error(spans, error, kind, events):
    called(hook_of(spans), [Received({})], success=False, status="RECONSUME_LATER", error=error)
    (span,) = spans.ended
    assert (span.status.status_code, span.status.description) == (StatusCode.ERROR, "RECONSUME_LATER")
    assert (span.attributes["error.type"], len(span.events)) == (kind, events)


def test_a_span_of_the_thread_is_not_taken_for_the_sender(spans):
    with spans.tracer.start_as_current_span("of the thread") as before:
        called(hook_of(spans), [Received({})])
        assert spans.tracer.start_span("after").parent.span_id == before.get_span_context().span_id, "put back"
    assert spans.processed()[0].parent is None


@pytest.mark.parametrize("where", ["start", "end"])
async def test_a_tracer_that_raises_fails_no_listener(where, caplog):
    called(SpanHook(ConsumerSettings(group="g"), OpenTelemetry(tracer_provider=Broken(where)), "c"), [Received({})])
    assert [record.levelname for record in caplog.records if record.name == "rocketstream.otel"] == ["ERROR"]


@pytest.mark.parametrize("asynchronous", [False, True])
@pytest.mark.parametrize("orderly", [False, True])
async def test_what_a_listener_does_belongs_to_its_span(spans, asynchronous, orderly):
    result = OrderlyResult.SUCCESS if orderly else ConsumeResult.SUCCESS

    def listen(messages, context):
        spans.tracer.start_span("inner").end()
        return result

    async def listen_async(messages, context):
        await asyncio.sleep(0)
        return listen(messages, context)

    sender, properties = sent_by(spans)
    async with ConsumerBroker("a") as broker, ScriptedNameServer() as name_server:
        name_server.set_route(TOPIC, {"a": {0: broker.address}}, queues=1)
        listener = listen_async if asynchronous else listen
        core = make_core(name_server.address, None, listener, otel=spans.provider, orderly=orderly)
        await core.start()
        try:
            await broker.until_held()
            broker.store(*(record(n, properties=properties) for n in range(3)))
            await eventually_here(lambda: len(spans.processed()) == 3)
        finally:
            await core.shutdown(1.0)
    assert [linked(span) for span in spans.processed()] == [[sender]] * 3
    assert {span.parent.span_id for span in spans.named("inner")} == {id_of(span) for span in spans.processed()}
