"""OpenTelemetry: which tracer makes the spans of sends and listeners, and how a message carries its sender's context.

The rule of this file: `opentelemetry` is imported when it is asked for, and a span is never a reason for a message not
to be sent or consumed: what goes wrong here is logged, once with all its words.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import version
from typing import TYPE_CHECKING, Any, Final

from rocketstream.errors import ConfigurationError

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.propagators.textmap import TextMapPropagator
    from opentelemetry.trace import Span, SpanContext, Tracer, TracerProvider

log = logging.getLogger("rocketstream.otel")

# The names of the semantic conventions for messaging, as of 1.27 and later.
SYSTEM: Final = "messaging.system"
OPERATION_NAME: Final = "messaging.operation.name"
OPERATION_TYPE: Final = "messaging.operation.type"
DESTINATION: Final = "messaging.destination.name"
PARTITION: Final = "messaging.destination.partition.id"
CLIENT_ID: Final = "messaging.client.id"
CONSUMER_GROUP: Final = "messaging.consumer.group.name"
BATCH_COUNT: Final = "messaging.batch.message_count"
MESSAGE_ID: Final = "messaging.message.id"
BODY_SIZE: Final = "messaging.message.body.size"
CLIENT_GROUP: Final = "messaging.rocketmq.client_group"
NAMESPACE: Final = "messaging.rocketmq.namespace"
MODEL: Final = "messaging.rocketmq.consumption_model"
TAG: Final = "messaging.rocketmq.message.tag"
KEYS: Final = "messaging.rocketmq.message.keys"
TYPE: Final = "messaging.rocketmq.message.type"
DELAY_LEVEL: Final = "messaging.rocketmq.message.delay_time_level"
DELIVER_AT: Final = "messaging.rocketmq.message.delivery_timestamp"
SHARDING_KEY: Final = "messaging.rocketmq.message.group"
ERROR_TYPE: Final = "error.type"
# Ours: no convention has them.
RECONSUME_TIMES: Final = "rocketstream.reconsume_times"
QUEUE_OFFSET: Final = "rocketstream.queue_offset"


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenTelemetry:
    """How spans are made; `otel=True` is `otel=OpenTelemetry()`, and `otel=provider` one with that provider."""

    tracer_provider: TracerProvider | None = None
    """None: the process's own (`opentelemetry.trace.get_tracer_provider()`)."""
    propagator: TextMapPropagator | None = None
    """None: the process's own, W3C `traceparent` and `tracestate` unless it was told otherwise."""
    parent: bool = False
    """A listener's span is the child of the send's where it is called with one message; else it has a link to it."""


def check_otel(otel: object) -> OpenTelemetry | None:
    """What an `otel` setting stands for, None where it is off; a missing package is missed now."""
    if otel is False or otel is None:
        return None
    try:
        from opentelemetry.trace import TracerProvider
    except ImportError:
        raise ConfigurationError(
            f"otel={otel!r} needs the package opentelemetry-api: pip install 'rocketstream[otel]'"
        ) from None
    if otel is True:
        return OpenTelemetry()
    if isinstance(otel, OpenTelemetry):
        if not isinstance(otel.parent, bool):
            raise ConfigurationError(f"OpenTelemetry(parent={otel.parent!r}) must be True or False")
        provider: object = otel.tracer_provider
        if provider is not None and not isinstance(provider, TracerProvider):
            raise ConfigurationError(f"OpenTelemetry(tracer_provider={provider!r}) must be a TracerProvider, or None")
        return otel
    if isinstance(otel, TracerProvider):
        return OpenTelemetry(tracer_provider=otel)
    raise ConfigurationError(f"otel={otel!r} must be True, False, a TracerProvider or an OpenTelemetry")


class Telemetry:
    """The tracer and the propagator of one client; any thread may use it."""

    def __init__(self, settings: OpenTelemetry) -> None:
        from opentelemetry import context, propagate, trace

        self.tracer: Tracer = trace.get_tracer("rocketstream", version("rocketstream"), settings.tracer_provider)
        self.parent = settings.parent
        self._propagator = settings.propagator or propagate.get_global_textmap()
        self._context = context
        self._trace = trace
        self._told = False

    def __repr__(self) -> str:
        return f"<Telemetry {self.tracer!r}>"

    def headers(self, span: Span) -> dict[str, str]:
        """The properties by which a message carries a span's context."""
        carrier: dict[str, str] = {}
        self._propagator.inject(carrier, self._trace.set_span_in_context(span))
        return {name: value for name, value in carrier.items() if name and value}

    def sent_in(self, properties: Mapping[str, str]) -> tuple[Context, SpanContext] | None:
        """The context that a message carries; None if it carries none."""
        found = self._propagator.extract(properties, self._context.Context())
        span = self._trace.get_current_span(found).get_span_context()
        return (found, span) if span.is_valid else None

    def attach(self, span: Span, context: Context | None) -> Any:
        """Make a span the current one of this thread or task; the answer is for `detach`."""
        return self._context.attach(self._trace.set_span_in_context(span, context))

    def detach(self, token: Any) -> None:
        """Undo an `attach`."""
        self._context.detach(token)

    def nowhere(self) -> Context:
        """A context without any span."""
        return self._context.Context()

    def fail(self, span: Span, error: BaseException | None, kind: str, words: str) -> None:
        """Note on a span that it went wrong, and how."""
        if error is not None:
            span.record_exception(error)
        span.set_attribute(ERROR_TYPE, kind)
        span.set_status(self._trace.StatusCode.ERROR, words)

    def trouble(self, what: str) -> None:
        """Log what was raised just now; with its traceback the first time only, since each message may raise it."""
        if self._told:
            log.debug("%s", what, exc_info=True)
        else:
            self._told = True
            log.exception("%s; messages go on without, and this is told once", what)
