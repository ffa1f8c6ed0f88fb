"""Which queues are ours: the same question to every strategy, and its answer checked."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from rocketstream.cluster.client_instance import ClientInstance
from rocketstream.cluster.settings import ClientSettings
from rocketstream.consumer.allocation import AllocateAveragely, AllocateAveragelyByCircle, AllocateMachineRoomNearby
from rocketstream.consumer.assignment import client_side, members_of_group
from rocketstream.errors import BrokerError, BrokerNotFoundError, ConfigurationError
from rocketstream.message import MessageQueue
from rocketstream.wire.bodies.members import ConsumerListByGroup
from rocketstream.wire.codes import MessageRequestMode, RequestCode, ResponseCode
from rocketstream.wire.command import response
from tests.consumer.peers import GROUP, TOPIC

GET_MEMBERS = RequestCode.GET_CONSUMER_LIST_BY_GROUP
SORTED = [MessageQueue("t", broker, number) for broker in ("a", "b") for number in range(3)]
MIXED = [SORTED[place] for place in (4, 1, 5, 0, 3, 2)]


class Own:
    """A user's own strategy: notes what it is asked and on which thread, and answers as it is told."""

    name = "own"

    def __init__(self, answer=()):
        self.answer = list(answer)
        self.asked = []
        self.threads = []

    def allocate(self, group, me, queues, members):
        self.asked.append((group, me, list(queues), list(members)))
        self.threads.append(threading.current_thread())
        return self.answer


@pytest.fixture
def threads():
    with ThreadPoolExecutor(1, thread_name_prefix="hooks") as pool:
        yield pool


@pytest.mark.behaviour("REB-03")
async def test_a_strategy_is_given_sorted_queues_whatever_order_a_route_has(threads):
    strategy = Own([SORTED[1]])
    assignment = await client_side(strategy, "g", "me", MIXED, ("him", "me"), threads)
    assert strategy.asked == [("g", "me", SORTED, ["him", "me"])]
    assert assignment.queues == {SORTED[1]: MessageRequestMode.PULL}
    assert list(assignment.of) == SORTED


@pytest.mark.behaviour("REB-03")
@pytest.mark.parametrize("strategy", [AllocateAveragely(), AllocateAveragelyByCircle()], ids=lambda s: s.name)
async def test_members_that_see_a_route_in_any_order_share_every_queue_once(strategy, threads):
    members = ("one", "three", "two")
    shares = [
        await client_side(strategy, "g", me, queues, members, threads)
        for me, queues in zip(members, (SORTED, MIXED, MIXED[::-1]), strict=True)
    ]
    given = [queue for share in shares for queue in share.queues]
    assert sorted(given) == SORTED
    assert [len(share.queues) for share in shares] == [2, 2, 2]


async def test_a_topic_without_queues_asks_no_strategy(threads):
    strategy = Own()
    assert (await client_side(strategy, "g", "me", [], ("me",), threads)).queues == {}
    assert strategy.asked == []


async def test_users_code_runs_on_another_thread_and_ours_does_not_need_one(threads):
    here = threading.current_thread()
    own = Own()
    await client_side(own, "g", "me", SORTED, ("me",), threads)
    seen = []

    def room(name):
        seen.append(threading.current_thread())
        return "room"

    await client_side(AllocateMachineRoomNearby(AllocateAveragely(), room, room), "g", "me", SORTED, ("me",), threads)
    assert {thread.name for thread in (*own.threads, *seen)} == {"hooks_0"}
    assert here not in (*own.threads, *seen)
    threads.shutdown()
    assert len((await client_side(AllocateAveragely(), "g", "me", SORTED, ("me",), threads)).queues) == 6


async def test_a_strategy_that_gives_what_is_not_there_is_refused(threads):
    other = MessageQueue("other", "a", 0)
    with pytest.raises(
        ConfigurationError, match=r"^allocate_strategy 'own' gave queues that the topic does not have: \[.*other.*\]$"
    ):
        await client_side(Own([SORTED[0], other]), "g", "me", SORTED, ("me",), threads)


async def test_what_a_strategy_raises_comes_through(threads):
    class Broken(Own):
        def allocate(self, group, me, queues, members):
            raise ZeroDivisionError("nobody")

    with pytest.raises(ZeroDivisionError, match="nobody"):
        await client_side(Broken(), "g", "me", SORTED, ("me",), threads)


# --- who the members are ----------------------------------------------------------------------------------------------


@pytest.fixture
async def instance(name_server, clock):
    instance = ClientInstance("me", ClientSettings(name_servers=(name_server.address,)), clock=clock)
    await instance.start()
    yield instance
    await instance.stop()


@pytest.mark.behaviour("REB-03")
async def test_members_are_sorted_whatever_order_a_broker_has(instance, a):
    def unsorted(command):
        assert command.fields["consumerGroup"] == GROUP
        body = ConsumerListByGroup(consumer_id_list=("c", "a", "b")).encode()
        return response(command, ResponseCode.SUCCESS, body=body)

    a.on(GET_MEMBERS, unsorted)
    assert await members_of_group(instance, TOPIC, GROUP) == ("a", "b", "c")


async def test_any_broker_of_the_topic_will_do(instance, name_server, a, b):
    name_server.set_route(TOPIC, {"a": {0: a.address}, "b": {0: b.address}})
    a.other_members = b.other_members = ["him"]
    a.on(GET_MEMBERS, lambda command: response(command, ResponseCode.SYSTEM_ERROR, "busy"))
    for _ in range(10):  # it asks them in any order
        assert await members_of_group(instance, TOPIC, GROUP) == ("him",)
    b.on(GET_MEMBERS, lambda command: response(command, ResponseCode.SYSTEM_ERROR, "busy too"))
    with pytest.raises(BrokerError, match=r"answered SYSTEM_ERROR \(1\) to GET_CONSUMER_LIST_BY_GROUP: busy"):
        await members_of_group(instance, TOPIC, GROUP)


async def test_a_slave_is_asked_where_there_is_no_master(instance, name_server, b):
    name_server.set_route(TOPIC, {"a": {1: b.address}})
    b.other_members = ["him"]
    assert await members_of_group(instance, TOPIC, GROUP) == ("him",)


async def test_a_route_without_brokers_says_so(instance, name_server):
    name_server.set_route(TOPIC, {"a": {}})
    with pytest.raises(BrokerNotFoundError, match=r"^the route of topic 't' has no broker$"):
        await asyncio.wait_for(members_of_group(instance, TOPIC, GROUP), 5)
