"""One process per data directory."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from rocketstream.errors import RocketStreamError


class DirectoryInUseError(RocketStreamError):
    """Another broker has the directory."""


class DirectoryLock:
    """Held from its making to `release`, or to the end of the process, however that comes."""

    def __init__(self, directory: Path) -> None:
        self._file = os.open(directory / "lock", os.O_RDWR | os.O_CREAT, 0o644)
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            owner = os.pread(self._file, 32, 0).decode("ascii", "replace").strip() or "unknown"
            os.close(self._file)
            raise DirectoryInUseError(
                f"data={str(directory)!r} is in use by another broker, process {owner}: stop that one or give this one"
                " a directory of its own"
            ) from None
        os.ftruncate(self._file, 0)
        os.pwrite(self._file, f"{os.getpid()}\n".encode(), 0)

    def release(self) -> None:
        """Let others have the directory. The file stays: removing it would race with whoever waits for it."""
        os.close(self._file)
