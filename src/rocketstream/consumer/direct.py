"""One message that an operator gives to the listener now, past every queue (CONSUME_MESSAGE_DIRECTLY).

The rule of this file: nothing comes of it but the listener's answer, told to who asked. No offset moves, nothing is
sent back, counted, traced or shown to hooks, as in Java: the same message may be on its way to another member. A
listener that hangs keeps one of a few threads that nobody else uses; when all of them hang, more is refused.
"""

from __future__ import annotations

import asyncio
import logging
import traceback
from typing import TYPE_CHECKING, Final

from rocketstream.consumer.listener import Context, Listener, is_its_own
from rocketstream.consumer.outcomes import complaint_about
from rocketstream.consumer.results import ConsumeContext, ConsumeResult, OrderlyContext, OrderlyResult
from rocketstream.consumer.running_info import place_of
from rocketstream.consumer.workers import LoopWorkers, Pool, ThreadWorkers
from rocketstream.errors import ClientStateError
from rocketstream.message import MessageQueue, ReceivedMessage
from rocketstream.wire.bodies.running_info import ConsumeMessageDirectlyResult
from rocketstream.wire.codes import CMResult

if TYPE_CHECKING:
    from rocketstream.consumer.core import ConsumerCore

log = logging.getLogger("rocketstream.consumer")

MAX_AT_A_TIME: Final = 4

_RESULTS: Final[dict[object, CMResult]] = {
    ConsumeResult.SUCCESS: CMResult.CR_SUCCESS,
    ConsumeResult.RECONSUME_LATER: CMResult.CR_LATER,
    OrderlyResult.SUCCESS: CMResult.CR_SUCCESS,
    OrderlyResult.COMMIT: CMResult.CR_COMMIT,
    OrderlyResult.ROLLBACK: CMResult.CR_ROLLBACK,
    OrderlyResult.SUSPEND: CMResult.CR_LATER,
}


class _Call:
    """One call of the listener: a worker fills it, the I/O thread reads it."""

    __slots__ = ("context", "ended", "error", "message", "result", "took")

    def __init__(self, message: ReceivedMessage, context: Context, ended: asyncio.Future[None]) -> None:
        self.message = message
        self.context = context
        self.ended = ended
        self.result: object = None
        self.error: BaseException | None = None
        self.took = 0.0


class DirectConsumption:
    """Calls the listener of one consumer with what operators give it; made with the first such message."""

    def __init__(self, core: ConsumerCore, listener: Listener, loop: asyncio.AbstractEventLoop | None) -> None:
        self._core = core
        self._listener = listener
        self._orderly = core.consumer.orderly
        self._now = core.clock.monotonic
        self._io_loop = asyncio.get_running_loop()
        self._running = 0
        name = f"rocketstream-consume-directly-{core.consumer.group}"
        self._pool: Pool[_Call] = (
            LoopWorkers(self._run_async, MAX_AT_A_TIME, name, loop)
            if listener.is_async
            else ThreadWorkers(self._run, MAX_AT_A_TIME, name)
        )

    def __repr__(self) -> str:
        return f"<DirectConsumption of group {self._core.group}, {self._running} of {MAX_AT_A_TIME} calls run>"

    # --- on the I/O thread ------------------------------------------------------------------------------------------

    async def consume(self, message: ReceivedMessage, broker_name: str) -> ConsumeMessageDirectlyResult:
        """What the listener says of a message; raises where nobody is free to ask it."""
        core = self._core
        if self._running >= MAX_AT_A_TIME:
            raise ClientStateError(
                f"{core.what} is still busy with {self._running} messages that operators gave to its listener: try"
                " again when one has ended, or look with jstack where they are"
            )
        queue = core.names.shown_queue(MessageQueue(message.topic, broker_name, message.queue_id))
        core.names.restore([message])
        context: Context = OrderlyContext(queue) if self._orderly else ConsumeContext(queue)
        call = _Call(message, context, self._io_loop.create_future())
        try:
            self._pool.submit([call])
        except RuntimeError:  # stopped, or no thread could be started
            raise ClientStateError(f"{core.what} gives its listener nothing more: it is being shut down") from None
        self._running += 1
        try:
            # Who does not wait any more has not ended the call: it counts until it has.
            await asyncio.shield(call.ended)
        finally:
            if call.ended.done():
                self._running -= 1
            else:
                call.ended.add_done_callback(self._left_alone)
        return self._told(call)

    def _left_alone(self, ended: asyncio.Future[None]) -> None:
        self._running -= 1

    def _told(self, call: _Call) -> ConsumeMessageDirectlyResult:
        remark = None
        if call.error is not None:
            result, remark = CMResult.CR_THROW_EXCEPTION, described(call.error)
        elif call.result is None:
            result = CMResult.CR_RETURN_NULL
        else:
            expected = OrderlyResult if self._orderly else ConsumeResult
            # Whatever is no answer means "again later" when it is consumed as usual (CON-06, ORD-10).
            known = isinstance(call.result, expected)
            result = _RESULTS[call.result] if known else CMResult.CR_LATER
            remark = complaint_about(call.result, None, expected)
        log.info(
            "group %s: the listener was given message %s by an operator, %s after %.3f s%s",
            self._core.group,
            call.message.message_id,
            result.value,
            call.took,
            f": {remark}" if remark else "",
            exc_info=call.error,
        )
        commits = call.context.auto_commit if isinstance(call.context, OrderlyContext) else True
        return ConsumeMessageDirectlyResult(
            order=self._orderly,
            auto_commit=bool(commits),
            consume_result=result,
            remark=remark,
            spent_time_mills=round(call.took * 1000),
        )

    async def stop(self, timeout: float) -> bool:
        """Let what runs end; False if some of it still runs after `timeout` seconds."""
        return await self._pool.stop(timeout)

    # --- on a worker ------------------------------------------------------------------------------------------------

    def _run(self, call: _Call) -> None:
        began = self._now()
        try:
            call.result = self._listener.call((call.message,), call.context)
        except BaseException as raised:  # SystemExit too: a thread of the pool outlives what it runs
            call.error = raised
        self._end(call, began)

    async def _run_async(self, call: _Call) -> None:
        began = self._now()
        try:
            call.result = await self._listener.call((call.message,), call.context)
        except BaseException as raised:
            call.error = raised
            if not is_its_own(raised):
                raise
        finally:
            self._end(call, began)

    def _end(self, call: _Call, began: float) -> None:
        call.took = self._now() - began
        try:
            self._io_loop.call_soon_threadsafe(_conclude, call.ended)
        except RuntimeError:
            log.debug("a listener of group %s ended after the process's I/O thread", self._core.group)


def _conclude(ended: asyncio.Future[None]) -> None:
    if not ended.done():
        ended.set_result(None)


def described(error: BaseException) -> str:
    """An exception in one line, with the place that raised it, as Java's `exceptionSimpleDesc`."""
    told = f"{type(error).__module__}.{type(error).__qualname__}: {error}".removeprefix("builtins.")
    *_, last = [None, *traceback.walk_tb(error.__traceback__)]
    return told if last is None else f"{told}, {place_of(*last)}"
