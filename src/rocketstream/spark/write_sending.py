"""Sending the requests of one task: many under way, bounded in number and bytes, and none forgotten.

A request for any queue leaves at once. Requests for one queue leave one after the other: the next only when the one
before is acknowledged, however often that is tried, so that rows with one key stay in order. What may pass (a broker
that restarts, a connection that breaks) is tried again until `sendTimeout`.

The rule of this file: every request ends as acknowledged or as not acknowledged, and the task ends after all of them.
A request whose answer was lost may be stored and is sent again: at least once, with the same row ids.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Collection, Coroutine, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final

import numpy as np

from rocketstream.clock import Clock
from rocketstream.cluster.names import with_namespace
from rocketstream.errors import (
    AccessDeniedError,
    BrokerError,
    BrokerNotFoundError,
    NameServerError,
    RemotingError,
    RocketStreamError,
    SendFailedError,
    TopicRouteNotFoundError,
)
from rocketstream.message import MessageQueue
from rocketstream.producer.async_gate import AsyncGate
from rocketstream.producer.core import ProducerCore
from rocketstream.producer.receipt import SendStatus
from rocketstream.remoting.io_thread import IoThread
from rocketstream.spark.row_ids import TaskId
from rocketstream.spark.write_requests import Positions, Request
from rocketstream.wire.codes import ResponseCode

log = logging.getLogger("rocketstream.spark")

_PAUSES: Final = (0.05, 0.1, 0.2, 0.5, 1.0)
_UNKNOWN_TOPIC_PATIENCE: Final = 10.0
"""For how long a topic that nobody knows may take to be created, in seconds."""
_SHOWN_RANGES: Final = 5
_SHOWN_IDS: Final = 3

# What a broker says that it may not say in a minute.
_PASSING: Final = frozenset(
    {
        ResponseCode.SYSTEM_ERROR,
        ResponseCode.SYSTEM_BUSY,
        ResponseCode.SERVICE_NOT_AVAILABLE,
        ResponseCode.FLOW_CONTROL,
        ResponseCode.FLUSH_DISK_TIMEOUT,
        ResponseCode.FLUSH_SLAVE_TIMEOUT,
        ResponseCode.SLAVE_NOT_AVAILABLE,
        ResponseCode.GO_AWAY,
    }
)


class Outlook(Enum):
    """What is to be expected after an error."""

    PASSES = "a broker or a name server is away for now"
    UNKNOWN_TOPIC = "nobody knows the topic"
    FINAL = "trying again would not help"


def outlook(error: BaseException) -> Outlook:
    """Whether what made a send fail may be gone in a moment."""
    if isinstance(error, SendFailedError):
        return outlook(error.attempts[-1][1]) if error.attempts else Outlook.PASSES
    if isinstance(error, TopicRouteNotFoundError):
        return Outlook.UNKNOWN_TOPIC
    if isinstance(error, BrokerError):
        if error.code == ResponseCode.TOPIC_NOT_EXIST:
            return Outlook.UNKNOWN_TOPIC
        # A 4.9 broker says SYSTEM_ERROR to a wrong key or signature.
        passes = error.code in _PASSING and not isinstance(error, AccessDeniedError)
        return Outlook.PASSES if passes else Outlook.FINAL
    return Outlook.PASSES if isinstance(error, RemotingError | NameServerError | BrokerNotFoundError) else Outlook.FINAL


class RowsNotAcknowledgedError(RocketStreamError):
    """Rows of a task that no broker has acknowledged; the text says how many, which and why."""


@dataclass(frozen=True, slots=True)
class Unacknowledged:
    """A request that came to nothing; without an error it was held back because of another."""

    request: Request
    error: BaseException | None


class Sender:
    """Sends the requests of one task. `submit` and `finish` are for the task's thread, the rest for the I/O thread.

    `known_topics` (without their namespace) are there for sure: if nobody knows one of them now, that will pass.
    """

    def __init__(
        self,
        core: ProducerCore,
        task: TaskId,
        *,
        max_requests: int,
        max_bytes: int,
        patience: float,
        known_topics: Collection[str] = (),
    ) -> None:
        self._core = core
        self._task = task
        self._patience = patience
        self._known_topics = frozenset(with_namespace(core.producer.namespace, topic) for topic in known_topics)
        self._gate = AsyncGate(max_requests, max_bytes)
        self._lines: dict[MessageQueue, deque[Request]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._failed: list[Unacknowledged] = []
        self._less_safe: dict[SendStatus, int] = {}
        self._submitted = 0
        self._stopping = False
        self.acknowledged = 0
        """How many rows brokers have stored."""
        self.sent_again = 0
        """How many sends were repeated."""

    def __repr__(self) -> str:
        return (
            f"<Sender of {self._task}, {self._gate!r}, {self.acknowledged} rows acknowledged,"
            f" {len(self._failed)} requests failed>"
        )

    # --- the task's thread ------------------------------------------------------------------------------------------

    @property
    def _io(self) -> IoThread:
        return self._core.io

    def queues(self, topic: str) -> Sequence[MessageQueue]:
        """The queues of a topic that can be written to; waits for an outage to pass."""

        async def ask() -> Sequence[MessageQueue]:
            name = with_namespace(self._core.producer.namespace, topic)
            begun = self._clock.monotonic()
            tries = 0
            while True:
                try:
                    return await self._core.queues(name)
                except RocketStreamError as error:
                    if self._clock.monotonic() - begun >= self._patience_for(name, outlook(error)):
                        raise
                await self._pause(tries)
                tries += 1

        return self._io.run(ask(), self._core.what)

    def submit(self, request: Request) -> None:
        """Send a request as soon as there is room; raises if one has failed meanwhile."""
        self._raise_failure()
        # Longer than any request may take: whoever is under way has ended by then.
        self._gate.enter(request.size, 2 * self._patience + 60.0)
        if self._failed:
            self._gate.leave(request.size)
            self._raise_failure()
        self._submitted += len(request.rows)
        self._io.check(self._core.what)
        self._io.call_soon(self._start, request)

    def finish(self) -> None:
        """Wait until every request has ended; raises if one has failed."""
        self._gate.wait_empty(None)
        self._raise_failure()
        for status, count in self._less_safe.items():
            log.warning("task %s: %d requests were stored, but less safely than asked: %s", self._task, count, status)

    def give_up(self) -> None:
        """Send nothing more and wait for what is under way: the task fails for another reason."""
        self._io.call_soon(self._hold_back)
        self._gate.wait_empty(None)

    def _raise_failure(self) -> None:
        if self._failed:
            self._gate.wait_empty(None)
            failed = sorted(self._failed, key=lambda one: int(one.request.rows[0]))
            cause = next(one.error for one in self._failed if one.error is not None)
            raise RowsNotAcknowledgedError(
                not_acknowledged(self._task, failed, self.acknowledged, self._submitted)
            ) from cause

    # --- the I/O thread ---------------------------------------------------------------------------------------------

    @property
    def _clock(self) -> Clock:
        return self._core.clock

    def _hold_back(self) -> None:
        self._stopping = True

    def _start(self, request: Request) -> None:
        if request.queue is None:
            self._spawn(self._deliver(request))
            return
        line = self._lines.setdefault(request.queue, deque())
        line.append(request)
        if len(line) == 1:
            self._spawn(self._deliver_in_order(line))

    def _spawn(self, coroutine: Coroutine[Any, Any, None]) -> None:
        task = asyncio.ensure_future(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _deliver_in_order(self, line: deque[Request]) -> None:
        while line:
            await self._deliver(line[0])
            line.popleft()

    async def _deliver(self, request: Request) -> None:
        """Send a request until it is stored or hopeless; whatever happens is noted, and its room given back."""
        try:
            if self._failed or self._stopping:
                self._failed.append(Unacknowledged(request, None))
                return
            error = await self._send(request)
            if error is None:
                self.acknowledged += len(request.rows)
            else:
                self._failed.append(Unacknowledged(request, error))
        except BaseException as error:
            self._failed.append(Unacknowledged(request, error))
            if not isinstance(error, Exception):
                raise
        finally:
            self._gate.leave(request.size)

    async def _send(self, request: Request) -> RocketStreamError | None:
        """None when it is stored, else why it is not."""
        core, now = self._core, self._clock.monotonic
        begun = now()
        tries = 0
        while True:
            left = begun + self._patience - now()
            timeout = min(max(left, 0.1), core.producer.send_timeout)
            try:
                receipt = await core.send(request.out, timeout=timeout, queue=request.queue)
            except RocketStreamError as error:
                patience = self._patience_for(request.out.topic, outlook(error))
                if self._failed or self._stopping or now() - begun >= patience:
                    return error
                log.info("task %s: %s; trying again", self._task, error)
            else:
                if receipt.status is not SendStatus.OK:
                    self._less_safe[receipt.status] = self._less_safe.get(receipt.status, 0) + 1
                return None
            await self._pause(tries)
            tries += 1
            self.sent_again += 1

    def _patience_for(self, topic: str, expected: Outlook) -> float:
        if expected is Outlook.FINAL:
            return 0.0
        if expected is Outlook.UNKNOWN_TOPIC and topic not in self._known_topics:
            return min(self._patience, _UNKNOWN_TOPIC_PATIENCE)
        return self._patience

    async def _pause(self, tries: int) -> None:
        await self._clock.sleep(_PAUSES[min(tries, len(_PAUSES) - 1)])


def not_acknowledged(task: TaskId, failed: Sequence[Unacknowledged], acknowledged: int, submitted: int) -> str:
    """One sentence for all that went wrong in a task."""
    rows = np.sort(np.concatenate([one.request.rows for one in failed]))
    reasons = list(dict.fromkeys(str(one.error) for one in failed if one.error is not None))
    more = f" (and {len(reasons) - 1} other reasons)" if len(reasons) > 1 else ""
    ids = ", ".join(one.request.first_id for one in failed[:_SHOWN_IDS])
    return (
        f"{len(rows)} of the {submitted} rows that task {task} sent were not acknowledged: {row_ranges(rows)}"
        f" (row ids {ids}{', ...' if len(rows) > len(failed[:_SHOWN_IDS]) else ''}), because"
        f" {reasons[0] if reasons else 'they were held back'}{more}; {acknowledged} rows were acknowledged"
    )


def row_ranges(rows: Positions) -> str:
    """Sorted rows as a person reads them: `rows 3 to 7, 12, 20 to 29 and 4 more ranges`."""
    cuts = np.flatnonzero(np.diff(rows) > 1) + 1
    runs = [(int(run[0]), int(run[-1])) for run in np.split(rows, cuts[:_SHOWN_RANGES])][:_SHOWN_RANGES]
    if len(cuts) >= _SHOWN_RANGES:
        shown = ", ".join(_run(*run) for run in runs)
        return f"rows {shown} and {len(cuts) + 1 - _SHOWN_RANGES} more ranges"
    return f"{'row' if len(rows) == 1 else 'rows'} {', '.join(_run(*run) for run in runs)}"


def _run(first: int, last: int) -> str:
    return str(first) if first == last else f"{first} to {last}"
