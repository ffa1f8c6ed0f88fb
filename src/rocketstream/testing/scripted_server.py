"""A peer that answers as a script says: for what no healthy broker shows.

It speaks through `wire/`, on the event loop of the test. A handler gets a request and returns its response, or None to
stay silent; it may be a coroutine. What arrived is kept in `received`.
"""

from __future__ import annotations

import asyncio
import inspect
import ssl
from collections.abc import Awaitable, Callable
from typing import Self, TypeAlias, cast

from rocketstream.wire.codes import ResponseCode
from rocketstream.wire.command import Command, response
from rocketstream.wire.frame import FrameReader, encode_frame

Handler: TypeAlias = Callable[[Command], Awaitable[Command | None] | Command | None]


class Peer(asyncio.Protocol):
    """One connection that somebody made to the server."""

    def __init__(self, server: ScriptedServer) -> None:
        self._server = server
        self._reader = FrameReader()
        self.transport: asyncio.Transport | None = None
        self.closed = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Somebody has connected."""
        self.transport = cast(asyncio.Transport, transport)
        self._server.peers.append(self)

    def data_received(self, data: bytes) -> None:
        """Take commands and have them answered."""
        for command in self._reader.feed(data):
            self._server.take(self, command)

    def connection_lost(self, error: Exception | None) -> None:
        """The connection has ended."""
        if self in self._server.peers:
            self._server.peers.remove(self)
        if not self.closed.done():
            self.closed.set_result(None)

    def send(self, command: Command) -> None:
        """Send any command: a late answer, a request of the broker's, anything."""
        self.send_bytes(b"".join(encode_frame(command)))

    def send_bytes(self, data: bytes) -> None:
        """Send bytes that need not be a command."""
        assert self.transport is not None
        self.transport.write(data)

    def cut(self) -> None:
        """End the connection without a word."""
        if self.transport is not None:
            self.transport.abort()


class ScriptedServer:
    """`async with ScriptedServer() as server: server.on(code, handler)`; clients connect to `server.address`."""

    def __init__(self, port: int = 0, tls: ssl.SSLContext | None = None) -> None:
        self.received: list[Command] = []
        self.peers: list[Peer] = []
        self.connections_made = 0
        self._port = port
        self._tls = tls
        self._handlers: dict[int, Handler] = {}
        self._server: asyncio.Server | None = None
        self._arrived = asyncio.Condition()
        self._tasks: set[asyncio.Task[None]] = set()

    def on(self, code: int, handler: Handler) -> None:
        """Answer requests of that code with that handler."""
        self._handlers[int(code)] = handler

    @property
    def address(self) -> str:
        """host:port to connect to."""
        return f"127.0.0.1:{self._port}"

    async def start(self) -> Self:
        """Listen; the port is kept from one start to the next."""
        self._server = await asyncio.get_running_loop().create_server(
            self._new_peer, "127.0.0.1", self._port, ssl=self._tls
        )
        self._port = self._server.sockets[0].getsockname()[1]
        return self

    async def stop(self) -> None:
        """Stop listening and end every connection."""
        if self._server is not None:
            self._server.close()
            self._server = None
        for peer in list(self.peers):
            peer.cut()
            await peer.closed
        for task in self._tasks:
            task.cancel()

    async def __aenter__(self) -> Self:
        return await self.start()

    async def __aexit__(self, *exc: object) -> None:
        await self.stop()

    async def until_received(self, count: int) -> list[Command]:
        """Wait until that many commands have arrived in all."""
        async with self._arrived:
            await self._arrived.wait_for(lambda: len(self.received) >= count)
        return self.received

    def take(self, peer: Peer, command: Command) -> None:
        """A command has arrived on a connection."""
        task = asyncio.ensure_future(self._handle(peer, command))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _new_peer(self) -> Peer:
        self.connections_made += 1
        return Peer(self)

    async def _handle(self, peer: Peer, command: Command) -> None:
        async with self._arrived:
            self.received.append(command)
            self._arrived.notify_all()
        if command.is_response:
            return
        handler = self._handlers.get(command.code)
        answer: Command | None
        if handler is None:
            answer = response(command, ResponseCode.REQUEST_CODE_NOT_SUPPORTED, f"no handler for {command.name}")
        else:
            result = handler(command)
            answer = await result if inspect.isawaitable(result) else result
        if answer is not None and not command.is_one_way and not peer.closed.done():
            peer.send(answer)
