"""The push consumer for an event loop: what `rocketstream.PushConsumer` does, awaited.

The rule of this file: a call that is cancelled leaves the consumer as it was or ended, never half started. A start that
is cancelled is taken back before the cancellation goes on; a shutdown goes on without whoever waited for it.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import logging
import signal
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from types import TracebackType
from typing import Any, Self, TypeVar

from rocketstream.cluster.client import ClientState
from rocketstream.cluster.names import check_topic
from rocketstream.consumer.core import ConsumerCore
from rocketstream.consumer.expressions import Sql, Tag, subscription_to
from rocketstream.consumer.push_consumer import ConsumerFace
from rocketstream.consumer.status import ConsumerStatus
from rocketstream.message import MessageQueue

T = TypeVar("T")

log = logging.getLogger("rocketstream.consumer")


class PushConsumer(ConsumerFace):
    """`async with PushConsumer("group", name_servers=..., listener=handle) as consumer: ...`, or `await run()`.

    It takes the settings of the plain `PushConsumer`. An `async def` listener runs on the loop that started the
    consumer, a plain one in a pool of threads.
    """

    _ending: concurrent.futures.Future[None] | None = None

    async def start(self) -> None:
        """Return once it is registered, routed and has its queues, or raise saying what is missing.

        Cancelled, it gives everything back first, and could be started again.
        """
        self._make_ready(asyncio.get_running_loop())
        start = _Start(self._core)
        begun = self._core.io.submit(start.run(), self._core.what)
        try:
            await asyncio.shield(asyncio.wrap_future(begun))
        except asyncio.CancelledError:
            await asyncio.shield(self._await(start.take_back()))
            raise

    async def shutdown(self, timeout: float | None = None) -> None:
        """Stop pulling, let running listeners end (up to `timeout` seconds), store offsets, leave the group.

        Cancelling the wait does not stop it: it ends on the I/O thread.
        """
        if self._ending is None and self._core.state is ClientState.RUNNING:
            self._ending = self._core.io.submit(self._core.shutdown(timeout), self._core.what)
        if self._ending is not None:
            await asyncio.shield(asyncio.wrap_future(self._ending))

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.shutdown()

    async def run(self) -> None:
        """Start, stay until cancelled or SIGINT or SIGTERM, then shut down."""
        stop = asyncio.Event()
        starting = asyncio.ensure_future(self.start())

        def end() -> None:
            stop.set()
            starting.cancel()

        with _at_signals(end):
            try:
                await starting
            except asyncio.CancelledError:
                task = asyncio.current_task()
                if stop.is_set() and task is not None and not task.cancelling():
                    return
                raise
            try:
                await stop.wait()
            finally:
                log.info("%s ends", self._core.what)
                await self.shutdown()

    async def subscribe(self, topic: str, expression: str | Tag | Sql = "*") -> None:
        """Subscribe to a topic, before or after the start; a second time replaces the expression."""
        check_topic(topic)
        subscription_to(topic, expression, 0)
        await self._await(self._core.subscribing.subscribe(topic, expression))

    async def unsubscribe(self, topic: str) -> None:
        """End a subscription."""
        await self._await(self._core.subscribing.unsubscribe(topic))

    async def suspend(self) -> None:
        """Pull nothing for now; what was pulled already is consumed."""
        await self._await(self._core.set_paused(True))

    async def resume(self) -> None:
        """Pull again."""
        await self._await(self._core.set_paused(False))

    @property
    def assignment(self) -> Awaitable[tuple[MessageQueue, ...]]:
        """The queues that this consumer has now: `await consumer.assignment`."""
        return self._await(self._core.overview.assignment())

    async def status(self) -> ConsumerStatus:
        """Per queue: offsets, what is cached, lag, lock, the last pull, and why it waits if it does."""
        return await self._await(self._core.overview.status())

    def _await(self, coroutine: Coroutine[Any, Any, T]) -> asyncio.Future[T]:
        # Begun at once, so that asking for `assignment` without awaiting it leaves no coroutine behind.
        return asyncio.wrap_future(self._core.io.submit(coroutine, self._core.what))


class _Start:
    """A start on the I/O thread that can be taken back, however far it has come."""

    def __init__(self, core: ConsumerCore) -> None:
        self._core = core
        self._task: asyncio.Task[Any] | None = None

    async def run(self) -> None:
        self._task = asyncio.current_task()
        await self._core.start()

    async def take_back(self) -> None:
        task = self._task
        if task is None:
            return
        task.cancel()
        await asyncio.wait({task})
        if not task.cancelled() and task.exception() is None:  # it was through before it could be cancelled
            await self._core.shutdown(0.0)


@contextlib.contextmanager
def _at_signals(end: Callable[[], None]) -> Iterator[None]:
    """Call `end` at SIGINT and SIGTERM, where the loop can do that: on the main thread, and not on Windows."""
    loop = asyncio.get_running_loop()
    previous = {}
    for number in (signal.SIGINT, signal.SIGTERM):
        before = signal.getsignal(number)
        with contextlib.suppress(NotImplementedError, RuntimeError, ValueError):
            loop.add_signal_handler(number, end)
            previous[number] = before
    try:
        yield
    finally:
        for number, before in previous.items():
            loop.remove_signal_handler(number)
            if before is not None:
                signal.signal(number, before)
