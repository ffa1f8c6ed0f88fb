"""Before a pull: what keeps a queue from being pulled, for how long, and what ends the wait."""

from __future__ import annotations

import logging
from functools import partial

import pytest

from rocketstream import aio
from rocketstream.cluster.client import ClientState
from rocketstream.consumer.flow_control import WaitReason
from rocketstream.consumer.push_consumer import PushConsumer
from rocketstream.consumer.results import OrderlyResult
from rocketstream.consumer.start_from import StartFrom
from rocketstream.wire.codes import ResponseCode
from tests.consumer.peers import TOPIC, Heard, request_of
from tests.consumer.pull_answers import found, no_new, record, refused
from tests.scripted import eventually

MIB = 1024 * 1024


def messages_of(caplog, level=logging.WARNING):
    return [one.getMessage() for one in caplog.records if one.levelno >= level]


async def until_waiting(request, reason):
    await eventually(lambda: request.waiting is not None)
    assert request.waiting.reason is reason
    assert request.pulling_since is None


# --- waits ----------------------------------------------------------------------------------------------------------


@pytest.mark.behaviour("PULL-02")
async def test_a_dropped_queue_is_not_pulled_again(started, a, clock):
    core = await started()
    await a.until_held()
    request = request_of(core, a.queue())
    request.process_queue.drop()
    pending = clock.pending
    core.pull(request)
    assert (request.waiting, request.pulling_since, clock.pending) == (None, None, pending)
    await clock.advance(5.0)
    assert len(a.pulls) == 1


async def assert_waits(a, clock, request, reason, seconds, undo):
    """The pull after the next answer waits so long; then, with nothing in its way any more, it is sent."""
    a.answer(no_new(0))
    await until_waiting(request, reason)
    await clock.advance(seconds - 0.001)
    assert request.waiting.reason is reason
    assert len(a.pulls) == 1
    undo()
    await clock.advance(0.001)
    await a.until_pulled(2)
    assert request.waiting is None


@pytest.mark.behaviour("PULL-04")
async def test_a_consumer_that_is_not_running_pulls_again_in_three_seconds(started, a, clock):
    core = await started()
    await a.until_held()
    core.state = ClientState.START_FAILED
    undo = partial(setattr, core, "state", ClientState.RUNNING)
    await assert_waits(a, clock, request_of(core, a.queue()), WaitReason.NOT_RUNNING, 3.0, undo)


@pytest.mark.behaviour("PULL-05")
async def test_a_suspended_consumer_pulls_again_in_one_second(started, a, clock):
    core = await started()
    await a.until_held()
    await core.set_paused(True)
    undo = partial(setattr, core, "paused", False)
    await assert_waits(a, clock, request_of(core, a.queue()), WaitReason.PAUSED, 1.0, undo)


@pytest.mark.behaviour("PULL-05")
async def test_a_suspended_consumer_consumes_what_it_has_and_pulls_when_it_is_resumed(started, a, clock):
    heard = Heard()
    core = await started(heard)
    await a.until_held()
    await core.set_paused(True)
    a.answer(found(0, 3))
    await heard.until(3)
    request = request_of(core, a.queue())
    await until_waiting(request, WaitReason.PAUSED)
    await clock.advance(7.5)
    assert len(a.pulls) == 1
    await core.set_paused(False)  # at once: nobody has to wait for the rest of the second
    await a.until_pulled(2)
    assert a.pulled_offsets() == [0, 3]


@pytest.mark.behaviour("PULL-05")
def test_suspend_and_resume_set_it():
    consumer = PushConsumer("g", "127.0.0.1:9876")
    consumer.suspend()
    assert consumer.core.paused
    consumer.resume()
    assert not consumer.core.paused


@pytest.mark.behaviour("PULL-05")
async def test_suspend_and_resume_of_the_async_consumer_set_it():
    consumer = aio.PushConsumer("g", "127.0.0.1:9876")
    await consumer.suspend()
    assert consumer.core.paused
    await consumer.resume()
    assert not consumer.core.paused


@pytest.mark.behaviour("PULL-10")
async def test_an_orderly_queue_without_its_lock_is_pulled_again_in_three_seconds(started, a, clock):
    core = await started(orderly=True)
    await a.until_held()
    request = request_of(core, a.queue())
    request.process_queue.set_unlocked()
    a.locks[a.queue()] = "another"
    undo = partial(request.process_queue.set_locked, clock.monotonic())
    await assert_waits(a, clock, request, WaitReason.NOT_LOCKED, 3.0, undo)


@pytest.mark.behaviour("PULL-12")
async def test_a_topic_without_a_subscription_is_pulled_again_in_three_seconds(started, a, clock):
    core = await started()
    await a.until_held()
    sub = core.subscriptions.pop(TOPIC)
    undo = partial(core.subscriptions.update, {TOPIC: sub})
    await assert_waits(a, clock, request_of(core, a.queue()), WaitReason.NO_SUBSCRIPTION, 3.0, undo)


