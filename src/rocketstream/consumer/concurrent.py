"""Concurrent consumption: messages of a queue side by side, in no order (CON).

The rule of this file: workers run the listener and nothing else. Whatever its answer does (send back, remove, store an
offset) is done on the I/O thread, for all the calls together that have ended since it last looked.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from rocketstream.consumer.hooks import ConsumeHookContext, run_after, run_before
from rocketstream.consumer.listener import Listener, is_its_own
from rocketstream.consumer.outcomes import complaint_about, complaint_about_index, failed_messages
from rocketstream.consumer.process_queue import ProcessQueue
from rocketstream.consumer.results import ALL, ConsumeContext, ConsumeResult
from rocketstream.consumer.trace import TracedCall
from rocketstream.consumer.workers import LoopWorkers, Pool, ThreadWorkers
from rocketstream.message import ReceivedMessage
from rocketstream.wire.codes import MessageModel

if TYPE_CHECKING:
    from rocketstream.consumer.core import ConsumerCore

log = logging.getLogger("rocketstream.consumer")

AGAIN_AFTER_REFUSAL = 5.0  # CON-02
AGAIN_AFTER_FAILED_RETURN = 5.0  # CON-11
STALE_DELAY_LEVEL = 3  # PQ-08
# How many failed messages are on their way back to brokers at a time.
_MAX_RETURNING = 64

Work: TypeAlias = tuple[ProcessQueue, Sequence[ReceivedMessage]]
Ended: TypeAlias = tuple[ProcessQueue, Sequence[ReceivedMessage], ConsumeContext, object, BaseException | None, float]


class ConcurrentConsumption:
    """The consume service of a concurrent consumer."""

    def __init__(self, core: ConsumerCore, listener: Listener, loop: asyncio.AbstractEventLoop | None) -> None:
        self._core = core
        self._settings = core.consumer
        self._listener = listener
        self._listen = listener.call
        self._names = core.names
        self._batch = self._settings.consume_message_batch_max_size
        self._hooks = tuple(self._settings.consume_hooks)
        self._trace = core.call_trace
        self._now = core.clock.monotonic
        self._ended: deque[Ended] = deque()
        self._hooked: dict[int, ConsumeHookContext] = {}
        self._waking = False
        self._io_loop = asyncio.get_running_loop()
        self._returning = asyncio.Semaphore(_MAX_RETURNING)
        self._tasks: set[asyncio.Task[None]] = set()
        size = self._settings.consume_thread_min
        name = f"rocketstream-consume-{self._settings.group}"
        self.pool: Pool[Work] = (
            LoopWorkers(self._consume_async, size, name, loop)
            if listener.is_async
            else ThreadWorkers(self._consume, size, name)
        )

    def __repr__(self) -> str:
        return f"<ConcurrentConsumption {self.pool!r}, {len(self._ended)} calls to account for>"

    # --- on the I/O thread: work goes out ---------------------------------------------------------------------------

    def submit(self, pq: ProcessQueue, messages: Sequence[ReceivedMessage], dispatch: bool = True) -> None:
        """Have messages consumed, in pieces of the batch size (CON-01)."""
        size = self._batch
        if size == 1:
            work: list[Work] = [(pq, (message,)) for message in messages]
        else:
            work = [(pq, tuple(messages[at : at + size])) for at in range(0, len(messages), size)]
        self._dispatch(work)

    def _dispatch(self, work: list[Work]) -> None:
        try:
            self.pool.submit(work)
        except RuntimeError as error:
            if self._core.is_running:
                log.warning(
                    "%d consume requests were refused, again in %g s: %s", len(work), AGAIN_AFTER_REFUSAL, error
                )
                self._core.clock.call_later(AGAIN_AFTER_REFUSAL, self._dispatch_again, work)

    def _dispatch_again(self, work: list[Work]) -> None:
        if self._core.is_running:
            self._dispatch([(pq, messages) for pq, messages in work if not pq.dropped])

    def queue_lost(self, pq: ProcessQueue) -> None:
        """Nothing to do: what was not begun ends by itself, since the queue is dropped (CON-03)."""

    async def listener_ended(self, pq: ProcessQueue, timeout: float) -> bool:
        """A queue can be given away at any time: nothing is promised about its order."""
        return True

    async def adjust(self, cached: int) -> None:
        """CON-14: one thread more while there is a backlog, one less when it is gone."""
        threshold = self._settings.adjust_thread_pool_threshold
        size = self.pool.size
        if cached >= threshold:
            wanted = min(size + 1, self._settings.consume_thread_max)
        elif cached < threshold * 0.8:
            wanted = max(size - 1, self._settings.consume_thread_min)
        else:
            wanted = size
        if wanted != size:
            log.info("group %s: %d messages are cached; %d threads become %d", self._core.group, cached, size, wanted)
            self.pool.resize(wanted)

    # --- on a worker ------------------------------------------------------------------------------------------------

    def _consume(self, work: Work) -> None:
        # `_begin` and `_end` without the calls, where there are no hooks: this is done for every message.
        pq, messages = work
        if pq.dropped:  # CON-03
            return
        names, now = self._names, self._now
        context = ConsumeContext(names.shown_queue(pq.queue) if names.renames else pq.queue)
        if self._hooks:
            self._begin_hooks(context, messages)
        traced = None if self._trace is None else self._trace.begin(messages)
        began = now()
        for message in messages:
            message.consume_started = began
        result, error = None, None
        try:
            result = self._listen(messages, context)
        except BaseException as raised:  # SystemExit too: a thread of the pool outlives what it runs
            error = raised
        took = now() - began
        if traced is not None:
            self._end_trace(traced, result, error, took)
        if self._hooks:
            self._end_hooks(context, result, error, took)
        self._ended.append((pq, messages, context, result, error, took))
        if not self._waking:
            self._wake_io_thread()

    async def _consume_async(self, work: Work) -> None:
        pq, messages = work
        if pq.dropped:
            return
        context = ConsumeContext(self._core.names.shown_queue(pq.queue))
        traced = None if self._trace is None else self._trace.begin(messages)
        began = self._begin(context, messages)
        result, error = None, None
        try:
            result = await self._listener.call(messages, context)
        except BaseException as raised:
            if not is_its_own(raised):
                raise
            error = raised
        if traced is not None:
            self._end_trace(traced, result, error, self._now() - began)
        self._end(pq, messages, context, result, error, began)

    def _begin(self, context: ConsumeContext, messages: Sequence[ReceivedMessage]) -> float:
        if self._hooks:
            self._begin_hooks(context, messages)
        began = self._now()
        for message in messages:
            message.consume_started = began
        return began

    def _end(
        self,
        pq: ProcessQueue,
        messages: Sequence[ReceivedMessage],
        context: ConsumeContext,
        result: object,
        error: BaseException | None,
        began: float,
    ) -> None:
        took = self._now() - began
        if self._hooks:
            self._end_hooks(context, result, error, took)
        self._ended.append((pq, messages, context, result, error, took))
        if not self._waking:
            self._wake_io_thread()

    def _wake_io_thread(self) -> None:
        # Set by many, cleared by one before it looks: at worst the I/O thread looks once too often.
        self._waking = True
        try:
            self._io_loop.call_soon_threadsafe(self.settle)
        except RuntimeError:
            log.debug("a listener of group %s ended after the process's I/O thread", self._settings.group)

    def _end_trace(self, traced: TracedCall, result: object, error: BaseException | None, took: float) -> None:
        assert self._trace is not None
        success = result is ConsumeResult.SUCCESS
        returned = return_type(result, error, success, took >= self._settings.consume_timeout)
        self._trace.end_call(traced, returned, success)

    def _begin_hooks(self, context: ConsumeContext, messages: Sequence[ReceivedMessage]) -> None:
        hooked = ConsumeHookContext(self._settings.group, context.queue, messages, namespace=self._settings.namespace)
        self._hooked[id(context)] = hooked
        run_before(self._hooks, hooked)

    def _end_hooks(self, context: ConsumeContext, result: object, error: BaseException | None, took: float) -> None:
        hooked = self._hooked.pop(id(context))
        hooked.error = error
        hooked.success = result is ConsumeResult.SUCCESS
        hooked.status = (ConsumeResult.SUCCESS if hooked.success else ConsumeResult.RECONSUME_LATER).name
        hooked.return_type = return_type(result, error, hooked.success, took >= self._settings.consume_timeout)
        run_after(self._hooks, hooked)

    # --- on the I/O thread: results come back -----------------------------------------------------------------------

    def settle(self) -> None:
        """Account for every call that has ended (CON-03, CON-07 to CON-12)."""
        self._waking = False
        done: dict[ProcessQueue, list[ReceivedMessage]] = {}
        times: dict[str, list[float]] = {}
        ended, stats = self._ended, self._core.stats
        last, finished, seconds = None, [], []
        for _ in range(len(ended)):  # not until it is empty: workers go on adding
            pq, messages, context, result, error, took = ended.popleft()
            if pq.dropped:
                log.debug("%s was lost while its messages were consumed: the result is ignored", pq.queue)
                continue
            if pq is not last:
                # Calls of one queue mostly come together: looked up once for all of them.
                last = pq
                finished = done.setdefault(pq, [])
                seconds = times.setdefault(pq.queue.topic, [])
            seconds.append(took)
            if result is not ConsumeResult.SUCCESS or context.ack_index != ALL:
                messages = self._some_failed(pq, messages, context, result, error)
            finished += messages
        for pq, finished in done.items():
            stats.add_ok(pq.queue.topic, len(finished))
            self._finished(pq, finished)
        for topic, seconds in times.items():
            stats.add_calls(topic, seconds)

    def _some_failed(
        self,
        pq: ProcessQueue,
        messages: Sequence[ReceivedMessage],
        context: ConsumeContext,
        result: object,
        error: BaseException | None,
    ) -> Sequence[ReceivedMessage]:
        """Send back what failed; return what is finished now."""
        complaint = complaint_about(result, error, ConsumeResult) or complaint_about_index(context.ack_index)
        if complaint is not None:  # CON-06
            ids = ", ".join(message.message_id for message in messages)
            log.warning("the listener of group %s %s; messages %s", self._core.group, complaint, ids, exc_info=error)
        failed = failed_messages(messages, result, context.ack_index)
        succeeded = messages[: len(messages) - len(failed)]
        self._core.stats.add_failed(pq.queue.topic, len(failed))
        if failed and self._settings.model is MessageModel.BROADCASTING:  # CON-08
            for message in failed:
                log.warning("group %s broadcasts: message %r failed and is dropped", self._core.group, message)
            self._finished(pq, failed)
        else:
            # What took so long that it was sent back already (PQ-08) is not sent back twice.
            failed = [message for message in failed if message in pq]
            if failed:
                self._spawn(self._return_all(pq, failed, context.delay_level_when_next_consume))
        return succeeded

    def _finished(self, pq: ProcessQueue, messages: Sequence[ReceivedMessage]) -> None:
        """CON-12: they leave the process queue, and the smallest offset left may be stored."""
        pq.last_consume_at = self._now()
        offset = pq.remove(messages)
        if offset >= 0 and not pq.dropped:
            self._core.offsets.update(pq.queue, offset, increase_only=True)
            self._core.puller.room_made(pq)

    # --- what failed ------------------------------------------------------------------------------------------------

    async def _return_all(self, pq: ProcessQueue, messages: Sequence[ReceivedMessage], delay_level: Any) -> None:
        """CON-09 to CON-11."""
        level = delay_level if isinstance(delay_level, int) else 0
        outcomes = await asyncio.gather(*(self._return(pq, message, level) for message in messages))
        returned = [message for message, gone in zip(messages, outcomes, strict=True) if gone]
        kept = [message for message, gone in zip(messages, outcomes, strict=True) if not gone]
        if pq.dropped:
            return
        if returned:
            self._finished(pq, returned)
        if kept:
            for message in kept:
                message.reconsume_times += 1
            self._core.clock.call_later(AGAIN_AFTER_FAILED_RETURN, self._consume_again, pq, kept)

    def _consume_again(self, pq: ProcessQueue, messages: Sequence[ReceivedMessage]) -> None:
        if self._core.is_running and not pq.dropped:
            self.submit(pq, messages)

    async def _return(self, pq: ProcessQueue, message: ReceivedMessage, delay_level: int) -> bool:
        async with self._returning:
            if pq.dropped:
                return False
            try:
                await self._core.send_back(message, pq.queue, delay_level)
            except Exception as error:  # whatever it is, the message must not be forgotten (CON-11)
                log.warning("message %r could not be sent back: %s", message, error)
                return False
            return True

    async def send_back_stale(self) -> None:
        """PQ-08: what a listener has not finished in 15 minutes does not hold up the offset for ever."""
        before = self._now() - self._settings.consume_timeout
        for pq in self._core.process_queues():
            for message in pq.stale(before):
                if pq.dropped or message not in pq:
                    continue
                log.warning(
                    "group %s: message %r is being consumed for more than %g s: it is sent back",
                    self._core.group,
                    message,
                    self._settings.consume_timeout,
                )
                if await self._return(pq, message, STALE_DELAY_LEVEL) and not pq.dropped:
                    self._finished(pq, [message])

    def _spawn(self, work: Any) -> None:
        task: asyncio.Task[None] = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._task_ended)

    def _task_ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            log.error("sending messages of group %s back failed", self._core.group, exc_info=task.exception())

    async def stop(self, timeout: float) -> bool:
        """Let running listeners end and their results count; False if some still run after `timeout` seconds."""
        deadline = self._now() + timeout
        ended = await self.pool.stop(timeout)
        self.settle()
        if self._tasks:
            _, late = await asyncio.wait(self._tasks, timeout=max(deadline - self._now(), 1.0))
            ended = ended and not late
            for task in late:
                task.cancel()
        return ended


def return_type(result: object, error: BaseException | None, success: bool, timed_out: bool) -> str:
    """How a listener came back, in Java's words."""
    if error is not None:
        return "EXCEPTION"
    if result is None:
        return "RETURNNULL"
    if timed_out:
        return "TIME_OUT"
    return "SUCCESS" if success else "FAILED"
