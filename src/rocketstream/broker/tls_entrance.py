"""A connection that is to speak TLS, until it does.

asyncio tells nobody of connections whose handshake is not over, so a server can't end them: one that only connects
would keep a loop from closing. So the handshake is begun here, on a transport that we hold.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Callable
from typing import cast

from rocketstream.broker.connection import ClientConnection

log = logging.getLogger("rocketstream.broker")

_HANDSHAKE_TIMEOUT = 10.0


class TlsEntrance(asyncio.Protocol):
    """Shakes hands with a client, then makes way for its connection."""

    def __init__(
        self, context: ssl.SSLContext, waiting: set[TlsEntrance], connection: Callable[[], ClientConnection]
    ) -> None:
        self._context = context
        self._waiting = waiting
        self._new_connection = connection
        self._early: list[bytes] = []
        self._raw: asyncio.Transport | None = None
        self._handshake: asyncio.Task[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Somebody has connected."""
        self._raw = cast(asyncio.Transport, transport)
        self._raw.pause_reading()
        self._waiting.add(self)
        self._handshake = asyncio.ensure_future(self._shake_hands(self._raw))

    def data_received(self, data: bytes) -> None:
        """The client's first request may come with the end of the handshake, before the connection is made."""
        self._early.append(data)

    def end(self) -> None:
        """Let the client stand outside."""
        if self._handshake is not None:
            self._handshake.cancel()
        if self._raw is not None:
            self._raw.abort()

    async def _shake_hands(self, raw: asyncio.Transport) -> None:
        peer = raw.get_extra_info("peername")
        try:
            transport = await asyncio.get_running_loop().start_tls(
                raw, self, self._context, server_side=True, ssl_handshake_timeout=_HANDSHAKE_TIMEOUT
            )
        except (OSError, TimeoutError) as error:
            log.warning("%s did not begin with TLS: %s", peer, error or type(error).__name__)
            raw.abort()
            return
        finally:
            self._waiting.discard(self)
        if transport is None or transport.is_closing():
            raw.abort()
            return
        connection = self._new_connection()
        transport.set_protocol(connection)
        connection.connection_made(transport)
        for data in self._early:
            connection.data_received(data)
