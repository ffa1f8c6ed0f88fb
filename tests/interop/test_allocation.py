"""Each strategy gives every member exactly the queues that Java's own strategy gives it, in the same order.

Java is asked now, not in a table that was written down once: one JVM for each version, without a cluster.
"""

from __future__ import annotations

import operator
import random
from collections.abc import Iterator, Sequence

import pytest

from rocketstream.consumer.allocation import (
    AllocateAveragely,
    AllocateAveragelyByCircle,
    AllocateByConfig,
    AllocateByConsistentHash,
    AllocateByMachineRoom,
    AllocateMachineRoomNearby,
    AllocateStrategy,
)
from rocketstream.errors import ConfigurationError
from rocketstream.message import MessageQueue
from rocketstream.testing.plugin import VERSIONS, require_real
from tests.interop.java_program import JavaPeerError, JavaProgram

pytestmark = pytest.mark.behaviour("REB-04")

ROOMS = ("r1", "r2")
CONFIGURED = (MessageQueue("orders", "r2@b", 3), MessageQueue("elsewhere", "x", 0), MessageQueue("orders", "r1@a", 1))


@pytest.fixture(scope="module", params=VERSIONS)
def java(request: pytest.FixtureRequest) -> Iterator[JavaProgram]:
    """Java's client; it is asked for nothing that needs a name server."""
    chosen = request.config.getoption("--rocketmq-version")
    if chosen and request.param not in chosen:
        pytest.skip(f"not among the chosen versions {chosen}")
    require_real(request.param)
    with JavaProgram(request.param, "127.0.0.1:1", heap="64m") as java:
        yield java


def room_of_broker(queue: MessageQueue) -> str:
    """As `Allocating.java` has it."""
    return queue.broker_name.partition("@")[0]


def room_of_client(client: str) -> str:
    """As `Allocating.java` has it."""
    return client.partition("@")[0]


def nearby(inner: AllocateStrategy) -> AllocateMachineRoomNearby:
    return AllocateMachineRoomNearby(inner, room_of_broker, room_of_client)


STRATEGIES: list[AllocateStrategy] = [
    AllocateAveragely(),
    AllocateAveragelyByCircle(),
    AllocateByConfig(CONFIGURED),
    AllocateByMachineRoom(ROOMS),
    nearby(AllocateAveragely()),
    nearby(AllocateAveragelyByCircle()),
    nearby(AllocateByConsistentHash()),
    nearby(nearby(AllocateAveragely())),
    AllocateByConsistentHash(),
    AllocateByConsistentHash(1),
    AllocateByConsistentHash(40),
]


def ask(
    java: JavaProgram,
    strategy: AllocateStrategy,
    asked: Sequence[str],
    queues: Sequence[MessageQueue],
    members: Sequence[str],
) -> list[list[MessageQueue]]:
    """What Java's strategy of the same name gives each of those asked."""
    hashing = strategy
    while isinstance(hashing, AllocateMachineRoomNearby):
        hashing = hashing.inner
    answer = java.call(
        "allocate",
        strategy=strategy.name,
        asked=asked,
        queues=queues,
        members=members,
        configured=CONFIGURED,
        rooms=ROOMS,
        virtualNodes=hashing.virtual_nodes if isinstance(hashing, AllocateByConsistentHash) else None,
    )
    assert answer["name"] == strategy.name
    return [[MessageQueue(*queue) for queue in share] for share in answer["shares"]]


