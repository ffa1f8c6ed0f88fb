"""Spans that a test can look at."""

from __future__ import annotations

import threading

from opentelemetry.context import Context
from opentelemetry.sdk.trace import ReadableSpan, Span, SpanProcessor, TracerProvider
from opentelemetry.trace import SpanKind


class Spans(SpanProcessor):
    """A tracer provider's ended spans, and on which threads they began and ended."""

    def __init__(self) -> None:
        self.provider = TracerProvider(shutdown_on_exit=False)
        self.provider.add_span_processor(self)
        self.tracer = self.provider.get_tracer("test")
        self.ended: list[ReadableSpan] = []
        self.ended_on: list[str] = []

    def on_start(self, span: Span, parent_context: Context | None = None) -> None:
        pass

    def on_end(self, span: ReadableSpan) -> None:
        self.ended_on.append(threading.current_thread().name)
        self.ended.append(span)

    def named(self, name: str) -> list[ReadableSpan]:
        return [span for span in self.ended if span.name == name]

    def sends(self) -> list[ReadableSpan]:
        return [span for span in self.ended if span.kind is SpanKind.PRODUCER]

    def processed(self) -> list[ReadableSpan]:
        return [span for span in self.ended if span.kind is SpanKind.CONSUMER]


def linked(span: ReadableSpan) -> list[int]:
    """The ids of the spans that a span has links to."""
    return [link.context.span_id for link in span.links]


def id_of(span: ReadableSpan) -> int:
    """A span's own id."""
    return span.get_span_context().span_id
