"""A broker has a group's offsets set anew (RESET_CONSUMER_CLIENT_OFFSET): pause, drop, wait, set, go on."""

from __future__ import annotations

import threading

import pytest

from rocketstream.consumer.results import ConsumeResult
from rocketstream.message import MessageQueue
from rocketstream.wire.bodies.offsets import ResetOffsetBody
from rocketstream.wire.codes import RequestCode, ResponseCode
from rocketstream.wire.command import request
from rocketstream.wire.headers.offsets import ResetOffsetRequestHeader
from tests.consumer.peers import GROUP, Heard, make_core, request_of
from tests.scripted import eventually

pytestmark = pytest.mark.behaviour("OFF-05")

QUEUE = MessageQueue("t", "a", 0)
OTHER = MessageQueue("t", "b", 0)


def reset(offsets, group=GROUP, topic="t"):
    """What a broker sends."""
    header = ResetOffsetRequestHeader(group=group, topic=topic, timestamp=0, is_force=True)
    body = ResetOffsetBody(offset_table=offsets).encode()
    return request(RequestCode.RESET_CONSUMER_CLIENT_OFFSET, header, body)


async def begun(core, queue=QUEUE):
    await eventually(lambda: request_of(core, queue).process_queue.dropped)


@pytest.fixture
def two_brokers(name_server, a, b):
    name_server.set_route("t", {"a": {0: a.address}, "b": {0: b.address}}, queues=1)


async def test_a_reset_pauses_drops_waits_sets_and_goes_on(started, clock, a):
    heard = Heard()
    a.store(*"abcdef")
    core = await started(heard)
    a.offsets[GROUP, "t", 0] = 6
    await a.until_held()
    request_ = request_of(core, QUEUE)
    a.tell(reset({QUEUE: 2}))
    await begun(core)
    assert core.paused
    await clock.advance(9.9)
    assert request_of(core, QUEUE) is request_, "it waits for those that still work on old messages"
    assert a.updates == []
    await clock.advance(0.1)
    await eventually(lambda: a.updates == [("t", 0, 2)])
    await eventually(lambda: not core.paused)
    await clock.advance(1.0)
    await heard.until(4)
    assert a.pulled_offsets() == [6, 2, 6]
    assert heard.bodies == [b"c", b"d", b"e", b"f"]
    assert request_of(core, QUEUE) is not request_
    assert not request_of(core, QUEUE).process_queue.dropped


async def test_nothing_is_pulled_meanwhile_from_other_queues_either(started, clock, a, name_server):
    name_server.set_route("t", {"a": {0: a.address}}, queues=2)
    heard = Heard()
    core = await started(heard)
    await a.until_held(0)
    await a.until_held(1)
    a.tell(reset({QUEUE: 5}))
    await begun(core)
    assert not request_of(core, a.queue(1)).process_queue.dropped
    a.store("while it waits", queue_id=1)
    await heard.until(1)
    await eventually(lambda: request_of(core, a.queue(1)).waiting is not None)
    await clock.advance(9.0)
    assert len(a.pulls_of(1)) == 1
    (_, other) = (await core.overview.status()).queues
    assert other.waits_for == "the consumer is suspended"
    await clock.advance(1.0)
    await a.until_pulled(2, 1)


async def test_a_listener_that_still_has_an_old_message_does_not_touch_the_new_offset(started, clock, a):
    begun_with, go_on, ended = threading.Event(), threading.Event(), threading.Event()

    def slow(messages, context):
        begun_with.set()
        go_on.wait(30.0)
        ended.set()
        return ConsumeResult.SUCCESS

    a.offsets[GROUP, "t", 0] = 0
    a.store("old")
    core = await started(slow)
    await eventually(begun_with.is_set)
    a.tell(reset({QUEUE: 7}))
    await begun(core)
    assert request_of(core, QUEUE).process_queue.count == 0
    go_on.set()
    await eventually(ended.is_set)
    await clock.advance(10.0)
    await eventually(lambda: a.updates == [("t", 0, 7)])
    await clock.advance(1.0)
    await a.until_held()
    await clock.advance(20.0)  # the timer that stores offsets
    assert {offset for _, _, offset in a.updates} == {7}


