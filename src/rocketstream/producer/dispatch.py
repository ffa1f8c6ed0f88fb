"""From users' threads to the I/O thread, many sends with one wake-up; and the quick way for what needs no waiting.

A send whose queue, address and connection are at hand is written at once, without a task of its own. Whatever else it
needs (a route, a connection, a hook, a second attempt) is done by `ProducerCore.send`, which knows it all; the quick
way only starts it with the attempt that already failed.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import logging
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from rocketstream.errors import BrokerError, RemotingError
from rocketstream.message import MessageQueue
from rocketstream.producer.outgoing import Outgoing
from rocketstream.producer.receipt import STATUS_BY_CODE, SendReceipt, read_receipt
from rocketstream.remoting.replies import broker_error
from rocketstream.wire.codes import ResponseCode
from rocketstream.wire.command import Command

if TYPE_CHECKING:
    from rocketstream.producer.accumulator import Accumulator
    from rocketstream.producer.core import ProducerCore

log = logging.getLogger("rocketstream.producer")

ReceiptFuture: TypeAlias = concurrent.futures.Future[SendReceipt]


class UserFuture(concurrent.futures.Future[SendReceipt]):
    """What `send_async` returns. What users hang on it runs on callback threads: it may block, or send again."""

    def __init__(self, callback_threads: concurrent.futures.Executor) -> None:
        super().__init__()
        self._callback_threads = callback_threads

    def on_end(self, function: Callable[[], None]) -> None:
        """Have a function of our own called on the I/O thread, at once."""
        super().add_done_callback(lambda _: function())

    def add_done_callback(self, fn: Callable[[concurrent.futures.Future[SendReceipt]], object]) -> None:
        """Call `fn` with this future once it is done, on a callback thread."""
        super().add_done_callback(lambda done: self._hand_over(fn, done))

    def _hand_over(
        self,
        fn: Callable[[concurrent.futures.Future[SendReceipt]], object],
        done: concurrent.futures.Future[SendReceipt],
    ) -> None:
        try:
            self._callback_threads.submit(_run_callback, fn, done)
        except RuntimeError:  # the producer was shut down in the meantime; the callback is owed all the same
            threading.Thread(target=_run_callback, args=(fn, done), daemon=True).start()


def _run_callback(
    fn: Callable[[concurrent.futures.Future[SendReceipt]], object], done: concurrent.futures.Future[SendReceipt]
) -> None:
    try:
        fn(done)
    except Exception:
        log.exception("a callback of a send raised")


_GO_AWAY = int(ResponseCode.GO_AWAY)


@dataclass(slots=True)
class Send:
    """One send on its way to the I/O thread."""

    out: Outgoing
    future: ReceiptFuture
    retries: int
    timeout: float
    queue: MessageQueue | None = None
    sharding_key: str | None = None
    selector: Any = None
    arg: Any = None
    may_wait: bool = False
    """Whether it may wait for others with which to share a request (`auto_batch`)."""

    @property
    def is_plain(self) -> bool:
        """Whether round robin or a key chooses the queue and any broker will do: that needs nobody's code."""
        return self.queue is None and self.selector is None and self.out.check is None


class Dispatcher:
    """Takes sends from any thread; everything but `submit` belongs to the I/O thread."""

    def __init__(self, core: ProducerCore) -> None:
        self._core = core
        self._handed_over: deque[Send] = deque()
        self._wake_up_is_pending = False
        self._tasks: set[asyncio.Task[None]] = set()
        self._accumulator: Accumulator | None = None

    def batch_with(self, accumulator: Accumulator) -> None:
        """Let sends that may wait for others do so there."""
        self._accumulator = accumulator

    def flush(self) -> None:
        """Start whatever waits for company."""
        if self._accumulator is not None:
            self._accumulator.flush_all()

    def submit(self, send: Send) -> ReceiptFuture:
        """Hand a send over; the I/O thread is woken only if it does not know yet that there is something."""
        core = self._core
        core.io.check(core.what)
        self._handed_over.append(send)
        if not self._wake_up_is_pending:
            self._wake_up_is_pending = True
            core.io.call_soon(self._take_all)
        return send.future

    def _take_all(self) -> None:
        # First the flag, then the sends: one that is appended in between wakes us again, at worst for nothing.
        self._wake_up_is_pending = False
        core = self._core
        handed_over = self._handed_over
        while handed_over:
            send = handed_over.popleft()
            try:
                if send.may_wait and self._accumulator is not None and core.is_running:
                    self._accumulator.add(send)
                else:
                    self.start(send)
            except Exception as error:
                finish(send.future, error)

    def start(self, send: Send) -> None:
        """Begin a send, the quick way if it can be."""
        if send.future.cancelled():
            return
        core = self._core
        settings = core.producer
        if not core.is_running or settings.send_hooks or settings.retry_another_broker or not send.is_plain:
            self._start_task(send)
            return
        queue = core.quick_queue(send.out, send.sharding_key)
        broker = core.instance.brokers.master(queue.broker_name) if queue is not None else None
        if queue is None or broker is None:
            self._start_task(send)
            return
        now = core.clock.monotonic  # kept: the outcome may come while the producer is shut down
        begun = now()
        address = broker.address

        def on_outcome(outcome: Command | BaseException) -> None:
            core.record_outcome(queue, begun, failed=isinstance(outcome, BaseException))
            send.timeout = max(send.timeout - (now() - begun), 0.0)  # one budget for all attempts
            self._conclude(send, queue, address, begun, outcome)

        command = core.command(send.out, queue)
        if not core.instance.remoting.try_invoke(address, command, begun + send.timeout, on_outcome):
            self._start_task(send)

    def _conclude(
        self, send: Send, queue: MessageQueue, address: str, begun: float, outcome: Command | BaseException
    ) -> None:
        """The quick attempt has ended: done, refused for good, or to be tried again by the slow way."""
        if isinstance(outcome, Command):
            if outcome.code in STATUS_BY_CODE:
                receipt = read_receipt(outcome, send.out.message_id, self._core.shown(queue))
                self._core.traced(send.out, address, begun, receipt)
                finish(send.future, receipt)
                return
            if outcome.code == _GO_AWAY:
                # Not an attempt: the broker has only asked for another connection.
                self._start_task(send)
                return
            outcome = broker_error(address, send.out.code, outcome)
        if not isinstance(outcome, RemotingError | BrokerError):
            finish(send.future, outcome)
            return
        self._start_task(send, failed=[(address, outcome)], last=queue)

    def _start_task(self, send: Send, **so_far: Any) -> None:
        task = asyncio.ensure_future(self._send(send, so_far))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _send(self, send: Send, so_far: dict[str, Any]) -> None:
        try:
            receipt = await self._core.send(
                send.out,
                timeout=send.timeout,
                retries=send.retries,
                queue=send.queue,
                sharding_key=send.sharding_key,
                selector=send.selector,
                arg=send.arg,
                **so_far,
            )
        except asyncio.CancelledError:
            send.future.cancel()
            raise
        except Exception as error:
            finish(send.future, error)
        else:
            finish(send.future, receipt)


def finish(future: ReceiptFuture, outcome: SendReceipt | BaseException) -> None:
    """Give a future its outcome, unless whoever waited has gone away."""
    if not future.set_running_or_notify_cancel():
        return
    if isinstance(outcome, BaseException):
        future.set_exception(outcome)
    else:
        future.set_result(outcome)
