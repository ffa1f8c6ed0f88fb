"""A bound on what `send_async` has under way: the caller waits instead of the memory growing."""

from __future__ import annotations

import threading

from rocketstream.errors import TooManyRequestsError


class AsyncGate:
    """Counts messages and bytes under way. `enter` blocks users' threads; `leave` is called from the I/O thread.

    A message that is larger than the whole bound passes alone.
    """

    __slots__ = ("_bytes", "_empty", "_free", "_free_waiters", "_lock", "_max_bytes", "_max_messages", "_messages")

    def __init__(self, max_messages: int, max_bytes: int) -> None:
        self._max_messages = max_messages
        self._max_bytes = max_bytes
        self._messages = 0
        self._bytes = 0
        self._lock = threading.Lock()
        self._free = threading.Condition(self._lock)
        self._free_waiters = 0
        # One of its own: whoever waits for the end must not swallow the news that somebody may enter.
        self._empty = threading.Condition(self._lock)

    def __repr__(self) -> str:
        return (
            f"<AsyncGate {self._messages} of {self._max_messages} messages, {self._bytes} of {self._max_bytes} bytes>"
        )

    @property
    def under_way(self) -> tuple[int, int]:
        """Messages and bytes that have entered and not left."""
        return self._messages, self._bytes

    def enter(self, size: int, timeout: float) -> None:
        """Wait for room and take it; pair with one `leave`."""
        with self._lock:
            # Conditions are taken only where somebody waits: every message passes here twice.
            if not self._has_room(size):
                self._wait_for_room(size, timeout)
            self._messages += 1
            self._bytes += size
            if self._free_waiters and self._has_room(1):
                self._free.notify()  # a large message that left makes room for several small ones

    def _wait_for_room(self, size: int, timeout: float) -> None:
        self._free_waiters += 1
        try:
            in_time = self._free.wait_for(lambda: self._has_room(size), timeout)
        finally:
            self._free_waiters -= 1
        if not in_time:
            self._free.notify()  # the news that woke us may be good for another
            raise TooManyRequestsError(
                "send_async",
                f"{self._messages} messages of {self._bytes} bytes are under way (max_async_messages="
                f"{self._max_messages}, max_async_bytes={self._max_bytes}) and none ended within {timeout:g} s",
            )

    def leave(self, size: int) -> None:
        """Give the room back."""
        with self._lock:
            self._messages -= 1
            self._bytes -= size
            if self._free_waiters:
                self._free.notify()
            if not self._messages:
                self._empty.notify_all()

    def wait_empty(self, timeout: float | None) -> bool:
        """Wait until all have left; tell whether they have."""
        with self._empty:
            return self._empty.wait_for(lambda: not self._messages, timeout)

    def _has_room(self, size: int) -> bool:
        return self._messages == 0 or (self._messages < self._max_messages and self._bytes + size <= self._max_bytes)
