"""Looking at processes from outside, with deadlines."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path


def exists(pid: int) -> bool:
    """Whether a process runs; one that ended and was not reaped yet does not."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    status = Path(f"/proc/{pid}/stat")
    try:
        return status.read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return not Path("/proc/self").exists()


def eventually(condition: Callable[[], bool], timeout: float = 15.0) -> bool:
    """Whether the condition came true in time."""
    deadline = time.monotonic() + timeout
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True
