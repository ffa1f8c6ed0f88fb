"""Offsets in a file of this machine (broadcasting): every consumer has its own.

The rule of this file (OFF-04): there is a readable file at every moment. It is written beside the old one, forced to
the disk and put in its place; the old one stays as a backup. A damaged file is never taken for an empty one.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import threading
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, Final, TypeGuard

from rocketstream.consumer.offset_store import UNKNOWN_OFFSET, RememberingOffsets
from rocketstream.errors import OffsetStoreError
from rocketstream.message import MessageQueue

log = logging.getLogger("rocketstream.consumer")

_FILE_NAME: Final = "offsets.json"
_BACKUP_SUFFIX: Final = ".bak"
_VERSION: Final = 1


class LocalFileOffsets(RememberingOffsets):
    """The offsets of a group in `<directory>/<client id>/<group>/offsets.json`."""

    def __init__(self, directory: str | os.PathLike[str], client_id: str, group: str) -> None:
        super().__init__()
        self._file = OffsetFile(Path(directory).expanduser() / client_id / group / _FILE_NAME)
        self._stored: dict[MessageQueue, int] | None = None
        self._one_at_a_time = asyncio.Lock()

    def __repr__(self) -> str:
        return f"<LocalFileOffsets {self._file.path}, {len(self._offsets)} queues>"

    @property
    def path(self) -> Path:
        """The file."""
        return self._file.path

    async def load(self) -> None:
        """Remember what the file says; `OffsetStoreError` if neither it nor its backup can be read."""
        self._offsets.update(await self._read_file())

    async def _read_stored(self, queue: MessageQueue) -> int:
        return (await self._read_file()).get(queue, UNKNOWN_OFFSET)

    async def persist_all(self, queues: Collection[MessageQueue]) -> None:
        """Write the offsets of these queues; what the file says of others stays."""
        owned = queues if isinstance(queues, set | frozenset | dict) else frozenset(queues)
        await self._write({queue: offset for queue, offset in self._offsets.items() if queue in owned})

    async def persist(self, queue: MessageQueue) -> None:
        """Write the offset of one queue."""
        if queue in self._offsets:
            await self._write({queue: self._offsets[queue]})

    # A disk may take its time: the I/O thread does not wait for it.

    async def _read_file(self) -> dict[MessageQueue, int]:
        async with self._one_at_a_time:
            self._stored = await asyncio.to_thread(self._file.read)
            return self._stored

    async def _write(self, offsets: Mapping[MessageQueue, int]) -> None:
        async with self._one_at_a_time:
            if self._stored is None:  # never loaded: what the file says of other queues must not be lost
                self._stored = await asyncio.to_thread(self._file.read)
            merged = {**self._stored, **offsets}
            if merged == self._stored:
                return
            await asyncio.to_thread(self._file.write, merged)
            self._stored = merged


class OffsetFile:
    """The file and its backup. Its methods block."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.backup = path.with_name(path.name + _BACKUP_SUFFIX)
        # Whether the file may take the backup's place: a damaged one may not.
        self._sound = False
        # A caller that was cancelled leaves its write behind, still under way.
        self._lock = threading.Lock()

    def read(self) -> dict[MessageQueue, int]:
        """What the file says, else what the backup says; nothing if neither exists; an error if neither is sound."""
        with self._lock:
            return self._read()

    def write(self, offsets: Mapping[MessageQueue, int]) -> None:
        """Put a new file in the old one's place, which becomes the backup; `OffsetStoreError` if that fails."""
        with self._lock:
            self._write(offsets)

    def _read(self) -> dict[MessageQueue, int]:
        self._sound = False
        faults: list[str] = []
        for path in (self.path, self.backup):
            try:
                offsets = decode_offsets(path.read_text(encoding="utf-8"))
            except FileNotFoundError:
                continue
            except (OSError, ValueError, RecursionError) as error:
                faults.append(f"{path}: {error}")
                log.warning("the offsets in %s cannot be read: %s", path, error)
                continue
            self._sound = path is self.path
            return offsets
        if not faults:
            return {}
        raise OffsetStoreError(
            f"the offsets in {self.path.parent} cannot be read, neither the file nor its backup ({'; '.join(faults)})."
            " Repair one of them, or delete both to let the group begin where start_from says"
        )

    def _write(self, offsets: Mapping[MessageQueue, int]) -> None:
        fresh = self.path.with_name(self.path.name + ".tmp")
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with open(fresh, "w", encoding="utf-8") as file:
                file.write(encode_offsets(offsets))
                file.flush()
                os.fsync(file.fileno())
            if self._sound:
                # A crash right after this leaves the backup alone, and that is read then.
                with contextlib.suppress(FileNotFoundError):  # somebody deleted it
                    os.replace(self.path, self.backup)
            os.replace(fresh, self.path)
            _force_directory(self.path.parent)
        except OSError as error:
            raise OffsetStoreError(f"the offsets could not be written to {self.path}: {error}") from error
        self._sound = True


def encode_offsets(offsets: Mapping[MessageQueue, int]) -> str:
    """Offsets as JSON that a person can read: one queue a line, sorted."""
    lines = [json.dumps({**queue._asdict(), "offset": offsets[queue]}, ensure_ascii=False) for queue in sorted(offsets)]
    rows = ",\n  ".join(lines)
    return f'{{"version": {_VERSION}, "offsets": [\n  {rows}\n]}}\n'


def decode_offsets(text: str) -> dict[MessageQueue, int]:
    """The offsets in such a text; a `ValueError` that says what is wrong with it."""
    document: Any = json.loads(text)
    if not isinstance(document, dict) or document.get("version") != _VERSION:
        raise ValueError(f'it is no object with "version": {_VERSION}')
    rows = document.get("offsets")
    if not isinstance(rows, list):
        raise ValueError('it has no list "offsets"')
    return dict(map(_decode_row, rows))


def _decode_row(row: Any) -> tuple[MessageQueue, int]:
    if not isinstance(row, dict):
        raise ValueError(f"{row!r} is no queue with an offset")
    topic, broker_name, queue_id, offset = (row.get(name) for name in (*MessageQueue._fields, "offset"))
    if not (isinstance(topic, str) and isinstance(broker_name, str) and _is_count(queue_id) and _is_count(offset)):
        raise ValueError(f"{row!r} is no queue with an offset")
    return MessageQueue(topic, broker_name, queue_id), offset


def _is_count(value: object) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _force_directory(directory: Path) -> None:
    """Make the new names last; where directories cannot be opened (Windows) the system does it in its own time."""
    try:
        descriptor = os.open(directory, os.O_RDONLY)
    except OSError:
        return
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
