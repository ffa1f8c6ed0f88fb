"""One connection to one peer: bytes in, commands out, and a state that a debugger can read.

It decides nothing. What arrives is given to its owner; that it ended is told to its owner, once.
"""

from __future__ import annotations

import asyncio
import socket
import sys
from typing import Protocol, cast

from rocketstream.clock import Clock
from rocketstream.errors import (
    ConfigurationError,
    ConnectError,
    ProtocolError,
    SendRequestError,
    TlsError,
)
from rocketstream.remoting.deadline import done_before
from rocketstream.remoting.direct_line import DirectLine, direct_line
from rocketstream.remoting.pending import PendingRequest
from rocketstream.remoting.settings import RemotingSettings
from rocketstream.remoting.tls import end_of_connection, handshake_failure, is_alert, is_of_handshake
from rocketstream.wire.command import Command
from rocketstream.wire.frame import FrameReader, encode_frame

_FLUSH_ABOVE = 64 * 1024
_LOOK_AGAIN = 0.01
# In Python 3.12.0 to 3.12.8, 3.13.0 and 3.13.1 `writelines` never asks a protocol to pause (CVE-2024-12254): a peer
# that does not read would fill our memory.
_WRITELINES_NEVER_PAUSES = (3, 12) <= sys.version_info < (3, 12, 9) or (3, 13) <= sys.version_info < (3, 13, 2)


class ConnectionOwner(Protocol):
    """Who is told what happens on a connection; called on the I/O thread."""

    def on_command(self, connection: Connection, command: Command) -> None:
        """A whole command has arrived."""

    def on_closed(self, connection: Connection) -> None:
        """The connection is gone."""


def split_address(address: str) -> tuple[str, int]:
    """Host and port of "host:port" or "[v6]:port"."""
    host, _, port = address.rpartition(":")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    if not host or "[" in host or "]" in host or not port.isdigit() or not 0 < int(port) < 65536:
        raise ConfigurationError(f"{address!r} is not an address: expected host:port, for example 127.0.0.1:9876")
    return host, int(port)


