"""Which of a topic's queues are mine (REB-03, REB-04): pure functions of the sorted queues and the sorted members.

The rule of this file: exactly Java's answers. The members of a group, Java or not, each compute their own share; a
different answer anywhere would leave queues to nobody, or give one to two.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from hashlib import md5
from typing import ClassVar, Protocol

from rocketstream.errors import ConfigurationError
from rocketstream.message import MessageQueue


class AllocateStrategy(Protocol):
    """How a topic's queues are shared; every member of a group must use the same."""

    @property
    def name(self) -> str:
        """What it is called in Java."""

    def allocate(
        self, group: str, me: str, queues: Sequence[MessageQueue], members: Sequence[str]
    ) -> list[MessageQueue]:
        """The queues of member `me`. `queues` are one topic's; both are sorted, and the same for every member."""


@dataclass(frozen=True, slots=True)
class AllocateAveragely:
    """Neighbouring queues to each member; the first members get one more. Java's default."""

    name: ClassVar[str] = "AVG"

    def allocate(
        self, group: str, me: str, queues: Sequence[MessageQueue], members: Sequence[str]
    ) -> list[MessageQueue]:
        """See `AllocateStrategy`."""
        if not _is_member(me, queues, members):
            return []
        share, more = divmod(len(queues), len(members))
        index = members.index(me)
        start = index * share + min(index, more)
        return list(queues[start : start + share + (index < more)])


@dataclass(frozen=True, slots=True)
class AllocateAveragelyByCircle:
    """Queues are dealt out like cards."""

    name: ClassVar[str] = "AVG_BY_CIRCLE"

    def allocate(
        self, group: str, me: str, queues: Sequence[MessageQueue], members: Sequence[str]
    ) -> list[MessageQueue]:
        """See `AllocateStrategy`."""
        if not _is_member(me, queues, members):
            return []
        return list(queues[members.index(me) :: len(members)])


@dataclass(frozen=True, slots=True)
class AllocateByConfig:
    """The queues that this consumer was given by hand, whoever else is there."""

    queues: Sequence[MessageQueue]

    name: ClassVar[str] = "CONFIG"

    def __post_init__(self) -> None:
        queues: object = self.queues
        if isinstance(queues, str | MessageQueue) or not isinstance(queues, Collection):
            raise ConfigurationError(f"queues={queues!r} must be a list of MessageQueue")
        for queue in queues:
            if not isinstance(queue, MessageQueue):
                raise ConfigurationError(f"queues: {queue!r} is not a MessageQueue")
        object.__setattr__(self, "queues", tuple(queues))

    def allocate(
        self, group: str, me: str, queues: Sequence[MessageQueue], members: Sequence[str]
    ) -> list[MessageQueue]:
        """See `AllocateStrategy`."""
        return list(self.queues)


@dataclass(frozen=True, slots=True)
class AllocateByMachineRoom:
    """Only queues of brokers named `room@broker` of these rooms; what is left over goes to the first members."""

    rooms: Collection[str]

    name: ClassVar[str] = "MACHINE_ROOM"

    def __post_init__(self) -> None:
        rooms: object = self.rooms
        if isinstance(rooms, str) or not isinstance(rooms, Collection) or not rooms:
            raise ConfigurationError(f"rooms={rooms!r} must be a list of the names of machine rooms")
        for room in rooms:
            if not isinstance(room, str):
                raise ConfigurationError(f"rooms: {room!r} is not the name of a machine room")
        object.__setattr__(self, "rooms", frozenset(rooms))

    def allocate(
        self, group: str, me: str, queues: Sequence[MessageQueue], members: Sequence[str]
    ) -> list[MessageQueue]:
        """See `AllocateStrategy`."""
        if not _is_member(me, queues, members):
            return []
        ours = [queue for queue in queues if _room_in_name(queue.broker_name) in self.rooms]
        share, more = divmod(len(ours), len(members))
        index = members.index(me)
        result = ours[index * share : (index + 1) * share]
        if index < more:
            result.append(ours[share * len(members) + index])
        return result


