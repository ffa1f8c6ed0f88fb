"""What the consume services ask of a consumer, as plain values that a test sets and reads: no broker, no pulls."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from typing import Any

from rocketstream.clock import ManualClock
from rocketstream.consumer.concurrent import ConcurrentConsumption
from rocketstream.consumer.listener import make_listener
from rocketstream.consumer.orderly import OrderlyConsumption
from rocketstream.consumer.process_queue import ProcessQueue
from rocketstream.consumer.settings import ConsumerSettings
from rocketstream.consumer.stats import ConsumeStats
from rocketstream.consumer.topic_names import TopicNames
from rocketstream.errors import BrokerNotFoundError
from rocketstream.message import MessageQueue, ReceivedMessage
from rocketstream.wire.codes import MessageModel

QUEUE = MessageQueue("t", "a", 0)
OTHER = MessageQueue("t", "a", 1)


class StandInCore:
    """A consumer that runs; what the consume service does to it is written down."""

    def __init__(self, clock: ManualClock, **settings: Any) -> None:
        self.clock = clock
        self.consumer = ConsumerSettings(group="g", **settings)
        self.group = "g"
        self.names = TopicNames("g", None, ())
        self.is_running = True
        self.needs_locks = self.consumer.orderly and self.consumer.model is MessageModel.CLUSTERING
        self.stats = ConsumeStats("g")
        self.call_trace = None
        self.offsets = self.puller = self.locks = self
        self.stored: list[tuple[MessageQueue, int, bool]] = []
        """(queue, offset, increase only) of every update of the offset store."""
        self.queues: list[ProcessQueue] = []
        self.returned: list[tuple[int, MessageQueue, int]] = []
        """(offset, queue, delay level) of every message that was to be sent back."""
        self.cannot_return: Callable[[ReceivedMessage], bool] = lambda message: False
        self.return_error: Exception = BrokerNotFoundError("nobody takes it")
        self.before_return: asyncio.Future[None] | None = None
        self.lock_grants: list[bool] = []
        """What the broker says next when asked for a lock; True once that is used up."""
        self.locked: list[tuple[float, MessageQueue]] = []

    @property
    def stored_offsets(self) -> list[int]:
        return [offset for _, offset, _ in self.stored]

    @property
    def returned_offsets(self) -> list[int]:
        return sorted(offset for offset, _, _ in self.returned)

    def update(self, queue: MessageQueue, offset: int, *, increase_only: bool) -> None:
        self.stored.append((queue, offset, increase_only))

    def room_made(self, pq: ProcessQueue) -> None:
        """A pull that waits for room may go on."""

    def process_queues(self) -> list[ProcessQueue]:
        return self.queues

    async def send_back(self, message: ReceivedMessage, queue: MessageQueue, delay_level: int) -> None:
        self.returned.append((message.queue_offset, queue, delay_level))
        if self.before_return is not None:
            await self.before_return
        if self.cannot_return(message):
            raise self.return_error

    async def lock(self, queues: Iterable[MessageQueue]) -> frozenset[MessageQueue]:
        wanted = frozenset(queues)
        self.locked += [(self.clock.monotonic(), queue) for queue in wanted]
        return wanted if (self.lock_grants.pop(0) if self.lock_grants else True) else frozenset()


class Answers:
    """A listener that gives these answers, one each, then the last one again; it may be held up."""

    def __init__(self, *answers: object) -> None:
        self.answers = list(answers)
        self.calls: list[list[int]] = []
        self.contexts: list[Any] = []
        self.go = threading.Semaphore(1_000_000)

    def hold(self) -> None:
        """From now on each call waits for a `go.release()`."""
        self.go = threading.Semaphore(0)

    @property
    def offsets(self) -> list[int]:
        return sorted(offset for call in self.calls for offset in call)

    def __call__(self, messages: Sequence[ReceivedMessage], context: Any) -> object:
        go = self.go
        self.contexts.append(context)
        self.calls.append([message.queue_offset for message in messages])
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        assert go.acquire(timeout=60)
        if isinstance(answer, BaseException):
            raise answer
        return answer(messages, context) if callable(answer) else answer


def messages(*offsets: int, times: int = 0) -> list[ReceivedMessage]:
    made = [
        ReceivedMessage("t", b"x", broker_name="a", queue_id=0, queue_offset=offset, message_id=f"ID{offset}")
        for offset in offsets
    ]
    for message in made:
        message.reconsume_times = times
    return made


class _Consumer:
    """A consume service with a stand-in for all around it."""

    KIND: type[Any]

    def __init__(self, clock: ManualClock, listener: Any, *, own_loop: bool = True, **settings: Any) -> None:
        orderly = self.KIND is OrderlyConsumption
        self.core = StandInCore(clock, orderly=orderly, **settings)
        made = make_listener(listener, {}, orderly=orderly)
        self.service = self.KIND(self.core, made, None if own_loop else asyncio.get_running_loop())

    @classmethod
    @contextlib.asynccontextmanager
    async def maker(cls, clock: ManualClock) -> AsyncIterator[Callable[..., Any]]:
        """Makes consumers that are stopped at the end; a listener that the test holds up must be let go by then."""
        made: list[Any] = []

        def make(listener: Any, **settings: Any) -> Any:
            made.append(cls(clock, listener, **settings))
            return made[-1]

        yield make
        for one in made:
            assert await one.service.stop(60)


class ConcurrentConsumer(_Consumer):
    """Concurrent consumption alone."""

    KIND = ConcurrentConsumption

    def deliver(self, *offsets: int, queue: MessageQueue = QUEUE) -> ProcessQueue:
        """A queue was won, and a pull has brought these."""
        pq = ProcessQueue(queue)
        given = messages(*offsets)
        pq.put(given, None)
        self.core.queues.append(pq)
        self.service.submit(pq, given)
        return pq


class OrderlyConsumer(_Consumer):
    """Orderly consumption alone."""

    KIND = OrderlyConsumption

    def won(self, queue: MessageQueue = QUEUE, *, locked: bool = True) -> ProcessQueue:
        """A queue was won, with or without its lock."""
        now = self.core.clock.monotonic()
        pq = ProcessQueue(queue, now=now)
        if locked:
            pq.set_locked(now)
        self.core.queues.append(pq)
        return pq

    def pull(self, pq: ProcessQueue, *offsets: int, times: int = 0) -> bool:
        """A pull has brought these; whether a round was asked for."""
        given = messages(*offsets, times=times)
        dispatch = pq.put(given, None)
        self.service.submit(pq, given, dispatch)
        return dispatch

    def deliver(self, *offsets: int, queue: MessageQueue = QUEUE, times: int = 0) -> ProcessQueue:
        """Both."""
        pq = self.won(queue)
        self.pull(pq, *offsets, times=times)
        return pq
