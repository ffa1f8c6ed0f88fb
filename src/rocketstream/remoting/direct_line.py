"""A second way onto a connection: straight to the socket, from the thread of a caller that waits for its answer.

To hand a request to the I/O thread costs two context switches before the first byte leaves, a good part of what a
blocking send costs. So the caller writes it itself, and *announces* it: the I/O thread, which is woken by the answer
anyway, enters what was announced into its pending table before it looks at what arrived. The table stays the I/O
thread's own.

Two writers must not mix their bytes. Whoever writes holds `lock`; and callers write only while the connection is
`settled`, which the I/O thread says when everything that it wrote itself has left its transport.
"""

from __future__ import annotations

import asyncio
import os
import socket
import threading
from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rocketstream.remoting.pending import PendingRequest


class DirectLine:
    """The socket of a connection, for callers' threads."""

    __slots__ = ("_socket", "announced", "lock", "settled")

    def __init__(self, descriptor: int) -> None:
        self._socket = socket.socket(fileno=os.dup(descriptor))
        self._socket.setblocking(False)
        self.lock = threading.Lock()
        self.settled = False
        self.announced: deque[PendingRequest] = deque()
        """Requests that were written, or are just being written, and are not in the pending table yet."""

    def __repr__(self) -> str:
        return f"<DirectLine {'settled' if self.settled else 'waiting'}, {len(self.announced)} announced>"

    def send(self, pieces: list[bytes]) -> list[bytes]:
        """Write as much as the socket takes; return what is left. Whoever calls holds the lock."""
        try:
            sent = self._socket.send(pieces[0]) if len(pieces) == 1 else self._socket.sendmsg(pieces)
        except BlockingIOError:
            return pieces
        except OSError:
            return []  # the connection is dead: its transport notices, and all that wait on it are told
        for at, piece in enumerate(pieces):
            if sent < len(piece):
                return [piece[sent:], *pieces[at + 1 :]]
            sent -= len(piece)
        return []

    def close(self) -> None:
        """Let go of the socket."""
        self._socket.close()


def direct_line(transport: asyncio.BaseTransport) -> DirectLine | None:
    """The line of a transport, or None where bytes can't go straight to the socket: with TLS, or without POSIX."""
    sock = transport.get_extra_info("socket")
    if sock is None or transport.get_extra_info("sslcontext") is not None or os.name != "posix":
        return None
    return DirectLine(sock.fileno())
