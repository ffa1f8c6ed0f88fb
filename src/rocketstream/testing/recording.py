"""What a fault proxy has seen, in order: for golden frames, and for looking at what two peers said to each other."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from rocketstream.errors import ProtocolError
from rocketstream.wire.command import Command
from rocketstream.wire.frame import FrameReader

Direction: TypeAlias = Literal["up", "down"]
"""`up`: from the client to the broker; `down`: from the broker to the client."""


def decode(frame: bytes) -> Command | None:
    """The command of exactly one frame; None for bytes that are none."""
    try:
        commands = FrameReader().feed(frame)
    except ProtocolError:
        return None
    return commands[0] if len(commands) == 1 else None


@dataclass(frozen=True, slots=True)
class Recorded:
    """A frame (or bytes that are none) as it arrived at the proxy, before any fault touched it."""

    connection: int
    """The number of the connection, from 1 on."""
    direction: Direction
    data: bytes
    is_frame: bool

    @property
    def command(self) -> Command | None:
        """The frame's command, decoded when it is asked for."""
        return decode(self.data) if self.is_frame else None

    def __repr__(self) -> str:
        return f"<Recorded {self.direction} on connection {self.connection}: {self.command or self.data[:20]!r}>"
