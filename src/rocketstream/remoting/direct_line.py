"""A second way onto a connection: straight to the socket, from the thread of a caller that waits for its answer.

To hand a request to the I/O thread costs two context switches before the first byte leaves, and two more until its
answer is back: most of what a blocking send costs. So the caller writes it itself; and where it is the only one who
waits on the connection, it reads the answer itself, too.

**Writing.** Two writers must not mix their bytes. Whoever writes holds `lock`; and callers write only while the
connection is `settled`, which the I/O thread says when everything that it wrote itself has left its transport. A
request that a caller wrote is `announced`: the I/O thread enters it into its pending table before it looks at what
arrived, so that the table stays its own.

**Reading.** The I/O thread *lends* the reading (it pauses its transport) to callers that come one after the other and
have the connection to themselves. Whoever reads holds `reading`; what it finds that is not its own answer goes to the
I/O thread. The loan ends when the I/O thread writes something itself, and when callers stay away.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import select
import socket
import threading
from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rocketstream.remoting.pending import PendingRequest


_READ_SIZE = 256 * 1024


class DirectLine:
    """The socket of a connection, for callers' threads."""

    __slots__ = ("_poll", "_socket", "announced", "in_a_row", "lent", "lock", "reading", "reads", "settled", "wanted")

    def __init__(self, descriptor: int) -> None:
        self._socket = socket.socket(fileno=os.dup(descriptor))
        self._socket.setblocking(False)
        self._poll = select.poll()
        self._poll.register(self._socket, select.POLLIN)
        self.lock = threading.Lock()
        self.settled = False
        self.announced: deque[PendingRequest] = deque()
        """Requests that were written, or are just being written, and are not in the pending table yet."""
        self.in_a_row = 0
        """How many callers came since the I/O thread wrote something itself."""
        self.reading = threading.Lock()
        self.lent = False
        """Whether callers may read; set and cleared by the I/O thread, cleared only while it holds `reading`."""
        self.wanted = False
        """Whether the I/O thread waits to have the reading back."""
        self.reads = 0

    def __repr__(self) -> str:
        state = "lent" if self.lent else "settled" if self.settled else "waiting"
        return f"<DirectLine {state}, {len(self.announced)} announced>"

    @property
    def may_be_read(self) -> bool:
        """Whether a caller may begin to read."""
        return self.lent and not self.wanted

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

    def receive(self, timeout: float) -> bytes | None:
        """What arrives within so many seconds; empty at the end of the connection. Whoever calls holds `reading`."""
        if not self._poll.poll(max(timeout, 0.0) * 1000):
            return None
        self.reads += 1
        try:
            return self._socket.recv(_READ_SIZE)
        except OSError:
            return b""

    def shut(self) -> None:
        """Wake whoever reads, and let go of the socket; the last to leave closes it."""
        self.wanted = True
        with contextlib.suppress(OSError):  # the peer was faster
            self._socket.shutdown(socket.SHUT_RDWR)
        if self.reading.acquire(blocking=False):
            self._socket.close()
            self.reading.release()

    def close(self) -> None:
        """Close the socket; for the reader that was woken by `shut`."""
        self._socket.close()


def direct_line(transport: asyncio.BaseTransport) -> DirectLine | None:
    """The line of a transport, or None where bytes can't go straight to the socket: with TLS, or without POSIX."""
    sock = transport.get_extra_info("socket")
    if sock is None or transport.get_extra_info("sslcontext") is not None or os.name != "posix":
        return None
    return DirectLine(sock.fileno())
