"""The producers for an event loop: what `rocketstream.Producer` and `TransactionProducer` do, awaited."""

from __future__ import annotations

import asyncio
import concurrent.futures
import inspect
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from types import TracebackType
from typing import Any, Self, TypeAlias, TypeVar, cast

from rocketstream.aio.life import Life
from rocketstream.cluster.client import BoundToProcess, ClientState
from rocketstream.message import Message, MessageQueue, ReceivedMessage
from rocketstream.producer import producer as plain
from rocketstream.producer import request_reply, timer, transaction
from rocketstream.producer.core import Selector
from rocketstream.producer.receipt import SendReceipt, TransactionState
from rocketstream.producer.transaction import Check, Execute
from rocketstream.producer.validation import check_timeout

T = TypeVar("T")
AsyncExecute: TypeAlias = Callable[[Message, Any], Awaitable[TransactionState]]
AsyncCheck: TypeAlias = Callable[[ReceivedMessage], Awaitable[TransactionState]]


class _Face(BoundToProcess):
    """What both producers have: a life, and every way to send that is not a transaction's own."""

    def __init__(self, behind: plain.Producer) -> None:
        self._plain = behind
        self._life = Life(behind.core)

    def __repr__(self) -> str:
        return f"<aio {self._plain!r}>"

    @property
    def state(self) -> ClientState:
        """Where it is in its life."""
        return self._plain.state

    @property
    def client_id(self) -> str:
        """How brokers know this client."""
        return self._plain.client_id

    @property
    def metrics(self) -> Mapping[str, Mapping[str, int]]:
        """What was sent so far, per topic (`docs/howto-metrics.md`)."""
        return self._plain.metrics

    async def start(self) -> None:
        """Connect, or raise saying what is missing.

        Cancelled, it gives everything back first, and could be started again.
        """
        await self._life.start()

    async def shutdown(self, timeout: float = 30.0) -> None:
        """End; harmless when repeated. Sends that are still awaited fail.

        Cancelling the wait does not stop it: it ends on the I/O thread.
        """
        check_timeout(timeout)
        await self._life.end(lambda: self._plain.core.shutdown(timeout))

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None or not self._plain.core.io.is_elsewhere:  # what ends a forked child is not hidden
            await self.shutdown()

    async def queues(self, topic: str) -> tuple[MessageQueue, ...]:
        """The queues of a topic that can be written to."""
        self._plain.core.check_running()
        return await self._await(self._plain.core.user_queues(topic))

    async def send_oneway(
        self,
        message: Message,
        *,
        queue: MessageQueue | None = None,
        sharding_key: str | None = None,
        selector: Selector | None = None,
        arg: Any = None,
    ) -> None:
        """Send a message without waiting for an answer; whether it was stored is not known."""
        out = self._plain.ready(message, queue, sharding_key, selector, None)
        await self._await(
            self._plain.core.send_one_way(out, queue=queue, sharding_key=sharding_key, selector=selector, arg=arg)
        )

    async def send_batch(
        self, messages: Sequence[Message], *, queue: MessageQueue | None = None, timeout: float | None = None
    ) -> list[SendReceipt]:
        """Send messages of one topic in as few requests as their size allows; a receipt per request, in order."""
        batches = self._plain.ready_batch(messages, queue, timeout)
        return await self._await(self._plain.core.send_all(batches, timeout=timeout, queue=queue))

    async def request(
        self,
        message: Message,
        *,
        queue: MessageQueue | None = None,
        sharding_key: str | None = None,
        selector: Selector | None = None,
        arg: Any = None,
        timeout: float = request_reply.DEFAULT_TIMEOUT,
    ) -> ReceivedMessage:
        """Send a message and return the reply to it; `ReplyTimeoutError` if none comes within the time-out."""
        out, correlation_id = self._plain.ready_request(message, queue, sharding_key, selector, timeout)
        choice = {"queue": queue, "sharding_key": sharding_key, "selector": selector, "arg": arg}
        core = self._plain.core
        return await self._await(request_reply.request(core, out, correlation_id, timeout=timeout, **choice))

    async def reply(
        self,
        received: ReceivedMessage,
        body: bytes,
        *,
        tags: str | None = None,
        keys: str | None = None,
        properties: Mapping[str, str] | None = None,
        timeout: float | None = None,
    ) -> SendReceipt:
        """Reply to a message that somebody sent with `request`; an error tells that the reply did not reach them."""
        core = self._plain.core
        core.check_running()
        check_timeout(timeout)
        out = request_reply.prepare_reply(core, received, body, tags=tags, keys=keys, properties=properties)
        return await self._await(request_reply.reply(core, out, received.broker_name, timeout))

    async def recall(self, topic: str, handle: str, *, timeout: float | None = None) -> str:
        """Take a timer message back before it is due (5.x); `handle` is its receipt's `recall_handle`."""
        core = self._plain.core
        core.check_running()
        check_timeout(timeout)
        return await self._await(timer.recall(core, topic, handle, timeout))

    async def _await(self, coroutine: Coroutine[Any, Any, T]) -> T:
        core = self._plain.core
        return await core.io.bridge(coroutine, core.what)