@dataclass(frozen=True, slots=True)
class AllocateMachineRoomNearby:
    """Queues to members in their own machine room; those of a room without members are everybody's.

    `inner` shares out the queues of one room. Every queue and every member must have a room.
    """

    inner: AllocateStrategy
    room_of_broker: Callable[[MessageQueue], str]
    room_of_client: Callable[[str], str]

    def __post_init__(self) -> None:
        check_strategy("inner", self.inner)
        for name in ("room_of_broker", "room_of_client"):
            if not callable(getattr(self, name)):
                raise ConfigurationError(f"{name}={getattr(self, name)!r} must be a function that names a machine room")

    @property
    def name(self) -> str:
        """See `AllocateStrategy`."""
        return f"MACHINE_ROOM_NEARBY-{self.inner.name}"

    def allocate(
        self, group: str, me: str, queues: Sequence[MessageQueue], members: Sequence[str]
    ) -> list[MessageQueue]:
        """See `AllocateStrategy`."""
        if not _is_member(me, queues, members):
            return []
        queues_of: dict[str, list[MessageQueue]] = {}
        for queue in queues:
            queues_of.setdefault(_room("queue", queue, self.room_of_broker(queue)), []).append(queue)
        members_of: dict[str, list[str]] = {}
        for member in members:
            members_of.setdefault(_room("client", member, self.room_of_client(member)), []).append(member)

        my_room = self.room_of_client(me)
        result: list[MessageQueue] = []
        if near := queues_of.pop(my_room, None):
            result += self.inner.allocate(group, me, near, members_of[my_room])
        for room in sorted(queues_of.keys() - members_of.keys()):
            result += self.inner.allocate(group, me, queues_of[room], members)
        return result


@dataclass(frozen=True, slots=True)
class AllocateByConsistentHash:
    """Each queue to the next member on a ring of hashes, so that few queues move when a member comes or goes."""

    virtual_nodes: int = 10
    """How often each member is on the ring: more share the queues more evenly."""

    name: ClassVar[str] = "CONSISTENT_HASH"

    def __post_init__(self) -> None:
        nodes: object = self.virtual_nodes
        if isinstance(nodes, bool) or not isinstance(nodes, int) or not 1 <= nodes <= 10_000:
            raise ConfigurationError(f"virtual_nodes={nodes!r} must be a whole number from 1 to 10000")

    def allocate(
        self, group: str, me: str, queues: Sequence[MessageQueue], members: Sequence[str]
    ) -> list[MessageQueue]:
        """See `AllocateStrategy`."""
        if not _is_member(me, queues, members):
            return []
        owner_of = self._ring(members)
        points = sorted(owner_of)
        mine = [owner_of[point] == me for point in points]
        mine.append(mine[0])  # past the last point the ring begins again
        # Java hashes the text that its MessageQueue.toString() makes.
        texts = (f"MessageQueue [topic={topic}, brokerName={broker}, queueId={n}]" for topic, broker, n in queues)
        return [queue for queue, text in zip(queues, texts, strict=True) if mine[bisect_left(points, _hash(text))]]

    def _ring(self, members: Sequence[str]) -> dict[bytes, str]:
        ring: dict[bytes, str] = {}
        seen: set[str] = set()
        for member in members:
            # A member that is listed twice goes on counting where it stopped.
            first = sum(owner == member for owner in ring.values()) if member in seen else 0
            seen.add(member)
            for number in range(first, first + self.virtual_nodes):
                ring[_hash(f"{member}-{number}")] = member
        return ring


def check_strategy(name: str, strategy: object) -> None:
    """Refuse what cannot allocate, also a class instead of an object of it (START-02)."""
    if (
        isinstance(strategy, type)
        or not callable(getattr(strategy, "allocate", None))
        or not isinstance(getattr(strategy, "name", None), str)
    ):
        raise ConfigurationError(
            f"{name}={strategy!r} must be an allocation strategy like AllocateAveragely(): with a name, and with"
            " allocate(group, me, queues, members)"
        )


def _is_member(me: str, queues: Sequence[MessageQueue], members: Sequence[str]) -> bool:
    if not me:
        raise ConfigurationError(f"me={me!r}: a member needs a client id")
    if not queues:
        raise ConfigurationError(f"queues={queues!r}: there is nothing to share")
    if not members:
        raise ConfigurationError(f"members={members!r}: there is nobody to share with")
    return me in members


def _room(kind: str, what: object, room: object) -> str:
    if not isinstance(room, str) or not room:
        raise ConfigurationError(f"the machine room of {kind} {what!r} is {room!r}: it must have a name")
    return room


def _room_in_name(broker_name: str) -> str | None:
    # Java's split() drops empty parts at the end: "room@broker@" has two.
    parts = broker_name.rstrip("@").split("@")
    return parts[0] if len(parts) == 2 else None


def _hash(text: str) -> bytes:
    # Java makes a number of the first four bytes; their order is the order of that number.
    return md5(text.encode("utf-8", "replace"), usedforsecurity=False).digest()[:4]
