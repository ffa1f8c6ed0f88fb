"""Which queues are mine. That Java says the same is in `tests/interop/test_allocation.py`; here it is by hand."""

from __future__ import annotations

import operator
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

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

MEMBERS = ["10.0.0.1@101", "10.0.0.2@202", "10.0.0.3@303"]
QUEUE = MessageQueue("orders", "broker-a", 0)


def queues(names: str) -> list[MessageQueue]:
    """`a0 b1` are queue 0 of broker-a and queue 1 of broker-b."""
    return [MessageQueue("orders", f"broker-{name[0]}", int(name[1:])) for name in names.split()]


def shares(strategy: AllocateStrategy, names: str, members: list[str]) -> list[str]:
    """What each member gets, written as `queues` reads it."""
    return [
        " ".join(f"{q.broker_name[-1]}{q.queue_id}" for q in strategy.allocate("g", me, queues(names), members))
        for me in members
    ]


def nearby(inner: AllocateStrategy | None = None) -> AllocateMachineRoomNearby:
    """Rooms are the last letter of a broker's name and the first of a client's."""
    return AllocateMachineRoomNearby(inner or AllocateAveragely(), lambda q: q.broker_name[-1], lambda c: c[0])


# --- by hand --------------------------------------------------------------------------------------------------------

SIXTEEN = "a0 a1 a2 a3 a4 a5 a6 a7 b0 b1 b2 b3 b4 b5 b6 b7"


@pytest.mark.behaviour("REB-04")
@pytest.mark.parametrize(
    ("strategy", "expected"),
    [
        (AllocateAveragely(), ["a0 a1 a2 a3 a4 a5", "a6 a7 b0 b1 b2", "b3 b4 b5 b6 b7"]),
        (AllocateAveragelyByCircle(), ["a0 a3 a6 b1 b4 b7", "a1 a4 a7 b2 b5", "a2 a5 b0 b3 b6"]),
        (AllocateByConsistentHash(), ["a1 a4 a5 a7 b3 b6", "a0 a2 b0 b1 b2 b4 b5", "a3 a6 b7"]),
    ],
    ids=repr,
)
def test_sixteen_queues_and_three_members_as_java_shares_them(strategy: AllocateStrategy, expected: list[str]):
    assert shares(strategy, SIXTEEN, MEMBERS) == expected  # said by the Java clients 4.9.7 and 5.5.0


@pytest.mark.behaviour("REB-04")
@pytest.mark.parametrize(
    ("names", "members", "expected"),
    [
        ("a0", ["x"], ["a0"]),
        ("a0", ["x", "y"], ["a0", ""]),
        ("a0 a1", ["x", "y"], ["a0", "a1"]),
        ("a0 a1 a2", ["x", "y"], ["a0 a1", "a2"]),
        ("a0 a1 a2 a3", ["x", "y"], ["a0 a1", "a2 a3"]),
        ("a0 a1", ["v", "w", "x", "y", "z"], ["a0", "a1", "", "", ""]),
        ("a0 a1 a2 a3 a4 a5 a6 a7", ["x", "y", "z"], ["a0 a1 a2", "a3 a4 a5", "a6 a7"]),
    ],
)
def test_averagely(names: str, members: list[str], expected: list[str]):
    assert shares(AllocateAveragely(), names, members) == expected


@pytest.mark.behaviour("REB-04")
@pytest.mark.parametrize(
    ("names", "members", "expected"),
    [
        ("a0", ["x", "y"], ["a0", ""]),
        ("a0 a1 a2", ["x", "y"], ["a0 a2", "a1"]),
        ("a0 a1 a2 a3 a4 a5 a6 a7", ["x", "y", "z"], ["a0 a3 a6", "a1 a4 a7", "a2 a5"]),
    ],
)
def test_averagely_by_circle(names: str, members: list[str], expected: list[str]):
    assert shares(AllocateAveragelyByCircle(), names, members) == expected


@pytest.mark.behaviour("REB-04")
def test_by_config_gives_what_was_configured_whoever_asks():
    strategy = AllocateByConfig(queues("b1 a0"))
    assert strategy.allocate("g", "x", queues("a0 a1"), ["x"]) == queues("b1 a0")
    assert strategy.allocate("g", "nobody", [], []) == queues("b1 a0")


def test_by_config_keeps_its_queues_to_itself():
    configured = queues("a0 a1")
    strategy = AllocateByConfig(configured)
    configured.clear()
    strategy.allocate("g", "x", [], []).clear()
    assert strategy.allocate("g", "x", [], []) == queues("a0 a1")


