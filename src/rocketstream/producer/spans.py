"""A span for each send (OpenTelemetry), and its context in the message's properties.

The rule of this file: a span begins on the thread of the caller, whose span it belongs to, and ends on that thread or
on a hook thread, never on the I/O thread: what happens at its end is a user's own code. Not a `SendHook`: one sees
attempts, from another thread, once the properties are written.
"""

from __future__ import annotations

import asyncio
import copy
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, Future
from typing import TYPE_CHECKING, Any

from rocketstream import otel
from rocketstream.message import Message
from rocketstream.otel import OpenTelemetry, Telemetry
from rocketstream.producer.receipt import SendReceipt, SendStatus
from rocketstream.producer.settings import ProducerSettings
from rocketstream.wire.sysflag import TransactionType
from rocketstream.wire.trace import TRACE_TOPIC

if TYPE_CHECKING:
    from opentelemetry.trace import Span


class SendSpan:
    """The span of one send, of one message or of a batch that may take several requests."""

    __slots__ = ("_ended", "_left", "_span", "_telemetry", "by_caller", "headers")

    def __init__(self, telemetry: Telemetry, span: Span, headers: dict[str, str]) -> None:
        self._telemetry = telemetry
        self._span = span
        self._left = 1
        self._ended: tuple[SendReceipt | BaseException | None, int] | None = None
        self.headers = headers
        """The properties that messages get."""
        self.by_caller = False
        """Whether the caller waits, and ends it."""

    def __repr__(self) -> str:
        return f"<SendSpan {self._span!r}, {self._left} requests left>"

    def of_requests(self, count: int) -> None:
        """It stands for so many requests."""
        self._left = count

    def request_ended(self, outcome: SendReceipt | BaseException | None) -> bool:
        """A request has ended (None: it was written one way); True if the span has with it. On the I/O thread."""
        self._left -= 1
        if self._ended is not None or (self._left > 0 and not isinstance(outcome, BaseException)):
            return False
        self._ended = (outcome, time.time_ns())  # not by our clock: its beginning is by the tracer's
        return True

    def finish(self) -> None:
        """Say how it went, if it has ended; harmless when repeated."""
        ended = self._ended
        if ended is None or not self._span.is_recording():
            return
        try:
            outcome, at = ended
            if isinstance(outcome, BaseException):
                self._telemetry.fail(self._span, outcome, type(outcome).__qualname__, str(outcome))
            elif outcome is not None:
                self._span.set_attribute(otel.PARTITION, str(outcome.queue.queue_id))
                self._span.set_attribute(otel.QUEUE_OFFSET, outcome.queue_offset)
                if outcome.status is not SendStatus.OK:
                    self._telemetry.fail(self._span, None, outcome.status.name, outcome.status.value)
            self._span.end(at)
        except Exception:
            self._telemetry.trouble("the span of a send could not be ended")


class SendSpans:
    """Makes the spans of one producer."""

    def __init__(
        self, settings: ProducerSettings, opentelemetry: OpenTelemetry, client_id: Callable[[], str], threads: Executor
    ) -> None:
        self._telemetry = Telemetry(opentelemetry)
        self._client_id = client_id
        self._threads = threads
        self._common: dict[str, Any] = {
            otel.SYSTEM: "rocketmq",
            otel.OPERATION_NAME: "send",
            otel.OPERATION_TYPE: "send",
            otel.CLIENT_GROUP: settings.group,
        }
        if settings.namespace:
            self._common[otel.NAMESPACE] = settings.namespace
        self._trace_topic = TRACE_TOPIC if settings.trace is True else settings.trace
        self._ended: deque[SendSpan] = deque()
        self._finishing = False
        self._at_work: set[Future[None]] = set()

    def __repr__(self) -> str:
        return f"<SendSpans {self._telemetry!r}, {len(self._ended)} to be ended>"

    def begin(self, message: Message, message_id: str, transaction: TransactionType) -> SendSpan | None:
        """The span of a message that is about to be sent; None if it cannot be had, or is a trace itself."""
        if message.topic == self._trace_topic:
            return None
        attributes = {otel.MESSAGE_ID: message_id, otel.BODY_SIZE: len(message.body), otel.TYPE: "normal"}
        if message.tags:
            attributes[otel.TAG] = message.tags
        if message.keys:
            attributes[otel.KEYS] = message.keys.split(" ")
        if message.sharding_key:
            attributes[otel.SHARDING_KEY] = message.sharding_key
            attributes[otel.TYPE] = "fifo"
        if message.delay_level:
            attributes[otel.DELAY_LEVEL] = message.delay_level
        if message.deliver_at is not None:
            attributes[otel.DELIVER_AT] = message.deliver_at
        if message.delay_level or message.delay is not None or message.deliver_at is not None:
            attributes[otel.TYPE] = "delay"
        if transaction is TransactionType.PREPARED:
            attributes[otel.TYPE] = "transaction"
        return self._begin(message.topic, attributes)

    def begin_batch(self, messages: Sequence[Message]) -> SendSpan | None:
        """One span for all of them, whose context they all carry."""
        size = sum(len(message.body) for message in messages)
        return self._begin(messages[0].topic, {otel.BATCH_COUNT: len(messages), otel.BODY_SIZE: size})

    def _begin(self, topic: str, attributes: dict[str, Any]) -> SendSpan | None:
        try:
            from opentelemetry.trace import SpanKind

            attributes.update(self._common)
            attributes[otel.DESTINATION] = topic
            attributes[otel.CLIENT_ID] = self._client_id()
            span = self._telemetry.tracer.start_span(f"send {topic}", kind=SpanKind.PRODUCER, attributes=attributes)
            return SendSpan(self._telemetry, span, self._telemetry.headers(span))
        except Exception:
            self._telemetry.trouble(f"no span could be made of a send to topic {topic!r}")
            return None

    def ended(self, spans: Sequence[SendSpan], outcome: SendReceipt | BaseException | None) -> None:
        """A request has ended; its spans are ended on another thread, many with one wake-up. On the I/O thread."""
        self._ended.extend(span for span in spans if span.request_ended(outcome) and not span.by_caller)
        if self._ended and not self._finishing:
            self._finishing = True
            try:
                at_work = self._threads.submit(self._finish_all)
            except RuntimeError:  # the producer has ended
                self.finish_rest()
                return
            self._at_work.add(at_work)
            at_work.add_done_callback(self._at_work.discard)

    def _finish_all(self) -> None:
        self._finishing = False
        self.finish_rest()

    async def end(self, timeout: float) -> None:
        """End what is left, at the end of the producer, if that does not take long."""
        rest = self._threads.submit(self.finish_rest)
        await asyncio.wait([asyncio.wrap_future(one) for one in {rest, *self._at_work}], timeout=timeout)

    def finish_rest(self) -> None:
        """End the spans whose sends have ended; from another thread than the I/O thread."""
        while self._ended:
            try:
                span = self._ended.popleft()
            except IndexError:  # another thread was quicker
                return
            span.finish()


def with_headers(message: Message, headers: dict[str, str]) -> Message:
    """A copy of a message that carries a span's context; the caller's own stays as it is."""
    if not headers:
        return message
    carrying = copy.copy(message)
    carrying.properties = {**message.properties, **headers}
    return carrying
