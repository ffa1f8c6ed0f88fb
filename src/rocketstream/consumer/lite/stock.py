"""What was pulled and not polled yet: filled by the I/O thread, emptied by whoever polls.

The rule of this file: one lock and at most one wake-up for each pull's messages, never for each message; and nothing is
lost to somebody who stops waiting. Who waits is told only that there may be something, and takes it for himself: so a
wait that is given up at the last moment has taken nothing, and wakes the next one instead.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterable, Sequence
from concurrent.futures import Future
from contextlib import suppress
from typing import NamedTuple

from rocketstream.consumer.process_queue import ProcessQueue
from rocketstream.message import MessageQueue, ReceivedMessage


class LiteProcessQueue(ProcessQueue):
    """The messages of a queue that were pulled ahead, and how far the program has come with it."""

    __slots__ = ("done", "position")

    def __init__(self, queue: MessageQueue, *, now: float = 0.0, position: int = -1) -> None:
        super().__init__(queue, now=now)
        #: One past what was polled; -1 before anything was.
        self.position = position
        #: One past what was polled before the last poll: what the program has finished.
        self.done = position


class Batch(NamedTuple):
    """What one pull brought, or what is left of it."""

    process_queue: LiteProcessQueue
    messages: Sequence[ReceivedMessage]


class Stock:
    """Batches in the order in which they were pulled. All methods are for any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._ready: deque[Batch] = deque()
        self._waiting: deque[Future[None]] = deque()
        self.paused: frozenset[MessageQueue] = frozenset()
        """The queues whose messages are held back."""
        self.count = 0
        """How many messages are here."""
        self.closed = False

    def __repr__(self) -> str:
        state = "closed, " if self.closed else ""
        return f"<Stock {state}{self.count} messages in {len(self._ready)} batches, {len(self._waiting)} wait for some>"

    @property
    def batches(self) -> int:
        """How many batches are here."""
        return len(self._ready)

    def put(self, batch: Batch) -> None:
        """Something was pulled."""
        with self._lock:
            if self.closed:
                return
            self._ready.append(batch)
            self.count += len(batch.messages)
            waiter = self._next_waiting()
        if waiter is not None:
            waiter.set_result(None)

    def put_back(self, batch: Batch) -> None:
        """Something was taken and not given to the program: it comes next, unless its queue was lost."""
        with self._lock:
            if self.closed or batch.process_queue.dropped:
                return
            self._ready.appendleft(batch)
            self.count += len(batch.messages)
            waiter = self._next_waiting()
        if waiter is not None:
            waiter.set_result(None)

    def take(self) -> Batch | None:
        """The next batch of a queue that is still ours and not paused; None if there is none."""
        with self._lock:
            if self.closed:
                return None
            ready, paused = self._ready, self.paused
            while ready:
                if paused:
                    at = next((n for n, one in enumerate(ready) if one.process_queue.queue not in paused), None)
                    if at is None:
                        return None
                    batch = ready[at]
                    del ready[at]
                else:
                    batch = ready.popleft()
                self.count -= len(batch.messages)
                if not batch.process_queue.dropped:
                    return batch
            return None

    def wait(self) -> Future[None] | None:
        """A future that is done when it is worth looking again; None: it is now."""
        with self._lock:
            if self.closed or any(one.process_queue.queue not in self.paused for one in self._ready):
                return None
            waiter: Future[None] = Future()
            self._waiting.append(waiter)
            return waiter

    def give_up(self, waiter: Future[None]) -> None:
        """Whoever waited does not any more; if it was woken, another is woken in its place."""
        next_waiter = None
        with self._lock:
            if waiter.cancelled() or waiter.cancel():
                with suppress(ValueError):  # taken out already
                    self._waiting.remove(waiter)
            elif self._ready:
                next_waiter = self._next_waiting()
        if next_waiter is not None:
            next_waiter.set_result(None)

    def _next_waiting(self) -> Future[None] | None:
        # With the lock held.
        while self._waiting:
            waiter = self._waiting.popleft()
            if waiter.set_running_or_notify_cancel():
                return waiter
        return None

    def pause(self, queues: Iterable[MessageQueue]) -> None:
        """Hold the messages of these queues back."""
        with self._lock:
            self.paused |= frozenset(queues)

    def resume(self, queues: Iterable[MessageQueue]) -> None:
        """Give out the messages of these queues again."""
        with self._lock:
            self.paused -= frozenset(queues)
            waiting = list(filter(None, (self._next_waiting() for _ in range(len(self._waiting)))))
        for waiter in waiting:
            waiter.set_result(None)

    def purge(self) -> None:
        """Forget the messages of queues that were lost, or moved in by a seek."""
        with self._lock:
            if any(one.process_queue.dropped for one in self._ready):
                self._ready = deque(one for one in self._ready if not one.process_queue.dropped)
                self.count = sum(len(one.messages) for one in self._ready)

    def close(self) -> None:
        """Give out nothing any more; whoever waits looks, and finds that out."""
        with self._lock:
            self.closed = True
            self._ready.clear()
            self.count = 0
            waiting = list(filter(None, (self._next_waiting() for _ in range(len(self._waiting)))))
        for waiter in waiting:
            waiter.set_result(None)
