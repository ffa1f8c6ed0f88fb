"""What a running consumer says of itself, asked through the broker that it is connected to."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from rocketstream.admin.asking import Node
from rocketstream.admin.errors import NotFoundError
from rocketstream.admin.groups import GroupOperations
from rocketstream.admin.secrets import redacted
from rocketstream.admin.values import Subscription, Value
from rocketstream.errors import BrokerError, ConfigurationError, ProtocolError, RemotingError
from rocketstream.wire.bodies.running_info import (
    PROP_CLIENT_VERSION,
    PROP_CONSUME_ORDERLY,
    PROP_CONSUME_TYPE,
    PROP_CONSUMER_START_TIMESTAMP,
    PROP_THREADPOOL_CORE_SIZE,
    ConsumerRunningInfo,
)
from rocketstream.wire.codes import RequestCode
from rocketstream.wire.headers.group import GetConsumerRunningInfoRequestHeader


@dataclass(frozen=True, slots=True)
class RunningQueue(Value):
    """A queue that a consumer has now. What its kind of queue does not have is None."""

    topic: str
    broker_name: str
    queue_id: int
    popped: bool
    """Whether it is popped, not pulled."""
    commit_offset: int | None
    """None when it has committed none yet."""
    cached: int
    """Messages pulled and not yet consumed; popped and not yet acknowledged."""
    cached_mib: int | None
    locked: bool | None
    dropped: bool
    last_pull_timestamp: int | None
    last_consume_timestamp: int | None


@dataclass(frozen=True, slots=True)
class TopicSpeed(Value):
    """How fast a consumer is in one topic: messages per second, times in milliseconds."""

    topic: str
    pull_rt: float
    pull_tps: float
    consume_rt: float
    consume_ok_tps: float
    consume_failed_tps: float
    failed_last_hour: int


@dataclass(frozen=True, slots=True)
class RunningInfo(Value):
    """What one member of a group says of itself."""

    group: str
    client_id: str
    consume_type: str | None
    orderly: bool
    version: str | None
    threads: int | None
    start_timestamp: int | None
    subscriptions: tuple[Subscription, ...]
    queues: tuple[RunningQueue, ...]
    speeds: tuple[TopicSpeed, ...]
    properties: dict[str, str] = field(repr=False)
    """Its settings in its own words; secrets are hidden."""
    stack: str | None = field(default=None, repr=False)

    @property
    def cached(self) -> int:
        """How many messages it holds."""
        return sum(queue.cached for queue in self.queues)

    def to_dict(self) -> dict[str, Any]:
        """With the number of messages that it holds."""
        return {**Value.to_dict(self), "cached": self.cached}


class RunningOperations(GroupOperations):
    """What an operator asks of one consumer."""

    async def running_info(self, group: str, client_id: str, *, stack: bool = False) -> RunningInfo:
        """What a member says of itself: queues, speed, settings, with `stack` what its threads do.

        `NotFoundError` when it is not a member now, and `BrokerError` when it does not answer its broker.
        """
        if not isinstance(client_id, str) or not client_id.strip():
            raise ConfigurationError(f"client_id={client_id!r}: a client id is a text that is not empty")
        full = self.full_group(group)
        members = await self._nodes_by_client(full)
        if client_id not in members:
            there = f"its members are {', '.join(sorted(members))}" if members else "it has no member online"
            raise NotFoundError(f"client {client_id!r} is not in group {group!r}: {there}")
        return await self._running_info(members[client_id], full, client_id, stack)

    async def running_infos(self, full_group: str) -> list[RunningInfo | None]:
        """What all members say of themselves; None for one that does not answer, or not so that we understand it."""
        members = await self._nodes_by_client(full_group)

        async def of(client_id: str) -> RunningInfo | None:
            try:
                return await self._running_info(members[client_id], full_group, client_id, False)
            except (BrokerError, RemotingError, ProtocolError):
                # Old clients and other languages' answer nothing, or something of their own.
                return None

        return await self.for_all(sorted(members), of)

    async def _nodes_by_client(self, full_group: str) -> dict[str, Node]:
        """Who is in a group, and the broker through which to ask; `NotFoundError` when no broker knows the group."""
        nodes = await self.readable()
        found = await self._connections(nodes, full_group)
        if not found:
            await self._check_known(nodes, full_group)
        return {client.client_id: node for node, one in found for client in one.connection_set}

    async def _running_info(self, node: Node, full_group: str, client_id: str, stack: bool) -> RunningInfo:
        header = GetConsumerRunningInfoRequestHeader(
            consumer_group=full_group, client_id=client_id, jstack_enable=stack
        )
        answer = await self.ask(node, RequestCode.GET_CONSUMER_RUNNING_INFO, header)
        return self._read_info(full_group, client_id, ConsumerRunningInfo.decode(answer.body))

    def _read_info(self, full_group: str, client_id: str, told: ConsumerRunningInfo) -> RunningInfo:
        properties = {name: str(value) for name, value in told.properties.items()}
        subscriptions = [
            Subscription(self.short(one.topic), one.sub_string, one.expression_type) for one in told.subscription_set
        ]
        speeds = [
            TopicSpeed(
                self.short(topic),
                one.pull_rt,
                one.pull_tps,
                one.consume_rt,
                one.consume_ok_tps,
                one.consume_failed_tps,
                one.consume_failed_msgs,
            )
            for topic, one in sorted(told.status_table.items())
        ]
        return RunningInfo(
            self.short(full_group),
            client_id,
            properties.get(PROP_CONSUME_TYPE),
            properties.get(PROP_CONSUME_ORDERLY, "").lower() == "true",
            properties.get(PROP_CLIENT_VERSION),
            _number(properties, PROP_THREADPOOL_CORE_SIZE),
            _number(properties, PROP_CONSUMER_START_TIMESTAMP),
            tuple(sorted(subscriptions, key=lambda one: one.topic)),
            tuple(self._queues(told)),
            tuple(speeds),
            redacted(properties),
            told.jstack,
        )

    def _queues(self, told: ConsumerRunningInfo) -> list[RunningQueue]:
        pulled = [
            RunningQueue(
                self.short(queue.topic),
                queue.broker_name,
                queue.queue_id,
                popped=False,
                commit_offset=one.commit_offset if one.commit_offset >= 0 else None,
                cached=one.cached_msg_count,
                cached_mib=one.cached_msg_size_in_mib,
                locked=one.locked,
                dropped=one.dropped,
                last_pull_timestamp=_moment(one.last_pull_timestamp),
                last_consume_timestamp=_moment(one.last_consume_timestamp),
            )
            for queue, one in sorted(told.mq_table.items())
        ]
        popped = [
            RunningQueue(
                self.short(queue.topic),
                queue.broker_name,
                queue.queue_id,
                popped=True,
                commit_offset=None,
                cached=one.wait_ack_count,
                cached_mib=None,
                locked=None,
                dropped=one.dropped,
                last_pull_timestamp=_moment(one.last_pop_timestamp),
                last_consume_timestamp=None,
            )
            for queue, one in sorted(told.mq_pop_table.items())
        ]
        return pulled + popped


def _number(properties: Mapping[str, str], name: str) -> int | None:
    text = properties.get(name, "")
    return int(text) if text.isascii() and text.isdigit() else None


def _moment(milliseconds: int) -> int | None:
    # Java tells "never" as the beginning of time, or as its smallest number.
    return milliseconds if milliseconds > 0 else None
