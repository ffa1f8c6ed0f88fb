"""What a fault proxy does to the bytes of one direction, as values: no socket, no clock, no loop.

`Faults` says what is wrong with a direction now; `FrameCutter` finds the frames in a stream so that a fault can hit
whole ones. Chance comes from the one `Random` that is passed in: the same seed and the same traffic, the same damage.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from random import Random

from rocketstream.errors import ConfigurationError
from rocketstream.wire.frame import MAX_FRAME_LENGTH

_LENGTH = struct.Struct(">i")


@dataclass(slots=True)
class Faults:
    """What is wrong with one direction; the defaults are a line without faults."""

    delay: tuple[float, float] = (0.0, 0.0)
    split: tuple[int, int] | None = None
    copies: int = 0
    copy_rate: float = 0.0
    garble_rate: float = 0.0
    garble_after: int = 0
    garble_replaces: bool = False
    drop_rate: float = 0.0
    held: bool = False
    cut_after: int | None = None

    def __str__(self) -> str:
        low, high = self.delay
        said = {
            f"delay {low:g}-{high:g} s": high > 0,
            f"split {self.split}": self.split is not None,
            f"{self.copies} more of {self.copy_rate:.0%} of frames": bool(self.copies and self.copy_rate),
            f"garble {self.garble_rate:.2%} after {self.garble_after} bytes": self.garble_rate > 0,
            f"drop {self.drop_rate:.0%}": self.drop_rate > 0,
            "held": self.held,
            f"cut after {self.cut_after} bytes": self.cut_after is not None,
        }
        return ", ".join(text for text, true in said.items() if true) or "clear"

    # --- what becomes of a unit: a frame, or bytes that are none --------------------------------------------------

    def damage(self, unit: bytes, is_frame: bool, random: Random) -> list[tuple[bytes, bool]]:
        """The pieces to be forwarded instead of a unit, each with whether it has to travel alone."""
        if self.drop_rate and random.random() < self.drop_rate:
            return []
        repeats = 1 + (self.copies if is_frame and self.copy_rate and random.random() < self.copy_rate else 0)
        pieces: list[tuple[bytes, bool]] = []
        for _ in range(repeats):
            data = self._garble(unit, random) if self.garble_rate else unit
            if self.split is None:
                pieces.append((data, False))
            else:
                pieces += self._split(data, self.split, random)
        return pieces

    def pick_delay(self, random: Random) -> float:
        """How long the next piece takes on its way."""
        low, high = self.delay
        return low if low == high else random.uniform(low, high)

    def _garble(self, unit: bytes, random: Random) -> bytes:
        spared = min(self.garble_after, len(unit))
        self.garble_after -= spared
        data = bytearray(unit)
        for index in range(spared, len(data)):
            if self.garble_rate >= 1.0 or random.random() < self.garble_rate:
                # Never the same byte again: a garbled byte is a changed byte.
                data[index] ^= random.randrange(1, 256) if self.garble_replaces else 1 << random.randrange(8)
        return bytes(data)

    @staticmethod
    def _split(data: bytes, sizes: tuple[int, int], random: Random) -> list[tuple[bytes, bool]]:
        low, high = sizes
        pieces: list[tuple[bytes, bool]] = []
        position = 0
        while position < len(data):
            size = low if low == high else random.randint(low, high)
            pieces.append((data[position : position + size], True))
            position += size
        return pieces


def a_range(name: str, value: float | tuple[float, float], least: float) -> tuple[float, float]:
    """A number as a range of one, or a range; `ConfigurationError` if it cannot be one."""
    low, high = value if isinstance(value, tuple) else (value, value)
    if not least <= low <= high:
        raise ConfigurationError(f"{name}={value!r} must be a number from {least:g} on, or (low, high) of such")
    return low, high


def a_rate(name: str, value: float) -> float:
    """A probability; `ConfigurationError` if it cannot be one."""
    if not 0.0 <= value <= 1.0:
        raise ConfigurationError(f"{name}={value!r} must be between 0 and 1")
    return value


class FrameCutter:
    """Cuts a stream into frames without looking into them.

    A stream that is not RocketMQ's (TLS, HTTP) is recognised by its first impossible length, and passes as it comes.
    """

    __slots__ = ("_buffer", "_max", "_raw")

    def __init__(self, max_frame_length: int = MAX_FRAME_LENGTH) -> None:
        self._buffer = bytearray()
        self._max = max_frame_length
        self._raw = False

    def feed(self, data: bytes) -> list[tuple[bytes, bool]]:
        """The units that a chunk completes, each with whether it is a frame."""
        if self._raw:
            return [(data, False)]
        buffer = self._buffer
        buffer += data
        units: list[tuple[bytes, bool]] = []
        position = 0
        while len(buffer) - position >= _LENGTH.size:
            (length,) = _LENGTH.unpack_from(buffer, position)
            if not 4 <= length <= self._max:
                self._raw = True
                units.append((bytes(memoryview(buffer)[position:]), False))
                self._buffer = bytearray()
                return units
            end = position + _LENGTH.size + length
            if end > len(buffer):
                break
            units.append((bytes(memoryview(buffer)[position:end]), True))
            position = end
        del buffer[:position]
        return units

    def rest(self) -> bytes:
        """What is left of a stream that has ended: the beginning of a frame."""
        rest = bytes(self._buffer)
        self._buffer.clear()
        return rest
