"""Where the messages of one queue lie in the log: 16 bytes for each.

A hole (a record that was damaged) has the size 0 and the position of the record after it, so positions never go back
and can be searched.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left


class QueueIndex:
    """The entries of a queue, from its first kept offset (`base`) on."""

    __slots__ = ("base", "key_seed", "positions", "queue_id", "raw_topic", "sizes", "tags", "topic")

    def __init__(self, topic: str, queue_id: int, raw_topic: bytes, key_seed: int, base: int = 0) -> None:
        self.topic = topic
        self.queue_id = queue_id
        self.raw_topic = raw_topic
        """The topic as it is written into a record: with its size."""
        self.key_seed = key_seed
        """What hashes of this topic's keys begin with."""
        self.base = base
        self.positions = array("Q")
        self.sizes = array("I")
        self.tags = array("i")

    def __repr__(self) -> str:
        return f"<QueueIndex {self.topic}@{self.queue_id} {self.base} to {self.end}>"

    @property
    def end(self) -> int:
        """The offset of the next message."""
        return self.base + len(self.positions)

    def place(self, offset: int, positions: array[int], sizes: array[int], tags: array[int]) -> None:
        """Enter records that were found in the log: what is missing before them becomes holes."""
        if not self.positions:
            self.base = offset
        holes = offset - self.end
        if holes:
            self.positions.extend(array("Q", positions[:1]) * holes)
            self.sizes.extend(array("I", (0,)) * holes)
            self.tags.extend(array("i", (0,)) * holes)
        self.positions.extend(positions)
        self.sizes.extend(sizes)
        self.tags.extend(tags)

    def drop_before(self, position: int) -> None:
        """Forget what lies before a position of the log."""
        count = bisect_left(self.positions, position)
        if count:
            del self.positions[:count]
            del self.sizes[:count]
            del self.tags[:count]
            self.base += count
