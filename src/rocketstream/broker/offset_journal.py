"""Committed offsets on disk, so that none that was acknowledged goes back after a crash.

The rule: a snapshot (a state file) and a journal of what was committed since. Each line of the journal is one offset
with its checksum; a torn last line is left out, and said so. A snapshot names the journal that goes on from it, so a
crash between writing the one and beginning the other loses nothing and brings nothing back.

Many commits share one write: whoever has to wait for the disk waits for the next round, and one round writes whatever
has changed by then, each queue once. Writing happens in a thread, one round at a time. An offset that is no more (its
topic or group was deleted) is written as -1.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import threading
import zlib
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path
from typing import Final, NamedTuple

log = logging.getLogger("rocketstream.broker")

#: How big a journal grows before a new snapshot replaces it: read back in a fraction of a second.
MAX_SIZE: Final = 4 * 1024 * 1024


class CommittedOffset(NamedTuple):
    """Where a group is in a queue."""

    group: str
    topic: str
    queue_id: int
    offset: int


def encode_line(committed: CommittedOffset) -> bytes:
    """One offset as a line of the journal."""
    text = json.dumps(committed, ensure_ascii=False, separators=(",", ":")).encode()
    return b"%08x %s\n" % (zlib.crc32(text), text)


def read_journal(path: Path) -> list[CommittedOffset]:
    """What a journal holds, up to the first line that is not whole."""
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return []
    found = []
    position = 0
    while position < len(data):
        end = data.find(b"\n", position)
        line = data[position:] if end < 0 else data[position:end]
        checksum, _, text = line.partition(b" ")
        if end < 0 or checksum != b"%08x" % zlib.crc32(text):
            log.warning("%s: cut %d bytes at its end that were not written whole", path, len(data) - position)
            with path.open("r+b") as file:
                file.truncate(position)
            break
        found.append(CommittedOffset(*json.loads(text)))
        position = end + 1
    return found


def latest_generation(directory: Path) -> int:
    """The generation of the newest journal in a directory; 0 when there is none."""
    numbers = (path.stem.removeprefix("offsets-") for path in directory.glob("offsets-*.journal"))
    return max((int(number) for number in numbers if number.isdecimal()), default=0)


class OffsetJournal:
    """The journal that is being written. `changes` gives what is to be written now, `full` is called when it is big."""

    def __init__(
        self,
        directory: Path,
        generation: int,
        *,
        changes: Callable[[], Iterable[CommittedOffset]],
        full: Callable[[], None],
    ) -> None:
        self.generation = generation
        self._directory = directory
        self._changes = changes
        self._full = full
        self._file: int | None = None
        self._using_file = threading.Lock()
        self._unwritten = b""
        self._round: asyncio.Task[None] | None = None
        self._next: asyncio.Future[None] | None = None

    def __repr__(self) -> str:
        return f"<OffsetJournal {self.path.name} {'closed' if self._file is None else f'{self.size} bytes'}>"

    @property
    def path(self) -> Path:
        """The file of this generation."""
        return self._directory / f"offsets-{self.generation}.journal"

    @property
    def size(self) -> int:
        """How big it is."""
        return 0 if self._file is None else os.fstat(self._file).st_size

    def open(self) -> list[CommittedOffset]:
        """Begin to write the file of this generation, and remove all others; returns what it holds already."""
        self._directory.mkdir(parents=True, exist_ok=True)
        found = read_journal(self.path)
        self._file = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        for other in self._directory.glob("offsets-*.journal"):
            if other != self.path:
                other.unlink()
        directory = os.open(self._directory, os.O_RDONLY)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)
        return found

    def begin_next(self) -> None:
        """Go on in the file of the next generation: a snapshot that names it holds everything by now."""
        self._close_file()
        self.generation += 1
        self.open()

    def flush(self) -> Awaitable[None]:
        """Write what has changed by now; the awaitable is done when it is on the disk."""
        # Who stops waiting must not take the round away from the others.
        return asyncio.shield(self._join_next_round())

    def flush_soon(self) -> None:
        """The same for who does not wait."""
        self._join_next_round()

    def close(self) -> None:
        """Write what is left and let go of the file."""
        if self._round is not None:
            self._round.cancel()
        self._write(self._lines())
        self._close_file()

    def abandon(self) -> None:
        """Let go of the file and write nothing, as a crash would."""
        if self._round is not None:
            self._round.cancel()
        self._close_file()

    def _join_next_round(self) -> asyncio.Future[None]:
        if self._next is None:
            self._next = asyncio.get_running_loop().create_future()
        if self._round is None or self._round.done():
            self._round = asyncio.ensure_future(self._write_rounds())
        return self._next

    async def _write_rounds(self) -> None:
        loop = asyncio.get_running_loop()
        while self._next is not None:
            waiting, self._next = self._next, None
            lines = self._lines()
            try:
                if lines:
                    await loop.run_in_executor(None, self._write, lines)
            except OSError as error:
                log.exception("%s could not be written", self.path)
                self._unwritten = lines
                waiting.set_exception(error)
                waiting.exception()  # it may be that nobody waits
            except asyncio.CancelledError:
                waiting.cancel()
                raise
            else:
                waiting.set_result(None)
                if self.size > MAX_SIZE:
                    self._full()

    def _lines(self) -> bytes:
        lines = self._unwritten + b"".join(map(encode_line, self._changes()))
        self._unwritten = b""
        return lines

    def _write(self, lines: bytes) -> None:
        with self._using_file:
            if self._file is None or not lines:
                return
            size = self.size
            view = memoryview(lines)
            try:
                while view:
                    view = view[os.write(self._file, view) :]
                os.fsync(self._file)
            except OSError:
                # Half a line would hide all that is written behind it.
                os.ftruncate(self._file, size)
                raise

    def _close_file(self) -> None:
        with self._using_file:
            if self._file is not None:
                os.close(self._file)
                self._file = None