# --- flow control ---------------------------------------------------------------------------------------------------


async def assert_full(core, a, clock, caplog, reason, why):
    """Its queue is full: it is asked again each 50 ms, and of that the first and each thousandth time is told."""
    request = request_of(core, a.queue())
    await until_waiting(request, reason)
    pulls = len(a.pulls)
    first = request.waiting
    await clock.advance(0.049)
    assert request.waiting is first
    await clock.advance(0.001)
    assert request.waiting is not first
    assert request.waiting.reason is reason
    for _ in range(998):
        core.pull_service.hurry(request)
    assert [text for text in messages_of(caplog) if why in text] == messages_of(caplog)
    (warning,) = messages_of(caplog)
    assert warning.endswith("times=1")
    core.pull_service.hurry(request)
    assert len(messages_of(caplog)) == 2
    assert messages_of(caplog)[1].endswith("times=1001")
    assert len(a.pulls) == pulls
    return warning


@pytest.mark.behaviour("PULL-06")
async def test_more_than_a_thousand_cached_messages_wait(started, a, clock, held_up, caplog):
    a.store(*["x"] * 1100)
    core = await started(held_up, start_from=StartFrom.FIRST)
    warning = await assert_full(core, a, clock, caplog, WaitReason.COUNT, "more than 1000 messages are cached")
    assert "t@a:0" in warning
    assert "min_offset=0, max_offset=1023, count=1024, size=0.0 MiB" in warning
    held_up.let_go()
    await held_up.until(1100)
    assert held_up.offsets == list(range(1100))


@pytest.mark.behaviour("PULL-07")
async def test_more_than_a_hundred_mib_of_cached_bodies_wait(started, a, clock, held_up, caplog):
    core = await started(held_up, pull_batch_size=1)
    await a.until_held()
    request = request_of(core, a.queue())
    a.store("x")
    await held_up.until(1)
    pq = request.process_queue
    await a.until_held()
    pq.size = 100 * MIB - 1  # bodies of that size would only take time
    a.store("y")
    await eventually(lambda: pq.count == 2)
    assert pq.size == 100 * MIB
    await a.until_held()  # not more than that, so it was pulled
    assert request.waiting is None
    a.store("z")
    warning = await assert_full(core, a, clock, caplog, WaitReason.SIZE, "more than 100 MiB are cached")
    assert "min_offset=0, max_offset=2, count=3, size=100.0 MiB" in warning
    pq.size = 3


@pytest.mark.behaviour("PULL-08")
async def test_a_span_over_two_thousand_waits_and_has_its_own_count(started, a, clock, held_up, caplog):
    core = await started(held_up)
    await a.until_held()
    a.answer(found(0, records=[record(0), record(1), record(2001)], next_offset=2002))
    warning = await assert_full(core, a, clock, caplog, WaitReason.SPAN, "the span 2001 of the cached offsets")
    assert "min_offset=0, max_offset=2001, count=3, size=0.0 MiB" in warning
    request = request_of(core, a.queue())
    caplog.clear()
    core._base_limits.count, core._limits = 2, {}
    core.pull_service.hurry(request)
    assert [text[-7:] for text in messages_of(caplog)] == ["times=1"]
    core._base_limits.count = 1000


@pytest.mark.behaviour("PULL-08")
async def test_orderly_queues_may_span_anything(started, a, held_up):
    held_up.result = OrderlyResult.SUCCESS
    core = await started(held_up, orderly=True)
    await a.until_held()
    a.answer(found(0, records=[record(0), record(1), record(9000)], next_offset=9001))
    await held_up.until(1)
    assert request_of(core, a.queue()).process_queue.span >= 8999
    a.answer(no_new(9001))
    await a.until_pulled(3)
    assert request_of(core, a.queue()).waiting is None


@pytest.mark.behaviour("PULL-09")
async def test_a_topics_limits_are_divided_by_the_owned_queues_after_each_rebalance(started, a, name_server, held_up):
    name_server.set_route(TOPIC, {"a": {0: a.address}}, queues=4)
    core = await started(held_up, pull_threshold_for_topic=40, pull_threshold_size_for_topic=8, pull_batch_size=1)
    assert (core.limits_of(TOPIC).count, core.limits_of(TOPIC).size_bytes) == (10, 2 * MIB)
    a.store(*["x"] * 20, queue_id=0)
    request = request_of(core, a.queue(0))
    await until_waiting(request, WaitReason.COUNT)
    assert request.process_queue.count == 11
    a.other_members.append("zzz")  # sorted after us: the first half stays ours
    assert await core.rebalance()
    assert core.rebalancer.assigned == (a.queue(0), a.queue(1))
    assert (core.limits_of(TOPIC).count, core.limits_of(TOPIC).size_bytes) == (20, 4 * MIB)
    core.pull_service.hurry(request)
    await eventually(lambda: request.process_queue.count == 20)
    name_server.set_route(TOPIC, {"a": {0: a.address}}, queues=200)
    await core.instance.refresh_routes()
    await core.rebalance()
    assert (core.limits_of(TOPIC).count, core.limits_of(TOPIC).size_bytes) == (1, 1 * MIB)


