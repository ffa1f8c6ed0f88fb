"""Accepting connections that speak TLS.

asyncio's own TLS servers tell nobody of connections whose handshake is not over, so they can't be ended: a client that
only connects would keep the loop from closing. Here each handshake is a task that we hold.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
from collections.abc import Callable

from rocketstream.broker.connection import ClientConnection
from rocketstream.clock import Clock

log = logging.getLogger("rocketstream.broker")

_HANDSHAKE_TIMEOUT = 10.0
#: After a connection could not be accepted, for instance for want of file descriptors.
_PAUSE = 0.1


class TlsListener:
    """Accepts on a socket until `close`."""

    def __init__(
        self,
        sock: socket.socket,
        context: ssl.SSLContext,
        new_connection: Callable[[], ClientConnection],
        clock: Clock,
    ) -> None:
        self._socket = sock
        self._context = context
        self._new_connection = new_connection
        self._clock = clock
        self._handshakes: set[asyncio.Task[None]] = set()
        self._accepting = asyncio.ensure_future(self._accept())

    def close(self) -> None:
        """Accept no more; who has not shaken hands yet is left outside."""
        self._accepting.cancel()
        for handshake in self._handshakes:
            handshake.cancel()

    async def wait_closed(self) -> None:
        """Wait until nobody stands outside any more."""
        await asyncio.gather(self._accepting, *self._handshakes, return_exceptions=True)
        self._socket.close()

    async def _accept(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                accepted, address = await loop.sock_accept(self._socket)
            except OSError as error:
                log.warning("a connection could not be accepted: %s", error)
                await self._clock.sleep(_PAUSE)
                continue
            handshake = asyncio.ensure_future(self._shake_hands(accepted, address))
            self._handshakes.add(handshake)
            handshake.add_done_callback(self._handshakes.discard)

    async def _shake_hands(self, accepted: socket.socket, address: object) -> None:
        try:
            await asyncio.get_running_loop().connect_accepted_socket(
                self._new_connection, accepted, ssl=self._context, ssl_handshake_timeout=_HANDSHAKE_TIMEOUT
            )
        except (OSError, TimeoutError) as error:
            # Someone who speaks no TLS, does not trust us, or has not the certificate that we ask for.
            log.warning("the TLS handshake with %s failed: %s", address, str(error) or type(error).__name__)
