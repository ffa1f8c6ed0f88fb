"""Offsets by queue: stored, reset, reported."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

from rocketstream.message import MessageQueue
from rocketstream.wire.bodies.base import Body, Codec, body, codec_of, mapping, read_queue
from rocketstream.wire.bodies.data_version import DataVersion
from rocketstream.wire.java import Int32, Int64
from rocketstream.wire.lenient_json import JsonValue

_by_queue = codec_of(Mapping[MessageQueue, Int64])
_offset = codec_of(Int64)


def _read_reset_table(value: JsonValue) -> Mapping[MessageQueue, int]:
    # Asked to reset by a tool written in C++, a broker tells all clients in a form for C++: a list.
    if isinstance(value, list):
        return {read_queue(one): _offset.read(one.get("offset")) for one in value}
    table: Mapping[MessageQueue, int] = _by_queue.read(value)
    return table


@body
class ResetOffsetBody(Body):
    """RESET_CONSUMER_CLIENT_OFFSET from broker to client, and the answer to who asked for it (OFF-05)."""

    offset_table: Annotated[Mapping[MessageQueue, int], Codec(_read_reset_table, _by_queue.write)] = mapping()


@body
class GetConsumerStatusBody(Body):
    """A client's offsets in memory (GET_CONSUMER_STATUS_FROM_CLIENT), or those of all clients by their id."""

    message_queue_table: Mapping[MessageQueue, Int64] = mapping()
    consumer_table: Mapping[str, Mapping[MessageQueue, Int64]] = mapping()


@body
class ConsumerOffsetSerializeWrapper(Body):
    """GET_ALL_CONSUMER_OFFSET's answer: "topic@group" -> queue id -> offset."""

    offset_table: Mapping[str, Mapping[Int32, Int64]] = mapping()
    data_version: DataVersion | None = None


@body
class QueryCorrectionOffsetBody(Body):
    """QUERY_CORRECTION_OFFSET's answer: queue id -> offset."""

    correction_offsets: Mapping[Int32, Int64] = mapping()
