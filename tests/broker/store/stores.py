"""What the tests of the store share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rocketstream.broker.store.log_store import LogStore
from rocketstream.broker.store.values import NewMessage, Reading
from rocketstream.message import ReceivedMessage
from rocketstream.wire.record_decoder import decode_records

OpenStore = Callable[..., LogStore]


def message(body: bytes | str = b"", topic: str = "orders", queue_id: int = 0, **fields: Any) -> NewMessage:
    """A message to store; properties as a dict."""
    properties = "".join(f"{name}\x01{value}\x02" for name, value in fields.pop("properties", {}).items())
    raw = body.encode() if isinstance(body, str) else body
    return NewMessage(topic=topic, queue_id=queue_id, body=raw, properties=properties, **fields)


def messages(reading: Reading) -> list[ReceivedMessage]:
    """The messages of a reading, as a client sees them."""
    return decode_records(b"".join(reading.records)).messages


def bodies(store: LogStore, topic: str = "orders", queue_id: int = 0, max_count: int = 32) -> list[bytes]:
    """Everything in a queue, read from its first offset to its end."""
    found: list[bytes] = []
    offset = store.min_offset(topic, queue_id)
    while offset < store.max_offset(topic, queue_id):
        reading = store.read(topic, queue_id, offset, max_count, 1 << 20)
        assert reading.next_offset > offset
        found += [each.body for each in messages(reading)]
        offset = reading.next_offset
    return found
