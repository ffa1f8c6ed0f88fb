"""Columns of pull responses beside what the record decoder says of the same bytes."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from rocketstream.errors import CorruptMessageError, MissingCodecError, RocketStreamError
from rocketstream.message import MessageQueue, ReceivedMessage
from rocketstream.wire.columns import COLUMNS, Columns, Pulled, arrow_schema, read_columns
from rocketstream.wire.record import encode_record
from rocketstream.wire.record_decoder import decode_records

QUEUE = MessageQueue("orders", "broker-a", 3)
OTHER = MessageQueue("%RETRY%group", "broker-b", 0)
TIMES = ("born_timestamp", "store_timestamp")
UNIQUE = b"UNIQ_KEY\x017F00000100002A139A5506A1000000AB\x02"


def with_properties(record: bytes, properties: bytes) -> bytes:
    """A record without properties, given some that no encoder would write."""
    total = struct.pack(">I", len(record) + len(properties))
    return total + record[4:-2] + struct.pack(">H", len(properties)) + properties


def record(offset: int = 0, *, properties: bytes = b"", **more: Any) -> bytes:
    fields = {"topic": "orders", "body": b"hi"} | more
    return with_properties(encode_record(queue_offset=offset, **fields), properties)


def body_of(message: ReceivedMessage) -> bytes | RocketStreamError:
    try:
        return message.body
    except (CorruptMessageError, MissingCodecError) as error:
        return error


def micros(millis: int) -> int | None:
    return millis * 1000 if abs(millis * 1000) < 2**63 else None


def expected(pulled: Sequence[Pulled], names: Sequence[str]) -> tuple[list[dict[str, object]], list[Any]]:
    rows: list[dict[str, object]] = []
    unreadable: list[Any] = []
    for queue, body, start, end in pulled:
        messages, corrupt = decode_records(body, queue=queue)
        unreadable += [(queue, None, str(CorruptMessageError(c.reason, position=c.position))) for c in corrupt]
        for message in messages:
            offset = message.queue_offset
            if (start is not None and offset < start) or (end is not None and offset >= end):
                continue
            row = {name: getattr(message, name) for name in names if name not in ("body", *TIMES)}
            row |= {name: micros(getattr(message, name)) for name in names if name in TIMES}
            if "queue_offset" in row:
                row["queue_offset"] = offset if offset < 2**63 else None
            if "properties" in row:
                row["properties"] = list(message.properties.items())
            if "body" in names:
                content = body_of(message)
                if isinstance(content, RocketStreamError):
                    unreadable.append((queue, offset, str(content)))
                    content = None  # type: ignore[assignment]
                row["body"] = content
            rows.append(row)
    return rows, unreadable


def rows_of(columns: Columns) -> list[dict[str, object]]:
    # As numbers, because Python's datetime has fewer years than a timestamp.
    table = pa.Table.from_batches([columns.batch])
    for index, name in enumerate(table.column_names):
        if name in TIMES:
            table = table.set_column(index, name, table.column(name).cast(pa.int64()))
    return table.to_pylist()  # type: ignore[no-any-return]


def check(pulled: Sequence[Pulled], names: Sequence[str] = COLUMNS) -> Columns:
    """Read both ways and compare all there is to see."""
    columns = read_columns(pulled, names)
    columns.batch.validate(full=True)
    assert columns.batch.schema == arrow_schema(names)
    rows, unreadable = expected(pulled, names)
    assert rows_of(columns) == rows
    found = [(problem.queue, problem.queue_offset, str(problem.error)) for problem in columns.unreadable]
    assert sorted(found, key=repr) == sorted(unreadable, key=repr)
    return columns
