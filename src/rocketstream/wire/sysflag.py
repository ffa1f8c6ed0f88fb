"""The bits of a message's system flag: what a stored message is and how its bytes are to be read.

The rule of this file: bits and questions about them, no bytes.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final

from rocketstream.errors import CorruptMessageError

COMPRESSED: Final = 0x1
MULTI_TAGS: Final = 0x1 << 1
BORN_HOST_V6: Final = 0x1 << 4
STORE_HOST_V6: Final = 0x1 << 5
NEED_UNWRAP: Final = 0x1 << 6
INNER_BATCH: Final = 0x1 << 7

_TRANSACTION_MASK: Final = 0x3 << 2
_CODEC_MASK: Final = 0x7 << 8
_CODEC_SHIFT: Final = 8


class TransactionType(IntEnum):
    """What a message is to a transaction; the value is its bits of the flag."""

    NOT = 0
    PREPARED = 0x1 << 2
    COMMIT = 0x2 << 2
    ROLLBACK = 0x3 << 2


class Codec(IntEnum):
    """How a compressed body is compressed; the value is Java's `CompressionType`."""

    LZ4 = 1
    ZSTD = 2
    ZLIB = 3

    @property
    def bits(self) -> int:
        """The codec's bits of the system flag, without the bit that says *compressed*."""
        return self.value << _CODEC_SHIFT


def transaction_type(sys_flag: int) -> TransactionType:
    return TransactionType(sys_flag & _TRANSACTION_MASK)


def with_transaction_type(sys_flag: int, kind: TransactionType) -> int:
    return (sys_flag & ~_TRANSACTION_MASK) | kind


def is_compressed(sys_flag: int) -> bool:
    return sys_flag & COMPRESSED != 0


def codec_of(sys_flag: int) -> Codec:
    """The codec of a compressed message.

    No type at all is zlib: clients from before there was a choice set only the bit for *compressed*.
    """
    number = (sys_flag & _CODEC_MASK) >> _CODEC_SHIFT
    if number == 0:
        return Codec.ZLIB
    try:
        return Codec(number)
    except ValueError:
        known = ", ".join(f"{codec.value} ({codec.name.lower()})" for codec in Codec)
        raise CorruptMessageError(f"compression type {number} is not known; known are {known}") from None


def with_codec(sys_flag: int, codec: Codec | None) -> int:
    """The flag of a message whose body is compressed with `codec`, or is not compressed."""
    plain = sys_flag & ~(_CODEC_MASK | COMPRESSED)
    return plain if codec is None else plain | COMPRESSED | codec.bits


def is_inner_batch(sys_flag: int) -> bool:
    """True when the body of this record is a batch that the consumer has to unpack."""
    both = INNER_BATCH | NEED_UNWRAP
    return sys_flag & both == both
