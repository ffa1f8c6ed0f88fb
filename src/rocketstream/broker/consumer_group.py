"""A consumer group while it has members: who they are and what they want (RocketMQ's `ConsumerGroupInfo`)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from rocketstream.broker.connection import ClientConnection
from rocketstream.wire.bodies.heartbeat import ConsumerData
from rocketstream.wire.bodies.members import Connection
from rocketstream.wire.bodies.subscription import SubscriptionData
from rocketstream.wire.codes import LanguageCode


@dataclass(slots=True)
class Member:
    """A client behind a connection, as its heartbeats tell."""

    connection: ClientConnection
    client_id: str
    language: int
    version: int
    last_heartbeat: float
    """By the monotonic clock."""
    last_update_ms: int = 0
    """The same moment for people."""

    def to_connection(self) -> Connection:
        """What operators are told of it."""
        return Connection(
            client_id=self.client_id,
            client_addr=self.connection.address,
            language=language_name(self.language),
            version=self.version,
        )


def language_name(language: int) -> str:
    """A language's name, OTHER for one that is not known."""
    try:
        return LanguageCode(language).name
    except ValueError:
        return LanguageCode.OTHER.name


class ConsumerGroup:
    """The members of a group by their connection. What the last heartbeat of any of them says counts for all."""

    __slots__ = ("_members", "_subscriptions", "consume_from", "consume_type", "message_model", "name")

    def __init__(self, data: ConsumerData) -> None:
        self.name = data.group_name
        self.consume_type = data.consume_type
        self.message_model = data.message_model
        self.consume_from = data.consume_from_where
        self._members: dict[ClientConnection, Member] = {}
        self._subscriptions: dict[str, SubscriptionData] = {}

    def __repr__(self) -> str:
        return f"<ConsumerGroup {self.name} {self.message_model} members={self.client_ids()} topics={self.topics()}>"

    # --- asking ---------------------------------------------------------------------------------------------------

    def subscription(self, topic: str) -> SubscriptionData | None:
        """What the group wants of a topic."""
        return self._subscriptions.get(topic)

    def subscriptions(self) -> dict[str, SubscriptionData]:
        """What it wants, by topic."""
        return self._subscriptions

    def topics(self) -> list[str]:
        """The topics that it wants something of."""
        return list(self._subscriptions)

    def members(self) -> list[Member]:
        """Everybody in it, in the order of arrival."""
        return list(self._members.values())

    def client_ids(self) -> list[str]:
        """The ids of its members, in the order of arrival."""
        return [member.client_id for member in self._members.values()]

    def member(self, client_id: str) -> Member | None:
        """The member of that id."""
        return next((member for member in self._members.values() if member.client_id == client_id), None)

    def connection(self, client_id: str) -> ClientConnection | None:
        """The connection of a member."""
        member = self.member(client_id)
        return None if member is None else member.connection

    # --- changing: each says whether others have to know ---------------------------------------------------------

    def join(self, member: Member, data: ConsumerData) -> bool:
        """Take a heartbeat: True for a connection that is new here."""
        self.consume_type = data.consume_type
        self.message_model = data.message_model
        self.consume_from = data.consume_from_where
        is_new = member.connection not in self._members
        self._members[member.connection] = member
        return is_new

    def subscribe(self, wanted: Iterable[SubscriptionData]) -> bool:
        """Let this be what the group wants: True when a topic comes or goes. An older expression does not count."""
        changed = False
        topics = set()
        for one in wanted:
            topics.add(one.topic)
            old = self._subscriptions.get(one.topic)
            if old is None:
                changed = True
            elif one.sub_version <= old.sub_version:
                continue
            self._subscriptions[one.topic] = one
        for topic in self._subscriptions.keys() - topics:
            del self._subscriptions[topic]
            changed = True
        return changed

    def leave(self, connection: ClientConnection) -> bool:
        """Forget who is behind a connection: True if somebody was."""
        return self._members.pop(connection, None) is not None
