"""Many messages in one body: what SEND_BATCH_MESSAGE carries, and what an inner batch stores.

The rule of this file: the batch says only what differs between its messages (flag, body, properties). Topic, queue,
hosts and times are those of the request or record around it.

    total size 4 | magic 4, unused | body crc 4, unused | flag 4 | body size 4, body | properties size 2, properties
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from rocketstream.errors import CorruptMessageError
from rocketstream.wire.properties import properties_bytes

_HEAD = struct.Struct(">i4x4xiI")
_ENCODED_HEAD = struct.Struct(">iiiiI")
_SHORT = struct.Struct(">H")

MIN_ITEM_SIZE = _HEAD.size + _SHORT.size


class BatchItem(NamedTuple):
    """One message of a batch; `properties` is the encoded string, as in a send request's header."""

    body: bytes
    properties: str = ""
    flag: int = 0


def encode_batch(items: Iterable[BatchItem]) -> bytes:
    """The body of a batch."""
    parts: list[bytes] = []
    for body, properties, flag in items:
        raw = properties_bytes(properties)
        total = MIN_ITEM_SIZE + len(body) + len(raw)
        parts += (_ENCODED_HEAD.pack(total, 0, 0, flag, len(body)), body, _SHORT.pack(len(raw)), raw)
    return b"".join(parts)


def encode_similar(bodies: Sequence[bytes], start: bytes, own: Sequence[bytes], end: bytes) -> bytes:
    """The body of a batch of messages without a flag, whose properties are `start`, some bytes of their own, `end`.

    The own bytes are equally many for each. Batches of thousands of messages a second are made here, so there is no
    Python code per message: the parts that all have in common are laid out, the others put in between.
    """
    properties_size = len(start) + len(own[0]) + len(end)
    around = MIN_ITEM_SIZE + properties_size
    heads = {size: _ENCODED_HEAD.pack(around + size, 0, 0, 0, size) for size in set(map(len, bodies))}
    parts = [b"", b"", _SHORT.pack(properties_size) + start, b"", end] * len(bodies)
    parts[0::5] = map(heads.__getitem__, map(len, bodies))
    parts[1::5] = bodies
    parts[3::5] = own
    return b"".join(parts)


def decode_batch(data: bytes) -> list[BatchItem]:
    """The messages of a batch's body; `CorruptMessageError` says at which byte it does not add up.

    All or nothing: a length that is wrong makes every later boundary a guess.
    """
    items: list[BatchItem] = []
    position, size = 0, len(data)
    while position < size:
        if size - position < MIN_ITEM_SIZE:
            raise CorruptMessageError(
                f"a batch ends in {size - position} bytes at byte {position}, too few for a message"
            )
        total, flag, body_size = _HEAD.unpack_from(data, position)
        body_at = position + _HEAD.size
        properties_at = body_at + body_size + _SHORT.size
        end = position + total
        if properties_at > size:
            raise CorruptMessageError(
                f"a batch's message at byte {position} has a body of {body_size} bytes, {size - body_at} are left"
            )
        (properties_size,) = _SHORT.unpack_from(data, properties_at - _SHORT.size)
        if properties_at + properties_size != end or end > size:
            raise CorruptMessageError(
                f"a batch's message at byte {position} says {total} bytes, its fields take"
                f" {properties_at + properties_size - position}, {size - position} are left"
            )
        properties = data[properties_at:end].decode("utf-8", "replace")
        items.append(BatchItem(data[body_at : body_at + body_size], properties, flag))
        position = end
    return items
