"""Segments in files of a directory.

lock                         held by the process that uses the directory
log/00000000000000000000.log   a segment, named after its position in the log
log/00000000000000000000.index its index, once it is complete
log/catalog.json               what the log does not tell: where it begins, deleted topics, queues that are empty
"""

from __future__ import annotations

import logging
import os
from collections.abc import Awaitable
from itertools import pairwise
from pathlib import Path
from typing import Any

from rocketstream.broker.refusal import Refusal
from rocketstream.broker.settings import BrokerSettings
from rocketstream.broker.state import StateFiles
from rocketstream.broker.store.directory_lock import DirectoryLock
from rocketstream.broker.store.index import LogIndex
from rocketstream.broker.store.index_file import index_of, load_index, write_index
from rocketstream.broker.store.log_writer import LogWriter, sync_directory
from rocketstream.broker.store.recovery import Damage, recover
from rocketstream.broker.store.segment import Segment, empty_memory, mapped_file
from rocketstream.clock import Clock

log = logging.getLogger("rocketstream.broker")

_CATALOG = "catalog"


class LogFiles:
    """Keeps the log in a directory that no other process uses."""

    def __init__(self, settings: BrokerSettings, clock: Clock, data: Path) -> None:
        self._settings = settings
        self._segment_size = settings.segment_size
        self._data = data
        self._directory = data / "log"
        self._state = StateFiles(self._directory)
        self._writer = LogWriter(clock, sync=settings.flush == "sync")
        self._first = 0
        self._lock: DirectoryLock | None = None

    @property
    def max_bytes(self) -> int | None:
        """The oldest segments go once there is more."""
        return self._settings.retention_bytes

    @property
    def refusal(self) -> Refusal | None:
        """Why nothing can be appended; None as long as it can."""
        return self._writer.refusal

    # --- opening ------------------------------------------------------------------------------------------------

    def open(self, index: LogIndex) -> list[Segment]:
        """Load or scan every segment, and cut what is no record off the last."""
        self._directory.mkdir(parents=True, exist_ok=True)
        sync_directory(str(self._data))
        self._lock = DirectoryLock(self._data)
        try:
            return self._load(index)
        except BaseException:
            self._release()
            raise

    def _load(self, index: LogIndex) -> list[Segment]:
        catalog: dict[str, Any] = self._state.load(_CATALOG) or {}
        self._first = catalog.get("first", 0)
        index.deleted.update(catalog.get("deleted", {}))
        for topic, queues in catalog.get("empty", {}).items():
            for queue_id, offset in queues.items():
                index.new_queue(topic, int(queue_id), offset)
        paths = self._paths()
        segments = [self._complete(path, index) for path in paths[:-1]]
        last = self._last(paths[-1], index) if paths else self._new(self._first, 0)
        segments.append(last)
        for before, after in pairwise(segments):
            if before.base + before.end != after.base:
                log.error(
                    "the log lacks %d to %d: a file before %s is missing or of another size than it was",
                    before.base + before.end,
                    after.base,
                    after.path,
                )
        end = last.base + last.end
        # Nothing before the deletion was synced then: what is appended at these positions from now on counts.
        index.deleted = {topic: min(position, end) for topic, position in index.deleted.items()}
        self.save(index)
        self._writer.add(last)
        return segments

    def _paths(self) -> list[Path]:
        """The segments' files, the first first. Those before the beginning were dropped; a crash left them."""
        paths = sorted(path for path in self._directory.glob("*.log") if path.stem.isdigit())
        for path in [path for path in paths if int(path.stem) < self._first]:
            self._remove(path)
        return [path for path in paths if int(path.stem) >= self._first]

    def _complete(self, path: Path, index: LogIndex) -> Segment:
        view = mapped_file(path)
        segment = Segment(int(path.stem), view, end=len(view), path=path)
        if load_index(segment, index):
            segment.doubtful = True
            return segment
        damages = recover(segment, index)
        for damage in damages:
            _report(path, damage)
        if not damages:
            # A damaged one gets no index, so that every start tells of it.
            write_index(path, index_of(segment, index))
        return segment

    def _last(self, path: Path, index: LogIndex) -> Segment:
        """The segment that is appended to; all of it is checked, for that is where a crash leaves its traces."""
        size = path.stat().st_size
        segment = Segment(int(path.stem), empty_memory(max(self._segment_size, size)), end=size, path=path)
        with path.open("rb") as file:
            file.readinto(segment.view[:size])
        for damage in recover(segment, index):
            if damage.end < size:
                _report(path, damage)
                continue
            log.warning(
                "%s: cut %d bytes at %d: no whole record is there (what a crash was in the middle of writing)",
                path,
                damage.end - damage.start,
                damage.start,
            )
            segment.end = segment.written = damage.start
            with path.open("r+b") as file:
                file.truncate(damage.start)
                os.fsync(file.fileno())
            # What was cut must read as empty again.
            segment.view[damage.start : size] = bytes(size - damage.start)
        segment.settled = False
        return segment

    # --- the rest of the verbs ----------------------------------------------------------------------------------

    def _new(self, base: int, room: int) -> Segment:
        segment = Segment(base, empty_memory(max(self._segment_size, room)), path=self._directory / f"{base:020d}.log")
        segment.settled = False
        return segment

    def new_segment(self, last: Segment, room: int, index: LogIndex) -> Segment:
        """A new file, and the index of the last one."""
        self._writer.check_pace()
        self._writer.complete(index_of(last, index))
        segment = self._new(last.base + last.end, room)
        self._writer.add(segment)
        return segment

    def appended(self) -> None:
        """It will be written soon, even if nobody waits for it."""
        self._writer.appended()

    def durable(self, position: int) -> Awaitable[None] | None:
        """What to wait for until the record at that position survives a crash."""
        return self._writer.durable(position)

    def drop(self, segments: list[Segment], index: LogIndex) -> None:
        """Remove the files of the oldest segments."""
        self._first = segments[-1].base + segments[-1].end
        self.save(index)
        for segment in segments:
            assert segment.path is not None
            self._remove(segment.path)
        sync_directory(str(self._directory))

    def _remove(self, path: Path) -> None:
        path.with_suffix(".index").unlink(missing_ok=True)
        path.unlink(missing_ok=True)

    def save(self, index: LogIndex) -> None:
        """Write the catalog."""
        empty: dict[str, dict[int, int]] = {}
        for queue in index.queues():
            if queue.base and not queue.positions:
                empty.setdefault(queue.topic, {})[queue.queue_id] = queue.base
        self._state.save(_CATALOG, {"first": self._first, "deleted": index.deleted, "empty": empty})

    def close(self) -> None:
        """Write everything, and let others have the directory."""
        self._writer.close()
        self._release()

    def abandon(self) -> None:
        """Leave everything as it is on the disk, and let others have the directory."""
        self._writer.abandon()
        self._release()

    def _release(self) -> None:
        if self._lock is not None:
            self._lock.release()
            self._lock = None


def _report(path: Path, damage: Damage) -> None:
    log.error(
        "%s is damaged: %d bytes at %d are no sound records and were skipped; messages are missing",
        path,
        damage.end - damage.start,
        damage.start,
    )
