"""Writing the log to its files: many senders share one fsync.

Appending only fills memory. A flush writes everything that was appended since the last one and has it synced, in a
thread of its own; whoever comes meanwhile is part of the next. When a flush fails, nobody knows what is on the disk:
everybody who waits is refused, and so is everybody after them until the broker is started again.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Awaitable
from concurrent.futures import ThreadPoolExecutor
from typing import Final, NamedTuple

from rocketstream.broker.refusal import Refusal
from rocketstream.broker.store.backing import SHUT_DOWN
from rocketstream.broker.store.index_file import write_index
from rocketstream.broker.store.segment import Segment, mapped_file
from rocketstream.clock import Clock, Timer
from rocketstream.wire.codes import ResponseCode

log = logging.getLogger("rocketstream.broker")

#: What nobody waits for is written that soon (Java: flushIntervalCommitLog).
FLUSH_INTERVAL: Final = 0.5
#: So many bytes may wait to be written; the disk is too slow when there are more.
MAX_UNWRITTEN: Final = 256 * 1024 * 1024

_sync = getattr(os, "fdatasync", os.fsync)


class _Piece(NamedTuple):
    """What is to be written of a segment."""

    segment: Segment
    start: int
    end: int
    its_index: list[bytes] | None
    """If it is complete."""


class LogWriter:
    """Writes the segments that it is given, in order."""

    def __init__(self, clock: Clock, *, sync: bool) -> None:
        self.refusal: Refusal | None = None
        self._clock = clock
        self._wait = sync
        self._segments: list[Segment] = []
        self._indexes: dict[int, list[bytes]] = {}
        self._synced = 0
        self._waiting: list[tuple[int, asyncio.Future[None]]] = []
        self._thread = ThreadPoolExecutor(1, "rocketstream-log")
        self._busy = False
        self._timer: Timer | None = None
        self._closed = False
        self._file = -1  # the thread's, while it runs
        self._file_of: Segment | None = None

    # --- what is to be written ----------------------------------------------------------------------------------

    def add(self, segment: Segment) -> None:
        """Write what is appended to this one from now on."""
        self._segments.append(segment)
        if len(self._segments) == 1:
            self._synced = segment.base + segment.written

    def complete(self, index: list[bytes]) -> None:
        """The last segment is complete, and this is its index."""
        self._indexes[self._segments[-1].base] = index
        self._soon()

    def check_pace(self) -> None:
        """Refuse to go on when the disk can't follow: what waits to be written takes memory."""
        if sum(segment.end - segment.written for segment in self._segments) > MAX_UNWRITTEN:
            raise Refusal(ResponseCode.SYSTEM_BUSY, "the disk is too slow: too much of the log waits to be written")

    def appended(self) -> None:
        """Something was put into the last segment."""
        if self._timer is None:
            self._timer = self._clock.call_later(FLUSH_INTERVAL, self._due)

    def durable(self, position: int) -> Awaitable[None] | None:
        """What to wait for until the byte at that position is synced."""
        if not self._wait or position < self._synced:
            return None
        if self.refusal is not None:
            raise Refusal(self.refusal.code, self.refusal.remark)
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((position, waiter))
        self._soon()
        return waiter

    # --- flushing -----------------------------------------------------------------------------------------------

    def _due(self) -> None:
        self._timer = None
        if not self._busy:
            self._flush()

    def _soon(self) -> None:
        """At the end of this turn of the loop, so that all who come in it share the flush."""
        if not self._busy:
            self._busy = True
            asyncio.get_running_loop().call_soon(self._flush)

    def _pieces(self) -> list[_Piece]:
        return [
            _Piece(segment, segment.written, segment.end, self._indexes.get(segment.base))
            for segment in self._segments
            if segment.written < segment.end or segment.base in self._indexes
        ]

    def _flush(self) -> None:
        pieces = self._pieces()
        self._busy = bool(pieces) and self.refusal is None and not self._closed
        if self._busy:
            running = asyncio.get_running_loop().run_in_executor(self._thread, self._write, pieces)
            running.add_done_callback(lambda done: self._flushed(pieces, done))

    def _write(self, pieces: list[_Piece]) -> None:
        """In the thread: write and sync."""
        for segment, start, end, index in pieces:
            assert segment.path is not None
            if self._file_of is not segment:
                self._close_file()
                self._file = os.open(segment.path, os.O_WRONLY | os.O_CREAT, 0o644)
                self._file_of = segment
                if not start:
                    sync_directory(str(segment.path.parent))
            while start < end:
                start += os.pwrite(self._file, segment.view[start:end], start)
            _sync(self._file)
            if index is not None:
                self._close_file()
                write_index(segment.path, index)

    def _flushed(self, pieces: list[_Piece], done: asyncio.Future[None]) -> None:
        error = None if done.cancelled() else done.exception()
        if self._closed:
            return  # `close` has written it all again
        self._busy = False
        if done.cancelled() or error is not None:
            self._fail(error)
            return
        self._settle(pieces)
        if self._waiting or self._indexes:
            self._soon()

    def _settle(self, pieces: list[_Piece]) -> None:
        """These are on the disk."""
        for segment, _, end, index in pieces:
            segment.written = end
            self._synced = segment.base + end
            if index is not None:
                # From here on it is read from its file, which gives its memory back.
                assert segment.path is not None
                segment.view = mapped_file(segment.path)
                segment.settled = True
                self._segments.remove(segment)
                del self._indexes[segment.base]
        waiting, self._waiting = self._waiting, []
        for position, waiter in waiting:
            if position >= self._synced:
                self._waiting.append((position, waiter))
            elif not waiter.done():
                waiter.set_result(None)

    def _fail(self, error: BaseException | None) -> None:
        where = self._segments[-1].path
        log.critical("writing the log failed at %s: nothing is taken any more until a restart", where, exc_info=error)
        self.refusal = Refusal(
            ResponseCode.SERVICE_NOT_AVAILABLE,
            f"the broker could not write its log ({error}, {where}); it takes nothing until it is started again",
        )
        self._refuse_waiting(self.refusal)

    def _refuse_waiting(self, refusal: Refusal) -> None:
        waiting, self._waiting = self._waiting, []
        for _, waiter in waiting:
            if not waiter.done():
                waiter.set_exception(Refusal(refusal.code, refusal.remark))
                waiter.exception()  # a sender that went away asks for no answer, which is no mistake

    def close(self) -> None:
        """Write what is not written yet, here and now."""
        self._end()
        try:
            if self.refusal is None:
                pieces = self._pieces()
                self._write(pieces)
                self._settle(pieces)
                self.refusal = SHUT_DOWN
        except OSError as error:
            self._fail(error)
        finally:
            self._close_file()

    def abandon(self) -> None:
        """Write nothing any more; who waits is refused."""
        self._end()
        self.refusal = self.refusal or SHUT_DOWN
        self._refuse_waiting(self.refusal)
        self._close_file()

    def _end(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._closed = True
        self._thread.shutdown()

    def _close_file(self) -> None:
        if self._file >= 0:
            os.close(self._file)
        self._file, self._file_of = -1, None


def sync_directory(path: str) -> None:
    """A file that was made or removed is so after a crash, too."""
    directory = os.open(path, os.O_RDONLY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)
