"""Consumption of popped messages: concurrent, or each queue in its order (POP-02, POP-04).

The rule of this file: a message counts while its lease lasts, and no longer. Once it is over the message may be with
another member: it is neither given to the listener nor acknowledged. Workers run the listener and nothing else; its
answer is accounted for on the I/O thread.
"""

from __future__ import annotations

import asyncio
import logging
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from rocketstream.consumer.concurrent import AGAIN_AFTER_REFUSAL, return_type
from rocketstream.consumer.hooks import ConsumeHookContext, run_after, run_before
from rocketstream.consumer.listener import Context, Listener
from rocketstream.consumer.outcomes import QueueMove, complaint_about, failed_messages, orderly_outcome, suspend_time
from rocketstream.consumer.pop_acks import PopAcks, popped
from rocketstream.consumer.pop_flow import delay_of, is_given_up
from rocketstream.consumer.pop_request import Lease
from rocketstream.consumer.results import ConsumeContext, ConsumeResult, OrderlyContext, OrderlyResult
from rocketstream.consumer.trace import TracedCall
from rocketstream.consumer.workers import LoopWorkers, Pool, ThreadWorkers
from rocketstream.message import MessageQueue, ReceivedMessage

if TYPE_CHECKING:
    from rocketstream.consumer.core import ConsumerCore

log = logging.getLogger("rocketstream.consumer")

# What was popped and not begun when a consumer ends comes to the others so soon.
RELEASED_AFTER = 1.0


class Piece:
    """What one call of the listener is about, and how it went."""

    __slots__ = ("begun", "context", "error", "lease", "messages", "result", "took", "traced")

    def __init__(self, lease: Lease, messages: Sequence[ReceivedMessage], context: Context) -> None:
        self.lease = lease
        self.messages = messages
        self.context = context
        self.begun = False
        self.result: object = None
        self.error: BaseException | None = None
        self.took = 0.0
        self.traced: TracedCall | None = None

    def __repr__(self) -> str:
        return f"<Piece of {len(self.messages)} messages, {self.lease!r}, {'begun' if self.begun else 'waiting'}>"


