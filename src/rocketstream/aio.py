"""The same clients for programs with an event loop of their own.

No logic lives here: each method awaits what the plain client waits for. The work is done on the I/O thread, so a busy
event loop delays only its own results, never heartbeats or time-outs. Cancelling a call gives its place back; whether
the broker had carried it out by then is not known.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence
from types import TracebackType
from typing import Any, Self, TypeVar

from rocketstream.cluster.client import ClientState
from rocketstream.message import Message, MessageQueue
from rocketstream.producer import producer as plain
from rocketstream.producer.core import Selector
from rocketstream.producer.receipt import SendReceipt
from rocketstream.producer.validation import check_timeout

T = TypeVar("T")

__all__ = ["Producer"]


class Producer:
    """`async with Producer("group", name_servers=...) as producer: await producer.send(Message(...))`.

    It takes the settings of the plain `Producer`.
    """

    def __init__(self, group: str, name_servers: str | Sequence[str] | None = None, **settings: Any) -> None:
        self._plain = plain.Producer(group, name_servers, **settings)

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

    async def start(self) -> None:
        """Connect, or raise saying what is missing."""
        await self._await(self._plain.core.start())

    async def shutdown(self, timeout: float = 30.0) -> None:
        """End; harmless when repeated. Sends that are still awaited fail."""
        check_timeout(timeout)
        await self._await(self._plain.core.shutdown(timeout))

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.shutdown()

    async def queues(self, topic: str) -> tuple[MessageQueue, ...]:
        """The queues of a topic that can be written to."""
        self._plain.core.check_running()
        return await self._await(self._plain.core.user_queues(topic))

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

    async def _await(self, coroutine: Coroutine[Any, Any, T]) -> T:
        core = self._plain.core
        return await core.io.bridge(coroutine, core.what)