@pytest.mark.behaviour("REB-04")
def test_by_machine_room_takes_only_brokers_of_its_rooms_and_deals_out_what_is_left_over():
    names = ["r1@a", "r1@b", "r2@c", "r3@d", "r1", "r1@", "@r1", "r1@a@b", "r2@e@@"]
    all_queues = [MessageQueue("orders", name, n) for name in names for n in range(2)]
    strategy = AllocateByMachineRoom(["r1", "r2"])

    mine = [
        [f"{q.broker_name}/{q.queue_id}" for q in strategy.allocate("g", me, all_queues, ["x", "y", "z"])]
        for me in ("x", "y", "z")
    ]

    # Eight queues, two for each and the last two to the first members; Java's split() sees two parts in "r2@e@@".
    assert mine == [["r1@a/0", "r1@a/1", "r2@e@@/0"], ["r1@b/0", "r1@b/1", "r2@e@@/1"], ["r2@c/0", "r2@c/1"]]


@pytest.mark.behaviour("REB-04")
def test_nearby_gives_a_room_to_its_own_members_and_an_empty_room_to_all():
    members = ["a-1", "a-2", "b-1", "d-1"]
    assert shares(nearby(), "a0 a1 a2 b0 b1 c0 c1 c2 c3 c4", members) == ["a0 a1 c0 c1", "a2 c2", "b0 b1 c3", "c4"]


@pytest.mark.behaviour("REB-04")
def test_nearby_shares_a_room_by_its_inner_strategy():
    members = ["a-1", "a-2"]
    names = "a0 a1 a2 a3 d0 d1 c0 c1"
    assert shares(nearby(AllocateAveragelyByCircle()), names, members) == ["a0 a2 c0 d0", "a1 a3 c1 d1"]


def test_names_are_javas():
    strategies = [
        AllocateAveragely(),
        AllocateAveragelyByCircle(),
        AllocateByConfig([]),
        AllocateByMachineRoom(["r"]),
        AllocateByConsistentHash(),
        nearby(),
        nearby(nearby(AllocateByConsistentHash())),
    ]
    assert [strategy.name for strategy in strategies] == [
        "AVG",
        "AVG_BY_CIRCLE",
        "CONFIG",
        "MACHINE_ROOM",
        "CONSISTENT_HASH",
        "MACHINE_ROOM_NEARBY-AVG",
        "MACHINE_ROOM_NEARBY-MACHINE_ROOM_NEARBY-CONSISTENT_HASH",
    ]


# --- what holds for all ---------------------------------------------------------------------------------------------

SHARING: list[AllocateStrategy] = [
    AllocateAveragely(),
    AllocateAveragelyByCircle(),
    AllocateByConsistentHash(),
    AllocateByConsistentHash(1),
    AllocateByMachineRoom(["a", "b", "c"]),
    nearby(),
    nearby(AllocateAveragelyByCircle()),
    nearby(AllocateByConsistentHash()),
]

some_queues = st.lists(
    st.builds(MessageQueue, st.just("orders"), st.sampled_from(["a@a", "b@b", "c@c"]), st.integers(0, 30)),
    min_size=1,
    unique=True,
).map(sorted)
some_members = st.lists(
    st.builds("{}{}".format, st.sampled_from("abd"), st.text(max_size=5)), min_size=1, unique=True
).map(sorted)


@pytest.mark.behaviour("REB-04")
@pytest.mark.parametrize("strategy", SHARING, ids=operator.attrgetter("name"))
@given(all_queues=some_queues, members=some_members)
def test_every_queue_goes_to_exactly_one_member(
    strategy: AllocateStrategy, all_queues: list[MessageQueue], members: list[str]
):
    given_out = [queue for me in members for queue in strategy.allocate("g", me, all_queues, members)]
    assert sorted(given_out) == all_queues


@pytest.mark.parametrize("strategy", [AllocateAveragely(), AllocateAveragelyByCircle()], ids=repr)
@given(all_queues=some_queues, members=some_members)
def test_no_share_is_two_queues_larger_than_another(
    strategy: AllocateStrategy, all_queues: list[MessageQueue], members: list[str]
):
    sizes = [len(strategy.allocate("g", me, all_queues, members)) for me in members]
    assert max(sizes) - min(sizes) <= 1
    assert sizes == sorted(sizes, reverse=True)


@given(all_queues=some_queues, members=some_members.filter(lambda members: len(members) > 1), data=st.data())
def test_with_consistent_hash_only_the_queues_of_a_member_that_leaves_move(
    all_queues: list[MessageQueue], members: list[str], data: st.DataObject
):
    strategy = AllocateByConsistentHash()
    gone = data.draw(st.sampled_from(members))
    left = [member for member in members if member != gone]
    for me in left:
        before = set(strategy.allocate("g", me, all_queues, members))
        assert before <= set(strategy.allocate("g", me, all_queues, left))


@pytest.mark.parametrize("strategy", SHARING, ids=operator.attrgetter("name"))
@given(all_queues=some_queues, members=some_members)
def test_what_it_is_given_stays_as_it_was(
    strategy: AllocateStrategy, all_queues: list[MessageQueue], members: list[str]
):
    before = (list(all_queues), list(members))
    share = strategy.allocate("g", members[0], all_queues, members)
    share.clear()
    assert (all_queues, members) == before
    assert strategy.allocate("g", members[0], tuple(all_queues), tuple(members)) == strategy.allocate(
        "g", members[0], all_queues, members
    )


