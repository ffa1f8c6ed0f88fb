"""Message traces in RocketMQ's own text format, which `mqadmin queryMsgTraceById` and the dashboard read."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

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
