"""Frames: how commands lie in a byte stream.

    | length: 4 | encoding: 1, header length: 3 | header | body |

`length` counts everything behind itself. `FrameReader` is an incremental reader that takes any chunking and keeps two
promises: a byte of a body is copied at most once between the socket's chunk and the command's `body`, and what a
length field claims is never allocated before it has arrived. Anything that is not a frame is a `ProtocolError`.
"""

from __future__ import annotations

import struct
from collections import deque

from rocketstream.errors import ProtocolError
from rocketstream.wire.codes import SerializeType
from rocketstream.wire.command import Command
from rocketstream.wire.header_encoding import decode_header, encode_header

# Java's clients and brokers refuse larger frames by default (com.rocketmq.remoting.frameMaxLength).
MAX_FRAME_LENGTH = 16 * 1024 * 1024

_PREFIX = struct.Struct(">iBBH")  # length; encoding; high byte and low half of the header's 24-bit length
_MAX_HEADER_LENGTH = 0xFFFFFF
_ENCODINGS = frozenset(map(int, SerializeType))
# Below this a copy into one buffer is cheaper than a second write.
_JOIN_BELOW = 16 * 1024


def encode_frame(command: Command) -> list[bytes]:
    """The frame of a command, as pieces to be written one after the other (a large body is not copied)."""
    header = encode_header(command)
    if len(header) > _MAX_HEADER_LENGTH:
        raise ProtocolError(f"a header of {len(header)} bytes does not fit its 24-bit length field")
    body = command.body
    length = 4 + len(header) + len(body)
    if length > 0x7FFFFFFF:
        raise ProtocolError(f"a frame of {length} bytes does not fit its 31-bit length field")
    size = len(header)
    prefix = _PREFIX.pack(length, command.serialize_type, size >> 16, size & 0xFFFF)
    if len(body) < _JOIN_BELOW:
        return [b"".join((prefix, header, body))]
    return [prefix + header, body]


class FrameReader:
    """Turns chunks of a byte stream into commands.

    After a `ProtocolError` the stream has no known frame boundary left, so the reader refuses all further input.
    """

    __slots__ = ("_buffered", "_chunks", "_encoding", "_failed", "_header_length", "_max", "_need", "_start")

    def __init__(self, max_frame_length: int = MAX_FRAME_LENGTH) -> None:
        self._max = max_frame_length
        self._chunks: deque[bytes] = deque()
        self._start = 0  # where the unread part of the first chunk begins
        self._buffered = 0
        self._need = _PREFIX.size  # bytes that must be there before the next step
        self._header_length = -1  # -1: the next step is a prefix; else a header of that length and its body
        self._encoding = 0
        self._failed: str | None = None

    def __repr__(self) -> str:
        state = self._failed or ("between frames" if self._header_length < 0 else f"waiting for {self._need} bytes")
        return f"<FrameReader {state}, {self._buffered} bytes buffered>"

    @property
    def mid_frame(self) -> bool:
        """Whether a frame has begun and not ended: a stream that stops here was cut."""
        return self._buffered > 0 or self._header_length >= 0

    def feed(self, data: bytes) -> list[Command]:
        """Take the next chunk; return the commands that it completes."""
        if self._failed is not None:
            raise ProtocolError(f"the stream is broken: {self._failed}")
        commands: list[Command] = []
        if not data:
            return commands
        self._chunks.append(data)
        self._buffered += len(data)
        try:
            while self._buffered >= self._need:
                if self._header_length < 0:
                    self._read_prefix()
                else:
                    commands.append(self._read_command())
        except ProtocolError as error:
            self._failed = str(error)
            self._chunks.clear()
            self._buffered = 0
            if commands:
                # What came before the garbage was whole; the next call (or the close) reports the failure.
                return commands
            raise
        return commands

    @property
    def failure(self) -> str | None:
        """Why the stream is broken, or None."""
        return self._failed

    def _read_prefix(self) -> None:
        length, encoding, high, low = _PREFIX.unpack(self._take(_PREFIX.size))
        header_length = (high << 16) | low
        if length < 4 or length > self._max:
            raise ProtocolError(f"frame length {length} is not between 4 and {self._max}")
        if header_length > length - 4:
            raise ProtocolError(f"header length {header_length} exceeds the frame's {length - 4} bytes")
        if encoding not in _ENCODINGS:
            raise ProtocolError(f"unknown header encoding {encoding}: not a RocketMQ frame")
        self._encoding = encoding
        self._header_length = header_length
        self._need = length - 4

    def _read_command(self) -> Command:
        body_length = self._need - self._header_length
        command = decode_header(self._take(self._header_length), self._encoding)
        command.body = self._take(body_length) if body_length else b""
        self._header_length = -1
        self._need = _PREFIX.size
        return command

    def _take(self, count: int) -> bytes:
        """The next `count` bytes, which are known to be there."""
        self._buffered -= count
        chunks = self._chunks
        if not count:
            return b""
        first = chunks[0]
        start = self._start
        end = start + count
        if end < len(first):
            self._start = end
            return first[start:end]
        if end == len(first):
            chunks.popleft()
            self._start = 0
            return first[start:] if start else first
        parts: list[bytes | memoryview] = [memoryview(first)[start:]]
        chunks.popleft()
        missing = count - (len(first) - start)
        while missing >= len(chunks[0]):
            parts.append(chunks[0])
            missing -= len(chunks[0])
            chunks.popleft()
            if not missing:
                break
        if missing:
            parts.append(memoryview(chunks[0])[:missing])
        self._start = missing
        return b"".join(parts)
