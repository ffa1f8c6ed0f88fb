"""The parts of the push consumer as they work inside a task: they pull, consume, send back, and come to an end.

The rule of this file: it is the push consumer's own code. What is different is only what a task's end needs: a pull
that finds nothing does not wait at the broker but ends its queue's part, and so does whatever would pause the queue.
How long it pauses is told to the driver, which has other work for the slot meanwhile.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any

from rocketstream.consumer.concurrent import AGAIN_AFTER_FAILED_RETURN, ConcurrentConsumption
from rocketstream.consumer.listener import Listener
from rocketstream.consumer.offset_store import UNKNOWN_OFFSET, RememberingOffsets
from rocketstream.consumer.orderly import LOCK_REFUSED, ROUND_PAUSE, After, Next, OrderlyConsumption
from rocketstream.consumer.pop_request import Request
from rocketstream.consumer.process_queue import ProcessQueue
from rocketstream.consumer.pull_request import PullRequest
from rocketstream.consumer.pull_service import AGAIN_AFTER_ERROR
from rocketstream.consumer.puller import Puller
from rocketstream.errors import BrokerError, OffsetStoreError
from rocketstream.message import MessageQueue, ReceivedMessage
from rocketstream.remoting.replies import PullResult
from rocketstream.spark.listening.values import QueueState
from rocketstream.wire.bodies.subscription import SubscriptionData
from rocketstream.wire.codes import PullStatus, ResponseCode

if TYPE_CHECKING:
    from rocketstream.spark.listening.task import TaskCore

log = logging.getLogger("rocketstream.consumer")


class TaskQueue(ProcessQueue):
    """A process queue that can say where it stands when its task ends."""

    __slots__ = ("before", "committed", "rolled_back")

    def __init__(self, queue: MessageQueue, before: QueueState, *, now: float) -> None:
        super().__init__(queue, now=now)
        self.before = before
        self.committed = UNKNOWN_OFFSET
        """Orderly: the last offset that was committed in this task."""
        self.rolled_back = False
        """Orderly: whether everything uncommitted comes again, that of earlier tasks too."""

    def commit(self) -> int:
        """As always; and note how far."""
        offset = super().commit()
        if offset >= 0:
            self.committed = offset
        return offset

    def rollback(self) -> None:
        """As always; and note it."""
        super().rollback()
        self.rolled_back = True

    @property
    def goes_back(self) -> bool:
        """Whether messages come again that earlier tasks have had: they are not here."""
        return self.rolled_back and self.committed == UNKNOWN_OFFSET and bool(self.before.unfinished)

    def concurrent_state(self, read_up_to: int) -> QueueState:
        """Where a concurrent queue stands; all before `read_up_to` was pulled."""
        with self._lock:
            waiting = sorted(self._cached.values(), key=lambda message: message.queue_offset)
        # Workers begin in order, so what was not begun is the end of what is here.
        unbegun = next((one.queue_offset for one in waiting if one.consume_started is None), read_up_to)
        begun = [message for message in waiting if message.queue_offset < unbegun]
        unfinished = tuple(message.queue_offset for message in begun)
        return QueueState(
            finished=min((*unfinished, unbegun)),
            position=unbegun,
            unfinished=unfinished,
            times=tuple((message.queue_offset, message.reconsume_times) for message in begun),
        )

    def orderly_state(self, read_up_to: int) -> QueueState:
        """Where an ordered queue stands; all before `read_up_to` was pulled."""
        with self._lock:
            waiting, taken = dict(self._cached), dict(self._taken)
        position = min(waiting, default=read_up_to)
        uncommitted = tuple(sorted(taken))
        if self.committed == UNKNOWN_OFFSET:
            uncommitted = (*self.before.unfinished, *uncommitted)
            if self.rolled_back:
                position, uncommitted = min(position, self.before.finished), ()
        finished = max(self.before.finished, self.committed) if uncommitted else position
        times = {offset: count for offset, count in self.before.times if offset >= finished}
        for offset, message in (*waiting.items(), *taken.items()):
            if message.consume_started is not None and message.reconsume_times:
                times[offset] = message.reconsume_times
        return QueueState(finished, position, uncommitted, tuple(sorted(times.items())))


class TaskOffsets(RememberingOffsets):
    """The offsets of a task: only the driver writes them anywhere."""

    def read_memory(self, queue: MessageQueue) -> int:
        """None: else every pull would write one to the broker, beside the driver (PULL-13)."""
        return UNKNOWN_OFFSET

    async def load(self) -> None:
        """Nothing: the plan says where to begin."""

    async def _read_stored(self, queue: MessageQueue) -> int:
        raise OffsetStoreError(f"a task does not read offsets: {queue}")

    async def persist_all(self, queues: Collection[MessageQueue]) -> None:
        """Nothing: the driver does."""

    async def persist(self, queue: MessageQueue) -> None:
        """Nothing: the driver does."""


class TaskPuller(Puller):
    """Pulls until nothing is there, and then no more."""

    waits_at_broker = False

    def __init__(self, core: TaskCore) -> None:
        super().__init__(core)
        self._task = core
        self._in_hooks: dict[PullRequest, int] = {}

    def read_up_to(self, request: PullRequest) -> int:
        """Everything before this offset was handed over; what a filter hook still has was not."""
        self._take_rest(request)
        return min(request.next_offset, self._in_hooks.get(request, request.next_offset))

    def is_busy(self, request: PullRequest) -> bool:
        """Whether messages of an answer are still to be handed over; hooks see them before the next pull is sent."""
        return request.untaken is not None

    def pull(self, request: PullRequest) -> None:
        """One step, unless the queue's part has ended."""
        if not self._task.has_ended(request):
            super().pull(request)

    def _handle(self, request: PullRequest, sub: SubscriptionData, result: PullResult) -> None:
        if self._task.has_ended(request):
            return
        if result.status is PullStatus.NO_NEW_MSG:
            self._take_rest(request)
            request.next_offset = result.next_offset
            # Looked at again, whatever the broker says of its newest offset: it may not let that be read yet.
            self._task.end(request, look_first=True)
        elif result.status is PullStatus.NO_MATCHED_MSG:
            self._take_rest(request)
            request.next_offset = result.next_offset
            self._task.pull_service.now(request)
        else:
            super()._handle(request, sub, result)

    def _offset_illegal(self, request: PullRequest, result: PullResult) -> None:
        # The driver does what is to be done (RES-10). A broker says only once that an operator has reset the offset.
        self._task.end(request, moved_to=result.next_offset)

    def _failed(self, request: PullRequest, error: Exception) -> None:
        if isinstance(error, BrokerError) and error.code == ResponseCode.FLOW_CONTROL:
            super()._failed(request, error)
            return
        log.warning("a task could not pull %s, it comes again in %g s: %s", request.queue, AGAIN_AFTER_ERROR, error)
        self._task.end(request, pause=AGAIN_AFTER_ERROR, look_first=True)

    async def _take_with_hooks(
        self, request: PullRequest, sub: SubscriptionData, result: PullResult, asked: int
    ) -> None:
        self._in_hooks[request] = asked
        await super()._take_with_hooks(request, sub, result, asked)
        del self._in_hooks[request]  # not where it was cancelled: then its messages were not handed over
        self._task.look()

    def _decode(self, request: PullRequest, result: PullResult, asked: int) -> list[ReceivedMessage]:
        messages = super()._decode(request, result, asked)
        pq = request.process_queue
        assert isinstance(pq, TaskQueue)
        before = pq.before
        if asked < before.position:
            messages = [message for message in messages if before.wants(message.queue_offset)]
        if before.times:
            counted = dict(before.times)
            for message in messages:
                message.reconsume_times = counted.get(message.queue_offset, message.reconsume_times)
        return messages


