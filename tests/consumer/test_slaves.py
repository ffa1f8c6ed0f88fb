"""Slaves that fail, or lag behind a master that is away: where the next pull goes, and when."""

from __future__ import annotations

from dataclasses import replace

import pytest

from rocketstream.consumer.flow_control import WaitReason
from rocketstream.message import MessageQueue
from rocketstream.wire.bodies.route import TopicQueueMappingInfo
from rocketstream.wire.codes import RequestCode, ResponseCode
from tests.consumer.peers import CUT, RETRY, TOPIC, Heard, request_of
from tests.consumer.pull_answers import PullAnswer, found, no_matched, record, refused
from tests.scripted import eventually


@pytest.fixture
def with_slave(name_server, a, b):
    """Topic t is at broker a and at b, its slave."""
    name_server.set_route(TOPIC, {"a": {0: a.address, 1: b.address}}, queues=1)


async def looks_so_far(name_server, clock) -> int:
    """How often the route was asked for, the first regular look included; the next is 30 s away."""
    before = name_server.asked_for(TOPIC)
    await clock.advance(0.02)
    await eventually(lambda: name_server.asked_for(TOPIC) > before)
    return name_server.asked_for(TOPIC)


@pytest.mark.usefixtures("with_slave")
async def test_a_slave_that_refuses_is_left_for_the_master(started, a, b, clock):
    """5.5.0's slaves learn of a topic after up to a minute; Java's client asks such a one for ever."""
    core = await started()
    await a.until_held()
    b.answer(refused(ResponseCode.TOPIC_NOT_EXIST))
    a.answer(found(0, suggested=1))
    request = request_of(core, a.queue())
    await eventually(lambda: request.waiting is not None)
    assert request.waiting.reason is WaitReason.PULL_FAILED
    await clock.advance(3.0)
    await a.until_pulled(2)
    assert (a.pulled_offsets(), b.pulled_offsets()) == ([0, 1], [1])


@pytest.mark.usefixtures("with_slave")
async def test_a_master_that_dies_leaves_its_queues_to_its_slave_at_once(started, name_server, a, b, clock):
    core = await started()
    await a.until_held()
    asked = await looks_so_far(name_server, clock)
    name_server.set_route(TOPIC, {"a": {1: b.address}}, queues=1)
    await a.stop()
    request = request_of(core, a.queue())
    await eventually(lambda: request.waiting is not None)
    await eventually(lambda: core.instance.brokers.master("a") is None)
    assert name_server.asked_for(TOPIC) == asked + 1
    await clock.advance(3.0)  # far less than the 30 s between two regular looks at the routes
    await b.until_held()


@pytest.mark.usefixtures("with_slave")
async def test_many_queues_that_fail_together_look_at_the_route_once(started, name_server, a, clock):
    name_server.set_route(TOPIC, {"a": {0: a.address}}, queues=8)
    core = await started()
    for queue_id in range(8):
        await a.until_held(queue_id)
    asked = await looks_so_far(name_server, clock)
    a.answer(refused(ResponseCode.NOT_LEADER_FOR_QUEUE))
    await eventually(lambda: name_server.asked_for(TOPIC) > asked)
    await eventually(lambda: not core.instance.routes._in_flight)
    for queue_id in range(1, 8):
        a.answer(refused(ResponseCode.NOT_LEADER_FOR_QUEUE), queue_id=queue_id)
    await eventually(lambda: all(request_of(core, a.queue(queue_id)).waiting for queue_id in range(8)))
    await clock.advance(3.0)
    for queue_id in range(8):
        await a.until_pulled(2, queue_id)
    assert name_server.asked_for(TOPIC) == asked + 1


@pytest.mark.usefixtures("with_slave")
async def test_a_refusal_of_the_broker_says_nothing_of_routes(started, name_server, a, clock):
    core = await started()
    await a.until_held()
    asked = await looks_so_far(name_server, clock)
    a.answer(refused(ResponseCode.NO_PERMISSION))
    await eventually(lambda: request_of(core, a.queue()).waiting is not None)
    await clock.advance(3.0)
    await a.until_pulled(2)
    assert name_server.asked_for(TOPIC) == asked


