"""Requests that found nothing and wait: held by topic, group and queue until a message comes or their time is over."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Final

from rocketstream.broker.connection import ClientConnection
from rocketstream.broker.pop.retry_topics import retry_topic, retry_topic_v2
from rocketstream.broker.store.values import Match, Stored
from rocketstream.clock import Clock, Timer

#: RocketMQ's popPollingSize: how many wait for one queue of one group.
MAX_PER_QUEUE: Final = 1024
#: RocketMQ's maxPopPollingSize: how many wait in all.
MAX_HELD: Final = 100_000
ANY_QUEUE: Final = -1
#: RocketMQ looks up to so much too early, lest it look too late.
_EARLY_MS: Final = 50

_Place = tuple[str, str, int]


class Held(Enum):
    """Why a request is not held."""

    FULL = "FULL"
    TIME_IS_OVER = "TIME_IS_OVER"


@dataclass(slots=True, eq=False)
class Waiter:
    """One request that waits."""

    place: _Place
    connection: ClientConnection
    woken: asyncio.Future[bool]
    """True: there may be a message. False: nobody waits for the answer any more."""
    match: Match | None
    timer: Timer


class Waiters:
    """Those that wait. `last_first` wakes who came last, as RocketMQ does for notifications."""

    def __init__(self, *, clock: Clock, read: Callable[[int], bytes | None], last_first: bool = False) -> None:
        self._clock = clock
        self._read = read
        self._last_first = last_first
        self._held: dict[_Place, dict[Waiter, None]] = {}
        self._groups: dict[str, set[str]] = {}
        self._retry_topics: dict[str, tuple[str, str]] = {}
        self._count = 0

    def __repr__(self) -> str:
        return f"<Waiters {self._count}>"

    def count(self, topic: str, group: str, queue_id: int) -> int:
        """How many wait for a queue."""
        return len(self._held.get((topic, group, queue_id), ()))

    def hold(
        self, place: _Place, connection: ClientConnection, deadline: int, match: Match | None = None
    ) -> asyncio.Future[bool] | Held:
        """Wait for a message until a wall time in milliseconds; or why not."""
        if self._count >= MAX_HELD or len(self._held.get(place, ())) > MAX_PER_QUEUE:
            return Held.FULL
        left = deadline - _EARLY_MS - self._clock.wall_ms()
        if left < 0:
            return Held.TIME_IS_OVER
        topic, group, _ = place
        if group not in self._groups.setdefault(topic, set()):
            self._groups[topic].add(group)
            for name in (retry_topic(topic, group), retry_topic_v2(topic, group)):
                self._retry_topics[name] = topic, group
        woken: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        timer = self._clock.call_later((left + 1) / 1000, lambda: self._end(waiter, True))
        waiter = Waiter(place, connection, woken, match, timer)
        self._held.setdefault(place, {})[waiter] = None
        self._count += 1
        return woken

    # --- waking --------------------------------------------------------------------------------------------------

    def arrived(self, stored: Stored) -> None:
        """A message was stored: whoever waits for it looks, one of each group."""
        topic = stored.topic
        groups = self._groups.get(topic)
        if groups:
            for group in groups:
                self.wake((topic, group, ANY_QUEUE), stored)
                self.wake((topic, group, stored.queue_id), stored)
        elif topic in self._retry_topics:
            self.wake_group(*self._retry_topics[topic])

    def wake_group(self, topic: str, group: str, queue_id: int | None = None) -> None:
        """Let one of a group look: who waits for any queue first, then who waits for this one (or for any one)."""
        if self.wake((topic, group, ANY_QUEUE)):
            return
        places = (
            [(topic, group, queue_id)]
            if queue_id is not None
            else [one for one in self._held if one[:2] == (topic, group)]
        )
        for place in places:
            if self.wake(place):
                return

    def wake(self, place: _Place, stored: Stored | None = None) -> bool:
        """Let the first that waits for a queue look, unless it does not want the message that came."""
        held = self._held.get(place)
        if not held:
            return False
        waiter = next(reversed(held)) if self._last_first else next(iter(held))
        if stored is not None and waiter.match is not None and not self._wants(waiter.match, stored):
            return False
        self._end(waiter, True)
        return True

    def _wants(self, match: Match, stored: Stored) -> bool:
        return match(stored.tags_code, lambda: self._read(stored.position) or b"")

    def _end(self, waiter: Waiter, outcome: bool) -> None:
        held = self._held.get(waiter.place)
        if held is None or waiter not in held:
            return
        del held[waiter]
        if not held:
            del self._held[waiter.place]
        self._count -= 1
        waiter.timer.cancel()
        if not waiter.woken.done():
            waiter.woken.set_result(outcome)

    def forget(self, connection: ClientConnection) -> None:
        """A connection is gone, and with it those that wait on it."""
        for waiter in [one for held in self._held.values() for one in held if one.connection is connection]:
            self._end(waiter, False)

    def stop(self) -> None:
        """Nobody waits any more."""
        for waiter in [one for held in self._held.values() for one in held]:
            self._end(waiter, False)
