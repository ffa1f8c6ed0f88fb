"""A span for each call of a listener (OpenTelemetry), linked to the spans of the sends of its messages.

The rule of this file: the span is the current one while the listener runs, so what the listener does belongs to it; and
nothing here changes what becomes of a message.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rocketstream import otel
from rocketstream.consumer.hooks import ConsumeHook, ConsumeHookContext
from rocketstream.consumer.settings import ConsumerSettings
from rocketstream.message import ReceivedMessage
from rocketstream.otel import OpenTelemetry, Telemetry


class SpanHook(ConsumeHook):
    """Makes the spans of one consumer; runs where the listener does."""

    def __init__(self, settings: ConsumerSettings, opentelemetry: OpenTelemetry, client_id: str) -> None:
        from opentelemetry.trace import Link, SpanKind

        self._telemetry = Telemetry(opentelemetry)
        self._link = Link
        self._kind = SpanKind.CONSUMER
        self._common: dict[str, Any] = {
            otel.SYSTEM: "rocketmq",
            otel.OPERATION_NAME: "process",
            otel.OPERATION_TYPE: "process",
            otel.CONSUMER_GROUP: settings.group,
            otel.CLIENT_GROUP: settings.group,
            otel.CLIENT_ID: client_id,
            otel.MODEL: settings.model.name.lower(),
        }
        if settings.namespace:
            self._common[otel.NAMESPACE] = settings.namespace

    def __repr__(self) -> str:
        return f"<SpanHook {self._telemetry!r}>"

    def before(self, context: ConsumeHookContext) -> None:
        """Begin a span, and make it the current one."""
        try:
            messages = context.messages
            sent = [found for message in messages if (found := self._telemetry.sent_in(message.properties))]
            parent = None
            if self._telemetry.parent and len(messages) == 1 and sent:
                parent = sent.pop()[0]
            span = self._telemetry.tracer.start_span(
                f"process {messages[0].topic}",
                context=self._telemetry.nowhere() if parent is None else parent,
                kind=self._kind,
                attributes={**self._common, **_told_of(context.queue.queue_id, messages)},
                links=[self._link(one) for one in {one.span_id: one for _, one in sent}.values()],
            )
            context.notes[self] = (span, self._telemetry.attach(span, parent))
        except Exception:
            self._telemetry.trouble(f"no span could be made of messages of {context.queue}")

    def after(self, context: ConsumeHookContext) -> None:
        """End it, with what became of the messages."""
        noted = context.notes.pop(self, None)
        if noted is None:
            return
        span, token = noted
        try:
            self._telemetry.detach(token)
            if not context.success:
                error = context.error
                kind = context.status if error is None else type(error).__qualname__
                self._telemetry.fail(span, error, kind, context.status)
            span.end()
        except Exception:
            self._telemetry.trouble(f"the span of messages of {context.queue} could not be ended")


def _told_of(queue_id: int, messages: Sequence[ReceivedMessage]) -> dict[str, Any]:
    first = messages[0]
    told: dict[str, Any] = {otel.DESTINATION: first.topic, otel.PARTITION: str(queue_id)}
    if len(messages) > 1:
        told[otel.BATCH_COUNT] = len(messages)
        return told
    told[otel.MESSAGE_ID] = first.message_id
    told[otel.BODY_SIZE] = len(first.body)
    told[otel.QUEUE_OFFSET] = first.queue_offset
    if first.tags:
        told[otel.TAG] = first.tags
    if first.keys:
        told[otel.KEYS] = first.keys.split(" ")
    if first.reconsume_times:
        told[otel.RECONSUME_TIMES] = first.reconsume_times
    return told