class TaskConcurrent(ConcurrentConsumption):
    """Concurrent consumption that tells its task when something has ended."""

    def __init__(self, core: TaskCore, listener: Listener) -> None:
        super().__init__(core, listener, None)
        self._task = core
        self._kept: dict[ProcessQueue, set[int]] = {}

    def is_idle(self, pq: ProcessQueue) -> bool:
        """Whether all is done but for what no broker took back (CON-11)."""
        return pq.count == len(self._kept.get(pq, ()))

    def pause_of(self, state: QueueState) -> float:
        """How long a queue is left alone that has messages which no broker took back."""
        return AGAIN_AFTER_FAILED_RETURN if state.unfinished else 0.0

    def settle(self) -> None:
        """Account for what has ended, and look whether that was all."""
        super().settle()
        self._task.look()

    async def _return_all(self, pq: ProcessQueue, messages: Sequence[ReceivedMessage], delay_level: Any) -> None:
        await super()._return_all(pq, messages, delay_level)
        kept = {message.queue_offset for message in messages if message in pq}
        if kept:
            self._kept.setdefault(pq, set()).update(kept)
        self._task.look()

    def _consume_again(self, pq: ProcessQueue, messages: Sequence[ReceivedMessage]) -> None:
        if self._task.is_running:
            self._kept.get(pq, set()).difference_update(message.queue_offset for message in messages)
            super()._consume_again(pq, messages)


class TaskOrderly(OrderlyConsumption):
    """Orderly consumption that leaves pauses to the driver."""

    def __init__(self, core: TaskCore, listener: Listener) -> None:
        super().__init__(core, listener, None)
        self._task = core

    def is_idle(self, pq: ProcessQueue) -> bool:
        """Whether nothing is left to consume, and nobody about to look."""
        return not pq.consuming

    def pause_of(self, state: QueueState) -> float:
        """Nothing beyond what a listener asks for."""
        return 0.0

    def _follow(self, pq: ProcessQueue, after: After) -> None:
        assert isinstance(pq, TaskQueue)
        at_once = after.next is Next.CONSUME and after.delay <= ROUND_PAUSE and not pq.goes_back
        if after.next is Next.NOTHING or at_once:
            super()._follow(pq, after)
        else:
            self.settle()
            pause = after.delay if after.next is Next.CONSUME else LOCK_REFUSED
            # It stays marked as being consumed: what is still pulled must not begin another round.
            self._task.end(self._task.request_of(pq), pause=pause, stopped=True)
        self._task.look()


def pull_request(request: Request) -> PullRequest:
    """A request of a task: it has no others."""
    assert isinstance(request, PullRequest)
    return request
