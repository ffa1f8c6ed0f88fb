"""Groups: which there are, who is in them, and how far they are."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rocketstream.admin.asking import AdminAsking, Node
from rocketstream.admin.errors import NotFoundError
from rocketstream.admin.values import GroupInfo, GroupMembers, GroupProgress, Member, QueueProgress, Subscription
from rocketstream.cluster.names import is_system_group, retry_topic
from rocketstream.cluster.versions import version_text
from rocketstream.errors import BrokerError, ProtocolError, RemotingError
from rocketstream.message import MessageQueue
from rocketstream.wire.bodies.group import SubscriptionGroupWrapper
from rocketstream.wire.bodies.members import Connection, ConsumerConnection
from rocketstream.wire.bodies.running_info import ConsumerRunningInfo
from rocketstream.wire.bodies.stats import ConsumeStats
from rocketstream.wire.codes import RequestCode, ResponseCode
from rocketstream.wire.headers.group import (
    GetConsumerConnectionListRequestHeader,
    GetConsumerRunningInfoRequestHeader,
    GetConsumeStatsRequestHeader,
)


class GroupOperations(AdminAsking):
    """What an operator asks of groups."""

    async def groups(self, *, lag: bool = True) -> list[GroupInfo]:
        """Every group that a broker knows, RocketMQ's own left out, sorted; `lag=False` spares a question for each.

        In a namespace: those of the namespace only.
        """
        nodes = await self.readable()
        known = await self.for_all(nodes, self.group_names)
        names = {name for names in known for name in names if not is_system_group(name)}
        if self.namespace:
            names = {name for name in names if self.short(name) != name}
        return await self.for_all(sorted(names), lambda name: self._group_info(nodes, name, lag))

    async def consumers(self, group: str) -> GroupMembers:
        """Who is in a group now; no members when it is offline, `NotFoundError` when no broker knows it."""
        full = self.full_group(group)
        nodes = await self.readable()
        found = await self._connections(nodes, full)
        if not found:
            await self._check_known(nodes, full)
        return self._members(full, found)

    async def consumer_progress(
        self, group: str, *, topic: str | None = None, owners: bool = True, retry: bool = True
    ) -> GroupProgress:
        """How far a group is in each queue, and who has it; `NotFoundError` when no broker knows the group.

        `owners=False` spares the question to each member, which the broker passes on and a member may be slow to
        answer. `retry=False` leaves the group's retry topic out.
        """
        full = self.full_group(group)
        full_topic = None if topic is None else self.full_topic(topic)
        nodes = await self.readable()
        await self._check_known(nodes, full)
        stats = await self.for_all(nodes, lambda node: self._consume_stats(node, full))
        found = await self._connections(nodes, full)
        owned = await self._owners(full, found) if owners else {}
        queues = [
            QueueProgress(
                self.short(queue.topic),
                queue.broker_name,
                queue.queue_id,
                known.broker_offset,
                known.consumer_offset,
                known.last_timestamp or None,
                owned.get(queue),
            )
            for one in stats
            for queue, known in sorted(one.offset_table.items())
            if (full_topic is None or queue.topic == full_topic) and (retry or queue.topic != retry_topic(full))
        ]
        return GroupProgress(
            self.short(full),
            tuple(sorted(queues, key=lambda one: (one.topic, one.broker_name, one.queue_id))),
            sum(one.consume_tps for one in stats),
            len(self._members(full, found).members),
        )

    # --- parts ------------------------------------------------------------------------------------------------------

    async def group_names(self, node: Node) -> set[str]:
        """The groups that a broker knows."""
        answer = await self.ask(node, RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG)
        return set(SubscriptionGroupWrapper.decode(answer.body).subscription_group_table)

    async def connections_at(self, node: Node, full_group: str) -> ConsumerConnection | None:
        """The members that a broker sees; None when it sees none."""
        header = GetConsumerConnectionListRequestHeader(consumer_group=full_group)
        try:
            answer = await self.ask(node, RequestCode.GET_CONSUMER_CONNECTION_LIST, header)
        except BrokerError as error:
            if error.code == ResponseCode.CONSUMER_NOT_ONLINE:
                return None
            raise
        found = ConsumerConnection.decode(answer.body)
        return found if found.connection_set else None

    async def check_group_known(self, full_group: str) -> None:
        """`NotFoundError` when no broker knows a group."""
        await self._check_known(await self.readable(), full_group)

    async def _check_known(self, nodes: list[Node], full_group: str) -> None:
        known = await self.for_all(nodes, self.group_names)
        if not any(full_group in names for names in known):
            brokers = ", ".join(node.name for node in nodes)
            raise NotFoundError(f"group {self.short(full_group)!r} does not exist: no broker knows it ({brokers})")

    async def _connections(self, nodes: list[Node], full_group: str) -> list[tuple[Node, ConsumerConnection]]:
        found = await self.for_all(nodes, lambda node: self.connections_at(node, full_group))
        return [(node, one) for node, one in zip(nodes, found, strict=True) if one is not None]

    async def _consume_stats(self, node: Node, full_group: str) -> ConsumeStats:
        header = GetConsumeStatsRequestHeader(consumer_group=full_group)
        answer = await self.ask(node, RequestCode.GET_CONSUME_STATS, header)
        return ConsumeStats.decode(answer.body)

    async def _group_info(self, nodes: list[Node], full: str, with_lag: bool) -> GroupInfo:
        members = self._members(full, await self._connections(nodes, full))
        lag: int | None = None
        tps: float | None = None
        if with_lag:
            stats = [await self._consume_stats(node, full) for node in nodes]
            offsets = [known for one in stats for known in one.offset_table.values()]
            tps = sum(one.consume_tps for one in stats)
            if offsets:
                lag = sum(known.broker_offset - known.consumer_offset for known in offsets)
        return GroupInfo(self.short(full), len(members.members), members.model, members.consume_type, lag, tps)

    def _members(self, full: str, found: list[tuple[Node, ConsumerConnection]]) -> GroupMembers:
        members = members_of((node, connected.connection_set) for node, connected in found)
        if not found:
            return GroupMembers(self.short(full), members)
        first = found[0][1]
        wanted = {topic: asked for _, one in found for topic, asked in one.subscription_table.items()}
        subscriptions = [
            Subscription(self.short(topic), wanted[topic].sub_string, wanted[topic].expression_type)
            for topic in sorted(wanted)
        ]
        return GroupMembers(
            self.short(full),
            members,
            tuple(subscriptions),
            first.message_model,
            first.consume_type,
            first.consume_from_where,
        )

    async def _owners(self, full: str, found: list[tuple[Node, ConsumerConnection]]) -> dict[MessageQueue, str]:
        """Who has which queue, as the members say; one that does not answer has none that we know of."""
        asked = {client.client_id: node for node, one in found for client in one.connection_set}

        async def queues_of(client_id: str) -> dict[MessageQueue, str]:
            header = GetConsumerRunningInfoRequestHeader(consumer_group=full, client_id=client_id)
            try:
                answer = await self.ask(asked[client_id], RequestCode.GET_CONSUMER_RUNNING_INFO, header)
                info = ConsumerRunningInfo.decode(answer.body)
            except (BrokerError, RemotingError, ProtocolError):
                # Old clients and other languages' answer nothing, or something of their own.
                return {}
            return dict.fromkeys((*info.mq_table, *info.mq_pop_table), client_id)

        owned: dict[MessageQueue, str] = {}
        for queues in await self.for_all(asked, queues_of):
            owned |= queues
        return owned


def members_of(found: Iterable[tuple[Node, Sequence[Connection]]]) -> tuple[Member, ...]:
    """The clients that several brokers know, each once, with the brokers that it is connected to."""
    brokers: dict[str, list[str]] = {}
    clients: dict[str, Connection] = {}
    for node, connections in found:
        for client in connections:
            clients.setdefault(client.client_id, client)
            brokers.setdefault(client.client_id, []).append(node.name)
    return tuple(
        Member(
            client.client_id,
            client.client_addr,
            client.language,
            version_text(client.version),
            tuple(dict.fromkeys(brokers[client.client_id])),
        )
        for client in sorted(clients.values(), key=lambda client: client.client_id)
    )
