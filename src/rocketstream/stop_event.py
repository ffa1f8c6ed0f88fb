"""An event that a signal handler may set.

`threading.Event` is none: a handler runs in the main thread, which may just be inside `wait` and hold the event's own
lock. `set` then waits for that lock for ever, and Ctrl-C right after a start ends nothing. Here `set` takes no lock.

And nobody waits for long at a time. A signal that comes after Python's last look for signals and before the operating
system begins to wait interrupts nothing: its handler runs when that wait is over.
"""

from __future__ import annotations

import contextlib
import threading
import time
from typing import Final

_LONGEST_WAIT: Final = 0.5


class StopEvent:
    """Set once, by a signal handler or by any thread; others wait for it."""

    def __init__(self) -> None:
        self._is_set = False
        self._closed = threading.Lock()
        self._closed.acquire()

    def is_set(self) -> bool:
        """Whether it was set."""
        return self._is_set

    def set(self) -> None:
        """Wake everybody who waits; a second time does nothing."""
        self._is_set = True
        self._open()

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until it is set, or for so many seconds; whether it is set."""
        until = None if timeout is None else time.monotonic() + timeout
        while not self._is_set:
            left = _LONGEST_WAIT if until is None else min(until - time.monotonic(), _LONGEST_WAIT)
            if left <= 0:
                break
            if self._closed.acquire(timeout=left):
                self._open()  # for the next one who waits
        return self._is_set

    def _open(self) -> None:
        with contextlib.suppress(RuntimeError):  # it is open
            self._closed.release()
