"""The lite pull consumer for an event loop: what `rocketstream.LitePullConsumer` does, awaited.

The rule of this file: whoever stops waiting takes nothing along. A poll takes messages at its very end, with nothing
left to wait for; one that is cancelled before has taken none. Beginning and end are those of every client (`life`).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Collection, Coroutine, Iterable, Mapping
from datetime import datetime
from functools import cached_property
from types import TracebackType
from typing import Any, Self, TypeVar

from rocketstream.aio.life import Life
from rocketstream.cluster.names import check_topic
from rocketstream.consumer.expressions import Sql, Tag
from rocketstream.consumer.lite.face import FOREVER, LitePullFace, check_offset, check_queue, milliseconds
from rocketstream.consumer.lite.polling import Reading
from rocketstream.consumer.lite.stock import Batch
from rocketstream.consumer.status import ConsumerStatus
from rocketstream.message import MessageQueue, ReceivedMessage

T = TypeVar("T")


class LitePullConsumer(LitePullFace):
    """`async with LitePullConsumer("group", name_servers=...) as puller: async for message in puller: ...`.

    It takes the settings of the plain `LitePullConsumer`; several tasks may poll it.
    """

    async def start(self) -> None:
        """Return once it is registered, routed and has its queues, or raise saying what is missing.

        Cancelled, it gives everything back first, and could be started again.
        """
        await self._life.start()

    async def shutdown(self, timeout: float | None = None) -> None:
        """Stop pulling, commit what was polled (with `auto_commit`), leave the group; polls that wait end.

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
            self._core.ended_well = error is None
            await self.shutdown()

    # --- which queues -----------------------------------------------------------------------------------------------

    async def subscribe(self, topic: str, expression: str | Tag | Sql = "*") -> None:
        """Have a share of a topic's queues, before or after the start; a second time replaces the expression."""
        self._check_topic(topic, expression)
        await self._await(self._core.subscribe(topic, expression))

    async def unsubscribe(self, topic: str) -> None:
        """End a subscription; what was pulled ahead is not given out any more."""
        await self._await(self._core.unsubscribe(topic))

    async def assign(self, queues: Collection[MessageQueue], expression: str | Tag | Sql = "*") -> None:
        """Have exactly these queues, whoever else has them; `assign([])` gives them up. Not beside `subscribe`."""
        await self._await(self._core.assign(self._check_queues(queues, expression), expression))

    async def fetch_queues(self, topic: str) -> tuple[MessageQueue, ...]:
        """The queues of a topic, for `assign`."""
        check_topic(topic)
        return await self._await(self._core.fetch_queues(topic))

    @property
    def assignment(self) -> Awaitable[tuple[MessageQueue, ...]]:
        """The queues that this consumer has now: `await puller.assignment`."""
        return self._await(self._core.overview.assignment())

    # --- messages ---------------------------------------------------------------------------------------------------

    async def poll(self, timeout: float | None = None) -> list[ReceivedMessage]:
        """The messages of one pull: of one queue, in order; none if none came in `timeout` (5) seconds.

        What was polled before counts as finished, and is committed by itself with `auto_commit`. Cancelled, it has
        taken no message.
        """
        batch = await self._take(self._poll_time(timeout))
        if batch is None:
            return []
        self._core.polls.given(batch)
        return list(batch.messages)

    def __aiter__(self) -> AsyncIterator[ReceivedMessage]:
        """Message by message, until it is shut down; whoever breaks off gets the next one with the next loop or poll.

        A message counts as finished when the next one is asked for.
        """
        self._poll_time(None)
        return _Messages(self)

    async def _take(self, seconds: float) -> Batch | None:
        core = self._core
        polls, stock = core.polls, core.polls.stock
        # A loop that always finds something must let others run; and a cancellation arrive before anything is taken.
        await asyncio.sleep(0)
        batch = stock.take()
        if batch is None:
            polls.finished()
            batch = await self._wait(seconds)
        if batch is not None and polls.is_watched:
            if not polls.hooks:
                polls.show(batch)
                return batch
            try:
                await asyncio.to_thread(polls.show, batch)  # a user's own, which may block
            except asyncio.CancelledError:
                stock.put_back(batch)
                raise
        return batch

    async def _wait(self, seconds: float) -> Batch | None:
        stock = self._core.polls.stock
        deadline = asyncio.get_running_loop().time() + seconds
        while not stock.closed:
            waiter = stock.wait()
            if waiter is not None:
                try:
                    async with asyncio.timeout_at(deadline):
                        await asyncio.wrap_future(waiter)
                except TimeoutError:
                    stock.give_up(waiter)
                    return stock.take()
                except BaseException:
                    stock.give_up(waiter)
                    raise
            batch = stock.take()
            if batch is not None:
                return batch
        return None

    # --- where in the queues ----------------------------------------------------------------------------------------

    async def seek(self, queue: MessageQueue, offset: int) -> None:
        """Go on with this offset of a queue; what was pulled ahead is forgotten. The broker must have the offset."""
        await self._await(self._core.seek(check_queue(queue), check_offset(offset)))

    async def seek_to_begin(self, queue: MessageQueue) -> None:
        """Go on with the oldest message of a queue."""
        await self._await(self._core.seek_to_begin(check_queue(queue)))

    async def seek_to_end(self, queue: MessageQueue) -> None:
        """Go on with what comes to a queue from now on."""
        await self._await(self._core.seek_to_end(check_queue(queue)))

    async def seek_to_timestamp(self, queue: MessageQueue, moment: datetime | int) -> None:
        """Go on with the first message of a queue that was stored at a moment (ms since the epoch) or later."""
        await self._await(self._core.seek_to_timestamp(check_queue(queue), milliseconds(moment)))

    async def offset_for_timestamp(self, queue: MessageQueue, moment: datetime | int) -> int:
        """The offset of the first message that was stored at a moment (ms since the epoch) or later; else the end."""
        return await self._await(self._core.offset_for_timestamp(check_queue(queue), milliseconds(moment)))

    async def pause(self, queues: Iterable[MessageQueue] | None = None) -> None:
        """Pull and give out nothing of these queues, or of all that it has now."""
        await self._await(self._core.pause(None if queues is None else self._check_queues(queues)))

    async def resume(self, queues: Iterable[MessageQueue] | None = None) -> None:
        """Go on with these queues, or with all."""
        await self._await(self._core.resume(None if queues is None else self._check_queues(queues)))

    # --- committing -------------------------------------------------------------------------------------------------

    async def commit(self, offsets: Mapping[MessageQueue, int] | Iterable[MessageQueue] | None = None) -> None:
        """Store what was polled: of all queues, of some, or exactly these offsets (of the next message to consume).

        Returns when the brokers have it; `OffsetStoreError` if one does not take it.
        """
        await self._await(self._core.commit(self._check_commit(offsets)))

    async def committed(self, queue: MessageQueue) -> int | None:
        """Where the group would go on with a queue; None if it has no offset there."""
        return await self._await(self._core.committed(check_queue(queue)))

    async def status(self) -> ConsumerStatus:
        """Per queue: offsets, what waits to be polled, lag, the last pull, and why it waits if it does."""
        return await self._await(self._core.overview.status())

    def _await(self, coroutine: Coroutine[Any, Any, T]) -> asyncio.Future[T]:
        return asyncio.wrap_future(self._core.io.submit(coroutine, self._core.what))


class _Messages:
    """A loop over a consumer's messages.

    No async generator: what is left of a batch when a loop breaks off must be back before the next poll, and nobody
    knows when the event loop closes a generator.
    """

    def __init__(self, puller: LitePullConsumer) -> None:
        self._puller = puller
        self._reading: Reading | None = None

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> ReceivedMessage:
        core = self._puller.core
        while True:
            reading = self._reading
            if reading is not None:
                pq, messages = reading.batch
                if reading.given < len(messages) and not pq.dropped:
                    message = messages[reading.given]
                    reading.given += 1
                    return message
                self._reading = None
                core.polls.close(reading, through=True)
            if not core.is_running:
                raise StopAsyncIteration
            batch = await self._puller._take(FOREVER)
            if batch is not None:
                self._reading = core.polls.open(batch)

    def __del__(self) -> None:
        if self._reading is not None:
            self._puller.core.polls.close(self._reading, through=False)
