"""Message traces in RocketMQ's own text format, which `mqadmin queryMsgTraceById` and the dashboard read."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import Protocol

TRACE_TOPIC = "RMQ_SYS_TRACE_TOPIC"

_BETWEEN_VALUES = "\x01"
_END = "\x02"


class TracedMessageType(IntEnum):
    """What kind of message was sent; the value is the ordinal of Java's `MessageType`."""

    NORMAL = 0
    TRANSACTION_HALF = 1
    TRANSACTION_COMMIT = 2
    DELAY = 3
    ORDER = 4


class ConsumeReturn(IntEnum):
    """How a listener came back; the value is the ordinal of Java's `ConsumeReturnType`."""

    SUCCESS = 0
    TIME_OUT = 1
    EXCEPTION = 2
    RETURNNULL = 3
    FAILED = 4


class Trace(Protocol):
    """Any record: its text, and by what it is found."""

    @property
    def message_id(self) -> str:
        """The traced message's id."""

    @property
    def keys(self) -> str | None:
        """The traced message's keys."""

    def encode(self) -> str:
        """The record's text."""


@dataclass(frozen=True, slots=True)
class PublishTrace:
    """One send."""

    timestamp: int
    region: str
    group: str
    topic: str
    message_id: str
    tags: str | None
    keys: str | None
    store_host: str
    body_length: int
    cost_ms: int
    message_type: TracedMessageType
    offset_message_id: str
    success: bool

    def encode(self) -> str:
        """The record's text; None is written as Java writes it."""
        values: list[object] = [
            "Pub",
            self.timestamp,
            self.region,
            self.group,
            self.topic,
            self.message_id,
            "null" if self.tags is None else self.tags,
            "null" if self.keys is None else self.keys,
            self.store_host,
            self.body_length,
            self.cost_ms,
            int(self.message_type),
            self.offset_message_id,
            "true" if self.success else "false",
        ]
        return _BETWEEN_VALUES.join(map(str, values)) + _END


@dataclass(frozen=True, slots=True)
class ConsumeBeginTrace:
    """A message is given to a listener; `request_id` is the same in the `ConsumeEndTrace` of that call."""

    timestamp: int
    region: str | None
    group: str
    request_id: str
    message_id: str
    retry_times: int
    keys: str | None

    def encode(self) -> str:
        """The record's text."""
        return _record(
            "SubBefore",
            self.timestamp,
            self.region,
            self.group,
            self.request_id,
            self.message_id,
            self.retry_times,
            self.keys,
        )


@dataclass(frozen=True, slots=True)
class ConsumeEndTrace:
    """The listener has answered."""

    request_id: str
    message_id: str
    cost_ms: int
    success: bool
    keys: str | None
    returned: ConsumeReturn
    timestamp: int
    group: str

    def encode(self) -> str:
        """The record's text."""
        return _record(
            "SubAfter",
            self.request_id,
            self.message_id,
            self.cost_ms,
            "true" if self.success else "false",
            self.keys,
            int(self.returned),
            self.timestamp,
            self.group,
        )


def _record(*values: object) -> str:
    return _BETWEEN_VALUES.join("null" if value is None else str(value) for value in values) + _END
