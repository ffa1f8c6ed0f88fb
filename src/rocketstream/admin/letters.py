"""Dead letters as values, and the decisions about them: which are meant, where they came from, what a copy looks like.

Pure functions. A dead letter is a message of `%DLQ%group`: RocketMQ puts it there with the properties that it had and
a few of its own, which say where it came from. A copy that is sent again keeps what the sender wrote and the unique id,
and says in a property from which place among the dead letters it was taken; that is how a second replay knows it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, TypedDict

from rocketstream.admin.moments import EARLIEST, LATEST, Moment, resolve_moment
from rocketstream.admin.showing import message_to_dict
from rocketstream.admin.values import Value
from rocketstream.cluster.names import DLQ_PREFIX, RETRY_PREFIX
from rocketstream.errors import ConfigurationError
from rocketstream.message import MessageQueue, ReceivedMessage
from rocketstream.property_names import KEY_SEPARATOR, RESERVED_PROPERTIES, PropertyName
from rocketstream.wire.subscription import SUBSCRIBE_ALL, subscription

#: A copy's property that says where the dead letter lay: `%DLQ%billing@broker-a:0:17`.
REPLAYED_FROM: Final = "DLQ_REPLAYED_FROM"
#: A copy's property that says how often the message was replayed, this time included.
REPLAY_COUNT: Final = "DLQ_REPLAY_COUNT"

#: What RocketMQ gives a meaning, and a copy needs all the same to be the message that it was.
_KEPT: Final = frozenset(
    {
        PropertyName.KEYS,
        PropertyName.TAGS,
        PropertyName.UNIQUE_KEY,
        PropertyName.INSTANCE_ID,
        PropertyName.BUYER_ID,
        PropertyName.CORRELATION_ID,
        PropertyName.REPLY_TO_CLIENT,
        PropertyName.TTL,
        PropertyName.MESSAGE_TYPE,
        PropertyName.CLUSTER,
    }
)
#: What brokers add without reserving the name: of another life of the message (a transaction, a batch, a timer).
_LEFT_BEHIND: Final = frozenset(
    {
        PropertyName.INNER_NUM,
        PropertyName.INNER_BASE,
        PropertyName.CHECK_IMMUNITY_TIME,
        PropertyName.TRANSACTION_ID,
        PropertyName.TRANSACTION_CHECK_TIMES,
        PropertyName.FORWARD_QUEUE_ID,
        PropertyName.REDIRECT,
        PropertyName.INNER_MULTI_DISPATCH,
    }
)


@dataclass(frozen=True, slots=True)
class DeadLetter(Value):
    """A message that a group failed to consume too often, or gave up at once."""

    origin_topic: str | None
    """The topic that it was sent to; None where nothing says so."""
    message_id: str
    """The producer's unique id, which it has kept through all retries."""
    origin_message_id: str | None
    """The offset id of the message as it was first stored."""
    broker_name: str
    queue_id: int
    queue_offset: int
    tags: str | None
    keys: str | None
    failures: int
    """How often it was consumed without success."""
    born_timestamp: int
    store_timestamp: int
    """When it became a dead letter."""
    size: int
    replays: int
    """How often it was replayed before it died again."""
    message: ReceivedMessage = field(repr=False, compare=False)

    @property
    def why(self) -> str:
        """What RocketMQ tells of the reason; what the listener raised is in the consumer's log only."""
        if not self.failures:
            return "not said"
        times = "once" if self.failures == 1 else f"{self.failures} times"
        return f"failed {times} since it was replayed" if self.replays else f"failed {times}"

    def to_dict(self) -> dict[str, Any]:
        """The message's own fields, and what is known of its death."""
        return {
            **message_to_dict(self.message),
            "origin_topic": self.origin_topic,
            "origin_message_id": self.origin_message_id,
            "failures": self.failures,
            "replays": self.replays,
            "size": self.size,
            "why": self.why,
        }


@dataclass(frozen=True, slots=True)
class DeadLetters(Value):
    """The dead letters of a group that match, the newest of them in full."""

    group: str
    topic: str
    """The topic they are in: `%DLQ%group`."""
    letters: tuple[DeadLetter, ...]
    """Oldest first."""
    counts: dict[str, int]
    """How many match, by original topic; "" where it is unknown."""
    scanned: int
    """How many were looked at."""
    complete: bool
    """False when there are more than `scan`: older ones were not looked at."""

    @property
    def total(self) -> int:
        """How many match."""
        return sum(self.counts.values())

    def to_dict(self) -> dict[str, Any]:
        """With the total."""
        return {
            "group": self.group,
            "topic": self.topic,
            "total": self.total,
            "counts": dict(self.counts),
            "scanned": self.scanned,
            "complete": self.complete,
            "letters": [letter.to_dict() for letter in self.letters],
        }