class Producer(_Face):
    """`async with Producer("group", name_servers=...) as producer: await producer.send(Message(...))`.

    It takes the settings of the plain `Producer`. Where that has `send_async`, this has many `send`s awaited together.
    """

    def __init__(self, group: str, name_servers: str | Sequence[str] | None = None, **settings: Any) -> None:
        super().__init__(plain.Producer(group, name_servers, **settings))

    async def send(
        self,
        message: Message,
        *,
        queue: MessageQueue | None = None,
        sharding_key: str | None = None,
        selector: Selector | None = None,
        arg: Any = None,
        timeout: float | None = None,
    ) -> SendReceipt:
        """Send a message and return the broker's receipt; with `auto_batch` it may share a request with others."""
        future = self._plain.submit(
            message, queue=queue, sharding_key=sharding_key, selector=selector, arg=arg, timeout=timeout
        )
        return await asyncio.wrap_future(future)


class TransactionProducer(_Face):
    """Sends messages that are delivered only if something local went well: `await producer.send(message, arg)`.

    An `async def` `execute` is awaited where `send` is; an `async def` `check` runs on the loop that started the
    producer. Plain functions may block: they run on threads, `execute` on one of the loop's (`asyncio.to_thread`), with
    the caller's context variables.
    """

    def __init__(
        self,
        group: str,
        name_servers: str | Sequence[str] | None = None,
        *,
        execute: Execute | AsyncExecute,
        check: Check | AsyncCheck,
        check_threads: int = 1,
        **settings: Any,
    ) -> None:
        self._execute = execute if inspect.iscoroutinefunction(execute) else None
        self._check = check if inspect.iscoroutinefunction(check) else None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._transactions = transaction.TransactionProducer(
            group,
            name_servers,
            execute=_never_called if self._execute is not None else cast(Execute, execute),
            check=self._check_on_the_loop if self._check is not None else cast(Check, check),
            check_threads=check_threads,
            **settings,
        )
        super().__init__(self._transactions)

    async def start(self) -> None:
        """Connect, or raise saying what is missing.

        Cancelled, it gives everything back first, and could be started again.
        """
        self._loop = asyncio.get_running_loop()
        await super().start()

    def _check_on_the_loop(self, message: ReceivedMessage) -> TransactionState:
        """Runs on a check thread, which waits for the loop as for any slow `check`."""
        assert self._loop is not None
        assert self._check is not None
        asking = self._check(message)
        try:
            answer = asyncio.run_coroutine_threadsafe(asking, self._loop)
        except RuntimeError:  # the loop is closed: the broker asks again, another member or our next life
            asking.close()
            raise
        while not answer.done() and self._is_answered():
            concurrent.futures.wait([answer], 1.0)
        answer.cancel()
        return cast(TransactionState, answer.result())

    def _is_answered(self) -> bool:
        """Whether somebody may answer yet: a loop that is stopped and not closed would keep the thread for ever."""
        return self.state is ClientState.RUNNING or (self._loop is not None and self._loop.is_running())

    async def shutdown(self, timeout: float = 30.0) -> None:
        """Wait for the checks that run, at most `timeout` seconds, and end; harmless when repeated.

        Cancelling the wait does not stop it: its thread goes on.
        """
        check_timeout(timeout)
        self._transactions.core.check_process()
        await asyncio.to_thread(self._transactions.shutdown, timeout)

    async def send(
        self,
        message: Message,
        arg: Any = None,
        *,
        queue: MessageQueue | None = None,
        sharding_key: str | None = None,
        selector: Selector | None = None,
        timeout: float | None = None,
    ) -> SendReceipt:
        """Send a message in a transaction; the receipt's `transaction_state` says what the local part came to.

        Cancelling it cancels an `async def` `execute`, and the broker asks `check` how it went. One that runs on a
        thread goes on, and the broker is told how it went.
        """
        choice: dict[str, Any] = {"queue": queue, "sharding_key": sharding_key, "selector": selector}
        if self._execute is None:
            self._transactions.core.check_process()
            return await asyncio.to_thread(self._transactions.send, message, arg, **choice, timeout=timeout)
        core = self._transactions.core
        out = self._transactions.ready_half(message, queue, sharding_key, selector, timeout)
        half = await self._await(core.send(out, timeout=timeout, **choice, arg=arg))
        outcome: tuple[TransactionState, str | None] = (TransactionState.UNKNOWN, "execute was cancelled")
        try:
            outcome = await self._local_part(message, arg, half)
        finally:
            # Begun at once, whoever waits for it: a message whose sender was cancelled is not left to time-outs.
            told = core.io.submit(core.end(half, *outcome, message), core.what, lasting=True)
        await asyncio.shield(asyncio.wrap_future(told))
        return transaction.concluded(half, outcome[0])

    async def _local_part(self, message: Message, arg: Any, half: SendReceipt) -> tuple[TransactionState, str | None]:
        if not transaction.stored_well(half):
            return TransactionState.ROLLBACK, None
        assert self._execute is not None
        try:
            state = await self._execute(transaction.shown_to_execute(message, half), arg)
        except Exception as error:
            return transaction.raised("execute", error, half.message_id)
        return transaction.verdict("execute", state, half.message_id)


def _never_called(message: Message, arg: Any) -> TransactionState:
    raise AssertionError("an `async def` execute is awaited by the face")
