"""The life of one message as its trace tells it: who sent it, who consumed it, how long that took.

Clients that trace (`trace=True`) write what they do into a topic, in RocketMQ's own format, with the ids of the
messages as keys; the brokers' index finds them. What nobody traced, or the trace topic has forgotten, is not there.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from rocketstream.admin.errors import NotFoundError
from rocketstream.admin.finding import FindingOperations
from rocketstream.admin.values import Value
from rocketstream.errors import ConfigurationError, CorruptMessageError, MissingCodecError
from rocketstream.message import ReceivedMessage
from rocketstream.wire.trace import (
    TRACE_TOPIC,
    AnyTrace,
    ConsumeBeginTrace,
    ConsumeEndTrace,
    EndTransactionTrace,
    PublishTrace,
    decode_traces,
)


@dataclass(frozen=True, slots=True)
class TraceStep(Value):
    """One thing that happened to a message."""

    what: str
    """sent, consumed, transaction or recalled."""
    timestamp: int | None
    group: str | None
    topic: str | None
    client: str
    """The address of the client that told it."""
    success: bool | None
    """None for a listener that began and of whose end nothing is told."""
    cost_ms: int | None
    detail: str | None
    """The kind of message, the number of the retry and what the listener did, the transaction's state."""


@dataclass(frozen=True, slots=True)
class MessageTrace(Value):
    """What is told of one message, in the order of time."""

    message_id: str
    steps: tuple[TraceStep, ...]


class TraceOperations(FindingOperations):
    """What an operator asks of traces."""

    async def message_trace(self, message_id: str, topic: str = TRACE_TOPIC) -> MessageTrace:
        """The trace of the message with a unique id; `NotFoundError` when the topic tells nothing of it."""
        if not isinstance(message_id, str) or not message_id.strip():
            raise ConfigurationError(f"message_id={message_id!r}: an id is a text that is not empty")
        told: list[tuple[AnyTrace, str]] = []
        for message in await self.messages_by_key(topic, message_id, limit=1024):
            told += [(one, message.born_host.rpartition(":")[0]) for one in _traces_of(message)]
        steps = steps_of(message_id, told)
        if not steps:
            raise NotFoundError(
                f"topic {topic!r} tells nothing of message {message_id!r}: nobody traced it, it is too long ago, or it"
                " was traced into another topic"
            )
        return MessageTrace(message_id, tuple(steps))


def _traces_of(message: ReceivedMessage) -> list[AnyTrace]:
    try:
        return decode_traces(message.body.decode("utf-8", "replace"))
    except (CorruptMessageError, MissingCodecError):
        return []


def steps_of(message_id: str, told: Iterable[tuple[AnyTrace, str]]) -> list[TraceStep]:
    """The steps of one message, from what clients (by their addresses) told of many; a pure function.

    A consumption is told twice, at its begin and at its end: the two are one step.
    """
    steps: list[TraceStep] = []
    begun: dict[str, tuple[ConsumeBeginTrace, str]] = {}
    ended: dict[str, tuple[ConsumeEndTrace, str]] = {}
    for trace, client in told:
        if trace.message_id != message_id:
            continue
        if isinstance(trace, ConsumeBeginTrace):
            begun[trace.request_id] = (trace, client)
        elif isinstance(trace, ConsumeEndTrace):
            ended[trace.request_id] = (trace, client)
        else:
            steps.append(_step(trace, client))
    for request_id in dict.fromkeys([*begun, *ended]):
        steps.append(_consumption(begun.get(request_id), ended.get(request_id)))
    return sorted(steps, key=lambda step: step.timestamp or 0)


def _step(trace: AnyTrace, client: str) -> TraceStep:
    if isinstance(trace, PublishTrace):
        kind = trace.message_type.name.lower()
        return TraceStep("sent", trace.timestamp, trace.group, trace.topic, client, trace.success, trace.cost_ms, kind)
    if isinstance(trace, EndTransactionTrace):
        asked = ", asked by the broker" if trace.from_check else ""
        detail = f"{trace.state}{asked}"
        return TraceStep("transaction", trace.timestamp, trace.group, trace.topic, client, True, None, detail)
    assert not isinstance(trace, ConsumeBeginTrace | ConsumeEndTrace)
    return TraceStep("recalled", trace.timestamp, trace.group, trace.topic, client, trace.success, None, None)


def _consumption(begin: tuple[ConsumeBeginTrace, str] | None, end: tuple[ConsumeEndTrace, str] | None) -> TraceStep:
    first, last = begin and begin[0], end and end[0]
    group = first.group if first is not None else last.group if last is not None else None
    client = begin[1] if begin is not None else end[1] if end is not None else ""
    timestamp = first.timestamp if first is not None else last.timestamp if last is not None else None
    told = []
    if first is not None and first.retry_times:
        told.append(f"retry {first.retry_times}")
    told.append("not ended, as far as is told" if last is None else last.returned.name.lower())
    return TraceStep(
        "consumed",
        timestamp,
        group,
        None,
        client,
        None if last is None else last.success,
        None if last is None else last.cost_ms,
        ", ".join(told),
    )