class Connection(asyncio.Protocol):
    """An open connection. `write` puts a command on it; `closed` tells that it has ended."""

    def __init__(self, address: str, owner: ConnectionOwner, settings: RemotingSettings, clock: Clock) -> None:
        self.address = address
        self.going_away = False
        self.reason = ""
        """Why it was closed, for the errors of those who waited on it."""
        self._owner = owner
        self._settings = settings
        self._clock = clock
        self._reader = FrameReader(settings.max_frame_length)
        self._transport: asyncio.Transport | None = None
        self._closed = False
        self._outgoing: list[bytes] = []
        self._outgoing_size = 0
        self._loop: asyncio.AbstractEventLoop | None = None
        self.line: DirectLine | None = None
        """For callers that write from their own threads; made when the first of them comes."""
        self._has_no_line = False
        self._writable: asyncio.Future[None] | None = None  # set while the transport's buffer is full
        self.opened_at = self.last_read = self.last_write = clock.monotonic()
        self.bytes_in = self.bytes_out = 0

    def __repr__(self) -> str:
        state = "closed" if self._closed else "going away" if self.going_away else "open"
        if self._writable is not None:
            state += ", congested"
        local = self._transport.get_extra_info("sockname") if self._transport else None
        reason = f" ({self.reason})" if self.reason else ""
        return f"<Connection {local or '-'} -> {self.address} {state}{reason}>"

    @property
    def closed(self) -> bool:
        """Whether nothing can be written any more."""
        return self._closed or self._transport is None or self._transport.is_closing()

    @property
    def congested(self) -> bool:
        """Whether the peer reads more slowly than we write."""
        return self._writable is not None

    @property
    def last_activity(self) -> float:
        """When something was last read or written."""
        return max(self.last_read, self.last_write)

    # --- what we do with it -------------------------------------------------------------------------------------

    def write(self, command: Command) -> None:
        """Write a command; whoever cares for memory waits for `until_writable` first."""
        transport = self._transport
        if transport is None or self._closed or transport.is_closing():
            raise SendRequestError(self.address, f"the connection is closed{self._because()}")
        pieces = encode_frame(command)
        self.last_write = self._clock.monotonic()
        # Commands that are written in one turn of the loop leave in one system call: on loopback a call costs more than
        # everything else that a small request needs. Once there is much, it goes at once, so that a slow peer shows.
        if not self._outgoing:
            asyncio.get_running_loop().call_soon(self.flush)
        self._outgoing += pieces
        self._outgoing_size += len(pieces[0]) if len(pieces) == 1 else sum(map(len, pieces))
        if self._outgoing_size >= _FLUSH_ABOVE:
            self.flush()

    def flush(self) -> None:
        """Hand what was written to the operating system; happens by itself at the end of the loop's turn."""
        if not self._outgoing:
            return
        line = self.line
        if line is None:
            self._hand_over()
            return
        with line.lock:
            line.settled = False
            self._hand_over()
        asyncio.get_running_loop().call_soon(self._look_whether_settled)

    def _hand_over(self) -> None:
        self.bytes_out += self._outgoing_size
        pieces, self._outgoing, self._outgoing_size = self._outgoing, [], 0
        if self._transport is None or self._transport.is_closing():
            return
        if _WRITELINES_NEVER_PAUSES:
            self._transport.write(b"".join(pieces))
        else:
            self._transport.writelines(pieces)

    # --- what callers' threads do with it (see direct_line.py) ----------------------------------------------------

    def write_here(self, command: Command, entry: PendingRequest) -> bool:
        """Write a command from any thread, now, and announce it in `line`; False if that can't be done."""
        line, loop = self.line, self._loop
        if line is None or loop is None:
            if loop is not None and not self._has_no_line:
                loop.call_soon_threadsafe(self._open_line)
            return False
        pieces = encode_frame(command)
        with line.lock:
            if not line.settled or self._outgoing or self._closed:
                return False
            self.last_write = self._clock.monotonic()
            line.announced.append(entry)
            self.bytes_out += len(pieces[0]) if len(pieces) == 1 else sum(map(len, pieces))
            left = line.send(pieces)
            if left:
                # The rest comes before anything else; until it has left, nobody else writes here.
                line.settled = False
                self._outgoing[:0] = left
                loop.call_soon_threadsafe(self.flush)
        return True

    def _open_line(self) -> None:
        if self.line is None and not self.closed and self._transport is not None:
            self.line = direct_line(self._transport)
            self._has_no_line = self.line is None
            self._look_whether_settled()

    def _look_whether_settled(self) -> None:
        line, transport = self.line, self._transport
        if line is None or transport is None or self._closed or self._outgoing:
            return  # what is still to be flushed will have it looked at again
        if transport.get_write_buffer_size():
            self._clock.call_later(_LOOK_AGAIN, self._look_whether_settled)
        else:
            line.settled = True

    async def until_writable(self, deadline: float) -> None:
        """Wait while the peer reads too slowly; a deadline that passes meanwhile is a failed send."""
        while self._writable is not None:
            if not await done_before(self._clock, self._writable, deadline):
                raise SendRequestError(self.address, "the peer does not read: the send buffer stayed full")

    def close(self, reason: str) -> None:
        """End the connection; the owner hears of it when it has ended."""
        if not self.reason:
            self.reason = reason
        if self._transport is not None:
            self.flush()  # a one-way request (an offset, at the end of a consumer) may have been written just now
            self._transport.abort()

    # --- what asyncio tells us ----------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The socket is open (and its TLS handshake done)."""
        self._loop = asyncio.get_running_loop()
        self._transport = cast(asyncio.Transport, transport)
        sock: socket.socket | None = transport.get_extra_info("socket")
        if sock is not None:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            if self._settings.socket_send_buffer:
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, self._settings.socket_send_buffer)
            if self._settings.socket_receive_buffer:
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, self._settings.socket_receive_buffer)

    def data_received(self, data: bytes) -> None:
        """Bytes have arrived."""
        self.last_read = self._clock.monotonic()
        self.bytes_in += len(data)
        if self.bytes_in == len(data) and is_alert(data):
            self.close("the peer speaks TLS: pass tls=True, or TlsFiles with the authority to trust")
            return
        reader = self._reader
        try:
            commands = reader.feed(data)
        except ProtocolError:
            commands = []
        for command in commands:
            self._owner.on_command(self, command)
        if reader.failure is not None:
            self.close(f"it sent bytes that are not RocketMQ's protocol: {reader.failure}")

    def pause_writing(self) -> None:
        """The transport's buffer is full."""
        if self._writable is None:
            self._writable = asyncio.get_running_loop().create_future()

    def resume_writing(self) -> None:
        """The transport's buffer has drained."""
        writable, self._writable = self._writable, None
        if writable is not None and not writable.done():
            writable.set_result(None)

    def connection_lost(self, error: Exception | None) -> None:
        """The socket is closed, by whichever side."""
        if self._closed:
            return
        line = self.line
        if line is None:
            self._closed = True
        else:
            with line.lock:  # nothing is announced after this
                self._closed = True
                line.close()
        if not self.reason:
            self.reason = end_of_connection(error, tls=self._uses_tls, heard=self.bytes_in > 0)
        self.resume_writing()
        self._owner.on_closed(self)

    @property
    def _uses_tls(self) -> bool:
        return self._transport is not None and self._transport.get_extra_info("ssl_object") is not None

    def _because(self) -> str:
        if not self.reason and self._uses_tls and not self.bytes_in:
            # It is just ending, and why is not told yet.
            return f" ({end_of_connection(None, tls=True, heard=False)})"
        return f" ({self.reason})" if self.reason else ""


async def connect(address: str, owner: ConnectionOwner, settings: RemotingSettings, clock: Clock) -> Connection:
    """Open a connection within the connect time-out, or raise `ConnectError` saying why not."""
    host, port = split_address(address)
    context = settings.ssl_context()
    loop = asyncio.get_running_loop()
    attempt = asyncio.ensure_future(
        loop.create_connection(
            lambda: Connection(address, owner, settings, clock),
            host,
            port,
            ssl=context,
            server_hostname=host if context else None,
        )
    )
    try:
        in_time = await done_before(clock, attempt, clock.monotonic() + settings.connect_timeout)
    except BaseException:
        if not attempt.cancel() and not attempt.cancelled() and attempt.exception() is None:
            # It came about in the very moment in which nobody wanted it any more.
            attempt.result()[1].close("nobody waited for it any more")
        raise
    if not in_time:
        attempt.cancel()
        with_tls = " with its TLS handshake; does the peer speak TLS (tls=)?" if context is not None else ""
        raise ConnectError(address, f"no connection within {settings.connect_timeout:g} s{with_tls}")
    try:
        _, connection = attempt.result()
    except (OSError, ValueError) as error:  # ValueError: a host name that no resolver takes
        if context is not None and is_of_handshake(error):
            raise TlsError(address, handshake_failure(error, host)) from error
        raise ConnectError(address, f"cannot connect: {error}") from error
    return connection
