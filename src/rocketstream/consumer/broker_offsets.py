"""A group's offsets at the brokers (clustering), and what brokers say of their queues' own limits.

The rule of this file: only "not found" is -1. Every other answer, and no answer, is an error (OFF-01).
"""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import Collection
from typing import Final

from rocketstream.cluster.brokers import MASTER_ID, BrokerAddress
from rocketstream.cluster.client_instance import ClientInstance
from rocketstream.cluster.versions import V5_0_0
from rocketstream.consumer.offset_store import UNKNOWN_OFFSET, RememberingOffsets
from rocketstream.errors import BrokerError, BrokerNotFoundError, ConnectError, OffsetStoreError, RocketStreamError
from rocketstream.message import MessageQueue
from rocketstream.wire.codes import RequestCode, ResponseCode
from rocketstream.wire.command import Command, Header, request
from rocketstream.wire.headers.offsets import (
    GetMaxOffsetRequestHeader,
    GetMinOffsetRequestHeader,
    OffsetResponseHeader,
    QueryConsumerOffsetRequestHeader,
    SearchOffsetRequestHeader,
    UpdateConsumerOffsetRequestHeader,
)

log = logging.getLogger("rocketstream.consumer")

_TIMEOUT: Final = 5.0
# A one-way write may be lost without anybody noticing: now and then everything is written, changed or not.
_FULL_WRITE_EVERY: Final = 12


class BrokerOffsets(RememberingOffsets):
    """The offsets of a group, kept by the broker of each queue."""

    def __init__(self, instance: ClientInstance, group: str) -> None:
        super().__init__()
        self._instance = instance
        self._group = group
        self._persisted: dict[MessageQueue, tuple[int, str]] = {}
        """What was last written of a queue, and to whom: a master that is back has not heard what its slave has."""
        self._rounds = 0

    def __repr__(self) -> str:
        return f"<BrokerOffsets of group {self._group}, {len(self._offsets)} queues>"

    async def load(self) -> None:
        """Nothing: the offsets are read queue by queue."""

    def remove(self, queue: MessageQueue) -> None:
        """Forget a queue, also what was last written of it: others write it from now on."""
        super().remove(queue)
        self._persisted.pop(queue, None)

    async def _read_stored(self, queue: MessageQueue) -> int:
        # Like Java's client this does not say `setZeroIfNotFound=false`: a new group on a young queue, whose first
        # message the broker still has in memory, is told 0 and so misses nothing, wherever it wants to start.
        header = QueryConsumerOffsetRequestHeader(
            consumer_group=self._group, topic=queue.topic, queue_id=queue.queue_id, bname=queue.broker_name
        )
        try:
            broker = await self._broker(queue)
            answer = await self._instance.ask(
                broker.address, RequestCode.QUERY_CONSUMER_OFFSET, header, timeout=_TIMEOUT
            )
            offset = OffsetResponseHeader.from_fields(answer.fields).offset
        except RocketStreamError as error:
            if isinstance(error, BrokerError) and error.code == ResponseCode.QUERY_NOT_FOUND:
                return UNKNOWN_OFFSET
            raise OffsetStoreError(
                f"the offset of group {self._group!r} in {_named(queue)} could not be read: {error}"
            ) from error
        if offset < 0:
            raise OffsetStoreError(
                f"{broker.address} says that the offset of group {self._group!r} in {_named(queue)} is {offset}"
            )
        return offset

    async def persist_all(self, queues: Collection[MessageQueue]) -> None:
        """Write what has changed, one-way; forget the queues that are not the consumer's any more (OFF-03).

        A broker that cannot be reached is logged; its offsets are written the next time.
        """
        owned = queues if isinstance(queues, set | frozenset | dict) else frozenset(queues)
        for queue in [queue for queue in self._offsets if queue not in owned]:
            self.remove(queue)
        everything = self._rounds % _FULL_WRITE_EVERY == 0
        self._rounds += 1
        by_broker: dict[str, list[MessageQueue]] = defaultdict(list)
        for queue, offset in self._offsets.items():
            name = self._instance.routes.broker_name_of(queue)
            if everything or self._persisted.get(queue) != (offset, self._known_address(name)):
                by_broker[name].append(queue)
        await asyncio.gather(*(self._write_to(name, changed) for name, changed in by_broker.items()))

    def _known_address(self, broker_name: str) -> str | None:
        found = self._instance.brokers.find(broker_name, MASTER_ID)
        return None if found is None else found.address

    async def _write_to(self, broker_name: str, queues: list[MessageQueue]) -> None:
        broker = None
        try:
            broker = await self._broker(queues[0])
            for queue in queues:
                offset = self._offsets.get(queue)
                if offset is None:  # lost while an earlier one was being written
                    continue
                code = RequestCode.UPDATE_CONSUMER_OFFSET
                command = request(code, self._update_header(queue, offset))
                address = self._instance.address_for(code, broker.address)
                await self._instance.remoting.invoke_one_way(address, command, _TIMEOUT)
                if queue in self._offsets:
                    self._persisted[queue] = offset, broker.address
        except RocketStreamError as error:
            if broker is not None and isinstance(error, ConnectError):
                self._instance.routes.suspect(broker.address, self._instance.clock.monotonic())
            # One warning for the broker, not one for each of its queues; a dead one is not tried for each either.
            log.warning("offsets of group %s are not persisted at %s yet: %s", self._group, broker_name, error)

    async def persist(self, queue: MessageQueue) -> None:
        """Write the offset of one queue and wait until the broker has it; `OffsetStoreError` if it has not."""
        offset = self._offsets.get(queue)
        if offset is None:
            return
        try:
            broker = await self._broker(queue)
            header = self._update_header(queue, offset)
            await self._instance.ask(broker.address, RequestCode.UPDATE_CONSUMER_OFFSET, header, timeout=_TIMEOUT)
        except RocketStreamError as error:
            raise OffsetStoreError(
                f"offset {offset} of group {self._group!r} in {_named(queue)} could not be persisted: {error}"
            ) from error
        if queue in self._offsets:
            self._persisted[queue] = offset, broker.address

    def _update_header(self, queue: MessageQueue, offset: int) -> UpdateConsumerOffsetRequestHeader:
        return UpdateConsumerOffsetRequestHeader(
            consumer_group=self._group,
            topic=queue.topic,
            queue_id=queue.queue_id,
            commit_offset=offset,
            bname=queue.broker_name,
        )

    async def _broker(self, queue: MessageQueue) -> BrokerAddress:
        """The master; while there is none, any other broker of that name."""
        brokers, routes, topic = self._instance.brokers, self._instance.routes, queue.topic
        found = brokers.master(routes.broker_name_of(queue))
        if found is None:
            name = routes.broker_name_of(queue)
            try:
                await routes.refresh(topic)
            except RocketStreamError as error:
                log.info("broker %s has no master, and the route of %s is not to be had: %s", name, topic, error)
            name = routes.broker_name_of(queue)
            found = brokers.find(name, MASTER_ID)
            if found is None:
                raise BrokerNotFoundError(f"no address is known for broker {name!r} of topic {topic!r}")
        return found


