"""What brokers say to pulls: stored records, and answers of every status."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from rocketstream.wire.codes import ResponseCode
from rocketstream.wire.command import Command, response
from rocketstream.wire.headers.pull import PullMessageResponseHeader
from rocketstream.wire.properties import encode_properties
from rocketstream.wire.record import encode_record

TOPIC = "t"


def record(
    offset: int, *, topic: str = TOPIC, body: bytes | None = None, tags: str | None = None, **others: Any
) -> bytes:
    """One stored message as a broker sends it; `properties` is a mapping, the rest as in `encode_record`."""
    properties = dict(others.pop("properties", {}))
    if tags is not None:
        properties["TAGS"] = tags
    text = f"{topic}-{offset}".encode() if body is None else body
    others.setdefault("commit_log_offset", 1000 + offset)
    return encode_record(
        topic=topic, body=text, queue_offset=offset, properties=encode_properties(properties), **others
    )


@dataclass(slots=True)
class PullAnswer:
    """What a broker says to one pull."""

    code: int = ResponseCode.SUCCESS
    next_offset: int = 0
    body: bytes = b""
    min_offset: int = 0
    max_offset: int = 0
    suggested: int = 0
    remark: str | None = None

    def to(self, command: Command) -> Command:
        header = PullMessageResponseHeader(
            suggest_which_broker_id=self.suggested,
            next_begin_offset=self.next_offset,
            min_offset=self.min_offset,
            max_offset=self.max_offset,
        )
        return response(command, self.code, self.remark, header, self.body)


def found(first: int, count: int = 1, *, records: Iterable[bytes] | None = None, **others: Any) -> PullAnswer:
    """FOUND: `count` messages from offset `first` on, or these records; the next offset follows unless given."""
    others.setdefault("next_offset", first + count)
    others.setdefault("max_offset", others["next_offset"])
    made = [record(first + n) for n in range(count)] if records is None else records
    return PullAnswer(body=b"".join(made), **others)


def no_new(next_offset: int, **others: Any) -> PullAnswer:
    """NO_NEW_MSG: nothing there yet."""
    return PullAnswer(ResponseCode.PULL_NOT_FOUND, next_offset, **others)


def no_matched(next_offset: int, **others: Any) -> PullAnswer:
    """NO_MATCHED_MSG: nothing that the subscription wants."""
    return PullAnswer(ResponseCode.PULL_RETRY_IMMEDIATELY, next_offset, **others)


def illegal(next_offset: int, **others: Any) -> PullAnswer:
    """OFFSET_ILLEGAL: that offset is not to be had, this one is."""
    return PullAnswer(ResponseCode.PULL_OFFSET_MOVED, next_offset, **others)


def refused(code: int, remark: str = "no") -> PullAnswer:
    """An error of the broker's."""
    return PullAnswer(code, remark=remark)
