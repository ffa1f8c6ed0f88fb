"""The locks that brokers hold for orderly consumers: one member of a group at a time has a queue (ORD-01, ORD-07).

The rule of this file: one request per broker, whatever the number of queues, and only what the broker has granted is
locked; no answer is no lock. Of one queue, no lock is asked for while another is given back, nor the other way round: a
broker does what it is sent on many threads, in any order, and a lock that it grants after it was given back is held for
a minute by somebody who does not want it. (Of a thousand such pairs, real brokers on a busy machine swapped 200.)
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterable
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from rocketstream.cluster.brokers import MASTER_ID, BrokerAddress
from rocketstream.consumer.process_queue import ProcessQueue
from rocketstream.errors import RocketStreamError
from rocketstream.message import MessageQueue
from rocketstream.wire.bodies.lock import LockBatchRequestBody, LockBatchResponseBody, UnlockBatchRequestBody
from rocketstream.wire.codes import RequestCode
from rocketstream.wire.headers.base import RpcRequestHeader

if TYPE_CHECKING:
    from rocketstream.consumer.core import ConsumerCore

log = logging.getLogger("rocketstream.consumer")

_LOCK_TIMEOUT = 1.0

T = TypeVar("T")
_UnderWay: TypeAlias = dict[asyncio.Task[Any], frozenset[MessageQueue]]


class QueueLocks:
    """What one consumer locks and unlocks."""

    def __init__(self, core: ConsumerCore) -> None:
        self._core = core
        self._locking: _UnderWay = {}
        self._unlocking: _UnderWay = {}

    async def lock(self, queues: Iterable[MessageQueue]) -> frozenset[MessageQueue]:
        """Ask the brokers for these queues; return those that were granted."""
        return await self._lock(queues, lambda queue: True)

    async def lock_again(self, process_queues: Iterable[ProcessQueue]) -> None:
        """Renew the locks of all queues that we have (ORD-01); what is not granted any more is unlocked."""
        held = {pq.queue: pq for pq in process_queues}
        granted = await self._lock(held, lambda queue: not held[queue].dropped)
        now = self._core.clock.monotonic()
        for queue, pq in held.items():
            if pq.dropped:
                continue
            if queue in granted:
                if not pq.locked:
                    log.info("%s is locked now", queue)
                pq.set_locked(now)
            else:
                log.warning("the lock of %s was refused: another member has it, or its broker is away", queue)
                pq.set_unlocked()

    async def unlock(self, queues: Iterable[MessageQueue]) -> None:
        """Give locks back, so that another member need not wait until they expire."""
        await asyncio.gather(*(self._unlock_at(name, some) for name, some in self._by_broker(queues).items()))

    async def _lock(
        self, queues: Iterable[MessageQueue], wanted: Callable[[MessageQueue], bool]
    ) -> frozenset[MessageQueue]:
        by_broker = self._by_broker(queues)
        granted = await asyncio.gather(*(self._lock_at(name, some, wanted) for name, some in by_broker.items()))
        return frozenset().union(*granted)

    async def _lock_at(
        self, broker_name: str, queues: frozenset[MessageQueue], wanted: Callable[[MessageQueue], bool]
    ) -> frozenset[MessageQueue]:
        await _ended(self._unlocking, queues)
        queues = frozenset(filter(wanted, queues))  # now, not before: we may have lost some meanwhile
        if not queues:
            return queues
        return await _noted(self._locking, queues, self._ask_for(broker_name, queues))

    async def _unlock_at(self, broker_name: str, queues: frozenset[MessageQueue]) -> None:
        await _ended(self._locking, queues)
        await _noted(self._unlocking, queues, self._give_back(broker_name, queues))

    async def _ask_for(self, broker_name: str, queues: frozenset[MessageQueue]) -> frozenset[MessageQueue]:
        core = self._core
        try:
            address = (await self._master(broker_name, queues)).address
            body = LockBatchRequestBody(consumer_group=core.group, client_id=core.client_id, mq_set=queues)
            answer = await core.instance.ask(
                address, RequestCode.LOCK_BATCH_MQ, RpcRequestHeader(bname=broker_name), body.encode(), _LOCK_TIMEOUT
            )
            return LockBatchResponseBody.decode(answer.body).lock_ok_mq_set & queues
        except RocketStreamError as error:
            log.warning("%d queues of broker %s could not be locked: %s", len(queues), broker_name, error)
            return frozenset()

    async def _give_back(self, broker_name: str, queues: frozenset[MessageQueue]) -> None:
        core = self._core
        try:
            address = (await self._master(broker_name, queues)).address
            body = UnlockBatchRequestBody(consumer_group=core.group, client_id=core.client_id, mq_set=queues)
            await core.instance.ask(
                address, RequestCode.UNLOCK_BATCH_MQ, RpcRequestHeader(bname=broker_name), body.encode(), _LOCK_TIMEOUT
            )
        except RocketStreamError as error:
            log.warning("%d queues of broker %s were not unlocked: %s", len(queues), broker_name, error)

    async def _master(self, broker_name: str, queues: frozenset[MessageQueue]) -> BrokerAddress:
        topic = next(iter(queues)).topic
        return await self._core.instance.routes.broker(topic, broker_name, MASTER_ID, only_this=True)

    def _by_broker(self, queues: Iterable[MessageQueue]) -> dict[str, frozenset[MessageQueue]]:
        grouped: dict[str, set[MessageQueue]] = {}
        for queue in queues:
            grouped.setdefault(self._core.instance.routes.broker_name_of(queue), set()).add(queue)
        return {name: frozenset(some) for name, some in grouped.items()}


async def _ended(under_way: _UnderWay, queues: frozenset[MessageQueue]) -> None:
    """Wait until no request of these is under way that has one of the queues."""
    while earlier := [task for task, theirs in under_way.items() if theirs & queues]:
        await asyncio.wait(earlier)


async def _noted(under_way: _UnderWay, queues: frozenset[MessageQueue], request: Coroutine[Any, Any, T]) -> T:
    """Send a request, which is under way until it is answered, even if whoever asked is cancelled meanwhile."""
    task = asyncio.ensure_future(request)
    under_way[task] = queues
    task.add_done_callback(under_way.pop)
    return await asyncio.shield(task)
