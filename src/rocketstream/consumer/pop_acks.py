"""What is said to brokers of popped messages: done, again later, or given up (POP-02).

The rule of this file: nothing here fails its caller. What a broker does not hear, it makes good when the lease is over:
the message comes again.
"""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import Coroutine, Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from rocketstream.cluster.brokers import MASTER_ID, BrokerAddress
from rocketstream.cluster.versions import V5_0_0
from rocketstream.consumer.pop_flow import STRAIGHT_TO_DLQ
from rocketstream.consumer.pop_request import Lease
from rocketstream.errors import BrokerError, RocketStreamError
from rocketstream.message import ReceivedMessage
from rocketstream.wire.bodies.pop import BatchAck, BatchAckMessageRequestBody
from rocketstream.wire.check_point import CheckPoint
from rocketstream.wire.codes import RequestCode, ResponseCode
from rocketstream.wire.headers.pop import AckMessageRequestHeader, ChangeInvisibleTimeRequestHeader

if TYPE_CHECKING:
    from rocketstream.consumer.core import ConsumerCore

log = logging.getLogger("rocketstream.consumer")

_TIMEOUT = 3.0
# How many requests about popped messages are under way at a time.
_MAX_ASKING = 64


class Popped(NamedTuple):
    """One message as brokers know it."""

    topic: str
    point: CheckPoint


def popped(lease: Lease, message: ReceivedMessage) -> Popped:
    """What a broker has to be told to know which message is meant."""
    return Popped(lease.topic, lease.point_of(message))


class PopAcks:
    """Speaks to brokers about the leases of one consumer, in the background."""

    def __init__(self, core: ConsumerCore) -> None:
        self._core = core
        self._gate = asyncio.Semaphore(_MAX_ASKING)
        self._tasks: set[asyncio.Task[None]] = set()

    def __repr__(self) -> str:
        return f"<PopAcks of group {self._core.group}, {len(self._tasks)} under way>"

    def ack(self, messages: Sequence[Popped]) -> None:
        """These are done."""
        by_broker: dict[str, list[Popped]] = defaultdict(list)
        for message in messages:
            by_broker[message.point.broker_name].append(message)
        for name, some in by_broker.items():
            self._spawn(self._ack(name, some))

    def again_after(self, seconds: float, messages: Iterable[Popped]) -> None:
        """These are to come again, so much later."""
        for message in messages:
            self._spawn(self._hide(message, seconds))

    def give_up(self, lease: Lease, message: ReceivedMessage, otherwise_after: float) -> None:
        """This one goes to the dead letters; if they cannot be had now, it comes again.

        (Java's client acknowledges it, and it is gone.)
        """
        self._spawn(self._give_up(lease, message, otherwise_after))

    async def _ack(self, broker_name: str, messages: list[Popped]) -> None:
        async with self._gate:
            try:
                broker = await self._broker(broker_name, messages[0].topic)
                batches = broker.version is None or broker.version >= V5_0_0
                if not (len(messages) > 1 and batches and await self._ack_batch(broker, messages)):
                    await asyncio.gather(*(self._ack_one(broker, message) for message in messages))
                self._core.stats.of_group.acks["ok"] += len(messages)
            except RocketStreamError as error:
                self._core.stats.of_group.acks["failed"] += len(messages)
                log.warning(
                    "group %s: %d messages of %s were not acknowledged and come again: %s",
                    self._core.group,
                    len(messages),
                    broker_name,
                    error,
                )

    async def _ack_batch(self, broker: BrokerAddress, messages: list[Popped]) -> bool:
        """False: the broker does not know how."""
        body = BatchAckMessageRequestBody(
            broker_name=broker.broker_name, acks=tuple(batch_acks(self._core.group, messages))
        )
        try:
            await self._core.instance.ask(
                broker.address, RequestCode.BATCH_ACK_MESSAGE, None, body.encode(), timeout=_TIMEOUT
            )
        except BrokerError as error:
            if error.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
                return False
            raise
        return True

    async def _ack_one(self, broker: BrokerAddress, message: Popped) -> None:
        point = message.point
        header = AckMessageRequestHeader(
            consumer_group=self._core.group,
            topic=point.real_topic(message.topic, self._core.group),
            queue_id=point.queue_id,
            extra_info=point.encode(),
            offset=point.offset,
            bname=point.broker_name,
        )
        await self._core.instance.ask(broker.address, RequestCode.ACK_MESSAGE, header, timeout=_TIMEOUT)

    async def _hide(self, message: Popped, seconds: float) -> None:
        async with self._gate:
            point, group = message.point, self._core.group
            header = ChangeInvisibleTimeRequestHeader(
                consumer_group=group,
                topic=point.real_topic(message.topic, group),
                queue_id=point.queue_id,
                extra_info=point.encode(),
                offset=point.offset,
                invisible_time=round(seconds * 1000),
                bname=point.broker_name,
            )
            try:
                broker = await self._broker(point.broker_name, message.topic)
                code = RequestCode.CHANGE_MESSAGE_INVISIBLETIME
                await self._core.instance.ask(broker.address, code, header, timeout=_TIMEOUT)
                self._core.stats.of_group.nacks["ok"] += 1
            except RocketStreamError as error:
                self._core.stats.of_group.nacks["failed"] += 1
                log.warning("group %s: a message comes again when its lease is over: %s", group, error)

    async def _give_up(self, lease: Lease, message: ReceivedMessage, otherwise_after: float) -> None:
        log.warning("message %r failed %d times: it is sent away", message, message.reconsume_times + 1)
        known = popped(lease, message)
        try:
            await self._core.send_back(message, lease.queue, STRAIGHT_TO_DLQ)
        except RocketStreamError as error:
            log.warning("message %r could not be sent away, it comes again: %s", message, error)
            await self._hide(known, otherwise_after)
        else:
            await self._ack(known.point.broker_name, [known])

    async def _broker(self, name: str, topic: str) -> BrokerAddress:
        found = self._core.instance.brokers.master(name)
        return found or await self._core.instance.routes.broker(topic, name, MASTER_ID, only_this=True)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            log.error("speaking of popped messages of group %s failed", self._core.group, exc_info=task.exception())

    async def stop(self, timeout: float) -> None:
        """Let the last words be said."""
        if self._tasks:
            _, late = await asyncio.wait(self._tasks, timeout=timeout)
            for task in late:
                task.cancel()


def batch_acks(group: str, messages: Iterable[Popped]) -> list[BatchAck]:
    """One entry for each lease of each queue, with its messages as bits."""
    leases: dict[tuple[object, ...], list[Popped]] = defaultdict(list)
    for message in messages:
        point = message.point
        leases[message.topic, point.retry, point.queue_id, point.start_offset, point.pop_time].append(message)
    return [
        BatchAck(
            consumer_group=group,
            topic=some[0].topic,
            retry=some[0].point.retry,
            start_offset=some[0].point.start_offset,
            queue_id=some[0].point.queue_id,
            revive_queue_id=some[0].point.revive_queue_id,
            pop_time=some[0].point.pop_time,
            invisible_time=some[0].point.invisible_time,
            bits=frozenset(one.point.offset - one.point.start_offset for one in some),
        )
        for some in leases.values()
    ]
