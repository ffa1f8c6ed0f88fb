"""The push consumer for an event loop: what `rocketstream.PushConsumer` does, awaited.

The rule of this file: a call that is cancelled leaves the consumer as it was or ended, never half started. A start that
is cancelled is taken back before the cancellation goes on; a shutdown goes on without whoever waited for it.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from functools import cached_property
from types import TracebackType
from typing import Any, Self, TypeVar

from rocketstream.aio.life import Life
from rocketstream.cluster.names import check_topic, check_wrapped_topic
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

    async def start(self) -> None:
        """Return once it is registered, routed and has its queues, or raise saying what is missing.

        Cancelled, it gives everything back first, and could be started again.
        """
        self._make_ready(asyncio.get_running_loop())
        await self._life.start()

    async def shutdown(self, timeout: float | None = None) -> None:
        """Stop pulling, let running listeners end (up to `timeout` seconds), store offsets, leave the group.

        Cancelling the wait does not stop it: it ends on the I/O thread.
        """
        await self._life.end(lambda: self._core.shutdown(timeout))

    @cached_property
    def _life(self) -> Life:
        return Life(self._core)

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None or not self._core.io.is_elsewhere:  # what ends a forked child is not hidden
            await self.shutdown()

    async def run(self) -> None:
        """Start, stay until cancelled or SIGINT or SIGTERM, then shut down."""
        self._core.check_process()
        stop = asyncio.Event()
        starting = asyncio.ensure_future(self.start())

        def end() -> None:
            stop.set()
            starting.cancel()

        with _at_signals(end):
            try:
                await starting
                await stop.wait()
            except asyncio.CancelledError:
                task = asyncio.current_task()
                if not stop.is_set() or task is None or task.cancelling():
                    raise
            finally:
                if self._core.is_running:  # also if it was cancelled when the start had just ended
                    log.info("%s ends", self._core.what)
                await self.shutdown()  # or wait for somebody else's

    async def subscribe(self, topic: str, expression: str | Tag | Sql = "*") -> None:
        """Subscribe to a topic, before or after the start; a second time replaces the expression."""
        self._core.check_process()
        check_topic(topic)
        if self._settings.namespace:
            check_wrapped_topic(self._settings.namespace, topic)
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
