"""Ending and prolonging leases: ACK_MESSAGE, BATCH_ACK_MESSAGE, CHANGE_MESSAGE_INVISIBLETIME."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping

from rocketstream.broker.connection import ClientConnection
from rocketstream.broker.dispatch import Handler
from rocketstream.broker.offsets import Offsets
from rocketstream.broker.pop.checks import NO_REMARK, kept_range, leased_topic
from rocketstream.broker.pop.lease import Lease, LeaseKey
from rocketstream.broker.pop.leases import Leases
from rocketstream.broker.pop.ordering import NOT_POPPED, Ordering, OrderKey
from rocketstream.broker.pop.retry_topics import real_topic
from rocketstream.broker.refusal import Refusal
from rocketstream.broker.store.values import MessageStore
from rocketstream.broker.topics import REVIVE_QUEUES, Topics
from rocketstream.clock import Clock
from rocketstream.errors import ProtocolError
from rocketstream.wire.bodies.pop import BatchAck, BatchAckMessageRequestBody
from rocketstream.wire.check_point import ORDER_REVIVE_QUEUE, CheckPoint
from rocketstream.wire.codes import RequestCode, ResponseCode
from rocketstream.wire.command import Command, response
from rocketstream.wire.headers.pop import (
    AckMessageRequestHeader,
    ChangeInvisibleTimeRequestHeader,
    ChangeInvisibleTimeResponseHeader,
)


class Acknowledging:
    """Answers those who are done with a message, and those who need more time for it."""

    def __init__(
        self,
        *,
        clock: Clock,
        store: MessageStore,
        topics: Topics,
        offsets: Offsets,
        leases: Leases,
        ordering: Ordering,
        freed: Callable[[OrderKey], None],
    ) -> None:
        self._clock = clock
        self._store = store
        self._topics = topics
        self._offsets = offsets
        self._leases = leases
        self._ordering = ordering
        self._freed = freed

    def handlers(self) -> Mapping[int, Handler]:
        """The requests that it answers."""
        return {
            RequestCode.ACK_MESSAGE: self._acknowledge,
            RequestCode.BATCH_ACK_MESSAGE: self._acknowledge_many,
            RequestCode.CHANGE_MESSAGE_INVISIBLETIME: self._change,
        }

    # --- done ----------------------------------------------------------------------------------------------------

    def _acknowledge(self, connection: ClientConnection, command: Command) -> Command | Awaitable[Command]:
        ack = AckMessageRequestHeader.from_fields(command.fields)
        leased_topic(self._topics, ack.topic, ack.queue_id, connection.address)
        first, end = kept_range(self._store, ack.topic, ack.queue_id)
        if not first <= ack.offset <= end:
            raise Refusal(
                ResponseCode.NO_MESSAGE,
                f"offset is illegal, key:{ack.topic}@{ack.queue_id}, commit:{ack.offset}, store:{first}~{end}",
            )
        point = _check_point(ack.extra_info)
        if point.revive_queue_id == ORDER_REVIVE_QUEUE:
            key = OrderKey(ack.topic, ack.consumer_group, ack.queue_id)
            self._acknowledge_in_order(key, ack.offset, point.pop_time, connection)
        else:
            lease = LeaseKey(ack.topic, ack.consumer_group, ack.queue_id, point.start_offset, point.pop_time)
            self._leases.acknowledge(lease, (ack.offset,))
        return self._when_durable(response(command, ResponseCode.SUCCESS))

    def _acknowledge_many(self, connection: ClientConnection, command: Command) -> Command | Awaitable[Command]:
        acks = BatchAckMessageRequestBody.decode(command.body).acks if command.body else ()
        if not acks:
            return response(command, ResponseCode.NO_MESSAGE)
        answer = response(command, ResponseCode.SUCCESS)
        for ack in acks:
            try:
                self._acknowledge_batch(ack, connection)
            except Refusal as refusal:
                answer.code, answer.remark = int(refusal.code), refusal.remark
        return self._when_durable(answer)

    def _acknowledge_batch(self, ack: BatchAck, connection: ClientConnection) -> None:
        topic = real_topic(ack.topic, ack.consumer_group, ack.retry)
        first, end = kept_range(self._store, topic, ack.queue_id)
        offsets = [offset for bit in sorted(ack.bits) if first <= (offset := ack.start_offset + bit) <= end]
        if ack.revive_queue_id == ORDER_REVIVE_QUEUE:
            key = OrderKey(topic, ack.consumer_group, ack.queue_id)
            for offset in offsets:
                self._acknowledge_in_order(key, offset, ack.pop_time, connection)
        else:
            lease = LeaseKey(topic, ack.consumer_group, ack.queue_id, ack.start_offset, ack.pop_time)
            self._leases.acknowledge(lease, offsets)

    def _acknowledge_in_order(self, key: OrderKey, offset: int, pop_time: int, connection: ClientConnection) -> None:
        old = self._offsets.get(key.group, key.topic, key.queue_id)
        if offset < old:
            return
        following = self._ordering.acknowledge(key, offset, pop_time)
        if following >= 0:
            if not self._offsets.has_reset(key.group, key.topic, key.queue_id):
                self._offsets.commit(key.group, key.topic, key.queue_id, following, connection.address)
            if not self._ordering.is_blocked(key, None, 0):
                self._freed(key)
        elif following == NOT_POPPED:
            raise Refusal(
                ResponseCode.MESSAGE_ILLEGAL,
                f"offset is illegal, key:{key.topic}@{key.group}@{key.queue_id}, old:{old}, commit:{offset},"
                f" next:{following}, /{connection.address}",
            )

    # --- later ---------------------------------------------------------------------------------------------------

    def _change(self, connection: ClientConnection, command: Command) -> Command | Awaitable[Command]:
        change = ChangeInvisibleTimeRequestHeader.from_fields(command.fields)
        leased_topic(self._topics, change.topic, change.queue_id, connection.address)
        first, end = kept_range(self._store, change.topic, change.queue_id)
        nothing = ChangeInvisibleTimeResponseHeader(pop_time=0, invisible_time=0, revive_qid=0)
        if not first <= change.offset < end:
            return response(command, ResponseCode.NO_MESSAGE, NO_REMARK, nothing)
        point = _check_point(change.extra_info)
        if point.revive_queue_id != ORDER_REVIVE_QUEUE:
            changed = self._change_lease(change, point)
            return self._when_durable(response(command, ResponseCode.SUCCESS, NO_REMARK, changed))
        if change.offset < self._offsets.get(change.consumer_group, change.topic, change.queue_id):
            return response(command, ResponseCode.SUCCESS, NO_REMARK, nothing)
        visible_at = self._clock.wall_ms() + change.invisible_time
        key = OrderKey(change.topic, change.consumer_group, change.queue_id)
        self._ordering.change(key, change.offset, point.pop_time, visible_at)
        changed = ChangeInvisibleTimeResponseHeader(
            pop_time=point.pop_time, invisible_time=visible_at - point.pop_time, revive_qid=point.revive_queue_id
        )
        return response(command, ResponseCode.SUCCESS, NO_REMARK, changed)

    def _change_lease(
        self, change: ChangeInvisibleTimeRequestHeader, point: CheckPoint
    ) -> ChangeInvisibleTimeResponseHeader:
        """A new lease for one message, then the end of its old one: a crash in between leaves both."""
        if not 0 <= point.revive_queue_id < REVIVE_QUEUES:
            raise ProtocolError(f"{point.revive_queue_id} is not a revive queue")
        # Two leases of one message need two pop times to be told apart.
        pop_time = max(self._clock.wall_ms(), point.pop_time + 1)
        key = LeaseKey(change.topic, change.consumer_group, change.queue_id, change.offset, pop_time)
        self._leases.add(
            Lease(
                **key._asdict(),
                invisible_time=change.invisible_time,
                revive_queue_id=point.revive_queue_id,
                offsets=(change.offset,),
                open={change.offset},
            )
        )
        self._leases.acknowledge(
            key._replace(start_offset=point.start_offset, pop_time=point.pop_time), (change.offset,)
        )
        return ChangeInvisibleTimeResponseHeader(
            pop_time=pop_time, invisible_time=change.invisible_time, revive_qid=point.revive_queue_id
        )

    def _when_durable(self, answer: Command) -> Command | Awaitable[Command]:
        """The answer once neither the lease nor the message can come back by a crash.

        The message could come back by an offset: the pop moved the group's past it, without waiting for the disk.
        """
        position = self._leases.last_position
        lease = None if position is None else self._store.durable(position)
        offset = self._offsets.durable()
        return answer if lease is None and offset is None else _after((lease, offset), answer)


async def _after(waiting: Iterable[Awaitable[None] | None], answer: Command) -> Command:
    for one in waiting:
        if one is not None:
            await one
    return answer


def _check_point(text: str) -> CheckPoint:
    # RocketMQ needs only the first six parts of it: without queue and offset it still names a lease.
    return CheckPoint.decode(text if text.count(" ") >= 7 else " ".join([*text.split(" ")[:6], "0", "0"]))
