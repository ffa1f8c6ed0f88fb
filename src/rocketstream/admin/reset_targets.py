"""Where a reset goes, and what speaks against it: pure decisions over what the brokers have told.

A reset that would do nothing, or something else than whoever asks expects, is refused with a sentence; there is no way
back from an offset that was overwritten.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal

from rocketstream.admin.moments import EARLIEST, LATEST, Moment, resolve_moment
from rocketstream.errors import ConfigurationError
from rocketstream.message import MessageQueue
from rocketstream.wire.bodies.members import ConsumerConnection
from rocketstream.wire.codes import MessageModel

# The clocks of an operator's machine and of a broker may differ by so much.
_CLOCK_SLACK_MS: Final = 300_000


@dataclass(frozen=True, slots=True)
class ResetTarget:
    """Where to, as it was asked; exactly one of the first four says it."""

    place: Literal["earliest", "latest"] | int | None = None
    offset: int | None = None
    offsets: Mapping[tuple[str, int], int] | None = None
    """(broker, queue id) → offset: only these queues are moved."""
    like: str | None = None
    """A group (its full name) whose offsets are taken over."""
    broker_name: str | None = None
    queue_id: int | None = None

    @classmethod
    def make(
        cls,
        to: Moment | None,
        offset: int | None,
        offsets: Mapping[MessageQueue | tuple[str, int], int] | None,
        like: str | None,
        broker_name: str | None,
        queue_id: int | None,
        now_ms: int,
    ) -> ResetTarget:
        """The target that the arguments ask for, or a `ConfigurationError` that says what is wrong with them."""
        if sum(way is not None for way in (to, offset, offsets, like)) != 1:
            raise ConfigurationError(
                "a reset needs to=, offset=, offsets= or like=, and only one of them:"
                f" to={to!r}, offset={offset!r}, offsets={offsets!r}, like={like!r}"
            )
        place = None if to is None else resolve_moment("to", to)
        if isinstance(place, int) and place > now_ms + _CLOCK_SLACK_MS:
            raise ConfigurationError(f"to={to!r} is in the future: 'latest' skips everything that there is now")
        for name, value in (("offset", offset), ("queue_id", queue_id)):
            if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 0):
                raise ConfigurationError(f"{name}={value!r} must be a whole number, 0 or greater")
        by_queue = None if offsets is None else _by_queue(offsets)
        if by_queue is not None and (broker_name is not None or queue_id is not None):
            raise ConfigurationError("offsets= names its queues: broker_name= and queue_id= do not go with it")
        return cls(place, offset, by_queue, like, broker_name, queue_id)

    @property
    def is_a_time_for_all(self) -> bool:
        """Whether it is what an old broker can tell members: a time, in all queues."""
        return self.place is not None and self.broker_name is None and self.queue_id is None

    def wants(self, queue: MessageQueue) -> bool:
        """Whether a queue is to be moved."""
        if self.offsets is not None:
            return (queue.broker_name, queue.queue_id) in self.offsets
        return self.broker_name in (None, queue.broker_name) and self.queue_id in (None, queue.queue_id)

    def wants_broker(self, name: str) -> bool:
        """Whether a queue of a broker may be wanted."""
        if self.offsets is not None:
            return any(broker == name for broker, _ in self.offsets)
        return self.broker_name in (None, name)

    def fixed_offset(
        self, queue: MessageQueue, limits: tuple[int, int], liked: int | None, *, shown_topic: str, shown_group: str
    ) -> int | None:
        """Where a queue goes, unless that is a time which has to be looked up: then None.

        `limits` are its first and its next offset, `liked` where the other group is.
        """
        low, high = limits
        if self.like is not None:
            if liked is None:
                raise ConfigurationError(
                    f"group {shown_group!r} has committed no offset in queue {queue.queue_id} of topic"
                    f" {shown_topic!r} on {queue.broker_name}: there is none to take over"
                )
            return min(max(liked, low), high)
        wanted = self.offset if self.offsets is None else self.offsets[queue.broker_name, queue.queue_id]
        if wanted is not None:
            if not low <= wanted <= high:
                raise ConfigurationError(
                    f"offset={wanted} is not in queue {queue.queue_id} of topic {shown_topic!r} on"
                    f" {queue.broker_name}: it holds {low} to {high}"
                )
            return wanted
        return low if self.place == EARLIEST else high if self.place == LATEST else None

    def missing(self, moved: Mapping[MessageQueue, int]) -> list[str]:
        """The queues that were named and that there are not."""
        there = {(queue.broker_name, queue.queue_id) for queue in moved}
        return [
            f"{broker}:{queue_id}" for broker, queue_id in sorted(self.offsets or {}) if (broker, queue_id) not in there
        ]


def refusal(
    online: ConsumerConnection | None,
    full_topic: str,
    old: Mapping[MessageQueue, int | None],
    *,
    group: str,
    topic: str,
) -> str | None:
    """Why a reset would surprise, given who is online; None when nothing speaks against it."""
    if online is None:
        return None
    if online.message_model == MessageModel.BROADCASTING:
        return (
            f"group {group!r} is BROADCASTING: each member keeps offsets of its own, and nobody reads those that the"
            " broker has; start the members with another start_from and without their offset files"
        )
    wanted = sorted(online.subscription_table)
    # 0 is what a 4.9 broker tells of a group without an offset.
    if wanted and full_topic not in wanted and not any(old.values()):
        return (
            f"group {group!r} does not consume topic {topic!r}: its members subscribe to {', '.join(wanted)}, and it"
            " has no offset there that could be moved"
        )
    return None


def _by_queue(offsets: Mapping[MessageQueue | tuple[str, int], int]) -> dict[tuple[str, int], int]:
    if not isinstance(offsets, Mapping) or not offsets:
        raise ConfigurationError(f"offsets={offsets!r} must map queues, or (broker name, queue id), to offsets")
    found: dict[tuple[str, int], int] = {}
    for queue, offset in offsets.items():
        place = (queue.broker_name, queue.queue_id) if isinstance(queue, MessageQueue) else queue
        if not (isinstance(place, tuple) and len(place) == 2 and isinstance(place[0], str) and _is_number(place[1])):
            raise ConfigurationError(f"offsets: {queue!r} is neither a MessageQueue nor (broker name, queue id)")
        if not _is_number(offset):
            raise ConfigurationError(f"offsets: {offset!r} for {place[0]}:{place[1]} is no offset: 0 or greater")
        found[place[0], place[1]] = offset
    return found


def _is_number(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0
