"""Acknowledging many popped messages at once (5.x)."""

from __future__ import annotations

import base64
import binascii
from typing import Annotated

from rocketstream.wire.bodies.base import Body, Codec, body, mismatch, named
from rocketstream.wire.java import Int32, Int64
from rocketstream.wire.lenient_json import JsonValue


def _read_bits(value: JsonValue) -> frozenset[int]:
    try:
        data = base64.b64decode(value, validate=True)
    except (TypeError, ValueError, binascii.Error):
        mismatch("a bit set in base64", value)
    return frozenset(index * 8 + bit for index, byte in enumerate(data) for bit in range(8) if byte >> bit & 1)


def _write_bits(bits: frozenset[int]) -> str:
    data = bytearray(max(bits, default=-1) // 8 + 1)
    for bit in bits:
        data[bit // 8] |= 1 << bit % 8
    return base64.b64encode(data).decode("ascii")


@body
class BatchAck(Body):
    """Messages of one lease that are done: `bits` are their places behind `start_offset`. `retry` is 0, 1 or 2."""

    consumer_group: str = named("c")
    topic: str = named("t")
    retry: str = named("r")
    start_offset: Int64 = named("so")
    queue_id: Int32 = named("q")
    revive_queue_id: Int32 = named("rq")
    pop_time: Int64 = named("pt")
    invisible_time: Int64 = named("it")
    bits: Annotated[frozenset[int], Codec(_read_bits, _write_bits)] = named("b")


@body
class BatchAckMessageRequestBody(Body):
    """BATCH_ACK_MESSAGE."""

    broker_name: str
    acks: tuple[BatchAck, ...] = ()