class PopConsumption(ABC):
    """The consume service of popped messages; its two kinds differ in what may run side by side."""

    results: type[ConsumeResult] | type[OrderlyResult]
    max_times: int
    """How often a message may fail before it is given up."""

    def __init__(self, core: ConsumerCore, listener: Listener, loop: asyncio.AbstractEventLoop | None) -> None:
        self._core = core
        self._settings = core.consumer
        self._listener = listener
        self._hooks = tuple(self._settings.consume_hooks)
        self._trace = core.call_trace
        self._now = core.clock.monotonic
        self._io_loop = asyncio.get_running_loop()
        self._open: set[Piece] = set()
        self._ended: deque[Piece] = deque()
        self._waking = False
        self.acks = PopAcks(core)
        size = self._settings.consume_thread_min
        name = f"rocketstream-pop-{self._settings.group}"
        self.pool: Pool[Piece] = (
            LoopWorkers(self._run_async, size, name, loop)
            if listener.is_async
            else ThreadWorkers(self._run, size, name)
        )

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.pool!r}, {len(self._open)} calls to account for>"

    # --- on the I/O thread: work goes out ---------------------------------------------------------------------------

    @abstractmethod
    def submit(self, lease: Lease, messages: Sequence[ReceivedMessage]) -> None:
        """Have the messages of one queue consumed."""

    @abstractmethod
    def account(self, piece: Piece) -> None:
        """What an answer does that came in time."""

    @abstractmethod
    def over(self, piece: Piece) -> None:
        """A lease ended before its messages were done."""

    def not_wanted(self, messages: Iterable[tuple[Lease, ReceivedMessage]]) -> None:
        """What a filter left out is done: the group does not want it."""
        self.acks.ack([popped(lease, message) for lease, message in messages])

    def _pieces(
        self, lease: Lease, messages: Sequence[ReceivedMessage], context: type[ConsumeContext] | type[OrderlyContext]
    ) -> list[Piece]:
        size = self._settings.consume_message_batch_max_size
        return [
            Piece(lease, tuple(messages[at : at + size]), context(lease.queue)) for at in range(0, len(messages), size)
        ]

    def _dispatch(self, pieces: Sequence[Piece]) -> None:
        self._open.update(pieces)
        try:
            self.pool.submit(pieces)
        except RuntimeError as error:
            if self._core.is_running:
                log.warning(
                    "%d consume requests were refused, again in %g s: %s", len(pieces), AGAIN_AFTER_REFUSAL, error
                )
                self._core.clock.call_later(AGAIN_AFTER_REFUSAL, self._dispatch, pieces)

    # --- on a worker ------------------------------------------------------------------------------------------------

    def _run(self, piece: Piece) -> None:
        hooked = self._begin(piece)
        if piece.begun:
            began = self._now()
            try:
                piece.result = self._listener.call(piece.messages, piece.context)
            except BaseException as raised:  # SystemExit too: a thread of the pool outlives what it runs
                piece.error = raised
            piece.took = self._now() - began
        self._end(piece, hooked)

    async def _run_async(self, piece: Piece) -> None:
        hooked = self._begin(piece)
        if piece.begun:
            began = self._now()
            try:
                piece.result = await self._listener.call(piece.messages, piece.context)
            except Exception as raised:
                piece.error = raised
            piece.took = self._now() - began
        self._end(piece, hooked)

    def _begin(self, piece: Piece) -> ConsumeHookContext | None:
        now = self._now()
        if piece.lease.is_over(now):
            return None
        piece.begun = True
        for message in piece.messages:
            message.consume_started = now
        if self._trace is not None:
            piece.traced = self._trace.begin(piece.messages)
        if not self._hooks:
            return None
        settings = self._settings
        hooked = ConsumeHookContext(settings.group, piece.lease.queue, piece.messages, namespace=settings.namespace)
        run_before(self._hooks, hooked)
        return hooked

    def _end(self, piece: Piece, hooked: ConsumeHookContext | None) -> None:
        if piece.traced is not None and self._trace is not None:
            success = self.is_success(piece.result)
            late = piece.lease.is_over(self._now())
            self._trace.end_call(piece.traced, return_type(piece.result, piece.error, success, late), success)
        if hooked is not None:
            success = self.is_success(piece.result)
            hooked.error = piece.error
            hooked.success = success
            hooked.status = (piece.result if isinstance(piece.result, self.results) else self.failure).name
            late = piece.lease.is_over(self._now())
            hooked.return_type = return_type(piece.result, piece.error, success, late)
            run_after(self._hooks, hooked)
        self._ended.append(piece)
        if not self._waking:
            self._waking = True
            try:
                self._io_loop.call_soon_threadsafe(self.settle)
            except RuntimeError:
                log.debug("a listener of group %s ended after the process's I/O thread", self._settings.group)

    @property
    @abstractmethod
    def failure(self) -> ConsumeResult | OrderlyResult:
        """What an answer that is none stands for."""

    @abstractmethod
    def is_success(self, result: object) -> bool:
        """Whether an answer says that everything went well."""

    # --- on the I/O thread: results come back -----------------------------------------------------------------------

    def settle(self) -> None:
        """Account for every call that has ended."""
        self._waking = False
        for _ in range(len(self._ended)):
            piece = self._ended.popleft()
            self._open.discard(piece)
            lease = piece.lease
            if piece.begun:
                complaint = complaint_about(piece.result, piece.error, self.results)
                if complaint is not None:
                    log.warning(
                        "the listener of group %s %s; %s", self._core.group, complaint, lease, exc_info=piece.error
                    )
                topic = lease.process_queue.queue.topic
                self._core.stats.add_consume_rt(topic, round(piece.took * 1000), len(piece.messages))
                self._core.stats.of(topic).listener.observe(piece.took)
            if lease.is_over(self._now()):
                log.warning(
                    "group %s: %d messages of %s were %s before their lease was over: they come again",
                    self._core.group,
                    len(piece.messages),
                    lease.queue,
                    "not done" if piece.begun else "not begun",
                )
                self._core.stats.of(lease.process_queue.queue.topic).expired += len(piece.messages)
                self.over(piece)
            else:
                self.account(piece)
        self.settled()

    def settled(self) -> None:  # noqa: B027
        """Calls were accounted for: what can be said of them together may be said now."""

    def _finished(self, lease: Lease, count: int) -> None:
        lease.process_queue.done(count)
        self._core.popper.room_made(lease.process_queue)

    async def stop(self, timeout: float) -> bool:
        """Let running listeners end and their results count; what has not begun is given back to the group."""
        deadline = self._now() + timeout
        ended = await self.pool.stop(timeout)
        self.settle()
        for piece in self._open:
            if not piece.begun and not piece.lease.is_over(self._now()):
                self._release(piece)
        self._open.clear()
        await self.acks.stop(max(deadline - self._now(), 1.0))
        return ended

    def _release(self, piece: Piece) -> None:
        self.acks.again_after(RELEASED_AFTER, [popped(piece.lease, message) for message in piece.messages])


