"""Who is connected: the members of a consumer group and whether they want the same, the clients of a producer group.

A broker keeps one subscription per group, that of the last heartbeat: members that want different things lose messages
and nobody says so. So each member is asked itself, and `disagreements` compares what they say; a pure function.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rocketstream.admin.asking import Node
from rocketstream.admin.groups import members_of
from rocketstream.admin.running import RunningInfo, RunningOperations
from rocketstream.admin.values import Member, Subscription, Value
from rocketstream.cluster.names import RETRY_PREFIX
from rocketstream.errors import BrokerError
from rocketstream.wire.bodies.members import Connection, ConsumerConnection, ProducerConnection
from rocketstream.wire.bodies.subscription import SubscriptionData
from rocketstream.wire.codes import ExpressionType, RequestCode, ResponseCode
from rocketstream.wire.headers.group import GetProducerConnectionListRequestHeader
from rocketstream.wire.subscription import SUBSCRIBE_ALL, parse_tags


@dataclass(frozen=True, slots=True)
class ConnectedConsumer(Value):
    """One member of a consumer group, as brokers know it and as it says itself."""

    client_id: str
    address: str | None
    language: str | None
    version: str
    brokers: tuple[str, ...]
    """The brokers that it is connected to."""
    subscriptions: tuple[Subscription, ...] | None
    """What it subscribes to, by its own words; None when it does not say."""
    orderly: bool | None
    start_timestamp: int | None


@dataclass(frozen=True, slots=True)
class ConsumerConnections(Value):
    """A consumer group's members now; none means that it is offline."""

    group: str
    members: tuple[ConnectedConsumer, ...]
    model: str | None
    consume_type: str | None
    consume_from: str | None
    subscriptions: tuple[Subscription, ...]
    """What the brokers take for the group's subscription: that of the member whose heartbeat came last."""
    disagreements: tuple[str, ...]
    """Where members, or brokers, tell different stories; a sentence each. Messages get lost in such a group."""

    @property
    def online(self) -> bool:
        """Whether anybody is there."""
        return bool(self.members)

    @property
    def silent(self) -> tuple[str, ...]:
        """The members that did not say what they subscribe to, so that nobody can compare them."""
        return tuple(member.client_id for member in self.members if member.subscriptions is None)

    def to_dict(self) -> dict[str, Any]:
        """With who did not answer."""
        return {**Value.to_dict(self), "online": self.online, "silent": list(self.silent)}


@dataclass(frozen=True, slots=True)
class ProducerConnections(Value):
    """The clients of a producer group that are connected now."""

    group: str
    members: tuple[Member, ...]

    @property
    def online(self) -> bool:
        """Whether anybody is there."""
        return bool(self.members)


class ConnectionOperations(RunningOperations):
    """What an operator asks about clients."""

    async def consumer_connections(self, group: str) -> ConsumerConnections:
        """Who is in a group, what each member subscribes to, and where they disagree."""
        full = self.full_group(group)
        nodes = await self.readable()
        found = await self._connections(nodes, full)
        if not found:
            await self._check_known(nodes, full)
        known = self._members(full, found)
        infos = await self.running_infos(full) if found else []
        by_client = {info.client_id: info for info in infos if info is not None}
        members = tuple(_connected(member, by_client.get(member.client_id)) for member in known.members)
        told = (
            *disagreements(members),
            *absences(members),
            *self._different_stories(found),
        )
        return ConsumerConnections(
            known.group,
            members,
            known.model,
            known.consume_type,
            known.consume_from,
            known.subscriptions,
            told,
        )

    async def producer_connections(self, group: str, topic: str | None = None) -> ProducerConnections:
        """The clients of a producer group at every broker, or at those of a topic.

        Brokers know producers only while they are connected: nobody there and no such group look the same.
        """
        full = self.full_group(group)
        nodes = await self.readable() if topic is None else await self.readable_of(self.full_topic(topic))
        found = await self.for_all(nodes, lambda node: self._producers_at(node, full))
        return ProducerConnections(self.short(full), members_of(zip(nodes, found, strict=True)))

    async def _producers_at(self, node: Node, full_group: str) -> tuple[Connection, ...]:
        header = GetProducerConnectionListRequestHeader(producer_group=full_group)
        try:
            answer = await self.ask(node, RequestCode.GET_PRODUCER_CONNECTION_LIST, header)
        except BrokerError as error:
            if error.code == ResponseCode.SYSTEM_ERROR and "not exist" in (error.remark or ""):
                return ()
            raise
        return ProducerConnection.decode(answer.body).connection_set

    def _different_stories(self, found: Sequence[tuple[Node, ConsumerConnection]]) -> list[str]:
        """Brokers that were last told different subscriptions: the trace of members that do not answer."""
        told: list[str] = []
        by_topic: dict[str, dict[str, SubscriptionData]] = {}
        for node, one in found:
            for topic, asked in one.subscription_table.items():
                by_topic.setdefault(self.short(topic), {})[node.name] = asked
        for topic, by_broker in sorted(by_topic.items()):
            if len({_meaning(asked.expression_type, asked.sub_string) for asked in by_broker.values()}) > 1:
                stories = ", ".join(f"{broker} {asked.sub_string!r}" for broker, asked in by_broker.items())
                told.append(f"topic {topic!r}: the brokers were last told different subscriptions ({stories})")
        return told


