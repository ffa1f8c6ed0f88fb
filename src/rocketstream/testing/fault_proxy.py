"""A TCP proxy that breaks the line between a client and a broker, on command and repeatably.

    with FaultProxy("127.0.0.1:10911") as proxy:      # or `async with`, on the caller's own loop
        client_connects_to(proxy.address)
        proxy.delay(0.2, "down")
        proxy.cut()

`up` is from the client to the broker, `down` from the broker to the client. Faults can be set at any time and from any
thread; when the call returns, the fault is in place. It knows RocketMQ's frames, so whole answers can be repeated,
swallowed or replaced (`on_frame`); everything else happens to bytes. `ClusterProxy` puts one in front of every broker.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import dataclasses
import logging
import socket
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random
from typing import Literal, TypeAlias

from rocketstream.clock import Clock, SystemClock
from rocketstream.errors import ClientStateError, ConfigurationError
from rocketstream.remoting.connection import split_address
from rocketstream.testing._faults import Faults, a_range, a_rate
from rocketstream.testing._link import Link, Side
from rocketstream.testing._on_loop import OnLoop
from rocketstream.testing.recording import Direction, Recorded, decode
from rocketstream.wire.command import Command
from rocketstream.wire.frame import encode_frame

__all__ = ["Direction", "Directions", "FaultProxy", "FrameChoice", "FrameHook", "ProxyStats", "Recorded"]

log = logging.getLogger(__name__)

Directions: TypeAlias = Literal["up", "down", "both"]
FrameHook: TypeAlias = Callable[[Direction, Command], Command | bytes | Sequence[Command | bytes] | None]
FrameChoice: TypeAlias = Callable[[Direction, Command], bool]

_NO_FAULTS = Faults()


@dataclass(frozen=True, slots=True)
class ProxyStats:
    """What has passed so far, as it arrived at the proxy, before any fault; and what `hold_frames` keeps now."""

    connections_made: int = 0
    connections_open: int = 0
    connections_cut: int = 0
    bytes_up: int = 0
    bytes_down: int = 0
    frames_up: int = 0
    frames_down: int = 0
    frames_held: int = 0


class FaultProxy(OnLoop):
    """A proxy in front of `target` ("host:port").

    `seed` makes chance repeatable; `record` keeps every frame in `recorded`; `clock` is what delays are measured by
    (a `ManualClock` needs `async with`). `on_frame(direction, command)` may change a command, replace it by others or
    by raw bytes, or swallow it (None); unchanged commands pass byte for byte. It runs on the proxy's loop, so it must
    not block; what it raises cuts the connection and is raised again when the proxy is closed.
    """

    def __init__(
        self,
        target: str,
        *,
        on_frame: FrameHook | None = None,
        record: bool = False,
        seed: int = 0,
        clock: Clock | None = None,
    ) -> None:
        super().__init__()
        self.target = target
        self.target_host_and_port = split_address(target)
        self.on_frame = on_frame
        self.recorded: list[Recorded] = []
        self.clock: Clock = clock or SystemClock()
        self.random = Random(seed)
        self.faults: dict[Direction, Faults] = {"up": Faults(), "down": Faults()}
        self.stalled = False
        self._record = record
        self._stats = ProxyStats()
        self._links: set[Link] = set()
        self._port = 0
        self._reservation: socket.socket | None = None
        self._listener: socket.socket | None = None
        self._opening: asyncio.Task[None] | None = None
        self._server: asyncio.Server | None = None
        self._refusing = False
        self._chosen: FrameChoice | None = None
        self._held_frames: list[tuple[Link, Direction, bytes]] = []
        self._waiters: list[tuple[Callable[[ProxyStats], bool], concurrent.futures.Future[None]]] = []
        self._hook_errors: list[Exception] = []

    def __repr__(self) -> str:
        state = "stalled" if self.stalled else "refusing" if self._refusing else "open" if self._loop else "closed"
        where = self.address if self._port else "-"
        faults = ", ".join(f"{way}: {faults}" for way, faults in self.faults.items())
        return f"<FaultProxy {where} -> {self.target} {state}, {len(self._links)} connections, {faults}>"

    @property
    def address(self) -> str:
        """host:port that clients connect to; it stays the same while the proxy is open."""
        if not self._port:
            raise ClientStateError("the proxy has no address yet: use it in a `with` or `async with`")
        return f"127.0.0.1:{self._port}"

    @property
    def stats(self) -> ProxyStats:
        """What has passed so far, at this moment."""
        return self._stats

    # --- faults -----------------------------------------------------------------------------------------------------

    def cut(self, direction: Directions = "both", *, after_bytes: int | None = None, reset: bool = True) -> int:
        """Cut every connection now, and return how many; new ones may be made at once.

        With `after_bytes`, cut once, later: the connection on which that many more bytes of the direction have been
        forwarded. `reset`: the peers see a reset, otherwise an end of the stream.
        """
        if after_bytes is None:
            return self.on_loop(lambda: self._cut_all(reset))
        if after_bytes < 1:
            raise ConfigurationError(f"after_bytes={after_bytes!r} must be greater than 0")
        self._set(direction, cut_after=after_bytes)
        return 0

    def refuse(self, refuse: bool = True) -> None:
        """Refuse new connections (nobody listens), or accept them again; those that exist are not touched."""
        self.on_loop(lambda: self._set_refusing(refuse))

    def stall(self, stall: bool = True) -> None:
        """Be a peer that has died without a word: connections are accepted, nothing is read, nothing is forwarded."""
        self.on_loop(lambda: self._set_stalled(stall))

    def hold(self, direction: Directions = "both") -> None:
        """Keep what arrives until `release`; then it is forwarded in order, nothing is lost."""
        self._set(direction, held=True)

    def release(self, direction: Directions = "both") -> None:
        """Forward what `hold` kept, and what comes after it."""
        self._set(direction, held=False)

    def hold_frames(self, chosen: FrameChoice) -> None:
        """Keep the frames that `chosen(direction, command)` says, until `release_frames`; all others pass them.

        As a broker does that is busy with one kind of requests and not with others. `chosen` runs on the proxy's loop.
        """

        def change() -> None:
            self._chosen = chosen

        self.on_loop(change)

    def release_frames(self) -> None:
        """Forward what `hold_frames` kept, on connections that are still open, and keep nothing any more."""
        self.on_loop(self._release_frames)

    def delay(self, seconds: float | tuple[float, float], direction: Directions = "both") -> None:
        """Let everything take that long, or a random time of a range; the order is kept. 0 ends it."""
        self._set(direction, delay=a_range("seconds", seconds, 0))

    def split(self, size: int | tuple[int, int] | None, direction: Directions = "both") -> None:
        """Forward pieces of that many bytes, or of a random size of a range. None ends it.

        Each piece is sent on its own; the kernel may still join some for a reader that is slower than the proxy.
        """
        if size is None:
            self._set(direction, split=None)
        else:
            low, high = a_range("size", size, 1)
            self._set(direction, split=(int(low), int(high)))

    def duplicate(self, times: int = 1, direction: Directions = "down", *, rate: float = 1.0) -> None:
        """Send frames (that share of them) that many more times. 0 ends it."""
        if times < 0:
            raise ConfigurationError(f"times={times!r} must not be negative")
        self._set(direction, copies=times, copy_rate=a_rate("rate", rate))

    def garble(
        self, rate: float = 0.01, direction: Directions = "both", *, after_bytes: int = 0, replace: bool = False
    ) -> None:
        """Flip one bit in that share of the bytes, from so many bytes on; `replace`: any other byte instead. 0 ends it.

        RocketMQ's frames have no checksum: what hits a body, or a digit of an opaque, is not noticed by anybody.
        """
        self._set(direction, garble_rate=a_rate("rate", rate), garble_after=after_bytes, garble_replaces=replace)

    def drop(self, rate: float = 1.0, direction: Directions = "both") -> None:
        """Swallow that share of the frames (of a stream that is not RocketMQ's: of the chunks). 0 ends it."""
        self._set(direction, drop_rate=a_rate("rate", rate))

    def heal(self) -> None:
        """End every fault; what was held is forwarded, what was lost stays lost. `on_frame` stays."""

        def heal() -> None:
            for faults in self.faults.values():
                for field in dataclasses.fields(Faults):
                    setattr(faults, field.name, getattr(_NO_FAULTS, field.name))
            self._release_frames()
            self._set_refusing(False)
            self._set_stalled(False)

        self.on_loop(heal)

    # --- waiting ----------------------------------------------------------------------------------------------------

    async def until(self, condition: Callable[[ProxyStats], bool]) -> ProxyStats:
        """Wait until the statistics are as wished; from any event loop."""
        await asyncio.wrap_future(self._waiter(condition))
        return self._stats

    def wait_until(self, condition: Callable[[ProxyStats], bool], timeout: float = 10.0) -> ProxyStats:
        """`until` for plain code: wait until the statistics are as wished, or raise `TimeoutError`."""
        try:
            self._waiter(condition).result(timeout)
        except TimeoutError:
            raise TimeoutError(f"{self!r}: still {self._stats} after {timeout:g} s") from None
        return self._stats

    def _waiter(self, condition: Callable[[ProxyStats], bool]) -> concurrent.futures.Future[None]:
        waiter: concurrent.futures.Future[None] = concurrent.futures.Future()

        def enter() -> None:
            self._waiters.append((condition, waiter))
            self._update()

        self.on_loop(enter)
        return waiter

    # --- life -------------------------------------------------------------------------------------------------------

    def bind(self) -> None:
        """Take a port; `address` is known from here on, before anything listens."""
        if self._reservation is None:
            # It never listens; it only keeps the port ours while `refuse` has nobody listen on it.
            self._reservation = _bound_socket(self._port)
            self._port = self._reservation.getsockname()[1]

    def begin(self) -> None:
        """Listen on the running loop, from this very moment."""
        self.bind()
        self._loop = asyncio.get_running_loop()
        if not self._refusing and self._listener is None:
            self._listen()

    async def start(self) -> None:
        """Listen, on the running loop."""
        self.begin()
        if self._opening is not None:
            await self._opening

    async def close(self) -> None:
        """Cut every connection and listen no more."""
        self._stop_listening()
        if self._opening is not None:
            await self._opening
        for link in list(self._links):
            link.cut(reset=False, fault=False)
            await link.ended
        for _, waiter in self._waiters:
            waiter.cancel()
        self._waiters.clear()
        if self._reservation is not None:
            self._reservation.close()
            self._reservation = None
        self._loop = None

    def _listen(self) -> None:
        self._listener = listener = _bound_socket(self._port)
        listener.listen(512)  # from here on the kernel accepts; the loop takes them over in its next turns
        self._opening = asyncio.ensure_future(self._serve(listener))

    async def _serve(self, listener: socket.socket) -> None:
        server = await asyncio.get_running_loop().create_server(self._accept, sock=listener)
        if self._listener is listener:
            self._server = server
        else:
            server.close()

    def _stop_listening(self) -> None:
        self._listener = None
        if self._server is not None:
            self._server.close()
            self._server = None

    # --- on the loop ------------------------------------------------------------------------------------------------

    def _set(self, direction: Directions, **changes: object) -> None:
        if direction not in ("up", "down", "both"):
            raise ConfigurationError(f"direction={direction!r} must be 'up', 'down' or 'both'")

        def change() -> None:
            for way, faults in self.faults.items():
                if direction in (way, "both"):
                    for name, value in changes.items():
                        setattr(faults, name, value)
            self._pump()

        self.on_loop(change)

    def _release_frames(self) -> None:
        self._chosen = None
        held, self._held_frames = self._held_frames, []
        for link, direction, frame in held:
            link.pipe(direction).forward(frame)
        self._update(frames_held=0)

    def _cut_all(self, reset: bool) -> int:
        links = [link for link in self._links if not link.was_cut]
        for link in links:
            link.cut(reset)
        return len(links)

    def _set_refusing(self, refuse: bool) -> None:
        changed, self._refusing = refuse != self._refusing, refuse
        if changed and self._loop is not None:
            if refuse:
                self._stop_listening()
            else:
                self._listen()

    def _set_stalled(self, stall: bool) -> None:
        self.stalled = stall
        for link in list(self._links):
            link.update_reading()
            if not stall:
                link.connect()
        self._pump()

    def _pump(self) -> None:
        for link in list(self._links):
            link.pump()

    def _accept(self) -> Side:
        link = Link(self, self._stats.connections_made + 1)
        self._links.add(link)
        self._update(connections_made=link.number, connections_open=len(self._links))
        if not self.stalled:
            link.connect()
        return link.client

    def _update(self, **changes: int) -> None:
        if changes:
            self._stats = dataclasses.replace(self._stats, **changes)
        if self._waiters:
            still: list[tuple[Callable[[ProxyStats], bool], concurrent.futures.Future[None]]] = []
            for condition, waiter in self._waiters:
                if waiter.cancelled():
                    continue
                if condition(self._stats):
                    waiter.set_result(None)
                else:
                    still.append((condition, waiter))
            self._waiters = still

    # --- what links tell and ask ------------------------------------------------------------------------------------

    def on_link_ended(self, link: Link) -> None:
        """Both sockets of a link are closed."""
        self._links.discard(link)
        cut = self._stats.connections_cut + link.cut_by_fault
        self._update(connections_open=len(self._links), connections_cut=cut)

    def on_unreachable(self, error: OSError) -> None:
        """The target did not accept a connection; the client's is reset."""
        log.info("%s cannot be reached: %s", self.target, error)

    def on_bytes(self, direction: Direction, count: int) -> None:
        """Bytes have arrived."""
        if direction == "up":
            self._update(bytes_up=self._stats.bytes_up + count)
        else:
            self._update(bytes_down=self._stats.bytes_down + count)

    def on_unit(self, link: Link, direction: Direction, unit: bytes, is_frame: bool) -> list[bytes]:
        """A frame (or bytes that are none) has arrived: what to forward in its place."""
        if self._record:
            self.recorded.append(Recorded(link.number, direction, unit, is_frame))
        forward = [unit]
        if is_frame and (self.on_frame is not None or self._chosen is not None):
            command = decode(unit)
            if command is not None:
                hook = "hold_frames"
                try:
                    if self._chosen is not None and self._chosen(direction, command):
                        self._held_frames.append((link, direction, unit))
                        self._update(frames_held=len(self._held_frames))
                        forward = []
                    elif self.on_frame is not None:
                        hook = "on_frame"
                        forward = _apply(self.on_frame, direction, command, unit)
                except Exception as error:
                    log.exception("%s raised for %r", hook, command)
                    self._hook_errors.append(error)
                    link.cut(reset=True)
                    return []
        if is_frame and direction == "up":
            self._update(frames_up=self._stats.frames_up + 1)
        elif is_frame:
            self._update(frames_down=self._stats.frames_down + 1)
        return forward

    def raise_hook_error(self) -> None:
        """Raise what `on_frame`, or the choice of `hold_frames`, has raised, if it has."""
        if self._hook_errors:
            raise self._hook_errors[0]


def _apply(hook: FrameHook, direction: Direction, command: Command, frame: bytes) -> list[bytes]:
    before = dataclasses.replace(command, fields=dict(command.fields))
    result = hook(direction, command)
    if result is None:
        return []
    answers = [result] if isinstance(result, Command | bytes) else result
    return [
        answer if isinstance(answer, bytes) else frame if answer == before else b"".join(encode_frame(answer))
        for answer in answers
    ]


def _bound_socket(port: int) -> socket.socket:
    sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        sock.bind(("127.0.0.1", port))
    except OSError:
        sock.close()
        raise
    return sock