async def test_what_is_not_ours_is_left_alone(started, clock, a):
    core = await started()
    await a.until_held()
    a.tell(reset({MessageQueue("t", "a", 3): 5, MessageQueue("u", "a", 0): 5}))
    await eventually(lambda: core.paused)
    await clock.advance(10.0)
    await eventually(lambda: not core.paused)
    assert not request_of(core, QUEUE).process_queue.dropped
    assert a.updates == []
    assert a.is_held()


async def test_a_group_that_is_not_here_is_an_error_for_the_broker(started, a):
    core = await started()
    command = reset({QUEUE: 5}, group="nobody")
    a.tell(command)
    await eventually(lambda: any(one.is_response for one in a.received))
    (answer,) = (one for one in a.received if one.is_response)
    assert (answer.code, answer.remark) == (ResponseCode.SYSTEM_ERROR, "this client has no consumer of group nobody")
    assert not core.paused


async def test_each_broker_of_a_topic_resets_its_own_queues_and_all_go_on_after_the_last(
    started, clock, a, b, two_brokers
):
    core = await started()
    await a.until_held()
    await b.until_held()
    a.tell(reset({QUEUE: 3}))
    await begun(core, QUEUE)
    await clock.advance(4.0)
    b.tell(reset({OTHER: 4}))
    await begun(core, OTHER)
    await clock.advance(6.0)
    await eventually(lambda: a.updates == [("t", 0, 3)])
    assert core.paused, "the second one is not over"
    await clock.advance(4.0)
    await eventually(lambda: b.updates == [("t", 0, 4)])
    await eventually(lambda: not core.paused)
    await clock.advance(2.0)
    await a.until_pulled(2)
    await b.until_pulled(2)
    assert (a.pulled_offsets(), b.pulled_offsets()) == ([0, 3], [0, 4])


async def test_a_suspended_consumer_stays_suspended(started, clock, a):
    core = await started()
    await a.until_held()
    await core.set_paused(True)
    a.tell(reset({QUEUE: 3}))
    await begun(core)
    await clock.advance(11.0)
    await eventually(lambda: a.updates == [("t", 0, 3)])
    await eventually(lambda: QUEUE in core.rebalancer.assigned)
    assert core.paused
    assert a.pulled_offsets() == [0]
    await core.set_paused(False)
    await a.until_pulled(2)


@pytest.mark.parametrize("suspend", [True, False], ids=["suspend", "resume"])
async def test_what_the_user_says_meanwhile_counts_when_it_is_over(started, clock, a, suspend):
    core = await started()
    await core.set_paused(not suspend)
    a.tell(reset({QUEUE: 3}))
    await begun(core)
    await core.set_paused(suspend)
    assert core.paused, "a reset is not ended by a resume"
    await clock.advance(10.0)
    await eventually(lambda: a.updates == [("t", 0, 3)])
    await eventually(lambda: core.paused is suspend)


async def test_a_queue_that_is_lost_meanwhile_takes_its_new_offset_along(started, clock, a):
    a.offsets[GROUP, "t", 0] = 9
    core = await started()
    await a.until_held()
    a.tell(reset({QUEUE: 3}))
    await begun(core)
    a.other_members = ["0 comes first"]
    await core.rebalance()
    assert core.rebalancer.requests == {}
    assert a.offsets[GROUP, "t", 0] == 3
    await clock.advance(15.0)
    await eventually(lambda: not core.paused)
    assert a.updates == [("t", 0, 3)]


async def test_a_consumer_that_ends_meanwhile_leaves_the_new_offset(name_server, clock, a):
    a.offsets[GROUP, "t", 0] = 9
    core = make_core(name_server.address, clock)
    await core.start()
    await a.until_held()
    a.tell(reset({QUEUE: 3}))
    await begun(core)
    await core.shutdown(1.0)
    assert a.updates == [("t", 0, 3)]
    assert clock.pending == []
