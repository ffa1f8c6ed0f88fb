"""Two Java and two Python members share a group's queues (issue 5, "must show" 4).

For every strategy they agree on who has what, and when one of each leaves, the others go on where they were. One group
for each strategy, all of them side by side.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

import pytest

from rocketstream import (
    ConsumeContext,
    ConsumeResult,
    Message,
    MessageQueue,
    Producer,
    PushConsumer,
    ReceivedMessage,
    StartFrom,
)
from rocketstream.consumer.allocation import (
    AllocateAveragely,
    AllocateAveragelyByCircle,
    AllocateByConfig,
    AllocateByConsistentHash,
    AllocateByMachineRoom,
    AllocateMachineRoomNearby,
    AllocateStrategy,
)
from rocketstream.testing import EmbeddedCluster, RocketMQCluster
from rocketstream.testing.embedded_cluster import EmbeddedBrokerNode
from rocketstream.testing.plugin import EMBEDDED, require_real
from tests.bare_client import eventually
from tests.contract.clusters import TARGETS, AnyCluster, require_target
from tests.interop.java_peer import JavaMember, JavaPeer

BROKERS = ("r1@a", "r2@b")
QUEUES_PER_BROKER = 5
NAMES = ("r1-java", "r1-python", "r2-java", "r2-python")
SUCCESSOR = "-successor"
WAIT = 3000  # tries of `eventually`
STEP = 50  # messages for each queue between changes


class RoomsCluster(RocketMQCluster):
    """Brokers whose names tell their machine rooms."""

    def _start_nodes(self) -> None:
        for node, name in zip(self.brokers, BROKERS, strict=True):
            node.broker_name = name
            node.config = {**node.config, "brokerName": name}
        super()._start_nodes()


class EmbeddedRooms(EmbeddedCluster):
    """The same in this process."""

    def _new_broker(self, name: str) -> EmbeddedBrokerNode:
        return super()._new_broker(BROKERS[len(self.brokers)])


@pytest.fixture(scope="module", params=TARGETS)
def rooms(request: pytest.FixtureRequest) -> Iterator[AnyCluster]:
    require_target(request, request.param)
    with EmbeddedRooms(brokers=2) if request.param == EMBEDDED else RoomsCluster(request.param, brokers=2) as cluster:
        yield cluster


@pytest.fixture
def java(rooms: AnyCluster) -> Iterator[JavaPeer]:
    require_real(rooms.version)
    with JavaPeer(rooms.version, rooms.name_server_address) as java:
        yield java


def room_of_broker(queue: MessageQueue) -> str:
    return queue.broker_name.partition("@")[0]


def room_of_client(client: str) -> str:
    """In its instance name, "room-...", as `Allocating.java` has it with `roomAfterIp`."""
    return client.partition("@")[2].partition("-")[0]


def strategies(queues: Sequence[MessageQueue]) -> dict[str, Callable[[str], AllocateStrategy]]:
    """Every strategy by its name in Java: what each member is given, by the member's name."""

    def by_config(name: str) -> AllocateStrategy:
        return AllocateByConfig(queues[NAMES.index(name.removesuffix(SUCCESSOR)) :: len(NAMES)])

    same_for_all: list[AllocateStrategy] = [
        AllocateAveragely(),
        AllocateAveragelyByCircle(),
        AllocateByMachineRoom(("r1", "r2")),
        AllocateMachineRoomNearby(AllocateAveragely(), room_of_broker, room_of_client),
        AllocateByConsistentHash(),
    ]
    return {"CONFIG": by_config} | {strategy.name: lambda _, it=strategy: it for strategy in same_for_all}


class PythonMember:
    """A consumer of ours with the words of a `JavaMember`."""

    def __init__(self, name_servers: str, name: str, group: str, topic: str, strategy: AllocateStrategy) -> None:
        self._bodies: list[str] = []
        self._consumer = PushConsumer(
            group,
            name_servers,
            listener=self._listen,
            start_from=StartFrom.FIRST,
            instance_name=name,
            allocate_strategy=strategy,
            consume_thread_min=2,
            consume_thread_max=2,
        )
        self._consumer.subscribe(topic)
        self._consumer.start()
        self.client_id = self._consumer.client_id

    def _listen(self, messages: Sequence[ReceivedMessage], context: ConsumeContext) -> ConsumeResult:
        self._bodies += [message.body.decode() for message in messages]
        return ConsumeResult.SUCCESS

    @property
    def assignment(self) -> tuple[MessageQueue, ...]:
        return self._consumer.assignment

    @property
    def received(self) -> list[str]:
        return list(self._bodies)

    def shutdown(self) -> None:
        self._consumer.shutdown()


