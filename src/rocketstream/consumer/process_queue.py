"""The messages of one queue that are pulled and not finished: what waits, what is being consumed, what may be stored.

The rule of this file: whatever order messages come and finish in, every question of the pull path (first, last, span,
count, size, the offset safe to store) is answered without a pass over what is cached (PQ-10).

Offsets come in order and finish nearly in order. So a dict holds the truth, and a deque of offsets its order: what is
put in order is appended in bulk, and an offset that is gone from the dict is skipped when it reaches an end of the
deque. An offset that comes late (below one already seen) goes to two heaps, for the first and for the last, skipped
likewise. When more entries are dead than alive the order is made anew, so that one message that never finishes can't
make it grow; a message pays for that once, in a share of a sort of what is sorted already.

One plain lock, held for a few instructions, keeps it whole: orderly workers take and commit off the I/O thread. Flags
and times are single values, read and written without it. Times are monotonic seconds, given by the caller.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from heapq import heappop, heappush, nsmallest
from itertools import islice, repeat
from operator import attrgetter, lt
from threading import Lock
from typing import Final

from rocketstream.message import MessageQueue, ReceivedMessage

#: Seconds after which a lock that the broker has not renewed counts as lost (PQ-09), and a pull as hanging (PULL-03).
LOCK_EXPIRES_AFTER: Final = 30.0
PULL_EXPIRES_AFTER: Final = 120.0
#: How many messages one pass of the clean-up sends back (PQ-08).
STALE_PER_PASS: Final = 16

# So many dead entries are kept for nothing before the order of a nearly empty queue is made anew.
_SLACK: Final = 256
_offset_of = attrgetter("queue_offset")
_size_of = attrgetter("body_size")


class ProcessQueue:
    """The cached messages of one assigned queue; once dropped, whoever still holds it stops."""

    __slots__ = (
        "_cached",
        "_late",
        "_late_from_end",
        "_lock",
        "_order",
        "_taken",
        "backlog",
        "consuming",
        "count",
        "dropped",
        "last_consume_at",
        "last_pull_at",
        "locked",
        "locked_at",
        "max_offset_seen",
        "queue",
        "size",
    )

    def __init__(self, queue: MessageQueue, *, now: float = 0.0) -> None:
        self.queue = queue
        #: The queue is not ours any more; never undone.
        self.dropped = False
        self.last_pull_at = now
        #: Set by `take`; without take (concurrent) by whoever calls `remove`.
        self.last_consume_at = now
        self.locked = False
        self.locked_at = now
        #: An orderly worker has this queue, or is about to.
        self.consuming = False
        #: Messages cached, those being consumed included, and the bytes of their bodies.
        self.count = 0
        self.size = 0
        #: How far behind the broker's newest message the last pull was.
        self.backlog = 0
        #: The highest offset put since the queue was last empty; -1 before the first.
        self.max_offset_seen = -1
        self._lock = Lock()
        self._cached: dict[int, ReceivedMessage] = {}
        # Orderly: taken and neither committed nor rolled back. Counted, but in neither order.
        self._taken: dict[int, ReceivedMessage] = {}
        # Ascending.
        self._order: deque[int] = deque()
        self._late: list[int] = []
        self._late_from_end: list[int] = []

    def __repr__(self) -> str:
        with self._lock:
            held = f"offsets={self._first()}..{self._last()}" if self._cached else "offsets=none"
            held += f" taken={len(self._taken)}" if self._taken else ""
        flags = "".join(f" {name}" for name in ("locked", "dropped", "consuming") if getattr(self, name))
        queue = f"{self.queue.topic}@{self.queue.broker_name}:{self.queue.queue_id}"
        return f"<ProcessQueue {queue} {held} count={self.count} size={self.size}{flags}>"

    def __contains__(self, message: ReceivedMessage) -> bool:
        """Whether this message waits here, unfinished and not taken."""
        return message.queue_offset in self._cached

    # --- what is asked on the pull path -----------------------------------------------------------------------------

    @property
    def first_offset(self) -> int | None:
        """The smallest offset cached and not taken."""
        with self._lock:
            return self._first() if self._cached else None

    @property
    def last_offset(self) -> int | None:
        """The largest offset cached and not taken."""
        with self._lock:
            return self._last() if self._cached else None

    @property
    def span(self) -> int:
        """How far apart the first and the last offset are that are cached and not taken."""
        with self._lock:
            return self._last() - self._first() if self._cached else 0

    def oldest(self) -> ReceivedMessage | None:
        """The message with the smallest offset, be it taken or not: what the stored offset waits for."""
        with self._lock:
            if self._taken:
                return self._taken[min(self._taken)]
            return self._cached[self._first()] if self._cached else None

    def put(self, messages: Sequence[ReceivedMessage], max_offset: int | None) -> bool:
        """Cache what was pulled; True when an orderly request is to be dispatched, who then has the queue (PQ-02).

        An offset that is here already stays as it is, its consumption may have begun. `max_offset` is the MAX_OFFSET
        that came with the messages.
        """
        offsets: list[int] = list(map(_offset_of, messages))
        with self._lock:
            if not self.count:
                self._forget_order()
            if offsets:
                if offsets[0] > self.max_offset_seen and all(map(lt, offsets, islice(offsets, 1, None))):
                    self._cached.update(zip(offsets, messages, strict=True))
                    self._order.extend(offsets)
                    self.max_offset_seen = offsets[-1]
                    self.count += len(offsets)
                    self.size += sum(map(_size_of, messages))
                else:
                    self._put_each(messages)
                self._renew_order()
                # As Java: a backlog that can't be is no news.
                if max_offset is not None and max_offset > offsets[-1]:
                    self.backlog = max_offset - offsets[-1]
            if self.consuming or not self._cached:
                return False
            self.consuming = True
            return True

    # --- concurrent -------------------------------------------------------------------------------------------------

    def remove(self, messages: Sequence[ReceivedMessage]) -> int:
        """These are finished; the offset safe to store (PQ-07), or -1 when there was nothing cached at all."""
        # As `with self._lock`, at half its price in 3.11: this and the next two are done for every message.
        lock = self._lock
        lock.acquire()
        try:
            cached = self._cached
            if not cached:
                return -1
            removed = list(map(cached.pop, map(_offset_of, messages), repeat(None)))
            if None in removed:  # taken out before: sent back as stale, or never here
                removed = [message for message in removed if message is not None]
            self.count -= len(removed)
            self.size -= sum(map(_size_of, removed))
            if not cached:
                if not self.count:
                    self.size = 0
                return self.max_offset_seen + 1
            if self._late:
                return self._first()
            # `_first()` without the call.
            order = self._order
            while (first := order[0]) not in cached:
                order.popleft()
            return first
        finally:
            lock.release()

    def stale(self, started_before: float, limit: int = STALE_PER_PASS) -> list[ReceivedMessage]:
        """The first messages whose consumption began before that moment and has not finished (PQ-08)."""
        with self._lock:
            found = [
                message
                for message in self._cached.values()
                # Not set until a worker begins with it: waiting for a worker is not consuming.
                if (started := message.consume_started) is not None and started < started_before
            ]
        return nsmallest(limit, found, key=_offset_of)

    # --- orderly ----------------------------------------------------------------------------------------------------

    def take(self, n: int, now: float) -> list[ReceivedMessage]:
        """Move the first `n` to the consuming set; with nothing left the queue is given back (PQ-04)."""
        lock = self._lock
        lock.acquire()
        try:
            self.last_consume_at = now
            cached = self._cached
            result: list[ReceivedMessage] = []
            for _ in range(min(n, len(cached))):
                offset = self._first()
                message = self._taken[offset] = cached.pop(offset)
                result.append(message)
            if not result:
                self.consuming = False
            return result
        finally:
            lock.release()

    def commit(self) -> int:
        """The consuming set is finished; its last offset + 1, or -1 when nothing was taken (PQ-05)."""
        lock = self._lock
        lock.acquire()
        try:
            taken = self._taken
            if not taken:
                return -1
            self.count -= len(taken)
            self.size = self.size - sum(map(_size_of, taken.values())) if self.count else 0
            offset = max(taken) + 1
            taken.clear()
            return offset
        finally:
            lock.release()

    def rollback(self) -> None:
        """All of the consuming set is to be consumed again (PQ-06)."""
        with self._lock:
            self._put_back(sorted(self._taken))

    def consume_again(self, messages: Sequence[ReceivedMessage]) -> None:
        """These of the consuming set are to be consumed again (PQ-06)."""
        with self._lock:
            # What was cleared meanwhile stays away: it is not counted any more.
            self._put_back(sorted(self._taken.keys() & set(map(_offset_of, messages))))

    @property
    def taken_offsets(self) -> list[int]:
        """The offsets of the consuming set, ascending: what a person asks for."""
        with self._lock:
            return sorted(self._taken)

    # --- the queue as a whole ---------------------------------------------------------------------------------------

    def drop(self) -> None:
        """The queue is not ours any more, for ever."""
        self.dropped = True

    def clear(self) -> None:
        """Forget all messages, those being consumed too."""
        with self._lock:
            self._cached.clear()
            self._taken.clear()
            self._forget_order()
            self.count = self.size = 0

    def set_locked(self, now: float) -> None:
        """The broker says that this client has the queue's lock."""
        self.locked_at = now
        self.locked = True

    def set_unlocked(self) -> None:
        """The lock is given back or lost; when it was last held stays known."""
        self.locked = False

    def lock_expired(self, now: float, after: float = LOCK_EXPIRES_AFTER) -> bool:
        """Whether the broker's last yes is too old to be trusted (PQ-09)."""
        return now - self.locked_at > after

    def pull_expired(self, now: float, after: float = PULL_EXPIRES_AFTER) -> bool:
        """Whether nobody has tried to pull for so long that the pull must have been lost (PULL-03)."""
        return now - self.last_pull_at > after

    # --- order; all with the lock held ------------------------------------------------------------------------------

    # Every cached offset is in the deque or in both heaps, so with nothing alive in the heaps the deque is all.

    def _first(self) -> int:
        # Only when something is cached.
        cached, order, late = self._cached, self._order, self._late
        while late and late[0] not in cached:
            heappop(late)
        while order and order[0] not in cached:
            order.popleft()
        if not late:
            return order[0]
        return min(late[0], order[0]) if order else late[0]

    def _last(self) -> int:
        # Only when something is cached.
        cached, order, late = self._cached, self._order, self._late_from_end
        while late and -late[0] not in cached:
            heappop(late)
        while order and order[-1] not in cached:
            order.pop()
        if not late:
            return order[-1]
        return max(-late[0], order[-1]) if order else -late[0]

    def _put_each(self, messages: Sequence[ReceivedMessage]) -> None:
        for message in messages:
            offset = message.queue_offset
            if offset in self._cached or offset in self._taken:
                continue
            self._cached[offset] = message
            self.count += 1
            self.size += message.body_size
            if offset > self.max_offset_seen:
                self._order.append(offset)
                self.max_offset_seen = offset
            else:
                self._put_late(offset)

    def _put_late(self, offset: int) -> None:
        heappush(self._late, offset)
        heappush(self._late_from_end, -offset)

    def _put_back(self, offsets: list[int]) -> None:
        if not offsets:
            return
        cached, order = self._cached, self._order
        while order and order[0] not in cached:
            order.popleft()
        # What was taken was the first, so this is where it belongs, unless something came late since.
        if not order or offsets[-1] < order[0]:
            order.extendleft(reversed(offsets))
        else:
            for offset in offsets:
                self._put_late(offset)
        for offset in offsets:
            cached[offset] = self._taken.pop(offset)
        self._renew_order()

    def _renew_order(self) -> None:
        entries = len(self._order) + len(self._late) + len(self._late_from_end)
        if entries > 2 * len(self._cached) + _SLACK:
            self._order = deque(sorted(self._cached))
            self._late.clear()
            self._late_from_end.clear()

    def _forget_order(self) -> None:
        self._order.clear()
        self._late.clear()
        self._late_from_end.clear()
        self.max_offset_seen = -1