def disagreements(members: Iterable[ConnectedConsumer]) -> list[str]:
    """Where members of a group want different things, a sentence for each topic; who does not say is left out."""
    speaking = {member.client_id: member for member in members if member.subscriptions is not None}
    wishes = {client_id: _wishes(member.subscriptions or ()) for client_id, member in speaking.items()}
    told: list[str] = []
    for topic in sorted({topic for wanted in wishes.values() for topic in wanted}):
        by_wish: dict[object, list[str]] = {}
        texts: dict[object, str] = {}
        for client_id, wanted in wishes.items():
            one = wanted.get(topic)
            meaning = None if one is None else _meaning(one.expression_type, one.expression)
            by_wish.setdefault(meaning, []).append(client_id)
            texts[meaning] = "does not subscribe to it" if one is None else f"wants {one.expression!r}"
        if len(by_wish) > 1:
            stories = "; ".join(f"{', '.join(clients)} {texts[meaning]}" for meaning, clients in by_wish.items())
            told.append(f"topic {topic!r}: {stories}")
    orders = {client_id: member.orderly for client_id, member in speaking.items()}
    if len(set(orders.values())) > 1:
        ordered = ", ".join(client_id for client_id, orderly in orders.items() if orderly)
        others = ", ".join(client_id for client_id, orderly in orders.items() if not orderly)
        told.append(f"{ordered} consumes in order; {others} does not")
    return told


def _wishes(subscriptions: Iterable[Subscription]) -> Mapping[str, Subscription]:
    return {one.topic: one for one in subscriptions if not one.topic.startswith(RETRY_PREFIX)}


def _meaning(expression_type: str, expression: str) -> tuple[str, object]:
    """What an expression asks for, however it is written."""
    if (expression_type or ExpressionType.TAG) != ExpressionType.TAG:
        return expression_type, expression
    return ExpressionType.TAG, parse_tags(expression or SUBSCRIBE_ALL)


def absences(members: Sequence[ConnectedConsumer]) -> list[str]:
    """Members that are not where others of the group are: each broker tells its own list, and so they share queues out
    differently."""
    brokers = sorted({broker for member in members for broker in member.brokers})
    return [
        f"{member.client_id} is connected to {', '.join(member.brokers)}, but not to {', '.join(missing)}"
        for member in members
        if (missing := [broker for broker in brokers if broker not in member.brokers])
    ]


def _connected(member: Member, info: RunningInfo | None) -> ConnectedConsumer:
    return ConnectedConsumer(
        member.client_id,
        member.address,
        member.language,
        member.version,
        member.brokers,
        None if info is None else info.subscriptions,
        None if info is None else info.orderly,
        None if info is None else info.start_timestamp,
    )