@pytest.mark.usefixtures("with_slave")
async def test_a_slave_that_is_behind_a_dead_master_is_not_asked_without_end(started, name_server, a, b, clock):
    name_server.set_route(TOPIC, {"a": {1: b.address}}, queues=1)
    name_server.set_route(RETRY, {"a": {1: b.address}}, queues=1)
    b.offsets["g", TOPIC, 0] = 7
    core = await started()
    await b.until_held()
    b.answer(no_matched(7))  # what 4.9 and 5.x say to an offset that their master alone had
    request = request_of(core, a.queue())
    await eventually(lambda: request.waiting is not None)
    assert (request.waiting.reason, request.waiting.seconds) == (WaitReason.SLAVE_BEHIND, 1.0)
    assert request.waiting.text == f"slave {b.address} has not got to offset 7, and its master is away"
    assert b.pulled_offsets() == [7]
    await clock.advance(1.0)
    await b.until_pulled(2)
    b.answer(no_matched(9))  # by a filter: that is a way forward
    await b.until_pulled(3)
    assert b.pulled_offsets() == [7, 7, 9]
    b.answer(found(9))
    await eventually(lambda: request.next_offset == 10)


@pytest.mark.usefixtures("with_slave")
@pytest.mark.parametrize("answer", [no_matched(0), replace(no_matched(0), suggested=1)], ids=["master", "to the slave"])
async def test_who_is_sent_to_another_broker_goes_at_once(started, a, b, answer):
    await started()
    await a.until_held()
    a.answer(answer)
    asked = b if answer.suggested else a
    await asked.until_pulled(1 if answer.suggested else 2)


@pytest.mark.usefixtures("with_slave")
@pytest.mark.parametrize("step", ["rebalance", "persist_offsets"])
async def test_a_dead_master_is_noticed_though_its_slave_is_pulled(started, name_server, a, b, step):
    core = await started()
    await a.until_held()
    a.answer(found(0, suggested=1))
    await b.until_held()
    core.offsets.update(a.queue(), 1, increase_only=True)
    name_server.set_route(TOPIC, {"a": {1: b.address}}, queues=1)
    await a.stop()
    await getattr(core, step)()
    await eventually(lambda: core.instance.brokers.master("a") is None)
    await getattr(core, step)()
    if step == "persist_offsets":
        await eventually(lambda: b.offsets.get(("g", TOPIC, 0)) == 1)
    else:
        assert core.rebalancer.problems == {}


async def test_a_cut_connection_is_a_reason_to_look_at_the_route(started, name_server, a, clock):
    await started()
    await a.until_held()
    asked = await looks_so_far(name_server, clock)
    a.plan(RequestCode.PULL_MESSAGE, CUT)
    a.answer(found(0))
    await eventually(lambda: name_server.asked_for(TOPIC) == asked + 1)


# --- static topics --------------------------------------------------------------------------------------------------


async def test_the_offsets_of_a_static_topics_queue_are_shifted(started, name_server, a):
    """A queue that has moved: its records tell the offsets that they have where they lie."""
    name_server.set_route(TOPIC, {"a": {0: a.address}}, queues=1)
    route = name_server.routes[TOPIC]
    info = TopicQueueMappingInfo(topic=TOPIC, scope="__global__", total_queues=1, bname="a", curr_id_map={0: 5})
    name_server.routes[TOPIC] = replace(route, topic_queue_mapping_by_broker={"a": info})
    heard = Heard()
    a.offsets["g", TOPIC, 0] = 100
    core = await started(heard, client_rebalance=False)
    asked_to_assign = [one for one in a.requests(RequestCode.QUERY_ASSIGNMENT) if f'"{TOPIC}"'.encode() in one.body]
    assert asked_to_assign == [], "a broker would assign the queues that it has, not the logical ones"
    pull = await a.until_held()
    asked = (pull.fields["bname"], pull.fields["queueId"], pull.fields["queueOffset"])
    assert asked == ("__syslo__global__", "0", "100")
    a.answer(Shifted(next_offset=101, body=record(3, queue_id=5), max_offset=101))
    await heard.until(1)
    (message,) = heard.messages
    assert (message.queue_offset, message.queue_id, message.broker_name) == (100, 0, "__syslo__global__")
    await core.shutdown(5.0)
    assert a.offsets["g", TOPIC, 0] == 101


async def test_the_locks_of_a_static_topic_are_its_leaders(started, name_server, a):
    name_server.set_route(TOPIC, {"a": {0: a.address}}, queues=1)
    info = TopicQueueMappingInfo(topic=TOPIC, scope="__global__", total_queues=1, bname="a", curr_id_map={0: 0})
    name_server.routes[TOPIC] = replace(name_server.routes[TOPIC], topic_queue_mapping_by_broker={"a": info})
    core = await started(orderly=True)
    await a.until_held()
    logical = MessageQueue(TOPIC, "__syslo__global__", 0)
    assert logical in a.locks, "under the name that it keeps"
    await core.shutdown(5.0)
    assert logical not in a.locks


class Shifted(PullAnswer):
    """An answer of a queue whose offsets are 97 above those of its records."""

    def to(self, command):
        answer = super().to(command)
        answer.fields["offsetDelta"] = "97"
        return answer
