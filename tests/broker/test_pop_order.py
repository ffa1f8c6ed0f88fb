"""Popping in order: a queue is blocked until what was popped of it is done, or its time is over."""

from __future__ import annotations

import asyncio

import pytest

from rocketstream.clock import ManualClock
from rocketstream.wire.check_point import ORDER_REVIVE_QUEUE
from rocketstream.wire.codes import ResponseCode
from tests.broker.pop_bench import GROUP, TOPIC, PopBench


@pytest.fixture
async def bench():
    bench = PopBench()
    bench.create_topic(TOPIC)
    for body in (b"a", b"b", b"c", b"d"):
        bench.append(TOPIC, body)
    yield bench
    bench.stop()


async def nothing(bench, **others):
    return (await bench.pop(order=True, **others)).code == ResponseCode.POLLING_TIMEOUT


async def test_a_queue_is_blocked_until_all_is_done(bench):
    popped = await bench.pop(order=True, max_msg_nums=2)
    assert popped.bodies == [b"a", b"b"]
    assert popped.header.revive_qid == ORDER_REVIVE_QUEUE
    assert popped.answer.fields["orderCountInfo"] == "0 0 0"
    assert bench.offset() == 0
    assert await nothing(bench)
    await bench.ack(popped.messages[0])
    assert bench.offset() == 1
    assert await nothing(bench)
    await bench.ack(popped.messages[1])
    assert bench.offset() == 2
    assert (await bench.pop(order=True)).bodies == [b"c", b"d"]


async def test_the_offset_stands_at_the_first_that_is_open(bench):
    first, second = (await bench.pop(order=True, max_msg_nums=2)).messages
    await bench.ack(second)
    assert bench.offset() == 0
    await bench.ack(first)
    assert bench.offset() == 2


async def test_what_is_blocked_is_no_rest(bench):
    await bench.pop(order=True, max_msg_nums=1)
    assert (await bench.pop(order=True)).header.rest_num == 0


async def test_what_is_not_done_in_time_comes_again_with_what_follows_and_is_counted(bench):
    await bench.pop(order=True, max_msg_nums=2, invisible_time=5000)
    await bench.clock.advance(4.999)
    assert await nothing(bench)
    await bench.clock.advance(0.001)
    again = await bench.pop(order=True, max_msg_nums=3, invisible_time=5000)
    assert again.bodies == [b"a", b"b", b"c"]
    assert [message.reconsume_times for message in again.messages] == [1, 1, 0]
    assert again.answer.fields["orderCountInfo"] == "0 qo0%0 1;0 qo0%1 1;0 0 0"
    await bench.clock.advance(5)
    third = await bench.pop(order=True, max_msg_nums=2)
    assert third.answer.fields["orderCountInfo"] == "0 qo0%0 2;0 qo0%1 2;0 0 2"
    assert bench.topics.get(f"%RETRY%{GROUP}_{TOPIC}") is None


async def test_the_same_attempt_gets_the_same_again(bench):
    first = await bench.pop(order=True, max_msg_nums=1, attempt_id="x")
    again = await bench.pop(order=True, max_msg_nums=1, attempt_id="x")
    assert first.bodies == again.bodies == [b"a"]
    assert again.messages[0].reconsume_times == 0
    assert await nothing(bench, attempt_id="y")


async def test_an_acknowledgement_of_an_older_pop_does_not_count(bench):
    old = await bench.pop(order=True, max_msg_nums=1, invisible_time=1000)
    await bench.clock.advance(1)
    new = await bench.pop(order=True, max_msg_nums=1)
    assert (await bench.ack(old.messages[0])).code == ResponseCode.SUCCESS
    assert bench.offset() == 0
    await bench.ack(new.messages[0])
    assert bench.offset() == 1


async def test_an_acknowledgement_of_what_was_not_popped_is_refused(bench):
    popped = await bench.pop(order=True, max_msg_nums=1)
    answer = await bench.ack(popped.messages[0], offset=3)
    assert answer.code == ResponseCode.MESSAGE_ILLEGAL
    assert "old:0, commit:3, next:-1" in answer.remark


async def test_many_are_acknowledged_at_once(bench):
    popped = await bench.pop(order=True, max_msg_nums=3)
    assert (await bench.ack_batch(popped.messages)).code == ResponseCode.SUCCESS
    assert bench.offset() == 3
    assert (await bench.pop(order=True)).bodies == [b"d"]


async def test_a_changed_time_holds(bench):
    first, second = (await bench.pop(order=True, max_msg_nums=2, invisible_time=60_000)).messages
    now = bench.clock.wall_ms()
    await bench.clock.advance(1)
    point = await bench.change(first, 2000)
    assert (point.pop_time, point.invisible_time) == (now, 3000)
    await bench.change(second, 2000)
    assert await nothing(bench)
    await bench.clock.advance(2)
    assert (await bench.pop(order=True, max_msg_nums=1)).bodies == [b"a"]


@pytest.mark.parametrize("queue_id", [-1, 0])
async def test_a_waiting_pop_is_woken_when_the_queue_is_free(bench, queue_id):
    popped = await bench.pop(order=True, max_msg_nums=3)
    waiting = bench.popping(order=True, queue_id=queue_id)
    told = asyncio.ensure_future(bench.notification(order=True, poll_time=20_000))
    await bench.clock.settle()
    for message in popped.messages[:2]:
        await bench.ack(message)
    await bench.clock.settle()
    assert not waiting.done()
    await bench.ack(popped.messages[2])
    assert (await waiting).bodies == [b"d"]
    await bench.clock.advance(20)
    assert told.done()


async def test_a_waiting_pop_is_woken_when_the_time_is_over(bench):
    await bench.pop(order=True, max_msg_nums=3, invisible_time=5000)
    waiting = bench.popping(order=True, max_msg_nums=1)
    await bench.clock.advance(5)
    assert (await waiting).bodies == [b"a"]


async def test_a_group_that_was_reset_is_not_blocked(bench):
    popped = await bench.pop(order=True, max_msg_nums=3)
    bench.offsets.reset(GROUP, TOPIC, 0, 1)
    await bench.ack(popped.messages[2])
    assert (await bench.pop(order=True, max_msg_nums=1)).bodies == [b"b"]


async def test_a_restart_keeps_what_is_blocked(tmp_path):
    bench = PopBench(tmp_path, ManualClock())
    bench.create_topic(TOPIC)
    bench.append(TOPIC, b"a")
    bench.append(TOPIC, b"b")
    popped = await bench.pop(order=True, max_msg_nums=2, invisible_time=5000)
    await bench.ack(popped.messages[0])
    bench.stop()
    bench = PopBench(tmp_path, bench.clock)
    assert await nothing(bench)
    waiting = bench.popping(order=True)
    await bench.clock.advance(5)
    again = await waiting
    assert again.bodies == [b"b"]
    assert [message.reconsume_times for message in again.messages] == [1]
    bench.stop()
