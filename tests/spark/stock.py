"""What tests of drivers put into topics, and what they find there: by the plain client, without any Spark."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from rocketstream import AdminClient, Message, MessageQueue, Producer
from rocketstream.message import ReceivedMessage

_AT_ONCE = 500


class Stored(NamedTuple):
    """A message where it is."""

    queue: MessageQueue
    offset: int
    body: str


def put_numbers(producer: Producer, topic: str, numbers: Sequence[int], size: int = 0) -> list[Stored]:
    """Send numbers as bodies (of `size` bytes, with a key each) evenly to all queues; tell what is where."""
    queues = sorted(producer.queues(topic))
    stored = []
    for start in range(0, len(numbers), _AT_ONCE):
        queue = queues[start // _AT_ONCE % len(queues)]
        bodies = [str(number).ljust(size) for number in numbers[start : start + _AT_ONCE]]
        messages = [Message(topic, body.encode(), tags="number", keys=f"key-{body.strip()}") for body in bodies]
        (receipt,) = producer.send_batch(messages, queue=queue)
        stored += [Stored(queue, receipt.queue_offset + n, body) for n, body in enumerate(bodies)]
    return stored


def messages_in(admin: AdminClient, topic: str) -> list[ReceivedMessage]:
    """All that a topic has now."""
    wanted = stored_in(admin, topic)
    found: list[ReceivedMessage] = []
    if wanted:
        for some in admin.read(topic, "earliest"):
            found += some
            if len(found) >= wanted:
                break
    return found


def stored_in(admin: AdminClient, topic: str) -> int:
    """How many messages a topic has."""
    return sum(queue.messages for queue in admin.queue_ranges(topic))


def committed(admin: AdminClient, group: str, topic: str) -> dict[MessageQueue, int]:
    """How far a group is in each queue in which it has an offset."""
    return {
        MessageQueue(queue.topic, queue.broker_name, queue.queue_id): queue.consumer_offset
        for queue in admin.consumer_progress(group).queues
        if queue.topic == topic and queue.consumer_offset >= 0
    }


def ends(stored: Iterable[Stored]) -> dict[MessageQueue, int]:
    """Where the queues of some messages end."""
    found: dict[MessageQueue, int] = {}
    for queue, offset, _ in stored:
        found[queue] = max(found.get(queue, 0), offset + 1)
    return found
