"""Listening to real brokers: what was heard, where a group is, and settings of a broker that runs."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

from rocketstream import AdminClient, ConsumeResult, Message, Producer, PushConsumer, StartFrom
from rocketstream.consumer.broker_offsets import BrokerOffsets
from rocketstream.consumer.offset_store import ReadFrom
from rocketstream.errors import BrokerError
from rocketstream.message import MessageQueue, ReceivedMessage
from rocketstream.wire.codes import RequestCode, ResponseCode
from tests.bare_client import BareClient

WAIT = 60.0


class Delivery(NamedTuple):
    """One message as the listener got it."""

    body: bytes
    topic: str
    reconsume_times: int
    message: ReceivedMessage
    context_queue: MessageQueue
    at_ms: int
    """When the listener got it, by the wall clock (or the clock that `Heard` was given)."""


class Heard:
    """A listener that remembers; `answer(messages, context)` says what it returns, or raises."""

    def __init__(
        self,
        answer: Callable[[Sequence[ReceivedMessage], Any], object] | None = None,
        now_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
    ) -> None:
        self.deliveries: list[Delivery] = []
        self.calls: list[tuple[ReceivedMessage, ...]] = []
        self._answer = answer
        self._now_ms = now_ms
        self._changed = threading.Condition()

    def __call__(self, messages: Sequence[ReceivedMessage], context: Any) -> object:
        self.note(messages, context.queue)
        return ConsumeResult.SUCCESS if self._answer is None else self._answer(messages, context)

    def note(self, messages: Sequence[ReceivedMessage], queue: MessageQueue) -> None:
        now = self._now_ms()
        with self._changed:
            self.calls.append(tuple(messages))
            self.deliveries += [Delivery(m.body, m.topic, m.reconsume_times, m, queue, now) for m in messages]
            self._changed.notify_all()

    @property
    def bodies(self) -> list[bytes]:
        return [delivery.body for delivery in self.deliveries]

    def of(self, body: bytes) -> list[Delivery]:
        """How often and how one message came."""
        return [delivery for delivery in self.deliveries if delivery.body == body]

    def until(self, count: int, timeout: float = WAIT) -> list[bytes]:
        """Wait for so many messages."""
        self.until_true(lambda: len(self.deliveries) >= count, timeout)
        return self.bodies

    def until_heard(self, *bodies: bytes, timeout: float = WAIT) -> None:
        """Wait for these messages."""
        self.until_true(lambda: set(bodies) <= set(self.bodies), timeout)

    def until_true(self, condition: Callable[[], bool], timeout: float = WAIT) -> None:
        """Wait for something that only what is heard changes."""
        with self._changed:
            assert self._changed.wait_for(condition, timeout), f"heard {self.bodies[:100]}"


def new_consumer(
    group: str, address: str, listener: Any, topics: str | Mapping[str, Any], **settings: Any
) -> PushConsumer:
    """A consumer that begins with the first message and has few threads, unless told otherwise; not started."""
    settings = {"start_from": StartFrom.FIRST, "consume_thread_min": 4, "consume_thread_max": 4, **settings}
    consumer = PushConsumer(group, address, listener=listener, **settings)
    for topic, expression in ({topics: "*"} if isinstance(topics, str) else topics).items():
        consumer.subscribe(topic, expression)
    return consumer


def send(producer: Producer, queue: MessageQueue, *bodies: bytes, **fields: Any) -> None:
    """Send bodies to one queue, one after the other; a broker that is busy has stored nothing and is asked again."""
    for body in bodies:
        for tries_left in reversed(range(10)):
            try:
                producer.send(Message(queue.topic, body, **fields), queue=queue)
                break
            except BrokerError as error:
                if error.code != ResponseCode.SYSTEM_BUSY or not tries_left:
                    raise


def committed(admin: AdminClient, group: str, topic: str) -> dict[int, int]:
    """The offsets that the broker has of a group, by queue id; those of queues without one are missing."""
    queues = admin.consumer_progress(group).queues
    return {queue.queue_id: queue.consumer_offset for queue in queues if queue.topic == topic}


def stored_offset(client: BareClient, group: str, queue: MessageQueue) -> int:
    """The offset that the broker has of a group in one queue, of any topic."""
    return client.run(BrokerOffsets(client.instance, group).read(queue, ReadFrom.STORE))


def persist(consumer: PushConsumer) -> None:
    """Have a consumer store its offsets now, as its timer does."""
    consumer.core.io.run(consumer.core.persist_offsets())


@contextmanager
def broker_settings(client: BareClient, address: str, **settings: object) -> Iterator[None]:
    """Let a broker have other settings for a while."""
    with AdminClient(client.instance.settings.name_servers) as admin:
        had = admin.broker_config(address)
    before = {name: had[name] for name in settings}

    def write(values: Mapping[str, object]) -> None:
        text = "".join(f"{name}={str(value).lower()}\n" for name, value in values.items())
        client.ask(address, RequestCode.UPDATE_BROKER_CONFIG, None, text.encode())

    write(settings)
    try:
        yield
    finally:
        write(before)
