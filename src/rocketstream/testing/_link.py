"""One connection through a fault proxy: two sockets and a pipe for each direction.

A pipe is a queue of pieces, each with the time from which on it may leave; none overtakes another. Everything is
callbacks on the proxy's loop; there is no task per direction that could be left over.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
from collections import deque
from typing import TYPE_CHECKING, cast

from rocketstream.clock import Timer
from rocketstream.testing._faults import FrameCutter
from rocketstream.testing.recording import Direction

if TYPE_CHECKING:
    from rocketstream.testing.fault_proxy import FaultProxy

_RESET_ON_CLOSE = struct.pack("ii", 1, 0)  # struct linger: on, 0 s


class Side(asyncio.Protocol):
    """One of the two sockets of a link."""

    def __init__(self, link: Link, sends: Direction) -> None:
        self._link = link
        self._sends: Direction = sends
        self.transport: asyncio.Transport | None = None
        self.lost = False
        self.blocked = False
        """Whether the socket takes no more at the moment."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The socket is open."""
        self.transport = cast(asyncio.Transport, transport)
        sock = transport.get_extra_info("socket")
        if sock is not None:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if self._link.was_cut:
            self.end(reset=False)
        self._link.update_reading()

    def data_received(self, data: bytes) -> None:
        """Its peer has sent something."""
        self._link.pipe(self._sends).feed(data)

    def pause_writing(self) -> None:
        """Its peer reads more slowly than the other one sends: hold the other one back."""
        self.blocked = True
        self._link.update_reading()

    def resume_writing(self) -> None:
        """Its peer has caught up."""
        self.blocked = False
        self._link.update_reading()

    def connection_lost(self, error: Exception | None) -> None:
        """The socket is closed."""
        self.lost = True
        self._link.on_side_lost(self._sends)

    def read(self, wanted: bool) -> None:
        """Take what the peer sends, or leave it in the kernel."""
        if self.transport is None or self.lost or self.transport.is_closing():
            return
        if wanted and not self.transport.is_reading():
            self.transport.resume_reading()
        elif not wanted and self.transport.is_reading():
            self.transport.pause_reading()

    def end(self, reset: bool) -> None:
        """Close at once; what is still unsent is lost. With `reset` the peer sees a reset instead of an end."""
        if self.transport is None or self.lost:
            return
        sock = self.transport.get_extra_info("socket")
        if reset and sock is not None:
            with contextlib.suppress(OSError):
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
        self.transport.abort()


