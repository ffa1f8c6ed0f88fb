"""Orderly consumption: the messages of a queue one after the other, on one thread at a time (ORD).

The rule of this file: three locks keep the order. The broker's says which member of the group has the queue; ours says
which thread has it, even when it was lost and won again meanwhile (`_held`); and while the listener runs, the queue is
not given back to the broker (`_listening`, for which rebalance waits). A round is written once, as a generator that
asks for the listener's answer; a thread or an event loop gives it.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Generator, Sequence
from enum import Enum
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from rocketstream.consumer.concurrent import AGAIN_AFTER_REFUSAL, return_type
from rocketstream.consumer.hooks import ConsumeHookContext, run_after, run_before
from rocketstream.consumer.listener import Listener, is_its_own
from rocketstream.consumer.outcomes import QueueMove, complaint_about, orderly_outcome, suspend_time
from rocketstream.consumer.process_queue import ProcessQueue
from rocketstream.consumer.results import OrderlyContext, OrderlyResult
from rocketstream.consumer.trace import TracedCall
from rocketstream.consumer.workers import LoopWorkers, Pool, ThreadWorkers
from rocketstream.message import MessageQueue, ReceivedMessage

if TYPE_CHECKING:
    from rocketstream.consumer.core import ConsumerCore

log = logging.getLogger("rocketstream.consumer")

MAX_ROUND = 60.0  # ORD-05
ROUND_PAUSE = 0.010
LOCK_SOON = 0.010
LOCK_AT_START = 0.100  # ORD-06
CONSUME_AFTER_LOCK = 0.010  # ORD-07
LOCK_REFUSED = 3.0
STRAIGHT_TO_DLQ = -1


class Next(Enum):
    """What follows a round."""

    NOTHING = "nothing"
    CONSUME = "consume"
    LOCK = "lock"


class After(NamedTuple):
    """How a round ended."""

    next: Next = Next.NOTHING
    delay: float = 0.0


class Call(NamedTuple):
    """A round asks for the listener."""

    messages: Sequence[ReceivedMessage]
    context: OrderlyContext


class GiveUp(NamedTuple):
    """A round asks for messages to be sent away that failed too often; the answer is which of them are gone."""

    messages: Sequence[ReceivedMessage]


Answer: TypeAlias = tuple[object, BaseException | None]
Round: TypeAlias = Generator[Call | GiveUp, Answer, After]


class OrderlyConsumption:
    """The consume service of an orderly consumer."""

    def __init__(self, core: ConsumerCore, listener: Listener, loop: asyncio.AbstractEventLoop | None) -> None:
        self._core = core
        self._settings = core.consumer
        self._listener = listener
        self._hooks = tuple(self._settings.consume_hooks)
        self._trace = core.call_trace
        self._now = core.clock.monotonic
        self._io_loop = asyncio.get_running_loop()
        self._committed: deque[tuple[ProcessQueue, int, int, float]] = deque()
        self._waking = False
        self._held: dict[MessageQueue, tuple[ProcessQueue]] = {}
        self._listening: set[ProcessQueue] = set()
        self._ended_waiters: dict[ProcessQueue, asyncio.Event] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        size = self._settings.consume_thread_min
        name = f"rocketstream-consume-{self._settings.group}"
        self.pool: Pool[ProcessQueue] = (
            LoopWorkers(self._run_async, size, name, loop)
            if listener.is_async
            else ThreadWorkers(self._run, size, name)
        )

    def __repr__(self) -> str:
        return f"<OrderlyConsumption {self.pool!r}, {len(self._held)} queues being consumed>"

    # --- on the I/O thread ------------------------------------------------------------------------------------------

    def submit(self, pq: ProcessQueue, messages: Sequence[ReceivedMessage], dispatch: bool = True) -> None:
        """Have a queue consumed; `dispatch` says whether nobody does so already (ORD-04)."""
        if dispatch:
            self._consume(pq)

    def _consume(self, pq: ProcessQueue) -> None:
        if pq.dropped:
            return
        try:
            self.pool.submit([pq])
        except RuntimeError as error:
            if self._core.is_running:
                log.warning("a round of %s was refused, again in %g s: %s", pq.queue, AGAIN_AFTER_REFUSAL, error)
                self._core.clock.call_later(AGAIN_AFTER_REFUSAL, self._consume, pq)

    def _follow(self, pq: ProcessQueue, after: After) -> None:
        self.settle()
        if not self._core.is_running or pq.dropped:
            return
        if after.next is Next.CONSUME:
            self._core.clock.call_later(after.delay, self._consume, pq)
        elif after.next is Next.LOCK:
            self._core.clock.call_later(after.delay, self._lock_soon, pq)

    def _lock_soon(self, pq: ProcessQueue) -> None:
        if self._core.is_running and not pq.dropped:
            task = asyncio.ensure_future(self._lock(pq))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _lock(self, pq: ProcessQueue) -> None:
        """ORD-07."""
        granted = pq.queue in await self._core.locks.lock([pq.queue])
        if granted and pq.dropped:
            await self._core.locks.unlock([pq.queue])  # lost meanwhile: nobody else would give this lock back
            return
        if granted:
            pq.set_locked(self._now())
        delay = CONSUME_AFTER_LOCK if granted else LOCK_REFUSED
        self._core.clock.call_later(delay, self._consume, pq)

    def settle(self) -> None:
        """Store the offsets of what was committed (ORD-12) and count it."""
        self._waking = False
        for _ in range(len(self._committed)):
            pq, offset, messages, took = self._committed.popleft()
            stats, topic = self._core.stats, pq.queue.topic
            if messages > 0:
                stats.add_ok(topic, messages)
            elif messages < 0:
                stats.add_failed(topic, -messages)
            if messages:
                stats.add_calls(topic, (took,))
            if offset >= 0 and not pq.dropped:
                self._core.offsets.update(pq.queue, offset, increase_only=False)
                self._core.puller.room_made(pq)

    def queue_lost(self, pq: ProcessQueue) -> None:
        """The round sees that its queue is dropped and ends."""

    async def listener_ended(self, pq: ProcessQueue, timeout: float) -> bool:
        """Wait until no listener runs on a dropped queue (ORD-03); False if one still does after `timeout` seconds."""
        assert pq.dropped  # else the next listener could begin at any moment
        if pq not in self._listening or timeout <= 0:
            return pq not in self._listening
        ended = self._ended_waiters.setdefault(pq, asyncio.Event())
        timer = self._core.clock.call_later(timeout, ended.set)
        if pq in self._listening:
            await ended.wait()
        timer.cancel()
        self._ended_waiters.pop(pq, None)
        return pq not in self._listening

    def _listener_has_ended(self, pq: ProcessQueue) -> None:
        waiter = self._ended_waiters.get(pq)
        if waiter is not None:
            waiter.set()

    async def adjust(self, cached: int) -> None:
        """An orderly pool keeps its size: a queue has one thread however long it is."""

    async def send_back_stale(self) -> None:
        """An ordered message is never sent away while it is being consumed."""

    async def stop(self, timeout: float) -> bool:
        """Let running listeners end and their results count; False if some still run after `timeout` seconds."""
        ended = await self.pool.stop(timeout)
        self.settle()
        for task in self._tasks:
            task.cancel()
        return ended

    # --- on a worker ------------------------------------------------------------------------------------------------

    def _run(self, pq: ProcessQueue) -> None:
        steps = self._round(pq)
        try:
            step = next(steps)
            while True:
                step = steps.send(self._answer(step))
        except StopIteration as end:
            self._ended(pq, end.value)

    def _answer(self, step: Call | GiveUp) -> Answer:
        if isinstance(step, GiveUp):
            return asyncio.run_coroutine_threadsafe(self._give_up(step.messages), self._io_loop).result(), None
        try:
            return self._listener.call(step.messages, step.context), None
        except BaseException as raised:  # SystemExit too: a thread of the pool outlives what it runs
            return None, raised

    async def _run_async(self, pq: ProcessQueue) -> None:
        steps = self._round(pq)
        try:
            step = next(steps)
            while True:
                step = steps.send(await self._answer_async(step))
        except StopIteration as end:
            self._ended(pq, end.value)

    async def _answer_async(self, step: Call | GiveUp) -> Answer:
        if isinstance(step, GiveUp):
            gone = asyncio.run_coroutine_threadsafe(self._give_up(step.messages), self._io_loop)
            return await asyncio.wrap_future(gone), None
        try:
            return await self._listener.call(step.messages, step.context), None
        except BaseException as raised:
            if not is_its_own(raised):
                raise
            return None, raised

    def _ended(self, pq: ProcessQueue, after: After) -> None:
        try:
            self._io_loop.call_soon_threadsafe(self._follow, pq, after)
        except RuntimeError:
            log.debug("a round of %s ended after the process's I/O thread", pq.queue)

    def _round(self, pq: ProcessQueue) -> Round:
        if pq.dropped:
            return After()
        # A value of its own for each round: one that found nothing more has given the process queue back already, and
        # the next round of it may begin before this one is out of the door.
        mine = (pq,)
        holder = self._held.setdefault(pq.queue, mine)
        if holder is not mine:  # ORD-02
            return After(Next.CONSUME, ROUND_PAUSE if holder[0] is pq else LOCK_AT_START)
        try:
            return (yield from self._consume_in_order(pq))
        except Exception:
            log.exception("a round of %s failed: what it took comes again", pq.queue)
            pq.rollback()
            return After(Next.CONSUME, self._settings.suspend_current_queue_time)
        finally:
            del self._held[pq.queue]

    def _consume_in_order(self, pq: ProcessQueue) -> Round:
        needs_lock = self._core.needs_locks
        began = self._now()
        if needs_lock and (not pq.locked or pq.lock_expired(began)):
            return After(Next.LOCK, LOCK_AT_START)  # ORD-06
        while not pq.dropped:
            now = self._now()
            if needs_lock and (not pq.locked or pq.lock_expired(now)):
                return After(Next.LOCK, LOCK_SOON)
            if now - began > MAX_ROUND:
                return After(Next.CONSUME, ROUND_PAUSE)
            if not self._core.is_running:
                return After()
            messages = pq.take(self._settings.consume_message_batch_max_size, now)
            if not messages:
                return After()
            after = yield from self._consume_some(pq, messages)
            if after is not None:
                return after
        return After()

    def _consume_some(
        self, pq: ProcessQueue, messages: Sequence[ReceivedMessage]
    ) -> Generator[Call | GiveUp, Answer, After | None]:
        context = OrderlyContext(self._core.names.shown_queue(pq.queue))
        hooked = self._begin_hooks(context, messages) if self._hooks else None
        self._listening.add(pq)  # before the look at `dropped`: rebalance looks the other way round
        try:
            if pq.dropped:
                return After()
            traced = None if self._trace is None else self._trace.begin(messages)
            began = self._now()
            for message in messages:
                message.consume_started = began
            result, error = yield Call(tuple(messages), context)
        finally:
            self._listening.discard(pq)
            if pq.dropped:
                self._tell_listener_ended(pq)
        took = self._now() - began
        complaint = complaint_about(result, error, OrderlyResult)
        if complaint is not None:  # ORD-10
            log.warning("the listener of group %s %s; %s", self._core.group, complaint, pq.queue, exc_info=error)
        if traced is not None:
            self._end_trace(traced, result, error, took)
        if hooked is not None:
            self._end_hooks(hooked, result, error, took)
        return (yield from self._account(pq, messages, context, result, took))

    def _account(
        self,
        pq: ProcessQueue,
        messages: Sequence[ReceivedMessage],
        context: OrderlyContext,
        result: object,
        took: float,
    ) -> Generator[Call | GiveUp, Answer, After | None]:
        """What an answer does to the queue (ORD-08, ORD-09, ORD-11); None: the round goes on."""
        outcome = orderly_outcome(result, bool(context.auto_commit))
        if outcome.warning is not None:
            log.warning("the listener of group %s %s; %s", self._core.group, outcome.warning, pq.queue)
        if outcome.move is QueueMove.COMMIT:
            self._note(pq, pq.commit(), len(messages), took)
            return None
        if outcome.move is QueueMove.KEEP:
            self._note(pq, -1, len(messages), took)
            return None
        if outcome.move is QueueMove.ROLLBACK:
            pq.rollback()
        else:
            self._note(pq, -1, -len(messages), took)
            spent = [message for message in messages if self._is_spent(message)]
            gone = (yield GiveUp(spent))[0] if spent else False
            for message in messages:
                message.reconsume_times += 1
            if gone and len(spent) == len(messages):
                if context.auto_commit:
                    self._note(pq, pq.commit(), 0, took)
                return None
            pq.consume_again(messages)
        return After(
            Next.CONSUME,
            suspend_time(context.suspend_current_queue_time, self._settings.suspend_current_queue_time),
        )

    def _is_spent(self, message: ReceivedMessage) -> bool:
        return message.reconsume_times >= self._settings.max_reconsume_times_orderly

    async def _give_up(self, messages: Sequence[ReceivedMessage]) -> bool:
        """Send messages away that failed too often (ORD-11); whether all of them are gone."""
        gone = True
        for message in messages:
            log.warning("message %r failed %d times: it is sent away", message, message.reconsume_times + 1)
            try:
                await self._core.send_back(message, message.queue, STRAIGHT_TO_DLQ)
            except Exception as error:  # whatever it is, the queue must not stand still
                log.warning("message %r could not be sent back, its queue waits: %s", message, error)
                gone = False
        return gone

    def _note(self, pq: ProcessQueue, offset: int, messages: int, took: float) -> None:
        """For the I/O thread: an offset to store, and messages that went well (above zero) or not (below)."""
        self._committed.append((pq, offset, messages, took))
        if not self._waking:
            self._waking = True
            self._tell(self.settle)

    def _tell_listener_ended(self, pq: ProcessQueue) -> None:
        self._tell(self._listener_has_ended, pq)

    def _tell(self, function: object, *args: object) -> None:
        try:
            self._io_loop.call_soon_threadsafe(function, *args)  # type: ignore[arg-type]
        except RuntimeError:
            log.debug("a listener of group %s ended after the process's I/O thread", self._settings.group)

    def _end_trace(self, traced: TracedCall, result: object, error: BaseException | None, took: float) -> None:
        assert self._trace is not None
        success = result in (OrderlyResult.SUCCESS, OrderlyResult.COMMIT)
        returned = return_type(result, error, success, took >= self._settings.consume_timeout)
        self._trace.end_call(traced, returned, success)

    def _begin_hooks(self, context: OrderlyContext, messages: Sequence[ReceivedMessage]) -> ConsumeHookContext:
        hooked = ConsumeHookContext(self._settings.group, context.queue, messages, namespace=self._settings.namespace)
        run_before(self._hooks, hooked)
        return hooked

    def _end_hooks(self, hooked: ConsumeHookContext, result: object, error: BaseException | None, took: float) -> None:
        answer = result if isinstance(result, OrderlyResult) else OrderlyResult.SUSPEND
        hooked.error = error
        hooked.success = answer in (OrderlyResult.SUCCESS, OrderlyResult.COMMIT)
        hooked.status = answer.name
        hooked.return_type = return_type(result, error, hooked.success, took >= self._settings.consume_timeout)
        run_after(self._hooks, hooked)
