"""The two doors of an embedded broker: one for what a name server is asked, one for what a broker is asked."""

from __future__ import annotations

import asyncio
import errno
import socket

from rocketstream.broker.connection import ClientConnection
from rocketstream.broker.dispatch import Dispatcher
from rocketstream.broker.settings import BrokerSettings
from rocketstream.broker.tls_listener import TlsListener
from rocketstream.clock import Clock
from rocketstream.errors import RocketStreamError

NAME_SERVER_PORT = 9876
BROKER_PORT = 10911
"""Where RocketMQ's own broker listens: preferred beside the usual name server's port."""

_BACKLOG = 1024


class AddressInUseError(RocketStreamError):
    """Somebody else listens where the broker was told to."""


def listen(host: str, port: int, *, what: str) -> socket.socket:
    """A socket that will listen there; port 0 takes a free one."""
    try:
        family, *_, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
    except OSError as error:
        raise AddressInUseError(f"the {what} cannot listen on host={host!r}: {error.strerror or error}") from None
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind(address)
        sock.listen(_BACKLOG)
        sock.setblocking(False)
    except OSError as error:
        sock.close()
        if error.errno == errno.EADDRINUSE:
            raise AddressInUseError(
                f"port {port} of {host} is taken, so the {what} cannot listen there:"
                " stop what does, choose another port, or 0 for any free one"
            ) from None
        raise AddressInUseError(f"the {what} cannot listen on {host}:{port}: {error.strerror or error}") from None
    return sock


def listen_for_broker(settings: BrokerSettings) -> socket.socket:
    """The broker's socket: on RocketMQ's usual port if the name server has its usual one and nobody is there."""
    if settings.broker_port == 0 and settings.port == NAME_SERVER_PORT:
        try:
            return listen(settings.host, BROKER_PORT, what="broker")
        except AddressInUseError:
            pass
    return listen(settings.host, settings.broker_port, what="broker")


class Door:
    """Accepts connections on one socket and hands what they bring to a dispatcher."""

    def __init__(self, sock: socket.socket, dispatcher: Dispatcher, settings: BrokerSettings, clock: Clock) -> None:
        self.port: int = sock.getsockname()[1]
        self._socket = sock
        self._dispatcher = dispatcher
        self._settings = settings
        self._clock = clock
        self._server: asyncio.Server | TlsListener | None = None

    def __repr__(self) -> str:
        state = f"{len(self._dispatcher.connections)} connections" if self._server is not None else "closed"
        return f"<Door {self._settings.host}:{self.port} {state}>"

    async def open(self) -> None:
        """Begin to accept."""
        context = self._settings.tls
        if context is not None:
            self._server = TlsListener(self._socket, context, self._new_connection, self._clock)
            return
        self._server = await asyncio.get_running_loop().create_server(
            self._new_connection, sock=self._socket, backlog=_BACKLOG
        )

    def _new_connection(self) -> ClientConnection:
        return ClientConnection(self._dispatcher, self._clock, self._settings.max_frame_length)

    def shut(self) -> None:
        """Accept no more."""
        if self._server is None:
            self._socket.close()
        else:
            self._server.close()

    async def close(self) -> None:
        """Accept no more, and end every connection."""
        self.shut()
        await self._dispatcher.close()
        if self._server is not None:
            await self._server.wait_closed()
            self._server = None
