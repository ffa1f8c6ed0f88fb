"""Pulls that wait for a message: held by queue, woken when one arrives that they want, or when their time is over.

The rule of this file: a poll that waits costs nothing but its memory and one timer. Nobody walks over all of them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Final, TypeVar

from rocketstream.broker.connection import ClientConnection
from rocketstream.broker.dispatch import Dispatcher, Handler
from rocketstream.broker.store.values import Match, MessageStore, Stored
from rocketstream.clock import Clock, Timer

_Key = TypeVar("_Key")

#: RocketMQ looks after its held requests so often: by then one is told to move on past messages that it does not want.
CATCH_UP_SECONDS: Final = 5.0


class HeldPoll:
    """One request that waits."""

    __slots__ = ("connection", "match", "offset", "queue", "timer", "wake")

    def __init__(
        self,
        queue: tuple[str, int],
        offset: int,
        match: Match | None,
        connection: ClientConnection,
        wake: Callable[[], None],
    ) -> None:
        self.queue = queue
        self.offset = offset
        self.match = match
        self.connection = connection
        self.wake = wake
        self.timer: Timer | None = None

    def __repr__(self) -> str:
        return f"<HeldPoll {self.queue[0]}:{self.queue[1]} at {self.offset} of {self.connection.address}>"


class LongPolls:
    """All requests that wait, by the queue that they wait for."""

    def __init__(self, *, clock: Clock, store: MessageStore, dispatcher: Dispatcher) -> None:
        self._clock = clock
        self._store = store
        # Dicts for their order: who waits longest is answered first.
        self._by_queue: dict[tuple[str, int], dict[HeldPoll, None]] = {}
        self._by_connection: dict[ClientConnection, dict[HeldPoll, None]] = {}
        self._catching_up: dict[tuple[str, int], Timer] = {}
        self._woken: list[HeldPoll] = []
        store.appended.append(self._appended)
        dispatcher.when_closed.append(self._closed)

    def __repr__(self) -> str:
        return f"<LongPolls {self.held} on {len(self._by_queue)} queues>"

    @property
    def held(self) -> int:
        """How many wait."""
        return sum(map(len, self._by_queue.values()))

    def start(self) -> None:
        """Nothing runs by itself."""

    def stop(self) -> None:
        """Let go of all of them: nobody is left to be answered."""
        for polls in list(self._by_queue.values()):
            for poll in list(polls):
                self._let_go(poll)
        for timer in self._catching_up.values():
            timer.cancel()
        self._catching_up.clear()
        self._woken.clear()

    def handlers(self) -> Mapping[int, Handler]:
        """It answers nothing by itself."""
        return {}

    def hold(
        self,
        topic: str,
        queue_id: int,
        offset: int,
        match: Match | None,
        seconds: float,
        connection: ClientConnection,
        wake: Callable[[], None],
    ) -> None:
        """Call `wake` when a message at `offset` or later matches, or after so many seconds; not if the client goes."""
        poll = HeldPoll((topic, queue_id), offset, match, connection, wake)
        self._by_queue.setdefault(poll.queue, {})[poll] = None
        self._by_connection.setdefault(connection, {})[poll] = None
        poll.timer = self._clock.call_later(seconds, self._time_is_over, poll)

    # --- what ends the waiting -----------------------------------------------------------------------------------

    def _appended(self, stored: Stored) -> None:
        queue = (stored.topic, stored.queue_id)
        polls = self._by_queue.get(queue)
        if polls is None:
            return
        passed_by = False
        for poll in list(polls):
            if stored.queue_offset < poll.offset:
                continue
            if poll.match is None or poll.match(stored.tags_code, lambda: self._store.record(stored.position) or b""):
                self._wake(poll)
            else:
                passed_by = True
        if passed_by and queue not in self._catching_up:
            self._catching_up[queue] = self._clock.call_later(CATCH_UP_SECONDS, self._catch_up, queue)

    def _catch_up(self, queue: tuple[str, int]) -> None:
        del self._catching_up[queue]
        newest = self._store.max_offset(*queue)
        for poll in list(self._by_queue.get(queue, ())):
            if newest > poll.offset:
                self._wake(poll)

    def _time_is_over(self, poll: HeldPoll) -> None:
        self._let_go(poll)
        poll.wake()

    def _closed(self, connection: ClientConnection) -> None:
        for poll in list(self._by_connection.get(connection, ())):
            self._let_go(poll)

    def _wake(self, poll: HeldPoll) -> None:
        self._let_go(poll)
        # Not at once: a batch, or what else arrived with this message, is to be in the answer, too.
        if not self._woken:
            asyncio.get_running_loop().call_soon(self._run_woken)
        self._woken.append(poll)

    def _run_woken(self) -> None:
        woken, self._woken = self._woken, []
        for poll in woken:
            if not poll.connection.closed:
                poll.wake()

    def _let_go(self, poll: HeldPoll) -> None:
        if poll.timer is not None:
            poll.timer.cancel()
        _discard(self._by_queue, poll.queue, poll)
        _discard(self._by_connection, poll.connection, poll)


def _discard(table: dict[_Key, dict[HeldPoll, None]], key: _Key, poll: HeldPoll) -> None:
    polls = table.get(key)
    if polls is not None:
        polls.pop(poll, None)
        if not polls:
            del table[key]
