"""What goes into a store and what comes out, and the few verbs that a store has."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple, Protocol, TypeAlias


@dataclass(slots=True, kw_only=True)
class NewMessage:
    """A message to be stored. The store gives it its offsets, its time and its host."""

    topic: str
    queue_id: int
    body: bytes
    """As it came: compressed, if the system flag says so."""
    properties: str = ""
    """Encoded (`wire.properties`); tags and keys are indexed from it."""
    flag: int = 0
    sys_flag: int = 0
    born_timestamp: int = 0
    born_host: str = "127.0.0.1:0"
    reconsume_times: int = 0
    prepared_transaction_offset: int = 0


class Stored(NamedTuple):
    """Where a message was put."""

    topic: str
    queue_id: int
    queue_offset: int
    position: int
    """Its commit-log offset: where its record begins."""
    size: int
    tags_code: int
    """Java's hash of its tag; 0 without one."""
    timestamp: int
    """Its store time in milliseconds."""
    message_id: str
    """Host and position, as RocketMQ writes them (the "offset message id")."""


class ReadStatus(Enum):
    """What a store found at an offset (RocketMQ's GetMessageStatus)."""

    FOUND = "FOUND"
    NO_MATCHED_MESSAGE = "NO_MATCHED_MESSAGE"
    MESSAGE_WAS_REMOVING = "MESSAGE_WAS_REMOVING"
    OFFSET_FOUND_NULL = "OFFSET_FOUND_NULL"
    OFFSET_OVERFLOW_BADLY = "OFFSET_OVERFLOW_BADLY"
    OFFSET_OVERFLOW_ONE = "OFFSET_OVERFLOW_ONE"
    OFFSET_TOO_SMALL = "OFFSET_TOO_SMALL"
    NO_MATCHED_LOGIC_QUEUE = "NO_MATCHED_LOGIC_QUEUE"
    NO_MESSAGE_IN_QUEUE = "NO_MESSAGE_IN_QUEUE"


class Reading(NamedTuple):
    """What a read brought."""

    status: ReadStatus
    records: Sequence[bytes | memoryview]
    """Stored records, each or several per piece: joined, they are the body of a pull response."""
    found: int
    """How many."""
    next_offset: int
    min_offset: int
    max_offset: int
    offsets: Sequence[int] = ()
    """The queue offset of each record."""


#: Whether a record is wanted: its tags code, and a function that reads its bytes (only called when needed).
Match: TypeAlias = Callable[[int, Callable[[], bytes]], bool]


class MessageStore(Protocol):
    """An append-only log with an index. Everything is called on the event loop's thread and returns at once."""

    appended: list[Callable[[Stored], None]]
    """Called with every message that was appended, after it can be read."""

    def open(self) -> None:
        """Load or recover what is there; says in the log what it cut."""

    def close(self) -> None:
        """Write everything and let go of the files."""

    def abandon(self) -> None:
        """Let go of the files as a crash would: what is not written yet is lost."""

    def append(self, message: NewMessage) -> Stored:
        """Put a message at the end of its queue; it can be read at once. `Refusal` when it can't be taken."""

    def durable(self, position: int) -> Awaitable[None] | None:
        """What to wait for until the record at that position survives a crash; None when nothing is to wait for."""

    def read(
        self,
        topic: str,
        queue_id: int,
        offset: int,
        max_count: int,
        max_bytes: int,
        match: Match | None = None,
    ) -> Reading:
        """Records of a queue from an offset on, answered exactly as RocketMQ's `DefaultMessageStore.getMessage`."""

    def min_offset(self, topic: str, queue_id: int) -> int:
        """The first offset that is kept; 0 for a queue that is not there."""

    def max_offset(self, topic: str, queue_id: int) -> int:
        """The offset of the next message; 0 for a queue that is not there."""

    def queues(self, topic: str) -> Sequence[int]:
        """The ids of the topic's queues that have or had messages."""

    def topics(self) -> Sequence[str]:
        """The topics that have or had messages."""

    def record(self, position: int) -> bytes | None:
        """The whole record that begins at a commit-log offset; None if none begins there."""

    def record_at(self, topic: str, queue_id: int, offset: int) -> bytes | None:
        """The whole record at a queue's offset."""

    def timestamp_at(self, topic: str, queue_id: int, offset: int) -> int:
        """The store time of the message at an offset; -1 if there is none."""

    def offset_by_time(self, topic: str, queue_id: int, timestamp: int, *, upper: bool = False) -> int:
        """RocketMQ's search by store time: the first offset not earlier (`upper`: the last not later)."""

    def find(self, topic: str, key: str, max_count: int, begin: int, end: int) -> list[bytes]:
        """Records of a topic with that key (or unique key) stored between two times."""

    def delete_topic(self, topic: str) -> None:
        """Forget the topic's queues; their offsets start again at 0."""

    def expire(self) -> None:
        """Let go of segments that are too old or too many; to be called now and then."""

    @property
    def size(self) -> int:
        """How many bytes of records are kept."""
