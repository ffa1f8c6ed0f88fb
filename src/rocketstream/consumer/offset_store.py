"""Where a group stands in each of its queues: what every offset store does, and the memory that ours have in common.

The rule of this file: an offset of -1 means that the store knows of none. A store that could not be asked raises; it
never says -1 (OFF-01), because a consumer that takes "I could not ask" for "there is none" begins in the wrong place.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Coroutine
from enum import Enum
from typing import Any, Final, TypeAlias

from rocketstream.cluster.brokers import BrokerAddress
from rocketstream.message import MessageQueue

#: What a store answers that was asked and has no offset of a queue.
UNKNOWN_OFFSET: Final = -1

#: What is left to do after a last write that something older may still lower.
MakeSure: TypeAlias = Callable[[], Coroutine[Any, Any, None]]


class ReadFrom(Enum):
    """Where an offset is read."""

    MEMORY = "memory"
    STORE = "store"
    MEMORY_THEN_STORE = "memory, then store"


class OffsetStore(ABC):
    """Keeps the offset of the next message of each queue. Give a consumer your own with `offset_store=`.

    All methods are called on the client's I/O thread: they must not block, the coroutines included.
    """

    @abstractmethod
    async def load(self) -> None:
        """Get ready; a store that cannot be read raises, and the consumer does not start."""

    @abstractmethod
    def update(self, queue: MessageQueue, offset: int, *, increase_only: bool) -> None:
        """Remember an offset; with `increase_only` a smaller one than is known changes nothing (OFF-02)."""

    @abstractmethod
    async def read(self, queue: MessageQueue, where: ReadFrom) -> int:
        """The offset of a queue, -1 if there is none; a store that could not be asked raises (OFF-01)."""

    @abstractmethod
    def read_memory(self, queue: MessageQueue) -> int:
        """The same from memory only; asked with every pull, so it is cheap."""

    @abstractmethod
    async def persist_all(self, queues: Collection[MessageQueue]) -> None:
        """Write the offsets of these queues, the ones that the consumer owns."""

    @abstractmethod
    async def persist(self, queue: MessageQueue) -> None:
        """Write the offset of one queue and be sure of it, or raise: the queue is about to be somebody else's."""

    async def persist_last(self, queue: MessageQueue, patience: float) -> MakeSure | None:
        """`persist`, and nothing that was sent earlier may lower the offset afterwards (REB-05, REB-10).

        To make sure of that may take `patience` seconds. If it could not be made sure of by then, what is returned has
        to be called and waited for: it looks after the offset for another moment.
        """
        await self.persist(queue)
        return None

    def known_at_broker(self, queue: MessageQueue) -> int:
        """The offset of the group that the queue's broker is known to have; -1 for a store that does not ask it."""
        return UNKNOWN_OFFSET

    def may_travel(self, queue: MessageQueue, broker: BrokerAddress) -> bool:
        """Whether a pull may carry the queue's offset to its broker (PULL-13)."""
        return True

    @abstractmethod
    def remove(self, queue: MessageQueue) -> None:
        """Forget a queue in memory; what was persisted of it stays."""

    @abstractmethod
    def snapshot(self, topic: str | None = None) -> dict[MessageQueue, int]:
        """The offsets in memory, of one topic or of all."""

    @abstractmethod
    def reset(self, queue: MessageQueue, offset: int) -> None:
        """Set an offset whatever is known, also to a smaller one."""


class RememberingOffsets(OffsetStore):
    """An offset store with its memory; what is left to a subclass is how to persist it."""

    def __init__(self) -> None:
        self._offsets: dict[MessageQueue, int] = {}

    @abstractmethod
    async def _read_stored(self, queue: MessageQueue) -> int:
        """The persisted offset of a queue, -1 if there is none; raises when it could not be read."""

    def update(self, queue: MessageQueue, offset: int, *, increase_only: bool) -> None:
        """Remember an offset; with `increase_only` a smaller one than is known changes nothing (OFF-02)."""
        if offset < 0:
            raise ValueError(f"an offset is not negative: {offset} for {queue}")
        if increase_only and offset <= self._offsets.get(queue, UNKNOWN_OFFSET):
            return
        self._offsets[queue] = offset

    async def read(self, queue: MessageQueue, where: ReadFrom) -> int:
        """The offset of a queue, -1 if there is none; what is read from the store is remembered."""
        if where is not ReadFrom.STORE:
            known = self._offsets.get(queue, UNKNOWN_OFFSET)
            if known >= 0 or where is ReadFrom.MEMORY:
                return known
        stored = await self._read_stored(queue)
        if stored >= 0:
            self._offsets[queue] = stored
        return stored

    def read_memory(self, queue: MessageQueue) -> int:
        """The offset in memory, or -1."""
        return self._offsets.get(queue, UNKNOWN_OFFSET)

    def remove(self, queue: MessageQueue) -> None:
        """Forget a queue in memory."""
        self._offsets.pop(queue, None)

    def snapshot(self, topic: str | None = None) -> dict[MessageQueue, int]:
        """The offsets in memory, of one topic or of all."""
        return {queue: offset for queue, offset in self._offsets.items() if topic is None or queue.topic == topic}

    def reset(self, queue: MessageQueue, offset: int) -> None:
        """Set an offset whatever is known."""
        self.update(queue, offset, increase_only=False)
