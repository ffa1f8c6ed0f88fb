"""Java's ideas that the protocol is made of: sizes of numbers, spelling of names, hash codes of texts."""

from __future__ import annotations

import re
from typing import Annotated

Int32 = Annotated[int, 32]
"""Java's `int` / `Integer`."""
Int64 = Annotated[int, 64]
"""Java's `long` / `Long`."""


def camel_case(name: str) -> str:
    """`queue_offset` as Java spells it: `queueOffset`."""
    return re.sub(r"_([a-z0-9])", lambda match: match[1].upper(), name)


def java_string_hash(text: str) -> int:
    """Java's `String.hashCode()`: over UTF-16 code units, wrapped to a signed 32-bit number.

    Brokers filter tags by it, and producers choose the queue of a sharding key by it.
    """
    value = 0
    if text.isascii():
        units: bytes | memoryview = text.encode("ascii")
    else:
        # Native byte order, so that the cast below reads the units as they are.
        units = memoryview(text.encode(_NATIVE_UTF_16, "surrogatepass")).cast("H")
    for unit in units:
        value = (value * 31 + unit) & 0xFFFFFFFF
    return value - 0x100000000 if value >= 0x80000000 else value


_NATIVE_UTF_16 = "utf-16-le" if memoryview(b"\x01\x00").cast("H")[0] == 1 else "utf-16-be"
