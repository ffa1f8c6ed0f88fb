"""Locks between processes: lock files, which the operating system releases even if we are killed."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from pathlib import Path


@contextlib.contextmanager
def locked(path: Path, *, shared: bool = False) -> Iterator[None]:
    """Hold a lock on a file, alone or together with others that hold it as `shared`."""
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

            fcntl.flock(file, fcntl.LOCK_SH if shared else fcntl.LOCK_EX)
        yield


@contextlib.contextmanager
def admitted(path: Path, *, alone: bool) -> Iterator[None]:
    """Use something together with others, or alone; who wants to be alone is not kept waiting by those who come later.

    Everybody passes a gate first. Who wants to be alone closes it until the others have left.
    """
    with contextlib.ExitStack() as stack:
        with locked(path.with_suffix(".gate"), shared=not alone):
            stack.enter_context(locked(path, shared=not alone))
        yield