class Wanted(TypedDict, total=False):
    """Which dead letters are meant; without anything all are."""

    ids: Iterable[str]
    """Unique ids, offset ids, or the offset ids of the first copies."""
    key: str | None
    tags: str
    """As in a subscription: `a || b`."""
    topic: str | None
    """The original topic."""
    since: Moment | None
    """Dead since."""
    until: Moment | None


@dataclass(frozen=True, slots=True)
class LetterFilter:
    """What `Wanted` asks for, checked."""

    ids: frozenset[str] = frozenset()
    key: str | None = None
    tags: frozenset[str] = frozenset()
    topic: str | None = None
    since: int | None = None
    until: int | None = None

    @classmethod
    def make(
        cls,
        *,
        ids: Iterable[str] = (),
        key: str | None = None,
        tags: str = SUBSCRIBE_ALL,
        topic: str | None = None,
        since: Moment | None = None,
        until: Moment | None = None,
    ) -> LetterFilter:
        """The filter that was asked for; `ConfigurationError` for what can match nothing."""
        if isinstance(ids, str):
            raise ConfigurationError(f"ids={ids!r} must be a list of message ids")
        if key is not None and (not isinstance(key, str) or not key.strip()):
            raise ConfigurationError(f"key={key!r}: a key is a text that is not empty")
        begin = None if since is None else resolve_moment("since", since)
        end = None if until is None else resolve_moment("until", until)
        if begin == LATEST or end == EARLIEST:
            raise ConfigurationError(f"since={since!r}, until={until!r} leave no dead letter to look at")
        first = None if begin in (None, EARLIEST) else int(begin)
        last = None if end in (None, LATEST) else int(end)
        if first is not None and last is not None and first > last:
            raise ConfigurationError(f"since={since!r} is after until={until!r}: that leaves no dead letter to look at")
        names = frozenset(name.strip().upper() for name in ids)
        wanted = subscription(DLQ_PREFIX, tags).tags_set
        return cls(names, key, wanted, topic, first, last)

    def wants(self, letter: DeadLetter) -> bool:
        """Whether a dead letter is meant."""
        return (
            (not self.ids or bool(self.ids & ids_of(letter)))
            and (self.key is None or self.key in (letter.keys or "").split(KEY_SEPARATOR))
            and (not self.tags or letter.tags in self.tags)
            and (self.topic is None or letter.origin_topic == self.topic)
            and (self.since is None or letter.store_timestamp >= self.since)
            and (self.until is None or letter.store_timestamp <= self.until)
        )


def ids_of(letter: DeadLetter) -> set[str]:
    """All ids by which a person may know a dead letter."""
    ids = (letter.message_id, letter.message.offset_message_id, letter.origin_message_id)
    return {one.upper() for one in ids if one}


def origin_topic(properties: Mapping[str, str], group: str) -> str | None:
    """Where a dead letter of a group was sent to; both names as brokers know them."""
    told = properties.get(PropertyName.DLQ_ORIGIN_TOPIC) or properties.get(PropertyName.RETRY_TOPIC)
    if told is None or not told.startswith(RETRY_PREFIX):
        return told
    # A message that was popped comes back through a retry topic per topic, which brokers take for the original.
    for separator in "+_":
        head = f"{RETRY_PREFIX}{group}{separator}"
        if told.startswith(head):
            return told[len(head) :] or None
    return None


def place_of(letter: DeadLetter, full_topic: str) -> str:
    """Where a dead letter lies, as a copy's `DLQ_REPLAYED_FROM` tells it; the topic as brokers know it."""
    return f"{MessageQueue(full_topic, letter.broker_name, letter.queue_id)}:{letter.queue_offset}"


def copy_properties(letter: DeadLetter, place: str, retried_topic: str | None) -> dict[str, str]:
    """The properties of a copy: what the sender wrote, and where it was taken from; nothing of its failures.

    `retried_topic` is given where the copy goes to the retry topic of the group: then it says whose message it is.
    """
    had = letter.message.properties
    kept = {
        name: value
        for name, value in had.items()
        if name in _KEPT or (name not in RESERVED_PROPERTIES and name not in _LEFT_BEHIND)
    }
    kept.setdefault(PropertyName.UNIQUE_KEY, unique_id(letter))
    kept[PropertyName.WAIT_STORE_OK] = "true"
    kept[REPLAYED_FROM] = place
    kept[REPLAY_COUNT] = str(letter.replays + 1)
    if retried_topic is not None:
        kept[PropertyName.RETRY_TOPIC] = retried_topic
        if letter.origin_message_id is not None:
            kept[PropertyName.ORIGIN_MESSAGE_ID] = letter.origin_message_id
    return kept


def unique_id(letter: DeadLetter) -> str:
    """The id by which a broker's index finds the copies of a dead letter."""
    return letter.message.properties.get(PropertyName.UNIQUE_KEY) or letter.message.offset_message_id


def replays_of(properties: Mapping[str, str]) -> int:
    """How often a message was replayed."""
    text = properties.get(REPLAY_COUNT, "")
    return int(text) if text.isascii() and text.isdigit() else 0
