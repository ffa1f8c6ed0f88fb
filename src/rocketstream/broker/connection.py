"""One client's connection, seen from the broker: commands in, answers and requests out.

It decides nothing: what arrives goes to its `CommandTaker`. Everything that is written in one turn of the loop leaves
in one system call.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from typing import Protocol, cast

from rocketstream.clock import Clock
from rocketstream.errors import ProtocolError
from rocketstream.wire.codes import SerializeType
from rocketstream.wire.command import Command
from rocketstream.wire.frame import FrameReader, encode_frame

log = logging.getLogger("rocketstream.broker")

_ENCODING = int(SerializeType.JSON)


class CommandTaker(Protocol):
    """Who is told what happens on a connection."""

    def on_connected(self, connection: ClientConnection) -> None:
        """Somebody has connected."""

    def on_command(self, connection: ClientConnection, command: Command) -> None:
        """A whole command has arrived."""

    def on_closed(self, connection: ClientConnection) -> None:
        """The connection is gone."""


class ClientConnection(asyncio.Protocol):
    """An accepted connection. `send` writes a command; `invoke` asks the client and waits for its answer."""

    def __init__(self, taker: CommandTaker, clock: Clock, max_frame_length: int) -> None:
        self.address = ""
        """The client's host:port."""
        self.closed = False
        self.last_read = clock.monotonic()
        self._taker = taker
        self._clock = clock
        self._reader = FrameReader(max_frame_length)
        self._transport: asyncio.Transport | None = None
        self._outgoing: list[bytes] = []
        self._next_opaque = 0
        self._asked: dict[int, asyncio.Future[Command]] = {}

    def __repr__(self) -> str:
        return f"<ClientConnection {self.address or '-'} {'closed' if self.closed else 'open'}>"

    def send(self, command: Command) -> None:
        """Write a command: a response, or a one-way request of the broker's. A closed connection swallows it."""
        # As RocketMQ 5: in the server's own encoding, whatever the client's (4.9 answers in the client's).
        command.serialize_type = _ENCODING
        self.send_bytes(encode_frame(command))

    def send_bytes(self, pieces: list[bytes]) -> None:
        """Write pieces of a frame."""
        if self.closed or self._transport is None:
            return
        if not self._outgoing:
            asyncio.get_running_loop().call_soon(self._flush)
        self._outgoing += pieces

    async def invoke(self, command: Command, timeout: float) -> Command:
        """Ask the client something and wait for its answer; TimeoutError or ConnectionError when none comes."""
        if self.closed:
            raise ConnectionError(f"{self.address} is gone")
        self._next_opaque += 1
        command.opaque = opaque = self._next_opaque
        answer: asyncio.Future[Command] = asyncio.get_running_loop().create_future()
        self._asked[opaque] = answer
        timer = self._clock.call_later(timeout, _time_out, answer, self.address, command.name)
        try:
            self.send(command)
            return await answer
        finally:
            timer.cancel()
            self._asked.pop(opaque, None)

    def cut(self) -> None:
        """End the connection at once, without a word."""
        if self._transport is not None:
            self._transport.abort()

    def _flush(self) -> None:
        pieces, self._outgoing = self._outgoing, []
        if pieces and self._transport is not None and not self._transport.is_closing():
            self._transport.writelines(pieces)

    # --- what asyncio tells us ----------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Somebody has connected."""
        self._transport = cast(asyncio.Transport, transport)
        sock: socket.socket | None = transport.get_extra_info("socket")
        if sock is not None and sock.family in (socket.AF_INET, socket.AF_INET6):
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        peer = transport.get_extra_info("peername") or ("", 0)
        host = f"[{peer[0]}]" if ":" in peer[0] else peer[0]
        self.address = f"{host}:{peer[1]}"
        self._taker.on_connected(self)

    def data_received(self, data: bytes) -> None:
        """Bytes have arrived."""
        self.last_read = self._clock.monotonic()
        reader = self._reader
        try:
            commands = reader.feed(data)
        except ProtocolError:
            commands = []
        for command in commands:
            if command.is_response:
                asked = self._asked.get(command.opaque)
                if asked is not None and not asked.done():
                    asked.set_result(command)
            else:
                self._taker.on_command(self, command)
        if reader.failure is not None:
            log.warning("%s sent bytes that are not RocketMQ's protocol: %s", self.address, reader.failure)
            self.cut()

    def connection_lost(self, error: Exception | None) -> None:
        """The connection has ended, by whichever side."""
        if self.closed:
            return
        self.closed = True
        for asked in self._asked.values():
            if not asked.done():
                asked.set_exception(ConnectionError(f"{self.address} is gone"))
        self._taker.on_closed(self)


def _time_out(answer: asyncio.Future[Command], address: str, name: str) -> None:
    if not answer.done():
        answer.set_exception(TimeoutError(f"{address} did not answer {name}"))
