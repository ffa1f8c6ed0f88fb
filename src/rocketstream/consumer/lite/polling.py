"""What polls do to the queues: which messages the program has, which it has finished, what may be committed.

The rule of this file: what a poll gave counts as finished when the next poll is made, by whichever thread, as in Java;
not before, for a program that dies in between must get it again. Programs say what they gave on their own threads;
what that means is settled on the I/O thread, for all polls together since it last looked.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING, TypeAlias

from rocketstream.consumer.consume_service import PoolSize
from rocketstream.consumer.hooks import ConsumeHookContext, run_after, run_before
from rocketstream.consumer.lite.stock import Batch, LiteProcessQueue, Stock
from rocketstream.consumer.process_queue import ProcessQueue
from rocketstream.message import ReceivedMessage

if TYPE_CHECKING:
    from rocketstream.consumer.lite.core import LitePullCore

log = logging.getLogger("rocketstream.consumer")

Given: TypeAlias = tuple[LiteProcessQueue | None, Sequence[ReceivedMessage], bool]
"""(queue, messages, whether they are finished already); without a queue: what was given before is finished."""


class Reading:
    """A batch that is given to the program message by message."""

    __slots__ = ("batch", "counted", "given")

    def __init__(self, batch: Batch) -> None:
        self.batch = batch
        self.given = 0
        """How many messages the program has got; the last of them it has not finished."""
        self.counted = 0


class _NoThreads:
    """A pool for whoever asks: polls have no threads; what waits is the batches that nobody has polled."""

    size = 0

    def __init__(self, stock: Stock) -> None:
        self._stock = stock

    @property
    def backlog(self) -> int:
        return self._stock.batches


class PollService:
    """The consume service of a lite pull consumer: it keeps messages until they are polled."""

    def __init__(self, core: LitePullCore) -> None:
        self._core = core
        self._loop = asyncio.get_running_loop()
        self.stock = Stock()
        self.pool: PoolSize = _NoThreads(self.stock)
        self.hooks = tuple(core.consumer.consume_hooks)
        self._trace = core.call_trace
        self.is_watched = bool(self.hooks) or self._trace is not None
        """Whether somebody wants to see what is polled."""
        self._given: deque[Given] = deque()
        self._unfinished = False
        self._waking = False
        self._last: LiteProcessQueue | None = None
        self._readings: set[Reading] = set()
        self._reading_lock = threading.Lock()

    def __repr__(self) -> str:
        return f"<PollService {self.stock!r}, {len(self._given)} polls to account for>"

    # --- on the program's threads -----------------------------------------------------------------------------------

    def given(self, batch: Batch) -> None:
        """The program has these messages now; and has finished what it had before."""
        self._unfinished = True
        self._note((batch.process_queue, batch.messages, False))

    def finished(self) -> None:
        """The program asks for more: it has finished what it had."""
        if self._unfinished:
            self._unfinished = False
            self._note((None, (), True))

    def _note(self, given: Given) -> None:
        self._given.append(given)
        self._wake()

    def _wake(self) -> None:
        if not self._waking:
            # Set by many, cleared by one before it looks: at worst the I/O thread looks once too often.
            self._waking = True
            try:
                self._loop.call_soon_threadsafe(self.settle)
            except RuntimeError:
                log.debug("%s was polled after the process's I/O thread had ended", self._core.what)

    def show(self, batch: Batch) -> None:
        """Let trace and hooks see a batch, as around a call of a listener that succeeds; the user's hooks may block."""
        core, trace = self._core, self._trace
        traced = None if trace is None else trace.begin(batch.messages)
        if self.hooks:
            queue = core.names.shown_queue(batch.process_queue.queue)
            context = ConsumeHookContext(core.consumer.group, queue, batch.messages, namespace=core.consumer.namespace)
            run_before(self.hooks, context)
            context.success, context.status, context.return_type = True, "CONSUME_SUCCESS", "SUCCESS"
            run_after(self.hooks, context)
        if trace is not None and traced is not None:
            trace.end_call(traced, "SUCCESS", True)

    def open(self, batch: Batch) -> Reading:
        """Begin to give a batch message by message."""
        reading = Reading(batch)
        with self._reading_lock:
            self._readings.add(reading)
        return reading

    def close(self, reading: Reading, *, through: bool) -> None:
        """End that: all were read, or the program has broken off, and the rest comes with the next poll."""
        pq, messages = reading.batch
        with self._reading_lock:
            self._readings.discard(reading)
            self._count(reading, reading.given if through else reading.given - 1, finished=True)
            self._count(reading, reading.given, finished=False)
        self._wake()
        if reading.given < len(messages):
            self.stock.put_back(Batch(pq, messages[reading.given :]))

    def _count(self, reading: Reading, until: int, *, finished: bool) -> None:
        # With the lock held: the I/O thread counts too.
        if reading.counted < until:
            pq, messages = reading.batch
            self._unfinished = not finished
            counted, reading.counted = reading.counted, until
            self._given.append((pq, messages[counted:until], finished))

    # --- on the I/O thread ------------------------------------------------------------------------------------------

    def submit(self, pq: ProcessQueue, messages: Sequence[ReceivedMessage], dispatch: bool = True) -> None:
        """Keep messages until they are polled."""
        assert isinstance(pq, LiteProcessQueue)
        self.stock.put(Batch(pq, messages))

    def count_readings(self, *, current: bool) -> None:
        """Account for what is being read message by message; with `current` also for the one the program is at."""
        with self._reading_lock:
            for reading in self._readings:
                given = reading.given
                self._count(reading, given - 1, finished=True)
                if current:
                    self._count(reading, given, finished=False)

    def settle(self) -> None:
        """Account for every poll so far."""
        self._waking = False
        if self._readings:
            self.count_readings(current=False)
        if not self._given:
            return
        changed: set[LiteProcessQueue] = set()
        given, stats = self._given, self._core.stats
        for _ in range(len(given)):  # not until it is empty: programs go on polling
            pq, messages, finished = given.popleft()
            if self._last is not None:
                self._last.done = self._last.position
                changed.add(self._last)
                self._last = None
            if pq is None or pq.dropped:
                continue
            stats.add_ok(pq.queue.topic, len(messages))
            offset = pq.remove(messages)
            if offset < 0:  # cleared meanwhile
                continue
            pq.position = offset
            pq.last_consume_at = self._core.clock.monotonic()
            changed.add(pq)
            if finished:
                pq.done = offset
            else:
                self._last = pq
        for pq in changed:
            if not pq.dropped:
                self._core.done(pq)
                self._core.puller.room_made(pq)

    def passed_over(self, pq: LiteProcessQueue, offset: int) -> None:
        """Nothing of a queue waits, and up to this offset there is nothing for us."""
        pq.position = offset
        if self._last is not pq:  # else the program still works on what came before
            pq.done = offset
            self._core.done(pq)

    def finish_all(self) -> None:
        """The program says that it has finished all that it got."""
        self.count_readings(current=True)
        self._unfinished = False
        self.settle()
        last, self._last = self._last, None
        if last is not None:
            last.done = last.position
            if not last.dropped:
                self._core.done(last)

    async def listener_ended(self, pq: ProcessQueue, timeout: float) -> bool:
        """A queue can be given away at any time: what is polled and not committed comes again, to its new owner."""
        return True

    async def adjust(self, cached: int) -> None:
        """There are no threads."""

    async def send_back_stale(self) -> None:
        """Nothing is sent back: a program may take its time."""

    async def stop(self, timeout: float) -> bool:
        """Give out nothing any more."""
        self.stock.close()
        self.settle()
        return True
