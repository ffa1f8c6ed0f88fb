"""Topics with messages that a test knows, and what a read of them must give."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import pyarrow as pa

from rocketstream import AdminClient, Message, MessageQueue, Producer
from tests.bare_client import eventually

_BATCH = 200


class Row(NamedTuple):
    """What is known of a message before it is read."""

    queue_id: int
    queue_offset: int
    tags: str | None
    keys: str | None
    body: bytes


class FilledTopic:
    """A topic whose queues are filled one by one; `rows` is all that is in it."""

    def __init__(self, name_servers: str, topic: str, queues: int = 4, *, namespace: str | None = None) -> None:
        self.topic = topic
        self.name_servers = name_servers
        self.rows: list[Row] = []
        self._admin = AdminClient(name_servers, namespace=namespace)
        self._producer = Producer(f"{topic[:40]}-p", name_servers, namespace=namespace, send_timeout=30.0)
        self._admin.start()
        self._producer.start()
        self._admin.create_topic(topic, queues=queues)

    def grow(self, queues: int) -> None:
        """Give the topic more queues."""
        self._admin.create_topic(self.topic, queues=queues, update=True)

    def put(
        self, queue_id: int, count: int, *, size: int = 0, tags: Sequence[str | None] = (None,), **more: Any
    ) -> None:
        """Add messages to a queue, with the tags in turn; return when they can be read."""
        first = sum(row.queue_id == queue_id for row in self.rows)
        for start in range(first, first + count, _BATCH):
            offsets = range(start, min(start + _BATCH, first + count))
            added = [
                Row(queue_id, offset, tags[offset % len(tags)], f"k{offset}", b"%d-%d " % (queue_id, offset))
                for offset in offsets
            ]
            added = [row._replace(body=row.body.ljust(size, b"x")) for row in added]
            self.rows += added
            self._producer.send_batch([self._message(row, more) for row in added], queue=self.queue(queue_id))
        self.until_stored()

    def _message(self, row: Row, more: Mapping[str, Any]) -> Message:
        return Message(self.topic, row.body, tags=row.tags, keys=row.keys, **more)

    def queue(self, queue_id: int) -> MessageQueue:
        """One of its queues, on the only broker."""
        return MessageQueue(self.topic, self._admin.queue_ranges(self.topic)[0].broker_name, queue_id)

    def until_stored(self) -> None:
        """Brokers answer when a message is stored; its queue learns of it a moment later."""
        eventually(lambda: sum(queue.max_offset for queue in self._admin.queue_ranges(self.topic)) == len(self.rows))

    def close(self) -> None:
        self._producer.shutdown()
        self._admin.close()


def rows_of(batches: Iterable[pa.RecordBatch]) -> list[Row]:
    """What was read, in its order."""
    found = []
    for batch in batches:
        columns = [batch.column(name).to_pylist() for name in Row._fields]
        found += [Row(*values) for values in zip(*columns, strict=True)]
    return found


def in_order(rows: Iterable[Row]) -> bool:
    """Whether the offsets of each queue only grow."""
    last: dict[int, int] = {}
    for row in rows:
        if row.queue_offset <= last.get(row.queue_id, -1):
            return False
        last[row.queue_id] = row.queue_offset
    return True