class QueueOffsets:
    """What the master of a queue says of it: its ends, and where a time is. The `OffsetAsker` of real brokers."""

    def __init__(self, instance: ClientInstance) -> None:
        self._instance = instance

    async def max_offset(self, queue: MessageQueue) -> int:
        """The offset that the next message will get."""
        header = GetMaxOffsetRequestHeader(topic=queue.topic, queue_id=queue.queue_id, bname=queue.broker_name)
        return await self._offset(queue, RequestCode.GET_MAX_OFFSET, header)

    async def min_offset(self, queue: MessageQueue) -> int:
        """The offset of the oldest message that is still there."""
        header = GetMinOffsetRequestHeader(topic=queue.topic, queue_id=queue.queue_id, bname=queue.broker_name)
        return await self._offset(queue, RequestCode.GET_MIN_OFFSET, header)

    async def search(self, queue: MessageQueue, timestamp_ms: int) -> int:
        """The first message that was stored at a time or later; from 4.x at most one message before that."""
        master = await self._master(queue)
        if master.version is not None and master.version < V5_0_0:
            # Of several messages with the very time that was asked for, 4.x gives any: the earlier ones would be lost.
            timestamp_ms -= 1
        header = SearchOffsetRequestHeader(
            topic=queue.topic, queue_id=queue.queue_id, timestamp=timestamp_ms, bname=queue.broker_name
        )
        return await self._offset(queue, RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, header)

    async def _offset(self, queue: MessageQueue, code: int, header: Header) -> int:
        master = await self._master(queue)
        answer: Command = await self._instance.ask(master.address, code, header, timeout=_TIMEOUT)
        return OffsetResponseHeader.from_fields(answer.fields).offset

    async def _master(self, queue: MessageQueue) -> BrokerAddress:
        return await self._instance.routes.broker_of(queue, MASTER_ID, only_this=True)


def _named(queue: MessageQueue) -> str:
    return f"queue {queue.queue_id} of topic {queue.topic!r} on broker {queue.broker_name!r}"
