"""Message traces in RocketMQ's own text format, which `mqadmin queryMsgTraceById` and the dashboard read.

A trace message's body is a row of records. A record ends with one control character, its values stand between another;
a value that Java does not have is the text "null". The rule of this file: what is written is what Java's
`TraceDataEncoder` writes, to the character, and what it reads is read, records of older clients included.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Final, Protocol, TypeAlias

TRACE_TOPIC = "RMQ_SYS_TRACE_TOPIC"
DEFAULT_REGION: Final = "DefaultRegion"
"""Of brokers that say of none (Java's `DEFAULT_TRACE_REGION_ID`)."""

_BETWEEN_VALUES = "\x01"
_END = "\x02"
_NULL: Final = "null"


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
    offset_message_id: str | None
    success: bool

    def encode(self) -> str:
        """The record's text."""
        return _record(
            "Pub",
            self.timestamp,
            self.region,
            self.group,
            self.topic,
            self.message_id,
            self.tags,
            self.keys,
            self.store_host,
            self.body_length,
            self.cost_ms,
            int(self.message_type),
            self.offset_message_id,
            _flag(self.success),
        )


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
        return begin_text(
            self.timestamp, self.region, self.group, self.request_id, self.message_id, self.retry_times, self.keys
        )


@dataclass(frozen=True, slots=True)
class ConsumeEndTrace:
    """The listener has answered. Old clients (before 4.9) tell neither when nor in which group."""

    request_id: str
    message_id: str
    cost_ms: int
    success: bool
    keys: str | None
    returned: ConsumeReturn
    timestamp: int | None
    group: str | None

    def encode(self) -> str:
        """The record's text."""
        return end_text(
            self.request_id,
            self.message_id,
            self.cost_ms,
            self.success,
            self.keys,
            self.returned,
            self.timestamp,
            self.group,
        )


@dataclass(frozen=True, slots=True)
class EndTransactionTrace:
    """A transaction was committed, rolled back or left open, by its sender or because the broker asked."""

    timestamp: int
    region: str
    group: str
    topic: str
    message_id: str
    tags: str | None
    keys: str | None
    store_host: str
    transaction_id: str | None
    state: str
    """As Java calls it: COMMIT_MESSAGE, ROLLBACK_MESSAGE or UNKNOW."""
    from_check: bool
    message_type: TracedMessageType = TracedMessageType.TRANSACTION_COMMIT

    def encode(self) -> str:
        """The record's text."""
        return _record(
            "EndTransaction",
            self.timestamp,
            self.region,
            self.group,
            self.topic,
            self.message_id,
            self.tags,
            self.keys,
            self.store_host,
            int(self.message_type),
            self.transaction_id,
            self.state,
            _flag(self.from_check),
        )


@dataclass(frozen=True, slots=True)
class RecallTrace:
    """A timer message was taken back (5.x)."""

    timestamp: int
    region: str
    group: str
    topic: str
    message_id: str
    success: bool

    @property
    def keys(self) -> None:
        """A recall knows the id only."""
        return

    def encode(self) -> str:
        """The record's text."""
        return _record(
            "Recall", self.timestamp, self.region, self.group, self.topic, self.message_id, _flag(self.success)
        )


AnyTrace: TypeAlias = PublishTrace | ConsumeBeginTrace | ConsumeEndTrace | EndTransactionTrace | RecallTrace


# The two texts that are made for every message that is consumed: without the record in between.


def begin_text(
    timestamp: int, region: str | None, group: str, request_id: str, message_id: str, retry_times: int, keys: str | None
) -> str:
    """The text of a `ConsumeBeginTrace`."""
    return (
        f"SubBefore\x01{timestamp}\x01{_NULL if region is None else region}\x01{group}\x01{request_id}\x01{message_id}"
        f"\x01{retry_times}\x01{_NULL if keys is None else keys}\x02"
    )


def end_text(
    request_id: str,
    message_id: str,
    cost_ms: int,
    success: bool,
    keys: str | None,
    returned: int,
    timestamp: int | None,
    group: str | None,
) -> str:
    """The text of a `ConsumeEndTrace`."""
    return (
        f"SubAfter\x01{request_id}\x01{message_id}\x01{cost_ms}\x01{'true' if success else 'false'}"
        f"\x01{_NULL if keys is None else keys}\x01{int(returned)}\x01{timestamp}\x01{group}\x02"
    )


def _record(*values: object) -> str:
    return _BETWEEN_VALUES.join(_NULL if value is None else str(value) for value in values) + _END


def _flag(value: bool) -> str:
    return "true" if value else "false"


# --- reading ----------------------------------------------------------------------------------------------------------


def decode_traces(text: str) -> list[AnyTrace]:
    """The records of a trace message's body, in order; what is none, or of a kind not known, is left out."""
    found: list[AnyTrace] = []
    for record in text.split(_END):
        kind, *values = record.split(_BETWEEN_VALUES)
        read = _READERS.get(kind)
        if read is None:
            continue
        try:
            found.append(read(values))
        except (ValueError, IndexError):  # cut off, or somebody else's: the others are as good as before
            continue
    return found


def _text(value: str) -> str | None:
    return None if value == _NULL else value


def _read_publish(values: Sequence[str]) -> PublishTrace:
    # Before 4.5 there was no offset id; some clients add the client's host at the end.
    old = len(values) == 12
    return PublishTrace(
        timestamp=int(values[0]),
        region=values[1],
        group=values[2],
        topic=values[3],
        message_id=values[4],
        tags=_text(values[5]),
        keys=_text(values[6]),
        store_host=values[7],
        body_length=int(values[8]),
        cost_ms=int(values[9]),
        message_type=TracedMessageType(int(values[10])),
        offset_message_id=None if old else _text(values[11]),
        success=values[11 if old else 12] == "true",
    )


def _read_begin(values: Sequence[str]) -> ConsumeBeginTrace:
    return ConsumeBeginTrace(
        timestamp=int(values[0]),
        region=_text(values[1]),
        group=values[2],
        request_id=values[3],
        message_id=values[4],
        retry_times=int(values[5]),
        keys=_text(values[6]),
    )


def _read_end(values: Sequence[str]) -> ConsumeEndTrace:
    success = values[3] == "true"
    code = values[5] if len(values) > 5 and values[5] else None
    returned = ConsumeReturn.SUCCESS if success else ConsumeReturn.FAILED
    whole = len(values) >= 8
    return ConsumeEndTrace(
        request_id=values[0],
        message_id=values[1],
        cost_ms=int(values[2]),
        success=success,
        keys=_text(values[4]),
        returned=returned if code is None else ConsumeReturn(int(code)),
        timestamp=int(values[6]) if whole else None,
        group=values[7] if whole else None,
    )


def _read_end_of_transaction(values: Sequence[str]) -> EndTransactionTrace:
    return EndTransactionTrace(
        timestamp=int(values[0]),
        region=values[1],
        group=values[2],
        topic=values[3],
        message_id=values[4],
        tags=_text(values[5]),
        keys=_text(values[6]),
        store_host=values[7],
        message_type=TracedMessageType(int(values[8])),
        transaction_id=_text(values[9]),
        state=values[10],
        from_check=values[11] == "true",
    )


def _read_recall(values: Sequence[str]) -> RecallTrace:
    return RecallTrace(
        timestamp=int(values[0]),
        region=values[1],
        group=values[2],
        topic=values[3],
        message_id=values[4],
        success=values[5] == "true",
    )


_READERS: Final[dict[str, Callable[[Sequence[str]], AnyTrace]]] = {
    "Pub": _read_publish,
    "SubBefore": _read_begin,
    "SubAfter": _read_end,
    "EndTransaction": _read_end_of_transaction,
    "Recall": _read_recall,
}