class Pipe:
    """The way of one direction from one socket to the other, with the direction's faults."""

    def __init__(self, proxy: FaultProxy, link: Link, direction: Direction, destination: Side) -> None:
        self._proxy = proxy
        self._link = link
        self._direction: Direction = direction
        self._destination = destination
        self._faults = proxy.faults[direction]
        self._cutter = FrameCutter()
        self._queue: deque[tuple[float, bytes, bool]] = deque()
        self._timer: Timer | None = None
        self._source_ended = False

    def feed(self, data: bytes) -> None:
        """Bytes have arrived from the source."""
        self._proxy.on_bytes(self._direction, len(data))
        for unit, is_frame in self._cutter.feed(data):
            if not self._link.was_cut:  # a hook or a fault may cut it between two frames
                self._take(unit, is_frame)
        self.pump()

    def forward(self, frame: bytes) -> None:
        """Send on a frame that was kept, behind what waits here; if the connection is gone, it is lost."""
        if not self._source_ended and not self._link.was_cut:
            self._queue.append((self._proxy.clock.monotonic(), frame, False))
            self.pump()

    def end_of_source(self) -> None:
        """The source is gone: forward what is left, then end the destination too."""
        self._source_ended = True
        rest = self._cutter.rest()
        if rest:
            self._take(rest, False)
        self.pump()

    def discard(self) -> None:
        """Nothing will be forwarded any more."""
        self._queue.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def pump(self) -> None:
        """Forward what may be forwarded now."""
        if self._timer is not None or self._faults.held or self._proxy.stalled or self._link.was_cut:
            return
        if self._destination.transport is None:
            return
        clock = self._proxy.clock
        if self._destination.lost:
            self._queue.clear()
        while self._queue:
            due, piece, alone = self._queue[0]
            now = clock.monotonic()
            if due > now:
                self._timer = clock.call_later(due - now, self._on_timer)
                return
            self._queue.popleft()
            if not self._write(piece):
                return
            if alone and self._queue:
                self._timer = asyncio.get_running_loop().call_soon(self._rest_a_turn)
                return
        if self._source_ended and not self._destination.lost:
            self._destination.transport.close()

    def _rest_a_turn(self) -> None:
        # Two turns of the loop between pieces: a reader on the same loop has then read the one before.
        self._timer = asyncio.get_running_loop().call_soon(self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        self.pump()

    def _take(self, unit: bytes, is_frame: bool) -> None:
        now = self._proxy.clock.monotonic()
        for changed in self._proxy.on_unit(self._link, self._direction, unit, is_frame):
            for piece, alone in self._faults.damage(changed, is_frame, self._proxy.random):
                self._queue.append((now + self._faults.pick_delay(self._proxy.random), piece, alone))

    def _write(self, piece: bytes) -> bool:
        """False if this was the last piece: the connection is cut behind it."""
        transport = self._destination.transport
        assert transport is not None
        left = self._faults.cut_after
        if left is None or len(piece) < left:
            if left is not None:
                self._faults.cut_after = left - len(piece)
            transport.write(piece)
            return True
        self._faults.cut_after = None
        transport.write(piece[:left])
        self._link.cut(reset=False, flush=self._destination)
        return False


class Link:
    """A client's connection and the one that was made to the target for it."""

    def __init__(self, proxy: FaultProxy, number: int) -> None:
        self.number = number
        self.client = Side(self, "up")
        self.broker = Side(self, "down")
        self.ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._proxy = proxy
        self._pipes: dict[Direction, Pipe] = {
            "up": Pipe(proxy, self, "up", self.broker),
            "down": Pipe(proxy, self, "down", self.client),
        }
        self._connecting: asyncio.Task[None] | None = None
        self._connected = False
        self.was_cut = False
        """Nothing passes any more."""
        self.cut_by_fault = False

    def pipe(self, direction: Direction) -> Pipe:
        """The pipe of a direction."""
        return self._pipes[direction]

    def connect(self) -> None:
        """Begin to connect to the target, unless that has begun."""
        if self._connecting is None and not self.was_cut:
            self._connecting = asyncio.ensure_future(self._connect())

    async def _connect(self) -> None:
        host, port = self._proxy.target_host_and_port
        try:
            await asyncio.get_running_loop().create_connection(lambda: self.broker, host, port)
        except OSError as error:
            self._proxy.on_unreachable(error)
            self.cut(reset=True, fault=False)
        else:
            self._connected = True
            if self.was_cut:
                self.broker.end(reset=False)
            self.pump()

    def pump(self) -> None:
        """A fault has gone: go on in both directions."""
        for pipe in self._pipes.values():
            pipe.pump()

    def update_reading(self) -> None:
        """Read from a side only what the other side takes."""
        self.client.read(not self._proxy.stalled and not self.broker.blocked)
        self.broker.read(not self._proxy.stalled and not self.client.blocked)

    def cut(self, reset: bool, flush: Side | None = None, *, fault: bool = True) -> None:
        """End both sockets now; `flush` names the one that is still to get what was written to it."""
        self.cut_by_fault = fault or self.cut_by_fault
        self.was_cut = True
        if self._connecting is not None and not self._connecting.done():
            self._connecting.cancel()
        for pipe in self._pipes.values():
            pipe.discard()
        for side in (self.client, self.broker):
            if side is flush and side.transport is not None:
                side.transport.close()
            else:
                side.end(reset)
        self._check_ended()

    def on_side_lost(self, direction: Direction) -> None:
        """One socket has closed; the other one follows when it has got what was sent to it."""
        other = self.broker if direction == "up" else self.client
        opposite: Direction = "down" if direction == "up" else "up"
        self._pipes[opposite].discard()
        if self.was_cut:
            pass
        elif other is self.broker and self._connecting is None:  # stalled: there is nobody to forward to
            self.cut(reset=False, fault=False)
        elif not other.lost:
            self._pipes[direction].end_of_source()
        self._check_ended()

    def _check_ended(self) -> None:
        connecting = self._connecting is not None and not self._connecting.done()
        # A cancelled attempt closes its socket itself; uvloop then says no word of it.
        broker_gone = self.broker.lost or not self._connected
        if self.client.lost and broker_gone and not connecting and not self.ended.done():
            self.ended.set_result(None)
            self._proxy.on_link_ended(self)
        elif connecting and self._connecting is not None:
            self._connecting.add_done_callback(lambda _: self._check_ended())
