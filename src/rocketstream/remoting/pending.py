"""The pending-response table: which request waits for which opaque, on which connection, until when.

Everything that ends a request goes through this table, and an entry leaves it exactly once: whoever takes it out
(response, failure, time-out, connection loss, a caller that went away) decides its outcome, all others find nothing
(REM-01, REM-05). There is no socket and no timer here.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Protocol

from rocketstream.errors import RemotingError, RequestTimeoutError
from rocketstream.remoting.counts import RequestCounts
from rocketstream.wire.codes import request_name
from rocketstream.wire.command import Command

_MAX_OPAQUE = 0x7FFFFFFF


class Completion(Protocol):
    """Where an outcome goes; an `asyncio.Future` is one."""

    def done(self) -> bool:
        """Whether there is an outcome, or nobody waits for one."""

    def set_result(self, result: Command, /) -> None:
        """The response."""

    def set_exception(self, exception: BaseException, /) -> None:
        """Why there is none."""


class PendingRequest:
    """A request that was given an opaque and has no outcome yet."""

    __slots__ = ("address", "code", "completion", "connection", "deadline", "opaque", "sent_at")

    def __init__(
        self,
        opaque: int,
        connection: object,
        address: str,
        code: int,
        now: float,
        deadline: float,
        completion: Completion,
    ) -> None:
        self.opaque = opaque
        self.connection = connection
        self.address = address
        self.code = code
        self.sent_at = now
        self.deadline = deadline
        self.completion = completion

    @property
    def request_name(self) -> str:
        """What was asked, for people."""
        return request_name(self.code)

    @property
    def timeout(self) -> float:
        """How long the answer may take."""
        return self.deadline - self.sent_at

    def __repr__(self) -> str:
        return f"<PendingRequest {self.request_name} opaque={self.opaque} to {self.address}>"


class PendingTable:
    """opaque → request, for all connections of a client."""

    __slots__ = ("_entries", "_numbers", "_waiting", "counts")

    def __init__(self, first_opaque: int = 0) -> None:
        self._entries: dict[int, PendingRequest] = {}
        self._waiting: dict[object, int] = {}  # connection → how many wait on it; without those on which none does
        self._numbers = itertools.count(first_opaque)
        self.counts = RequestCounts()

    def __len__(self) -> int:
        return len(self._entries)

    def __repr__(self) -> str:
        return f"<PendingTable of {len(self._entries)}>"

    def next_opaque(self) -> int:
        """A sequence number that no pending request has; it wraps like Java's non-negative int. Any thread may ask."""
        while True:
            opaque = next(self._numbers) & _MAX_OPAQUE
            if opaque not in self._entries:
                return opaque

    def add(
        self,
        opaque: int,
        connection: object,
        address: str,
        code: int,
        now: float,
        deadline: float,
        completion: Completion,
    ) -> PendingRequest:
        """Enter a request, before it is written."""
        entry = PendingRequest(opaque, connection, address, code, now, deadline, completion)
        self.enter(entry)
        return entry

    def enter(self, entry: PendingRequest) -> None:
        """The same for one that was made elsewhere."""
        self._entries[entry.opaque] = entry
        self._waiting[entry.connection] = self._waiting.get(entry.connection, 0) + 1

    def discard(self, entry: PendingRequest) -> None:
        """Forget a request, whatever became of it."""
        if self._entries.get(entry.opaque) is entry:
            self._remove(entry)
            self.counts.abandoned[entry.code] += 1

    def complete(self, connection: object, response: Command) -> PendingRequest | None:
        """Hand a response to its request; None if no request on that connection waits for it."""
        entry = self._entries.get(response.opaque)
        if entry is None or entry.connection is not connection:
            return None
        self._remove(entry)
        if entry.completion.done():
            return None
        self.counts.answered[entry.code] += 1
        entry.completion.set_result(response)
        return entry

    def fail_connection(self, connection: object, error: Callable[[PendingRequest], RemotingError]) -> int:
        """Fail everything that waits on a connection, at once; return how many."""
        lost = [entry for entry in self._entries.values() if entry.connection is connection]
        for entry in lost:
            self._fail(entry, error(entry))
        return len(lost)

    def expire(self, now: float) -> list[PendingRequest]:
        """Fail every request past its time-out; return them (REM-03)."""
        late = [entry for entry in self._entries.values() if entry.deadline <= now]
        for entry in late:
            self._fail(
                entry,
                RequestTimeoutError(entry.address, f"no answer to {entry.request_name} within {entry.timeout:.3g} s"),
            )
        return late

    def waiting_on(self, connection: object) -> int:
        """How many requests wait on a connection."""
        return self._waiting.get(connection, 0)

    def _remove(self, entry: PendingRequest) -> None:
        del self._entries[entry.opaque]
        left = self._waiting[entry.connection] - 1
        if left:
            self._waiting[entry.connection] = left
        else:
            del self._waiting[entry.connection]

    def _fail(self, entry: PendingRequest, error: RemotingError) -> None:
        self._remove(entry)
        ended = self.counts.timeout if isinstance(error, RequestTimeoutError) else self.counts.lost
        ended[entry.code] += 1
        if not entry.completion.done():
            entry.completion.set_exception(error)
