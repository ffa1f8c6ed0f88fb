"""The connections of a client: one per address, made on first use, shared, and given up in good order (REM-07).

The pool knows which connection new requests take. What is said on a connection is its owner's business.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from rocketstream.clock import Clock
from rocketstream.errors import ConnectError, RemotingClosedError
from rocketstream.remoting.connection import Connection, ConnectionOwner, connect
from rocketstream.remoting.counts import ConnectionCounts
from rocketstream.remoting.deadline import done_before
from rocketstream.remoting.settings import RemotingSettings

log = logging.getLogger("rocketstream.remoting")


class ConnectionPool:
    """address → open connection; `waiting_on` tells how many requests wait on one."""

    def __init__(
        self,
        owner: ConnectionOwner,
        settings: RemotingSettings,
        clock: Clock,
        waiting_on: Callable[[Connection], int],
    ) -> None:
        self._owner = owner
        self._settings = settings
        self._clock = clock
        self._waiting_on = waiting_on
        self._open: dict[str, Connection] = {}
        self._connecting: dict[str, asyncio.Task[Connection]] = {}
        self._leaving: set[Connection] = set()  # told to go away, still waited on
        self._closed = False
        self.counts = ConnectionCounts()

    def __len__(self) -> int:
        return len(self._open)

    def __repr__(self) -> str:
        return f"<ConnectionPool {sorted(self._open)}, connecting to {sorted(self._connecting)}>"

    @property
    def by_address(self) -> dict[str, Connection]:
        """The connections that new requests take (a copy)."""
        return dict(self._open)

    def get(self, address: str) -> Connection | None:
        """The open connection of an address, if there is one."""
        connection = self._open.get(address)
        return None if connection is None or connection.closed else connection

    def all(self) -> list[Connection]:
        """Every open connection, those that are going away too."""
        return [*self._open.values(), *self._leaving]

    def flush(self) -> None:
        """Let what was written leave now."""
        for connection in self._open.values():
            connection.flush()

    async def obtain(self, address: str, deadline: float) -> Connection:
        """The open connection of an address, made if there is none; whoever asks meanwhile shares the attempt."""
        connection = self.get(address)
        if connection is not None:
            return connection
        if self._closed:
            raise RemotingClosedError(address, "the client is closed")
        attempt = self._connecting.get(address)
        if attempt is None:
            attempt = asyncio.ensure_future(connect(address, self._owner, self._settings, self._clock))
            self._connecting[address] = attempt
            attempt.add_done_callback(lambda done: self._on_connected(address, done))
        if not await done_before(self._clock, attempt, deadline):
            raise ConnectError(address, "no connection within the request's time-out")
        if attempt.cancelled():
            raise RemotingClosedError(address, "the client was closed while it connected")
        return attempt.result()

    def _on_connected(self, address: str, attempt: asyncio.Task[Connection]) -> None:
        self._connecting.pop(address, None)
        if attempt.cancelled():
            return
        if attempt.exception() is not None:
            self.counts.failed += 1
            return
        self.counts.made += 1
        connection = attempt.result()
        if self._closed:
            connection.close("the client was closed")
        elif not connection.closed:
            self._open[address] = connection
            log.debug("connected: %r", connection)

    def forget(self, connection: Connection) -> None:
        """It has ended, or takes no new request."""
        self._leaving.discard(connection)
        if self._open.get(connection.address) is connection:
            del self._open[connection.address]

    def retire(self, connection: Connection) -> None:
        """The peer told us to go away: use it for no new request, close it when nobody waits on it any more."""
        if connection.going_away:
            return
        log.info("%s asked us to go away; making a new connection", connection.address)
        connection.going_away = True
        self.forget(connection)
        self._leaving.add(connection)
        self.close_if_left(connection)

    def close_if_left(self, connection: Connection) -> None:
        """A request on it has ended: if it was the last of one that is going away, close it."""
        if connection.going_away and not connection.closed and not self._waiting_on(connection):
            connection.close("the peer asked us to go away")

    def close_idle(self) -> None:
        """Close what nothing has moved on for too long (REM-12)."""
        if not self._settings.max_idle:
            return
        oldest = self._clock.monotonic() - self._settings.max_idle
        for connection in list(self._open.values()):
            if connection.last_activity <= oldest and not self._waiting_on(connection):
                connection.close(f"idle for {self._settings.max_idle:g} s")

    def close(self) -> list[Connection]:
        """Close everything and make no more; return what was open."""
        self._closed = True
        for attempt in list(self._connecting.values()):
            attempt.cancel()
        connections = self.all()
        for connection in connections:
            self.forget(connection)
            connection.close("the client was closed")
        return connections