class SharedGroup:
    """One group with its strategy, its topic, and its members by name."""

    def __init__(
        self, java: JavaPeer, group: str, queues: Sequence[MessageQueue], strategy: Callable[[str], AllocateStrategy]
    ) -> None:
        self._java = java
        self._group = group
        self._topic = queues[0].topic
        self._queues = sorted(queues)
        self._strategy = strategy
        self._present: dict[str, JavaMember | PythonMember] = {}
        self._gone: list[JavaMember | PythonMember] = []
        self._sent = 0

    def start(self, name: str, *, java: bool) -> None:
        strategy, unique = self._strategy(name), f"{name}-{self._group}"
        if not java:
            address = self._java.name_server
            self._present[name] = PythonMember(address, unique, self._group, self._topic, strategy)
            return
        settings: dict[str, object] = {"roomAfterIp": True, "rooms": ["r1", "r2"]}
        if isinstance(strategy, AllocateByConfig):
            settings["configured"] = list(strategy.queues)
        self._present[name] = self._java.start_member(unique, self._group, self._topic, strategy.name, **settings)

    def leave(self, name: str) -> None:
        """By configuration nobody takes the queues over but a successor, of the other kind."""
        member = self._present.pop(name)
        member.shutdown()
        self._gone.append(member)
        if isinstance(self._strategy(name), AllocateByConfig):
            self.start(name + SUCCESSOR, java=isinstance(member, PythonMember))

    def close(self) -> None:
        for member in self._present.values():
            member.shutdown()

    def send(self, producer: Producer) -> None:
        for _ in range(STEP):
            for queue in self._queues:
                producer.send(Message(self._topic, b"%d" % self._sent), queue=queue)
                self._sent += 1

    def expected(self) -> dict[str, list[MessageQueue]]:
        """Who has to have what, now."""
        ids = sorted(member.client_id for member in self._present.values())
        shares = {
            name: sorted(self._strategy(name).allocate(self._group, member.client_id, self._queues, ids))
            for name, member in self._present.items()
        }
        assert sorted(queue for share in shares.values() for queue in share) == self._queues, "each queue has one owner"
        return shares

    def check_agreement(self) -> None:
        """All of them have come to what the strategy says; none has a queue that is another's."""
        expected = self.expected()
        eventually(lambda: {name: sorted(m.assignment) for name, m in self._present.items()} == expected, WAIT)

    def check_complete(self) -> None:
        """Nothing that was sent is missing."""
        wanted = set(map(str, range(self._sent)))
        members = [*self._present.values(), *self._gone]
        eventually(lambda: wanted == {body for member in members for body in member.received}, WAIT)
        again = sum(len(member.received) for member in members) - self._sent
        assert again < self._sent / 10, "who takes a queue over goes on where its last owner was"


@pytest.mark.feature("consume/groups")
@pytest.mark.behaviour("REB-04")
@pytest.mark.slow(50, "members of two clients join and leave one after the other")
def test_java_and_python_members_share_and_hand_over(
    rooms: AnyCluster, java: JavaPeer, unique_topic: str, unique_group: str
):
    groups: dict[str, SharedGroup] = {}
    for name in strategies([]):
        topic = f"{unique_topic}-{name}"
        java.create_topic(topic, queues=QUEUES_PER_BROKER)
        queues = [MessageQueue(topic, broker, n) for broker in BROKERS for n in range(QUEUES_PER_BROKER)]
        groups[name] = SharedGroup(java, f"{unique_group}-{name}", queues, strategies(queues)[name])

    with (
        Producer(f"{unique_group}-p", rooms.name_server_address, send_timeout=30.0) as producer,
        ThreadPoolExecutor(len(groups)) as side_by_side,
    ):

        def life(group: SharedGroup) -> None:
            try:
                for name in NAMES:
                    group.start(name, java=name.endswith("java"))
                group.check_agreement()
                for leaver in ("r1-java", "r2-python"):
                    sending = threading.Thread(target=group.send, args=(producer,))
                    sending.start()
                    group.leave(leaver)
                    sending.join()
                    group.check_agreement()
                group.send(producer)
                group.check_complete()
            finally:
                group.close()

        lives = {name: side_by_side.submit(life, group) for name, group in groups.items()}
        problems = {name: life.exception() for name, life in lives.items()}
    assert problems == dict.fromkeys(groups)