def group_of(queue_count: int, member_count: int) -> tuple[list[MessageQueue], list[str]]:
    """Queues and members in several rooms; a room without members, one without queues, and odd names among them."""
    rng = random.Random(f"{queue_count}/{member_count}")
    brokers = ["r1@a", "r1@b", "r2@c", "r3@d", "r1", "@e", "r2@f@", "r2@g@h", "größe@订单", "🚀@up"]
    queues = [MessageQueue("orders", brokers[n % len(brokers)], n // len(brokers)) for n in range(queue_count)]
    rooms = ["r1", "r2", "r4", "größe"]
    members = [
        f"{rooms[n % len(rooms)]}@10.0.0.{n}@{rng.randrange(10_000)}#{rng.randrange(10**15)}"
        for n in range(member_count)
    ]
    return sorted(queues), sorted(members)


SIZES = [
    (1, 1),
    (1, 3),
    (3, 1),
    (3, 3),
    (4, 3),
    (5, 8),
    (8, 5),
    (8, 8),
    (9, 8),
    (16, 5),
    (64, 7),
    (100, 9),
    (10, 100),
    (1000, 100),
]


@pytest.mark.parametrize("strategy", STRATEGIES, ids=operator.attrgetter("name"))
@pytest.mark.slow(5, "Java and we share out up to 1,000 queues, member by member; the ring of hashes takes longest")
def test_shares_are_those_of_java(java: JavaProgram, strategy: AllocateStrategy):
    for queue_count, member_count in SIZES:
        queues, members = group_of(queue_count, member_count)
        if isinstance(strategy, AllocateMachineRoomNearby):
            queues = [queue for queue in queues if room_of_broker(queue)] or queues[:1]
        asked = [*members, "r1@a stranger"]
        ours = [strategy.allocate("group", me, queues, members) for me in asked]
        assert ours == ask(java, strategy, asked, queues, members), (queue_count, member_count)


@pytest.mark.parametrize("strategy", STRATEGIES, ids=operator.attrgetter("name"))
def test_a_member_that_is_listed_twice_gets_what_java_gives_it(java: JavaProgram, strategy: AllocateStrategy):
    queues = sorted(MessageQueue("orders", broker, n) for broker in ("r1@a", "r2@b", "r3@c") for n in range(8))
    members = ["r1@a", "r1@a", "r1@b", "r2@c", "r2@c", "r2@c", "r4@d"]
    ours = [strategy.allocate("group", me, queues, members) for me in members]
    assert ours == ask(java, strategy, members, queues, members)


@pytest.mark.parametrize("strategy", STRATEGIES, ids=operator.attrgetter("name"))
@pytest.mark.parametrize(
    ("me", "queues", "members"),
    [
        ("", [MessageQueue("orders", "r1@a", 0)], ["r1@a"]),
        ("r1@a", [], ["r1@a"]),
        ("r1@a", [MessageQueue("orders", "r1@a", 0)], []),
    ],
    ids=["no id", "no queues", "no members"],
)
def test_what_java_refuses_is_refused(
    java: JavaProgram, strategy: AllocateStrategy, me: str, queues: list[MessageQueue], members: list[str]
):
    if isinstance(strategy, AllocateByConfig):  # Java looks at nothing there
        assert [strategy.allocate("group", me, queues, members)] == ask(java, strategy, [me], queues, members)
        return
    with pytest.raises(JavaPeerError, match="IllegalArgumentException"):
        ask(java, strategy, [me], queues, members)
    with pytest.raises(ConfigurationError):
        strategy.allocate("group", me, queues, members)


@pytest.mark.parametrize(
    ("queues", "members"),
    [
        ([MessageQueue("orders", "@a", 0)], ["r1@a"]),
        ([MessageQueue("orders", "r1@a", 0)], ["@x", "r1@a"]),
    ],
    ids=["queue", "member"],
)
def test_without_a_machine_room_there_is_no_nearby(java: JavaProgram, queues: list[MessageQueue], members: list[str]):
    strategy = nearby(AllocateAveragely())
    with pytest.raises(JavaPeerError, match="Machine room is null"):
        ask(java, strategy, ["r1@a"], queues, members)
    with pytest.raises(ConfigurationError, match=r"the machine room of (queue|client) .* is '': it must have a name"):
        strategy.allocate("group", "r1@a", queues, members)
