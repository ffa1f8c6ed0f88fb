"""One process at a time: a lock file."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from pathlib import Path


@contextlib.contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold an exclusive lock of the operating system, which it releases even if we are killed."""
    with path.open("a+b") as file:
        if sys.platform == "win32":  # pragma: no cover
            import msvcrt

            file.seek(0)
            while True:
                with contextlib.suppress(OSError):
                    msvcrt.locking(file.fileno(), msvcrt.LK_LOCK, 1)
                    break
        else:
            import fcntl

            fcntl.flock(file, fcntl.LOCK_EX)
        yield
