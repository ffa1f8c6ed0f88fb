"""The two ends of a proxied line, as bare as can be: a connection that keeps its chunks, an echo on a thread."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
from collections.abc import Callable

from rocketstream.errors import ProtocolError
from rocketstream.testing.fault_proxy import FaultProxy
from rocketstream.wire.codes import RequestCode, ResponseCode
from rocketstream.wire.command import Command, request, response
from rocketstream.wire.frame import FrameReader, encode_frame

ASK = RequestCode.GET_MAX_OFFSET


def ok(to: Command) -> Command:
    return response(to, ResponseCode.SUCCESS, header=to.fields, body=to.body)


def frame(number: int, size: int = 0) -> bytes:
    asked = request(ASK, {"n": str(number)}, b"x" * size)
    asked.opaque = number
    return b"".join(encode_frame(asked))


class Client(asyncio.Protocol):
    """A bare connection that keeps the chunks it was given."""

    def __init__(self) -> None:
        self.chunks: list[bytes] = []
        self.commands: list[Command] = []
        self.transport: asyncio.Transport | None = None
        self.lost: asyncio.Future[Exception | None] = asyncio.get_running_loop().create_future()
        self._reader = FrameReader()
        self._arrival = asyncio.Event()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.chunks.append(data)
        with contextlib.suppress(ProtocolError):
            self.commands += self._reader.feed(data)
        self._arrival.set()

    def connection_lost(self, error: Exception | None) -> None:
        self.lost.set_result(error)
        self._arrival.set()

    @property
    def data(self) -> bytes:
        return b"".join(self.chunks)

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(20):
            while not condition():
                self._arrival.clear()
                await self._arrival.wait()

    async def answers(self, count: int) -> list[Command]:
        await self.until(lambda: len(self.commands) >= count)
        return self.commands

    def ask(self, *numbers: int) -> None:
        for number in numbers:
            self.transport.write(frame(number))


async def connect_to(proxy: FaultProxy) -> Client:
    """A connection to a proxy."""
    host, port = proxy.address.split(":")
    _, client = await asyncio.get_running_loop().create_connection(Client, host, int(port))
    return client


def serve_on_a_thread() -> tuple[str, threading.Event]:
    """A peer for tests without an event loop: it sends every byte back."""
    listener = socket.create_server(("127.0.0.1", 0))
    stop = threading.Event()

    def echo(connection: socket.socket) -> None:
        with connection, contextlib.suppress(ConnectionError):
            while data := connection.recv(65536):
                connection.sendall(data)

    def main() -> None:
        with listener:
            while True:
                connection, _ = listener.accept()
                if stop.is_set():
                    connection.close()
                    return
                threading.Thread(target=echo, args=(connection,), daemon=True).start()

    threading.Thread(target=main, daemon=True).start()
    host, port = listener.getsockname()
    return f"{host}:{port}", stop