@pytest.mark.behaviour("PULL-09")
async def test_without_a_topics_limits_each_queue_has_its_own(started, a, name_server):
    name_server.set_route(TOPIC, {"a": {0: a.address}}, queues=4)
    core = await started()
    assert (core.limits_of(TOPIC).count, core.limits_of(TOPIC).size_bytes) == (1000, 100 * MIB)


# --- room is made ---------------------------------------------------------------------------------------------------


async def test_a_full_queue_that_is_half_empty_is_pulled_at_once(started, a, held_up):
    core = await started(held_up, pull_threshold_for_queue=4)
    await a.until_held()
    a.answer(found(0, 6))
    request = request_of(core, a.queue())
    await until_waiting(request, WaitReason.COUNT)
    first = request.waiting
    held_up.let_go(0, 1, 2)
    await eventually(lambda: request.process_queue.count == 3)
    assert request.waiting is first
    held_up.let_go(3)
    await a.until_pulled(2)
    assert request.waiting is None


async def test_a_span_is_short_again_when_its_first_message_is_done(started, a, held_up):
    core = await started(held_up)
    await a.until_held()
    a.answer(found(0, records=[record(0), record(1), record(2001)], next_offset=2002))
    request = request_of(core, a.queue())
    await until_waiting(request, WaitReason.SPAN)
    first = request.waiting
    held_up.let_go(1)
    await eventually(lambda: request.process_queue.count == 2)
    assert request.waiting is first
    held_up.let_go(0)
    await a.until_pulled(2)


async def test_other_waits_do_not_end_when_messages_are_done(started, a, held_up):
    core = await started(held_up)
    await a.until_held()
    a.answer(found(0, 2), refused(ResponseCode.SYSTEM_ERROR))
    request = request_of(core, a.queue())
    await until_waiting(request, WaitReason.PULL_FAILED)
    first = request.waiting
    held_up.let_go()
    await eventually(lambda: request.process_queue.count == 0)
    assert request.waiting is first
    assert len(a.pulls) == 2


# --- the time of the last pull --------------------------------------------------------------------------------------


@pytest.mark.behaviour("PULL-03")
@pytest.mark.parametrize("obstacle", ["none", "dropped", "not running", "paused", "full", "no subscription"])
async def test_the_time_of_the_last_pull_is_set_before_anything_else(started, a, clock, obstacle):
    core = await started()
    await a.until_held()
    request = request_of(core, a.queue())
    await clock.advance(5.0)
    assert request.process_queue.last_pull_at == clock.monotonic() - 5.0
    if obstacle == "dropped":
        request.process_queue.drop()
    elif obstacle == "not running":
        core.state = ClientState.START_FAILED
    elif obstacle == "paused":
        core.paused = True
    elif obstacle == "full":
        request.process_queue.count = 1001
    elif obstacle == "no subscription":
        del core.subscriptions[TOPIC]
    core.pull(request)
    assert request.process_queue.last_pull_at == clock.monotonic()
    core.state = ClientState.RUNNING


@pytest.mark.behaviour("PULL-03")
async def test_a_pull_that_follows_an_answer_at_once_counts_too(started, a, clock):
    core = await started()
    await a.until_held()
    request = request_of(core, a.queue())
    for n in range(1, 14):  # a queue with a long backlog; 130 s in all
        await clock.advance(10.0)
        a.answer(found(n - 1))
        await a.until_pulled(n + 1)
        assert request.process_queue.last_pull_at == clock.monotonic()
    assert await core.rebalance()
    assert request_of(core, a.queue()) is request


@pytest.mark.behaviour("PULL-03")
async def test_a_queue_that_was_not_pulled_for_two_minutes_is_dropped_and_taken_anew(started, a, clock, caplog):
    core = await started()
    await a.until_held()
    request = request_of(core, a.queue())
    request.process_queue.last_pull_at = clock.monotonic() - 120.0
    assert await core.rebalance()
    assert request_of(core, a.queue()) is request
    assert not request.process_queue.dropped
    request.process_queue.last_pull_at -= 0.001
    a.offsets["g", "t", 0] = 55
    assert await core.rebalance()
    assert request.process_queue.dropped
    (text,) = messages_of(caplog)
    assert "t@a:0 was not pulled for 120 s: it is dropped" in text.replace(str(a.queue()), "t@a:0")
    await a.until_pulled(2)
    assert request_of(core, a.queue()) is not request
    assert a.pulled_offsets() == [0, 55]