# --- odd and wrong --------------------------------------------------------------------------------------------------


@pytest.mark.behaviour("REB-04")
@pytest.mark.parametrize("strategy", SHARING, ids=operator.attrgetter("name"))
def test_a_stranger_gets_nothing_and_nobody_is_alarmed(strategy: AllocateStrategy, caplog: pytest.LogCaptureFixture):
    all_queues = [MessageQueue("orders", "a@a", n) for n in range(5)]
    assert strategy.allocate("g", "stranger", all_queues, ["a1", "b1"]) == []
    assert caplog.records == []


@pytest.mark.parametrize("strategy", SHARING, ids=operator.attrgetter("name"))
@pytest.mark.parametrize(
    ("me", "all_queues", "members", "text"),
    [
        ("", [QUEUE], ["x"], "me='': a member needs a client id"),
        ("x", [], ["x"], "queues=[]: there is nothing to share"),
        ("x", [QUEUE], [], "members=[]: there is nobody to share with"),
    ],
)
def test_nothing_to_share_or_nobody_to_share_with_is_refused(
    strategy: AllocateStrategy, me: str, all_queues: list[MessageQueue], members: list[str], text: str
):
    with pytest.raises(ConfigurationError, match=f"^{re.escape(text)}$"):
        strategy.allocate("g", me, all_queues, members)


@pytest.mark.parametrize("room", ["", None, 5])
def test_nearby_needs_a_room_of_each_queue_and_each_member(room: Any):
    of_queues = AllocateMachineRoomNearby(AllocateAveragely(), lambda _: room, lambda _: "r")
    text = f"the machine room of queue {QUEUE!r} is {room!r}: it must have a name"
    with pytest.raises(ConfigurationError, match=f"^{re.escape(text)}$"):
        of_queues.allocate("g", "x", [QUEUE], ["x"])
    of_members = AllocateMachineRoomNearby(AllocateAveragely(), lambda _: "r", lambda _: room)
    text = f"the machine room of client 'x' is {room!r}: it must have a name"
    with pytest.raises(ConfigurationError, match=f"^{re.escape(text)}$"):
        of_members.allocate("g", "x", [QUEUE], ["x"])


STRATEGY = "must be an allocation strategy like AllocateAveragely(): with a name, and with allocate(group, me, queues,"


@pytest.mark.parametrize(
    ("make", "arguments", "text"),
    [
        (AllocateByConfig, ("a0",), "queues='a0' must be a list of MessageQueue"),
        (AllocateByConfig, (QUEUE,), f"queues={QUEUE!r} must be a list of MessageQueue"),
        (AllocateByConfig, (None,), "queues=None must be a list of MessageQueue"),
        (AllocateByConfig, ([("orders", "a", 0)],), "queues: ('orders', 'a', 0) is not a MessageQueue"),
        (AllocateByMachineRoom, ("r1",), "rooms='r1' must be a list of the names of machine rooms"),
        (AllocateByMachineRoom, ([],), "rooms=[] must be a list of the names of machine rooms"),
        (AllocateByMachineRoom, (None,), "rooms=None must be a list of the names of machine rooms"),
        (AllocateByMachineRoom, (["r1", 2],), "rooms: 2 is not the name of a machine room"),
        (AllocateByConsistentHash, (0,), "virtual_nodes=0 must be a whole number from 1 to 10000"),
        (AllocateByConsistentHash, (10_001,), "virtual_nodes=10001 must be a whole number from 1 to 10000"),
        (AllocateByConsistentHash, (True,), "virtual_nodes=True must be a whole number from 1 to 10000"),
        (AllocateByConsistentHash, ("3",), "virtual_nodes='3' must be a whole number from 1 to 10000"),
        (AllocateMachineRoomNearby, (None, str, str), f"inner=None {STRATEGY}"),
        (AllocateMachineRoomNearby, (AllocateAveragely, str, str), f"inner={AllocateAveragely!r} {STRATEGY}"),
        (
            AllocateMachineRoomNearby,
            (AllocateAveragely(), None, str),
            "room_of_broker=None must be a function that names a machine room",
        ),
        (
            AllocateMachineRoomNearby,
            (AllocateAveragely(), str, "r"),
            "room_of_client='r' must be a function that names a machine room",
        ),
    ],
)
def test_a_strategy_that_cannot_work_is_not_made(make: Any, arguments: tuple[Any, ...], text: str):
    with pytest.raises(ConfigurationError, match=f"^{re.escape(text)}"):
        make(*arguments)


def test_a_hash_ring_may_be_as_large_as_allowed():
    assert AllocateByConsistentHash(10_000).allocate("g", "x", [QUEUE], ["x"]) == [QUEUE]
