"""The index of the log: which queues there are, where their messages lie, and which topics were deleted.

Keys are indexed in the segments (`Segment.key_hashes`), because they go with them.
"""

from __future__ import annotations

import logging
from array import array
from collections.abc import Iterator

from rocketstream.broker.store.indexed_properties import key_seed_of
from rocketstream.broker.store.queue_index import QueueIndex

log = logging.getLogger("rocketstream.broker")


class LogIndex:
    """Queues by topic and id."""

    def __init__(self) -> None:
        self.topics: dict[str, dict[int, QueueIndex]] = {}
        self.deleted: dict[str, int] = {}
        """Topics that were deleted, and the end of the log then: records of theirs before it are in no queue."""

    def __repr__(self) -> str:
        return f"<LogIndex {len(self.topics)} topics, {sum(len(queue.positions) for queue in self.queues())} messages>"

    def queues(self) -> Iterator[QueueIndex]:
        """All of them."""
        for queues in self.topics.values():
            yield from queues.values()

    def queue(self, topic: str, queue_id: int) -> QueueIndex | None:
        """A queue that is there."""
        queues = self.topics.get(topic)
        return None if queues is None else queues.get(queue_id)

    def new_queue(self, topic: str, queue_id: int, base: int = 0) -> QueueIndex:
        """Enter a queue that is not there."""
        raw = topic.encode()
        size = len(raw).to_bytes(1 if len(raw) <= 127 else 2, "big")
        queue = QueueIndex(topic, queue_id, size + raw, key_seed_of(topic), base)
        self.topics.setdefault(topic, {})[queue_id] = queue
        return queue

    def place(self, topic: str, queue_id: int, offset: int, position: int, size: int, tags_code: int) -> None:
        """Enter a record that was found in the log."""
        self.place_several(
            topic, queue_id, offset, array("Q", (position,)), array("I", (size,)), array("i", (tags_code,))
        )

    def place_several(
        self, topic: str, queue_id: int, offset: int, positions: array[int], sizes: array[int], tags: array[int]
    ) -> None:
        """Enter records of consecutive offsets that were found in the log."""
        queue = self.queue(topic, queue_id) or self.new_queue(topic, queue_id)
        if offset < queue.end:
            log.error(
                "the queue %s@%d has the offset %d twice in the log, at %d for the second time: what was before is"
                " forgotten, for a queue begins again only when its topic was deleted",
                topic,
                queue_id,
                offset,
                positions[0],
            )
            queue = self.new_queue(topic, queue_id)
        queue.place(offset, positions, sizes, tags)

    def delete(self, topic: str, end: int) -> None:
        """Forget a topic; `end` is the end of the log."""
        if self.topics.pop(topic, None) is not None:
            self.deleted[topic] = end

    def drop_before(self, position: int) -> None:
        """Forget what lies before a position of the log."""
        for queue in self.queues():
            queue.drop_before(position)
        self.deleted = {topic: end for topic, end in self.deleted.items() if end > position}
