"""From users' threads to the I/O thread, many sends with one wake-up; and the quick way for what needs no waiting.

A send whose queue, address and connection are at hand is written at once, without a task of its own. Whatever else it
needs (a route, a connection, a hook, a second attempt) is done by `ProducerCore.send`, which knows it all; the quick
way only starts it with the attempt that already failed.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import threading
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

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

_GO_AWAY = int(ResponseCode.GO_AWAY)
_FAR_AHEAD = 32
_FAR_AHEAD_PAUSE = 0.1


class Outcome(Protocol):
    """Where the receipt of a send, or the error, goes; the first that comes counts."""

    def cancelled(self) -> bool:
        """Whether nobody wants it any more."""

    def cancel(self) -> bool:
        """There will be none: the producer has ended. Tell whether it came before any other outcome."""

    def conclude(self, outcome: SendReceipt | BaseException) -> None:
        """Here it is; nothing happens if there is one already. Called on the I/O thread."""


class BlockedCaller:
    """What a blocking send waits on: a bare lock, a fraction of the cost of a future and its condition."""

    __slots__ = ("_cancelled", "_done", "_outcome")

    def __init__(self) -> None:
        self._done = threading.Lock()
        self._done.acquire()
        self._cancelled = False
        self._outcome: SendReceipt | BaseException | None = None

    def __repr__(self) -> str:
        return f"<BlockedCaller {'waits' if self._outcome is None else 'got'} {self._outcome or ''}>"

    def cancelled(self) -> bool:
        """Whether the caller has gone away."""
        return self._cancelled

    def cancel(self) -> bool:
        """Let the caller go without a receipt."""
        self._cancelled = True
        self.conclude(concurrent.futures.CancelledError())
        return True

    def conclude(self, outcome: SendReceipt | BaseException) -> None:
        """Wake the caller."""
        if self._outcome is None:
            self._outcome = outcome
            self._done.release()

    def wait(self) -> SendReceipt:
        """Block until there is an outcome; return or raise it."""
        try:
            self._done.acquire()
        except BaseException:
            self._cancelled = True  # Ctrl-C in the waiting caller: nobody wants the receipt any more
            raise
        outcome = self._outcome
        assert outcome is not None
        if isinstance(outcome, BaseException):
            try:
                raise outcome
            finally:
                del outcome  # no cycle of the error, its traceback and this frame
        return outcome


@dataclass(slots=True)
class Send:
    """One send on its way to the I/O thread."""

    out: Outgoing
    outcome: Outcome
    retries: int
    timeout: float
    """Seconds from `begun` for everything: waiting for company, routes, all attempts."""
    begun: float
    """When the caller called, by the clock of the producer."""
    queue: MessageQueue | None = None
    sharding_key: str | None = None
    selector: Any = None
    arg: Any = None
    may_wait: bool = False
    """Whether it may wait for others with which to share a request (`auto_batch`)."""
    chosen: MessageQueue | None = None
    """The queue of its first attempt: chosen once, or round robin would leave some out."""

    @property
    def is_plain(self) -> bool:
        """Whether round robin or a key chooses the queue and any broker will do: that needs nobody's code."""
        return self.queue is None and self.selector is None and self.out.check is None


class Dispatcher:
    """Takes sends from any thread; everything but `submit` belongs to the I/O thread."""

    def __init__(self, core: ProducerCore) -> None:
        self._core = core
        self._handed_over: deque[Send] = deque()
        self._callers_ahead: deque[threading.Lock] = deque()
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

    def submit(self, send: Send) -> None:
        """Hand a send over; the I/O thread is woken only if it does not know yet that there is something."""
        core = self._core
        core.io.check(core.what)
        self._handed_over.append(send)
        if not self._wake_up_is_pending:
            self._wake_up_is_pending = True
            core.io.call_soon(self._take_all)

    def catch_up(self) -> None:
        """Wait until the I/O thread has taken what was handed over, if that is much; for callers that send on and on.

        A thread that computes gives way to another only every 5 ms (`sys.getswitchinterval`). Without this, a caller
        would fill its bound before the first message has left, and then all would wait for the broker.
        """
        if len(self._handed_over) < _FAR_AHEAD:
            return
        taken = threading.Lock()
        taken.acquire()
        self._callers_ahead.append(taken)
        # Looked at once more after that: what is still there now is taken by a turn that will see the lock. The limit
        # is for an I/O thread that has come to its end.
        if self._handed_over:
            taken.acquire(timeout=_FAR_AHEAD_PAUSE)

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
                send.outcome.conclude(error)
        if core.is_running:
            core.instance.remoting.flush()
        while self._callers_ahead:
            self._callers_ahead.popleft().release()

    def start(self, send: Send) -> None:
        """Begin a send, the quick way if it can be."""
        if not send.outcome.cancelled() and not self._start_quickly(send, here=False):
            self._start_task(send)

    def start_here(self, send: Send) -> None:
        """Begin a send on the thread of a caller that waits for it: it leaves before this returns, if it can."""
        core = self._core
        core.io.check(core.what)
        if not self._start_quickly(send, here=True):
            self.submit(send)

    def _start_quickly(self, send: Send, *, here: bool) -> bool:
        core = self._core
        if not core.is_running or not core.has_quick_way or not send.is_plain:
            return False
        instance = core.instance
        now = instance.clock.monotonic  # kept: the outcome may come while the producer is shut down
        sent_at = now()
        queue = send.chosen or core.quick_queue(send.out, send.sharding_key, sent_at)
        send.chosen = queue
        broker = None if queue is None else instance.brokers.master(instance.routes.broker_name_of(queue))
        if queue is None or broker is None:
            return False
        address = instance.address_for(send.out.code, broker.address)

        def on_outcome(outcome: Command | BaseException) -> None:
            """The quick attempt has ended: done, refused for good, or to be tried again by the slow way."""
            core.record_outcome(queue, sent_at, failed=isinstance(outcome, BaseException))
            if isinstance(outcome, Command):
                if outcome.code in STATUS_BY_CODE:
                    receipt = read_receipt(outcome, send.out.message_id, core.shown(queue))
                    core.traced(send.out, address, sent_at, receipt, outcome.fields)
                    core.ended(send.out, receipt, now() - send.begun)
                    send.outcome.conclude(receipt)
                    return
                if outcome.code == _GO_AWAY:
                    # Not an attempt: the broker has only asked for another connection.
                    self._start_task(send)
                    return
                outcome = broker_error(address, send.out.code, outcome)
            if not isinstance(outcome, RemotingError | BrokerError):
                core.ended(send.out, outcome, 0.0)
                send.outcome.conclude(outcome)
                return
            self._start_task(send, failed=[(address, outcome)], last=queue)

        invoke = instance.remoting.try_invoke_here if here else instance.remoting.try_invoke
        return invoke(address, core.command(send.out, queue), send.begun + send.timeout, on_outcome)

    def _start_task(self, send: Send, **so_far: Any) -> None:
        task = asyncio.ensure_future(self._send(send, so_far))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _send(self, send: Send, so_far: dict[str, Any]) -> None:
        try:
            receipt = await self._core.send(
                send.out,
                timeout=send.timeout,
                begun=send.begun,
                retries=send.retries,
                queue=send.queue,
                sharding_key=send.sharding_key,
                selector=send.selector,
                arg=send.arg,
                **so_far,
            )
        except asyncio.CancelledError:
            send.outcome.cancel()
            raise
        except Exception as error:
            send.outcome.conclude(error)
        else:
            send.outcome.conclude(receipt)
