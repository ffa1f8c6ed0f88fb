"""Popping in order: a queue gives nothing more until what was popped of it is done or its time is over.

(RocketMQ's ConsumerOrderInfoManager.) The group's offset moves with the acknowledgements, so nothing needs a lease:
what is not acknowledged is read again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from rocketstream.broker.pop.retry_topics import kind_of
from rocketstream.broker.state import StateFiles
from rocketstream.clock import Clock, Timer

_STATE: Final = "pop_order"
#: What nobody popped for so long is forgotten.
_FORGET_MS: Final = 24 * 3600 * 1000
NOT_POPPED: Final = -1
OTHER_POP: Final = -2


class OrderKey(NamedTuple):
    """A queue, as a group pops it."""

    topic: str
    group: str
    queue_id: int


@dataclass(slots=True, kw_only=True)
class OrderedPop:
    """What was popped of a queue last."""

    attempt_id: str | None
    pop_time: int
    invisible_time: int
    offsets: list[int]
    last_consumed: int
    open: set[int]
    visible_at: dict[int, int] = field(default_factory=dict)
    """When messages come back whose lease was changed."""
    failed: dict[int, int] = field(default_factory=dict)
    """How often messages were popped before."""

    def free_at(self, now: int) -> int | None:
        """When the first message that still blocks comes back; None when nothing blocks."""
        for offset in self.offsets:
            if offset in self.open:
                visible = self.visible_at.get(offset, self.pop_time + self.invisible_time)
                if now < visible:
                    return visible
        return None

    def next_offset(self) -> int:
        """Where the group is: at the first message that is open, or behind all."""
        return next((offset for offset in self.offsets if offset in self.open), self.offsets[-1] + 1)


class Ordering:
    """The blocked queues. `freed` is called with a queue when the time of what blocked it is over."""

    def __init__(self, *, clock: Clock, state: StateFiles, freed: Callable[[OrderKey], None]) -> None:
        self._clock = clock
        self._state = state
        self._freed = freed
        self._pops: dict[OrderKey, OrderedPop] = {}
        self._timers: dict[OrderKey, Timer] = {}

    def __repr__(self) -> str:
        return f"<Ordering {len(self._pops)} queues>"

    def is_blocked(self, key: OrderKey, attempt_id: str | None, invisible_time: int) -> bool:
        """Whether a pop has to wait; one that repeats an attempt gets what that one got."""
        popped = self._pops.get(key)
        if popped is None or (popped.attempt_id is not None and popped.attempt_id == attempt_id):
            return False
        if popped.invisible_time <= 0:
            popped.invisible_time = invisible_time
        return popped.free_at(self._clock.wall_ms()) is not None

    def popped(
        self, key: OrderKey, attempt_id: str | None, pop_time: int, invisible_time: int, offsets: Sequence[int]
    ) -> list[str]:
        """Messages were popped in order; what the answer says of how often each was popped before."""
        now = OrderedPop(
            attempt_id=attempt_id,
            pop_time=pop_time,
            invisible_time=invisible_time,
            offsets=list(offsets),
            last_consumed=self._clock.wall_ms(),
            open=set(offsets),
        )
        before = self._pops.get(key)
        if before is not None:
            if before.attempt_id is not None and before.attempt_id == attempt_id:
                now.failed = before.failed
            else:
                now.failed = {
                    offset: before.failed.get(offset, 0) + 1 for offset in offsets if offset in before.offsets
                }
        self._pops[key] = now
        self._watch(key, now)
        kind = kind_of(key.topic)
        told = [f"{kind} qo{key.queue_id}%{offset} {times}" for offset, times in now.failed.items()]
        # Old clients look only for the queue: the least of its messages.
        least = min(now.failed.values(), default=0) if len(now.failed) == len(now.offsets) else 0
        return [*told, f"{kind} {key.queue_id} {least}"]

    def acknowledge(self, key: OrderKey, offset: int, pop_time: int) -> int:
        """Where the group is after a message is done; NOT_POPPED or OTHER_POP if it is none of those that are out."""
        popped = self._pops.get(key)
        if popped is None:
            return offset + 1
        if pop_time != popped.pop_time:
            return OTHER_POP
        if offset not in popped.offsets:
            return NOT_POPPED
        popped.open.discard(offset)
        self._watch(key, popped)
        return popped.next_offset()

    def change(self, key: OrderKey, offset: int, pop_time: int, visible_at: int) -> None:
        """A message comes back at another time."""
        popped = self._pops.get(key)
        if popped is not None and popped.pop_time == pop_time:
            popped.visible_at[offset] = visible_at
            self._watch(key, popped)

    def clear(self, key: OrderKey) -> None:
        """A queue is read from elsewhere now: nothing blocks it."""
        self._pops.pop(key, None)
        if timer := self._timers.pop(key, None):
            timer.cancel()

    # --- time ----------------------------------------------------------------------------------------------------

    def _watch(self, key: OrderKey, popped: OrderedPop) -> None:
        if timer := self._timers.pop(key, None):
            timer.cancel()
        now = self._clock.wall_ms()
        free_at = popped.free_at(now)
        if free_at is not None:
            self._timers[key] = self._clock.call_later((free_at - now) / 1000, self._look, key)

    def _look(self, key: OrderKey) -> None:
        self._timers.pop(key, None)
        popped = self._pops.get(key)
        if popped is None:
            return
        if popped.free_at(self._clock.wall_ms()) is None:
            self._freed(key)
        else:
            self._watch(key, popped)

    def stop(self) -> None:
        """End the timers."""
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()

    # --- over restarts -------------------------------------------------------------------------------------------

    def load(self) -> None:
        """Take over what was saved."""
        for saved in self._state.load(_STATE) or ():
            key = OrderKey(saved["topic"], saved["group"], saved["queue"])
            self._pops[key] = popped = OrderedPop(
                attempt_id=saved["attempt"],
                pop_time=saved["popped"],
                invisible_time=saved["invisible"],
                offsets=saved["offsets"],
                last_consumed=saved["consumed"],
                open=set(saved["open"]),
                visible_at={int(offset): at for offset, at in saved["visible"].items()},
                failed={int(offset): times for offset, times in saved["failed"].items()},
            )
            self._watch(key, popped)

    def save(self, is_wanted: Callable[[OrderKey], bool]) -> None:
        """Save it, without queues that are gone or were not popped for a day."""
        now = self._clock.wall_ms()
        for key, popped in list(self._pops.items()):
            if now - popped.last_consumed > _FORGET_MS or not is_wanted(key):
                self.clear(key)
        self._state.save(_STATE, [_saved(key, popped) for key, popped in self._pops.items()])


def _saved(key: OrderKey, popped: OrderedPop) -> dict[str, Any]:
    return {
        "topic": key.topic,
        "group": key.group,
        "queue": key.queue_id,
        "attempt": popped.attempt_id,
        "popped": popped.pop_time,
        "invisible": popped.invisible_time,
        "offsets": popped.offsets,
        "consumed": popped.last_consumed,
        "open": sorted(popped.open),
        "visible": {str(offset): at for offset, at in popped.visible_at.items()},
        "failed": {str(offset): times for offset, times in popped.failed.items()},
    }
