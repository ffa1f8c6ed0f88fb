"""A stored record, taken apart: what whoever stores a message once more (delays, retries, transactions) needs of it.

Unlike a consumer's view of it, the body stays as it was stored: compressed, if the system flag says so.
"""

from __future__ import annotations

import struct
from typing import Final, NamedTuple

from rocketstream.broker.store.values import NewMessage
from rocketstream.wire.host import decode_host
from rocketstream.wire.message_id import offset_id_of
from rocketstream.wire.properties import decode_properties
from rocketstream.wire.record import BODY_AT, HOST_BITS, TOPIC_SIZE_BYTES
from rocketstream.wire.sysflag import BORN_HOST_V6

_START: Final = struct.Struct(">4xI4xiiqqiq")
_BORN_AT: Final = 48
_U16: Final = struct.Struct(">H")
_U32: Final = struct.Struct(">I")
_I64: Final = struct.Struct(">q")
_TIMES: Final = struct.Struct(">iqI")


class StoredRecord(NamedTuple):
    """Every field of a record."""

    topic: str
    queue_id: int
    queue_offset: int
    position: int
    body: bytes
    properties: str
    flag: int
    sys_flag: int
    born_timestamp: int
    born_host: str
    store_timestamp: int
    store_host: str
    reconsume_times: int
    prepared_transaction_offset: int
    message_id: str
    """The offset message id."""

    def renewed(self, topic: str, queue_id: int, properties: str) -> NewMessage:
        """The same message, to be stored somewhere else."""
        return NewMessage(
            topic=topic,
            queue_id=queue_id,
            body=self.body,
            properties=properties,
            flag=self.flag,
            sys_flag=self.sys_flag,
            born_timestamp=self.born_timestamp,
            born_host=self.born_host,
            reconsume_times=self.reconsume_times,
        )


def read_record(record: bytes) -> StoredRecord:
    """The fields of a sound record."""
    magic, queue_id, flag, queue_offset, position, sys_flag, born_timestamp = _START.unpack_from(record)
    store_at = _BORN_AT + (20 if sys_flag & BORN_HOST_V6 else 8)
    body_at = BODY_AT[(sys_flag & HOST_BITS) >> 4]
    reconsume_times, prepared, body_size = _TIMES.unpack_from(record, body_at - _TIMES.size)
    topic_at = body_at + body_size
    width = TOPIC_SIZE_BYTES[magic]
    topic_size = record[topic_at] if width == 1 else _U16.unpack_from(record, topic_at)[0]
    topic_at += width
    properties_at = topic_at + topic_size + _U16.size
    store_host = record[store_at + 8 : body_at - _TIMES.size]
    return StoredRecord(
        topic=record[topic_at : topic_at + topic_size].decode(),
        queue_id=queue_id,
        queue_offset=queue_offset,
        position=position,
        body=record[body_at : body_at + body_size],
        properties=record[properties_at:].decode("utf-8", "replace"),
        flag=flag,
        sys_flag=sys_flag,
        born_timestamp=born_timestamp,
        born_host=decode_host(record[_BORN_AT:store_at]),
        store_timestamp=_I64.unpack_from(record, store_at)[0],
        store_host=decode_host(store_host),
        reconsume_times=reconsume_times,
        prepared_transaction_offset=prepared,
        message_id=offset_id_of(store_host, position),
    )


def record_properties(record: bytes) -> dict[str, str]:
    """Only the properties of a record: what a filter looks at."""
    (magic,) = _U32.unpack_from(record, 4)
    (sys_flag,) = _U32.unpack_from(record, 36)
    body_at = BODY_AT[(sys_flag & HOST_BITS) >> 4]
    (body_size,) = _U32.unpack_from(record, body_at - 4)
    topic_at = body_at + body_size
    width = TOPIC_SIZE_BYTES[magic]
    topic_size = record[topic_at] if width == 1 else _U16.unpack_from(record, topic_at)[0]
    return decode_properties(record[topic_at + width + topic_size + 2 :].decode("utf-8", "replace"))


def property_of(properties: str, name: str) -> str | None:
    r"""One property of an encoded string; None without it. (Cheap: most sends ask for one or two.)"""
    key = f"{name}\x01"
    if properties.startswith(key):
        start = len(key)
    else:
        found = properties.find(f"\x02{key}")
        if found < 0:
            return None
        start = found + len(key) + 1
    end = properties.find("\x02", start)
    return properties[start:] if end < 0 else properties[start:end]


def encoded(properties: dict[str, str]) -> str:
    """Properties as a record has them; what is empty is left out, as Java does, and nothing is refused."""
    return "".join([f"{name}\x01{value}\x02" for name, value in properties.items() if name and value])