class PopConcurrentConsumption(PopConsumption):
    """Messages side by side, in no order."""

    results = ConsumeResult
    failure = ConsumeResult.RECONSUME_LATER

    def __init__(self, core: ConsumerCore, listener: Listener, loop: asyncio.AbstractEventLoop | None) -> None:
        super().__init__(core, listener, loop)
        self.max_times = self._settings.max_reconsume_times_concurrent
        self._done: list[tuple[Lease, ReceivedMessage]] = []

    def submit(self, lease: Lease, messages: Sequence[ReceivedMessage]) -> None:
        """Have messages consumed, in pieces of the batch size."""
        self._dispatch(self._pieces(lease, messages, ConsumeContext))

    def is_success(self, result: object) -> bool:
        """Whether it is SUCCESS."""
        return result is ConsumeResult.SUCCESS

    def account(self, piece: Piece) -> None:
        """Success is acknowledged; a failure comes again, the later the more often it has failed (POP-02)."""
        context = piece.context
        assert isinstance(context, ConsumeContext)
        failed = failed_messages(piece.messages, piece.result, context.ack_index)
        succeeded = piece.messages[: len(piece.messages) - len(failed)]
        lease, stats = piece.lease, self._core.stats
        stats.add_ok(lease.process_queue.queue.topic, len(succeeded))
        stats.add_failed(lease.process_queue.queue.topic, len(failed))
        self._done += [(lease, message) for message in succeeded]
        level: object = context.delay_level_when_next_consume
        for message in failed:
            self._again_later(lease, message, level if isinstance(level, int) else 0)
        self._finished(lease, len(piece.messages))

    def _again_later(self, lease: Lease, message: ReceivedMessage, level: int) -> None:
        times = message.reconsume_times
        delay = delay_of(times, level)
        if is_given_up(times, level, self.max_times):
            self.acks.give_up(lease, message, delay)
        else:
            self.acks.again_after(delay, [popped(lease, message)])

    def over(self, piece: Piece) -> None:
        """Neither consumed nor acknowledged."""
        self._finished(piece.lease, len(piece.messages))

    def settled(self) -> None:
        """Acknowledge everything together."""
        done, self._done = self._done, []
        if done:
            self.acks.ack([popped(lease, message) for lease, message in done])


class _Lane:
    """The messages of one queue, one call after the other."""

    __slots__ = ("kept", "pieces")

    def __init__(self) -> None:
        self.pieces: deque[Piece] = deque()
        """The first is with the listener."""
        self.kept: list[Piece] = []
        """Seen by a listener that commits for itself, and has not yet."""


