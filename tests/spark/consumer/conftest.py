"""A broker in this process, a topic, and consumers whose tasks run here."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from rocketstream import AdminClient, Producer, StartFrom
from rocketstream.broker import EmbeddedBroker
from rocketstream.remoting.io_thread import IoThread
from rocketstream.spark.listening.task_client import forget_clients
from tests.bare_client import BareClient
from tests.contract.consuming import send
from tests.spark.consumer.in_process import InProcessConsumer
from tests.spark.consumer.journal import Journal


class Place:
    """The embedded broker of a test with a topic, and what a test does there."""

    def __init__(self, broker: EmbeddedBroker, topic: str, group: str, directory: Path, stack: ExitStack) -> None:
        self.broker = broker
        self.address = broker.address
        self.topic = topic
        self.group = group
        self.directory = directory
        self.journal = Journal(directory / "journal")
        self.client = BareClient(self.address, IoThread.shared())
        stack.callback(self.client.close)
        self.admin = stack.enter_context(AdminClient(self.address))
        self._sender = stack.enter_context(Producer("sender", self.address, send_timeout=10.0))
        self._stack = stack

    def create_topic(self, queues: int = 1, topic: str | None = None) -> None:
        self.client.create_topic(self.broker.broker_address, topic or self.topic, queues=queues)

    def send(self, *bodies: str, queue_id: int = 0, topic: str | None = None, **fields: Any) -> None:
        queue = self.client.queue(topic or self.topic, queue_id)
        send(self._sender, queue, *(body.encode() for body in bodies), **fields)

    def consumer(self, listener: Any = None, **settings: Any) -> InProcessConsumer:
        """A consumer of the topic that begins with the first message; not started."""
        settings = {
            "start_from": StartFrom.FIRST,
            "consume_thread_min": 4,
            "consume_thread_max": 4,
            "group": self.group,
            **settings,
        }
        group = settings.pop("group")
        return InProcessConsumer(None, group, self.address, listener=listener, **settings)  # type: ignore[arg-type]

    def consume(self, listener: Any = None, expression: Any = "*", **settings: Any) -> InProcessConsumer:
        """A consumer of the topic, which ends with the test."""
        consumer = self.consumer(listener, **settings).subscribe(self.topic, expression)
        return self._stack.enter_context(consumer)

    def committed(self, topic: str | None = None, group: str | None = None) -> dict[int, int]:
        """The group's offsets at the broker, by queue id."""
        progress = self.admin.consumer_progress(group or self.group, owners=False)
        return {one.queue_id: one.consumer_offset for one in progress.queues if one.topic == (topic or self.topic)}


@pytest.fixture
def place(embedded_broker: EmbeddedBroker, unique_topic: str, unique_group: str, tmp_path: Path) -> Iterator[Place]:
    with ExitStack() as stack:
        stack.callback(forget_clients)
        place = Place(embedded_broker, unique_topic, unique_group, tmp_path, stack)
        place.create_topic()
        yield place


@pytest.fixture
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """What waits for seconds, for a broker to come back, does not."""
    for name in (
        "rocketstream.spark.listening.task_parts.AGAIN_AFTER_FAILED_RETURN",
        "rocketstream.spark.listening.task_parts.AGAIN_AFTER_ERROR",
        "rocketstream.spark.listening.dispatching._FIRST_PAUSE_AFTER_FAILURE",
        "rocketstream.consumer.puller.PAUSE_AFTER_ILLEGAL_OFFSET",
        "rocketstream.consumer.puller.AGAIN_AFTER_ERROR",
    ):
        monkeypatch.setattr(name, 0.05)
    return lambda: None
