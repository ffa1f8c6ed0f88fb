"""Moving a group to another place, as `mqadmin resetOffsetByTime` does, with a plan that can be seen first.

There are two ways. A broker that resets by itself (5.x, `useServerSideResetOffset`) is told queue by queue: the next
pull of whoever has the queue is sent there. An older one can only pass a *time* on to the members, who stop for some
ten seconds and jump; when none is online, the committed offsets are changed and that is all. So everything is looked up
first, at all brokers, and only a plan that can be carried out everywhere is begun.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from rocketstream.admin.asking import Node
from rocketstream.admin.brokers import BrokerOperations
from rocketstream.admin.errors import NotFoundError
from rocketstream.admin.groups import GroupOperations
from rocketstream.admin.moments import EARLIEST, LATEST, Moment
from rocketstream.admin.reading import ReadingOperations
from rocketstream.admin.reset_targets import ResetTarget, refusal
from rocketstream.admin.values import OffsetReset, QueueReset
from rocketstream.errors import BrokerError, ConfigurationError, UnsupportedByBrokerError
from rocketstream.message import MessageQueue
from rocketstream.wire.bodies.offsets import ResetOffsetBody
from rocketstream.wire.codes import RequestCode, ResponseCode
from rocketstream.wire.headers.offsets import (
    OffsetResponseHeader,
    QueryConsumerOffsetRequestHeader,
    ResetOffsetRequestHeader,
    UpdateConsumerOffsetRequestHeader,
)

# What brokers understand as the beginning and the end when they are told a time.
_TIME_OF: Final = {EARLIEST: 0, LATEST: -1}


@dataclass(frozen=True, slots=True)
class _Plan:
    """What is to be done at one broker."""

    node: Node
    online: bool
    by_broker: bool
    old: dict[MessageQueue, int | None]
    new: dict[MessageQueue, int]
    ends: dict[MessageQueue, int]


class ResetOperations(ReadingOperations, GroupOperations, BrokerOperations):
    """Where a group goes on."""

    async def reset_offset(
        self,
        group: str,
        topic: str,
        to: Moment | None = None,
        *,
        offset: int | None = None,
        offsets: Mapping[MessageQueue | tuple[str, int], int] | None = None,
        like: str | None = None,
        broker_name: str | None = None,
        queue_id: int | None = None,
        dry_run: bool = False,
    ) -> OffsetReset:
        """Let a group go on elsewhere: at "earliest", "latest" or a time, or with `offset=` at that offset.

        `offsets=` gives an offset for each queue, `like=` takes those of another group over. Works with members online
        and without. `broker_name` and `queue_id` restrict it. `dry_run` tells what would be done. A group or topic that
        does not exist is an error, also where the broker would take it.
        """
        liked = None if like is None else self.full_group(like)
        target = ResetTarget.make(to, offset, offsets, liked, broker_name, queue_id, self._now_ms())
        full_group, full_topic = self.full_group(group), self.full_topic(topic)
        nodes = [node for node in await self.masters_of(full_topic) if target.wants_broker(node.name)]
        plans = await self.for_all(nodes, lambda node: self._plan(node, full_group, full_topic, target))
        planned = {queue: new for plan in plans for queue, new in plan.new.items()}
        if missing := target.missing(planned):
            raise ConfigurationError(f"topic {topic!r} has no queue {', '.join(missing)}")
        if not planned:
            raise ConfigurationError(
                f"topic {topic!r} has no queue with broker_name={broker_name!r}, queue_id={queue_id!r}"
            )
        moved: dict[MessageQueue, int] = {}
        for plan in plans:
            moved |= plan.new if dry_run else await self._carry_out(plan, full_group, full_topic, target)
        old = {queue: before for plan in plans for queue, before in plan.old.items()}
        ends = {queue: end for plan in plans for queue, end in plan.ends.items()}
        queues = [
            QueueReset(
                self.short(queue.topic),
                queue.broker_name,
                queue.queue_id,
                old.get(queue),
                moved[queue],
                ends.get(queue, moved[queue]),
            )
            for queue in sorted(moved)
        ]
        online = any(plan.online for plan in plans)
        return OffsetReset(self.short(full_group), self.short(full_topic), tuple(queues), dry_run, online)

    async def _plan(self, node: Node, group: str, topic: str, target: ResetTarget) -> _Plan:
        if group not in await self.group_names(node):
            raise NotFoundError(
                f"group {self.short(group)!r} does not exist on broker {node.name!r} ({node.address}): it was never"
                " there, and an offset for it would be an offset for nobody"
            )
        members = await self.connections_at(node, group)
        online = members is not None
        settings = await self.broker_config(node.address)
        by_broker = settings.get("useServerSideResetOffset") == "true"
        if online and not by_broker and not target.is_a_time_for_all:
            raise UnsupportedByBrokerError(
                f"group {self.short(group)!r} has members online, and broker {node.name!r} ({node.address}) can only"
                " send those to a time, in all queues: give a time, earliest or latest, or stop the members first"
            )
        ranges = await self._ranges(topic, [node])
        chosen = sorted(filter(target.wants, ranges))
        old = {queue: await self._committed(node, group, queue) for queue in chosen}
        why_not = refusal(members, topic, old, group=self.short(group), topic=self.short(topic))
        if why_not is not None:
            raise ConfigurationError(why_not)
        exact = by_broker or not online
        new = {queue: await self._aim(node, queue, ranges[queue], target, exact=exact) for queue in chosen}
        return _Plan(node, online, by_broker, old, new, {queue: ranges[queue][1] for queue in chosen})

    async def _aim(
        self, node: Node, queue: MessageQueue, limits: tuple[int, int], target: ResetTarget, exact: bool
    ) -> int:
        liked = None if target.like is None else await self._committed(node, target.like, queue)
        names = {"shown_topic": self.short(queue.topic), "shown_group": self.short(target.like or "")}
        fixed = target.fixed_offset(queue, limits, liked, **names)
        if fixed is not None:
            return fixed
        assert isinstance(target.place, int)
        # Without exactness it is the old broker that will look the time up, in its own way.
        find = self.offset_at if exact else self.offset_near
        return await find(node, queue, target.place)

    async def _committed(self, node: Node, group: str, queue: MessageQueue) -> int | None:
        header = QueryConsumerOffsetRequestHeader(
            consumer_group=group,
            topic=queue.topic,
            queue_id=queue.queue_id,
            set_zero_if_not_found=False,
            bname=queue.broker_name,
        )
        try:
            answer = await self.ask(node, RequestCode.QUERY_CONSUMER_OFFSET, header)
        except BrokerError as error:
            if error.code == ResponseCode.QUERY_NOT_FOUND:
                return None
            raise
        return OffsetResponseHeader.from_fields(answer.fields).offset

    async def _carry_out(self, plan: _Plan, group: str, topic: str, target: ResetTarget) -> dict[MessageQueue, int]:
        if plan.by_broker:
            for queue, offset in plan.new.items():
                header = ResetOffsetRequestHeader(
                    group=group, topic=topic, timestamp=0, is_force=True, queue_id=queue.queue_id, offset=offset
                )
                await self.ask(plan.node, RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, header)
            return plan.new
        # An online group needs an offset in every queue too, or the broker says that it does not exist.
        for queue, offset in plan.new.items():
            await self.ask(
                plan.node,
                RequestCode.UPDATE_CONSUMER_OFFSET,
                UpdateConsumerOffsetRequestHeader(
                    consumer_group=group, topic=topic, queue_id=queue.queue_id, commit_offset=offset
                ),
            )
        if not plan.online:
            return plan.new
        assert target.place is not None
        time = _TIME_OF[target.place] if isinstance(target.place, str) else target.place
        header = ResetOffsetRequestHeader(group=group, topic=topic, timestamp=time, is_force=True)
        answer = await self.ask(plan.node, RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, header)
        return dict(ResetOffsetBody.decode(answer.body).offset_table)