class PopOrderlyConsumption(PopConsumption):
    """The messages of a queue one after the other (POP-04).

    The broker gives no more of a queue until what it gave is acknowledged, to no member of the group. So a message that
    fails takes those behind it along: all of them come again, and nothing overtakes it.
    """

    results = OrderlyResult
    failure = OrderlyResult.SUSPEND

    def __init__(self, core: ConsumerCore, listener: Listener, loop: asyncio.AbstractEventLoop | None) -> None:
        super().__init__(core, listener, loop)
        self.max_times = self._settings.max_reconsume_times_orderly
        self._lanes: dict[MessageQueue, _Lane] = {}

    def submit(self, lease: Lease, messages: Sequence[ReceivedMessage]) -> None:
        """Put messages behind those of their queue that are there already."""
        pieces = self._pieces(lease, messages, OrderlyContext)
        lane = self._lanes.get(lease.queue)
        if lane is None:
            lane = self._lanes[lease.queue] = _Lane()
        lane.pieces.extend(pieces)
        if len(lane.pieces) == len(pieces):
            self._dispatch([lane.pieces[0]])

    def is_success(self, result: object) -> bool:
        """Whether it is SUCCESS or COMMIT."""
        return result is OrderlyResult.SUCCESS or result is OrderlyResult.COMMIT

    def account(self, piece: Piece) -> None:
        """What an answer does to its queue, as for pulled ones (ORD-08, ORD-09)."""
        context, lease = piece.context, piece.lease
        assert isinstance(context, OrderlyContext)
        lane = self._lanes[lease.queue]
        lane.pieces.popleft()
        stats, topic = self._core.stats, lease.process_queue.queue.topic
        outcome = orderly_outcome(piece.result, bool(context.auto_commit))
        if outcome.warning is not None:
            log.warning("the listener of group %s %s; %s", self._core.group, outcome.warning, lease.queue)
        if outcome.move is QueueMove.COMMIT or outcome.move is QueueMove.KEEP:
            stats.add_ok(topic, len(piece.messages))
            lane.kept.append(piece)
            if outcome.move is QueueMove.COMMIT:
                self._commit(lane)
        else:
            stats.add_failed(topic, len(piece.messages))
            asked = context.suspend_current_queue_time
            self._all_again(lane, piece, suspend_time(asked, self._settings.suspend_current_queue_time))
        self._go_on(lease.queue, lane)

    def _commit(self, lane: _Lane) -> None:
        self.acks.ack([popped(piece.lease, message) for piece in lane.kept for message in piece.messages])
        for piece in lane.kept:
            self._finished(piece.lease, len(piece.messages))
        lane.kept.clear()

    def _all_again(self, lane: _Lane, failed: Piece, after: float) -> None:
        """The failed one, what was not committed before it and what is behind it; but for what has failed too often."""
        pieces = [*lane.kept, failed, *lane.pieces]
        lane.kept.clear()
        lane.pieces.clear()
        for piece in pieces:
            for message in piece.messages:
                if piece is failed and is_given_up(message.reconsume_times, 0, self.max_times):
                    self.acks.give_up(piece.lease, message, after)
                else:
                    self.acks.again_after(after, [popped(piece.lease, message)])
            self._finished(piece.lease, len(piece.messages))

    def over(self, piece: Piece) -> None:
        """Nothing of its queue counts any more: what is behind it was leased no later."""
        lane = self._lanes[piece.lease.queue]
        now = self._now()
        for one in [*lane.kept, *lane.pieces]:
            if one.lease.is_over(now):
                self._finished(one.lease, len(one.messages))
        lane.kept = [one for one in lane.kept if not one.lease.is_over(now)]
        lane.pieces = deque(one for one in lane.pieces if not one.lease.is_over(now))
        self._go_on(piece.lease.queue, lane)

    def _go_on(self, queue: MessageQueue, lane: _Lane) -> None:
        if lane.pieces:
            self._dispatch([lane.pieces[0]])
        elif not lane.kept:
            del self._lanes[queue]

    async def stop(self, timeout: float) -> bool:
        """As the others; what waits in the lanes was not begun either."""
        for lane in self._lanes.values():
            self._open.update(lane.pieces)
        return await super().stop(timeout)
