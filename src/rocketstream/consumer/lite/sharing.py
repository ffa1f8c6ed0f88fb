"""Which queues a lite pull consumer has: its share of a topic's, or those that the program has chosen.

The rule of this file: the brokers' own ways to share out queues (pop, broker-side rebalance) are not for lite pulls, as
in Java; and the program's queue listener is never waited for, so that it may seek, assign and subscribe.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable
from contextlib import suppress
from typing import TYPE_CHECKING

from rocketstream.consumer.assignment import Assignment
from rocketstream.consumer.lite.stock import LiteProcessQueue
from rocketstream.consumer.pop_request import Request
from rocketstream.consumer.rebalancer import Rebalancer
from rocketstream.consumer.request_modes import RequestModes
from rocketstream.errors import ClientStateError
from rocketstream.message import MessageQueue
from rocketstream.wire.codes import MessageRequestMode

if TYPE_CHECKING:
    from rocketstream.consumer.lite.core import LitePullCore


class LiteModes(RequestModes):
    """Every topic is pulled, and shared out by the members."""

    async def assignment(self, topic: str) -> Assignment | None:
        """Reckon for ourselves."""
        return None

    async def follow(self, topic: str, modes: Iterable[MessageRequestMode]) -> None:
        """Nothing: what others of the group have popped and not acknowledged is theirs."""


class LiteRebalancer(Rebalancer):
    """The queues of one lite pull consumer."""

    def __init__(self, core: LitePullCore) -> None:
        super().__init__(core)
        self._lite_core = core
        self._telling: asyncio.Task[None] | None = None

    def new_process_queue(self, queue: MessageQueue, now: float) -> LiteProcessQueue:
        """Where the messages of a queue that was won are cached."""
        return LiteProcessQueue(queue, now=now)

    async def start_offset(self, queue: MessageQueue) -> int:
        """Where to begin with a queue, or `OffsetUnknownError` (REB-06)."""
        offset = await super().start_offset(queue)
        if not self._lite_core.auto_commit:
            # Who only reads must not write back at its end what the group had stored at its beginning.
            self._core.offsets.remove(queue)
        return offset

    async def _share(self, topic: str, queues: Collection[MessageQueue]) -> Assignment:
        chosen = self._lite_core.chosen
        if not chosen:
            return await super()._share(topic, queues)
        mine = [queue for queue in sorted(chosen) if queue.topic == topic]
        return Assignment(dict.fromkeys(mine, MessageRequestMode.PULL), queues)

    async def _lose(self, request: Request) -> bool:
        try:
            return await super()._lose(request)
        finally:
            polls = self._lite_core.polls
            polls.stock.purge()
            polls.stock.resume([request.queue])  # whoever wins it again begins anew

    async def _tell(self, topic: str, queues: frozenset[MessageQueue], mine: frozenset[MessageQueue]) -> None:
        before, tell = self._telling, super()._tell

        async def in_order() -> None:
            if before is not None:
                await asyncio.wait((before,))
            with suppress(ClientStateError):  # the consumer has ended meanwhile
                await tell(topic, queues, mine)

        self._telling = self._core.spawn(in_order())
