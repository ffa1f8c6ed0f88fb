"""Text to numbers as Java's `Integer.valueOf`, `Long.valueOf` and `Double.valueOf` read it; ValueError otherwise."""

from __future__ import annotations

import math
import re

INT_MAX = 2**31 - 1
LONG_MAX = 2**63 - 1

_INTEGER = re.compile(r"[+-]?\d+")
_DOUBLE = re.compile(
    r"(?P<sign>[+-]?)(?:"
    r"(?P<special>NaN|Infinity)"
    r"|(?P<decimal>(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)[fFdD]?"
    r"|(?P<hex>0[xX](?:[0-9a-fA-F]+\.?|[0-9a-fA-F]*\.[0-9a-fA-F]+)[pP][+-]?[0-9]+)[fFdD]?"
    r")"
)
#: What Java's String.trim takes off.
_BLANK = "".join(map(chr, range(33)))


def java_int(text: str) -> int:
    """A whole number of 32 bits."""
    return _whole(text, INT_MAX)


def java_long(text: str) -> int:
    """A whole number of 64 bits."""
    return _whole(text, LONG_MAX)


def _whole(text: str, largest: int) -> int:
    if _INTEGER.fullmatch(text) is None:
        raise ValueError(f"{text!r} is not a whole number")
    value = int(text)
    if not -largest - 1 <= value <= largest:
        raise ValueError(f"{text!r} is too large")
    return value


def java_double(text: str) -> float:
    """A floating point number, with Java's suffixes and hexadecimal form."""
    found = _DOUBLE.fullmatch(text.strip(_BLANK))
    if found is None:
        raise ValueError(f"{text!r} is not a number")
    if found["hex"] is not None:
        try:
            value = float.fromhex(found["hex"])
        except OverflowError:
            value = math.inf
    else:
        value = float(found["decimal"] or found["special"])
    return -value if found["sign"] == "-" else value


def java_boolean(text: str) -> bool:
    """`Boolean.valueOf`: whether it says "true"."""
    return text.lower() == "true"


def order_doubles(left: float, right: float) -> int:
    """`Double.compare`: below 0, 0 or above 0; NaN is above everything, and -0.0 below 0.0."""
    if left < right:
        return -1
    if left > right:
        return 1
    if left == right:
        return int(math.copysign(1, left) - math.copysign(1, right)) if left == 0 else 0
    return (left != left) - (right != right)
