"""Popping: what clients get, what comes again, and what is kept."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path

import pytest

from rocketstream.broker.pop.retry_topics import kind_of, normal_topic, real_topic, retry_topic, retry_topic_v2
from rocketstream.broker.refusal import Refusal
from rocketstream.clock import ManualClock
from rocketstream.property_names import PropertyName
from rocketstream.wire.check_point import CheckPoint
from rocketstream.wire.codes import RequestCode, ResponseCode
from tests.broker.parts import request
from tests.broker.pop_bench import BROKER, GROUP, TOPIC, PopBench

RETRY = f"%RETRY%{GROUP}_{TOPIC}"


@pytest.fixture
async def bench():
    bench = PopBench()
    bench.create_topic(TOPIC)
    yield bench
    bench.stop()


def point_of(message):
    return CheckPoint.decode(message.properties[PropertyName.POP_CHECK_POINT])


# --- popping ----------------------------------------------------------------------------------------------------------


async def test_what_is_there_is_popped_once(bench):
    for body in (b"a", b"b", b"c"):
        bench.append(TOPIC, body)
    popped = await bench.pop(max_msg_nums=2)
    assert popped.code == ResponseCode.SUCCESS
    assert popped.answer.remark == "FOUND"
    assert popped.bodies == [b"a", b"b"]
    assert popped.answer.fields == {
        "popTime": str(bench.clock.wall_ms()),
        "invisibleTime": "60000",
        "reviveQid": "0",
        "restNum": "1",
        "startOffsetInfo": "0 0 0",
        "msgOffsetInfo": "0 0 0,1",
    }
    assert bench.offset() == 2
    again = await bench.pop()
    assert again.bodies == [b"c"]
    assert again.header.revive_qid == 1
    nothing = await bench.pop()
    assert (nothing.code, nothing.answer.remark) == (ResponseCode.POLLING_TIMEOUT, "NO_MESSAGE_IN_QUEUE")
    assert nothing.answer.fields["startOffsetInfo"] == ""


async def test_any_queue_is_all_queues_and_one_queue_is_that_one(bench):
    bench.create_topic(TOPIC, queues=3)
    for queue_id in range(3):
        bench.append(TOPIC, b"%d" % queue_id, queue_id)
    assert (await bench.pop(queue_id=1)).bodies == [b"1"]
    rest = await bench.pop()
    assert rest.bodies == [b"2", b"0"], "from the queue that the dice says (50 of 3) on"
    assert rest.header.start_offset_info == "0 2 0;0 0 0"


async def test_a_group_without_an_offset_begins_at_the_first_message_of_a_young_queue(bench):
    bench.append(TOPIC, b"old")
    assert (await bench.pop(init_mode=1)).bodies == [b"old"]
    assert (await bench.pop(init_mode=0, consumer_group="other")).bodies == [b"old"]


async def test_tags_and_sql_filter_and_what_does_not_match_is_passed_by(bench):
    bench.append(TOPIC, b"a", TAGS="x", size="3")
    bench.append(TOPIC, b"b", TAGS="y", size="5")
    bench.append(TOPIC, b"c", TAGS="x", size="9")
    assert (await bench.pop(exp="x || z", exp_type="TAG")).bodies == [b"a", b"c"]
    assert (await bench.pop(exp="size > 4", exp_type="SQL92", consumer_group="sql")).bodies == [b"b", b"c"]
    nothing = await bench.pop(exp="nobody", consumer_group="none")
    assert nothing.code == ResponseCode.POLLING_TIMEOUT
    assert bench.offsets.get("none", TOPIC, 0) == 3
    assert len(bench.pop_service.leases) == 2


async def test_a_group_that_was_reset_reads_again(bench):
    for body in (b"a", b"b"):
        bench.append(TOPIC, body)
    await bench.pop()
    bench.offsets.reset(GROUP, TOPIC, 0, 1)
    assert (await bench.pop()).bodies == [b"b"]
    assert not bench.offsets.has_reset(GROUP, TOPIC, 0)


async def test_a_group_whose_offset_is_beyond_the_queue_goes_on_where_the_queue_is(bench):
    bench.append(TOPIC, b"a")
    bench.offsets.commit(GROUP, TOPIC, 0, 17)
    assert (await bench.pop()).code == ResponseCode.POLLING_TIMEOUT
    assert bench.offset() < 17


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"topic": "nowhere"}, ResponseCode.TOPIC_NOT_EXIST),
        ({"topic": "closed"}, ResponseCode.NO_PERMISSION),
        ({"queue_id": 1}, ResponseCode.INVALID_PARAMETER),
        ({"max_msg_nums": 33}, ResponseCode.INVALID_PARAMETER),
        ({"exp": "a >", "exp_type": "SQL92"}, ResponseCode.SUBSCRIPTION_PARSE_FAILED),
        ({"exp": "||", "exp_type": "TAG"}, ResponseCode.SUBSCRIPTION_PARSE_FAILED),
        ({"consumer_group": "not legal!"}, ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST),
    ],
)
async def test_what_is_refused(bench, fields, code):
    bench.create_topic("closed", perm=2)
    assert (await bench.pop(**fields)).code == code


async def test_a_broker_that_may_not_be_read_gives_nothing(bench):
    bench.settings.permission = 2
    assert (await bench.pop()).code == ResponseCode.NO_PERMISSION
    assert (await bench.peek()).code == ResponseCode.NO_PERMISSION


# --- waiting ----------------------------------------------------------------------------------------------------------


async def test_a_pop_waits_for_a_message(bench):
    waiting = bench.popping()
    await bench.clock.settle()
    assert await bench.polling() == 1
    bench.append(TOPIC, b"new")
    assert (await waiting).bodies == [b"new"]
    assert await bench.polling() == 0


async def test_a_pop_of_one_queue_waits_for_that_one(bench):
    bench.create_topic(TOPIC, queues=2)
    waiting = bench.popping(queue_id=1)
    await bench.clock.settle()
    bench.append(TOPIC, b"0", 0)
    await bench.clock.settle()
    assert await bench.polling(1) == 1
    bench.append(TOPIC, b"1", 1)
    assert (await waiting).bodies == [b"1"]


async def test_a_pop_does_not_wake_for_what_it_does_not_want(bench):
    waiting = bench.popping(exp="x")
    await bench.clock.settle()
    bench.append(TOPIC, b"other", TAGS="y")
    await bench.clock.settle()
    assert await bench.polling() == 1
    assert bench.offset() == 0, "it did not even look"
    bench.append(TOPIC, b"mine", TAGS="x")
    assert (await waiting).bodies == [b"mine"]


async def test_a_pop_waits_no_longer_than_it_said(bench):
    waiting = bench.popping(poll_time=10_000)
    await bench.clock.advance(9.9)
    assert not waiting.done()
    await bench.clock.advance(0.1)
    assert (await waiting).code == ResponseCode.POLLING_TIMEOUT


async def test_one_message_wakes_one_pop_of_each_group(bench):
    first, second, other = bench.popping(), bench.popping(), bench.popping(consumer_group="other")
    await bench.clock.settle()
    bench.append(TOPIC, b"a")
    await bench.clock.settle()
    assert (first.done(), second.done(), other.done()) == (True, False, True)
    bench.append(TOPIC, b"b")
    assert (await second).bodies == [b"b"]


async def test_what_one_pop_leaves_wakes_the_next(bench):
    bench.append(TOPIC, b"a")
    await bench.pop()
    first, second = bench.popping(max_msg_nums=1), bench.popping(max_msg_nums=1)
    await bench.clock.settle()
    bench.offsets.commit(GROUP, TOPIC, 0, 0)
    bench.append(TOPIC, b"b")
    await bench.clock.settle()
    assert (first.done(), second.done()) == (True, True)
    assert (first.result().bodies, second.result().bodies) == ([b"a"], [b"b"])


async def test_who_is_gone_does_not_wait(bench):
    command = request(RequestCode.POP_MESSAGE, bench.wanted(poll_time=20_000))
    waiting = asyncio.ensure_future(bench.pop_service.handlers()[command.code](bench.client, command))
    await bench.clock.settle()
    bench.client.close()
    assert await waiting is None
    bench.client = bench.connect()
    assert await bench.polling() == 0
    bench.append(TOPIC, b"kept")
    assert (await bench.pop()).bodies == [b"kept"]


# --- what comes again -------------------------------------------------------------------------------------------------


async def test_what_is_not_acknowledged_in_time_comes_again_as_a_retry(bench):
    bench.append(TOPIC, b"a", TAGS="t", KEYS="k")
    bench.append(TOPIC, b"b")
    popped = await bench.pop()
    assert (await bench.ack(popped.messages[1])).code == ResponseCode.SUCCESS
    await bench.clock.advance(59.999)
    assert (await bench.pop()).code == ResponseCode.POLLING_TIMEOUT
    await bench.clock.advance(0.001)
    again = await bench.pop()
    (message,) = again.messages
    assert (message.body, message.topic, message.reconsume_times) == (b"a", TOPIC, 1)
    assert (message.tags, message.keys) == ("t", "k")
    assert message.properties[PropertyName.FIRST_POP_TIME] == str(popped.header.pop_time)
    now = bench.clock.wall_ms()
    assert point_of(message) == CheckPoint(0, now, 60_000, again.header.revive_qid, "1", BROKER, 0, 0)
    assert again.header.start_offset_info == "1 0 0"
    assert again.header.msg_offset_info == "1 0 0"
    assert (await bench.ack(message)).code == ResponseCode.SUCCESS
    await bench.clock.advance(600)
    assert (await bench.pop()).code == ResponseCode.POLLING_TIMEOUT
    assert len(bench.pop_service.leases) == 0


async def test_every_failure_is_counted_in_the_same_retry_topic(bench):
    bench.append(TOPIC, b"a")
    times = []
    for _ in range(4):
        (message,) = (await bench.pop(invisible_time=1000)).messages
        times.append(message.reconsume_times)
        await bench.clock.advance(1)
    assert times == [0, 1, 2, 3]
    assert bench.store.max_offset(RETRY, 0) == 4
    assert bench.topics.get(RETRY).read_queue_nums == 1
    assert bench.offset(RETRY) == 3


async def test_with_the_newer_name_new_retries_wait_there_and_old_ones_are_found(bench):
    bench.append(TOPIC, b"before")
    await bench.pop(invisible_time=1000)
    await bench.clock.advance(1)
    assert bench.store.max_offset(RETRY, 0) == 1
    bench.settings.pop_retry_topic_v2 = True
    newer = retry_topic_v2(TOPIC, GROUP)
    bench.append(TOPIC, b"after")
    bench.dice = 51  # the older of both, as the dice has it
    found = {
        body: point_of(message).retry
        for message in (await bench.pop(invisible_time=1000)).messages
        for body in [message.body]
    }
    assert found == {b"after": "0", b"before": "1"}
    await bench.clock.advance(1)
    assert (bench.store.max_offset(RETRY, 0), bench.store.max_offset(newer, 0)) == (2, 1)
    bench.dice = 50
    (message,) = (await bench.pop()).messages
    assert (message.body, point_of(message).retry) == (b"after", "2")
    assert (await bench.ack(message)).code == ResponseCode.SUCCESS


async def test_a_waiting_pop_gets_what_comes_again(bench):
    bench.append(TOPIC, b"a")
    await bench.pop(invisible_time=5000)
    waiting = bench.popping()
    await bench.clock.advance(5)
    assert (await waiting).bodies == [b"a"]


async def test_the_dice_say_whether_retries_come_first(bench):
    bench.append(TOPIC, b"old")
    await bench.pop(invisible_time=1000)
    await bench.clock.advance(1)
    bench.append(TOPIC, b"new")
    bench.dice = 19
    assert (await bench.pop(max_msg_nums=1)).bodies == [b"old"]
    await bench.clock.advance(60)
    bench.dice = 20
    assert (await bench.pop(max_msg_nums=2)).bodies == [b"new", b"old"]


async def test_what_belongs_to_a_deleted_topic_does_not_come_again(bench):
    bench.append(TOPIC, b"a")
    await bench.pop(invisible_time=1000)
    bench.topics.delete(TOPIC)
    await bench.clock.advance(2)
    assert len(bench.pop_service.leases) == 0
    assert bench.topics.get(RETRY) is None


async def test_what_cannot_be_given_back_is_tried_again_later(bench, monkeypatch):
    bench.append(TOPIC, b"a")
    await bench.pop(invisible_time=1000)

    def refuse(message):
        raise Refusal(ResponseCode.SYSTEM_ERROR, "full")

    monkeypatch.setattr(bench.intake, "put", refuse)
    await bench.clock.advance(1)
    monkeypatch.undo()
    await bench.clock.advance(9.9)
    assert (await bench.pop()).code == ResponseCode.POLLING_TIMEOUT
    await bench.clock.advance(0.2)
    assert (await bench.pop()).bodies == [b"a"]


# --- acknowledging ----------------------------------------------------------------------------------------------------


async def test_many_are_acknowledged_at_once(bench):
    for number in range(5):
        bench.append(TOPIC, b"%d" % number)
    popped = await bench.pop()
    assert (await bench.ack_batch([popped.messages[0], popped.messages[2]])).code == ResponseCode.SUCCESS
    await bench.clock.advance(60)
    assert (await bench.pop()).bodies == [b"1", b"3", b"4"]


async def test_a_late_acknowledgement_is_taken_and_changes_nothing(bench):
    bench.append(TOPIC, b"a")
    popped = await bench.pop()
    await bench.clock.advance(61)
    assert (await bench.ack(popped.messages[0])).code == ResponseCode.SUCCESS
    assert (await bench.pop()).bodies == [b"a"]


async def test_acknowledgements_that_are_refused(bench):
    bench.append(TOPIC, b"a")
    (message,) = (await bench.pop()).messages
    assert (await bench.ack(message, topic="nowhere")).code == ResponseCode.TOPIC_NOT_EXIST
    assert (await bench.ack(message, queue_id=1)).code == ResponseCode.MESSAGE_ILLEGAL
    assert (await bench.ack(message, offset=2)).code == ResponseCode.NO_MESSAGE
    assert (await bench.ask(RequestCode.BATCH_ACK_MESSAGE)).code == ResponseCode.NO_MESSAGE
    assert len(bench.pop_service.leases) == 1


# --- changing the time ------------------------------------------------------------------------------------------------


async def test_a_lease_is_shortened_and_prolonged(bench):
    bench.append(TOPIC, b"a")
    bench.append(TOPIC, b"b")
    short, long = (await bench.pop(invisible_time=10_000)).messages
    now = bench.clock.wall_ms()
    point = await bench.change(short, 2_000)
    assert (point.pop_time, point.invisible_time) == (now + 1, 2_000), "two leases at one time have two pop times"
    await bench.change(long, 30_000)
    await bench.clock.advance(2.1)
    assert (await bench.pop()).bodies == [b"a"]
    await bench.clock.advance(20)
    assert (await bench.pop()).code == ResponseCode.POLLING_TIMEOUT
    assert (await bench.ack(long)).code == ResponseCode.SUCCESS
    await bench.clock.advance(20)
    assert (await bench.pop()).code == ResponseCode.POLLING_TIMEOUT


async def test_changes_that_are_refused(bench):
    bench.append(TOPIC, b"a")
    (message,) = (await bench.pop()).messages
    with pytest.raises(AssertionError):
        await bench.change(message, 1000, offset=1)
    with pytest.raises(AssertionError):
        await bench.change(message, 1000, queue_id=7)
    await bench.clock.advance(59)
    assert (await bench.pop()).code == ResponseCode.POLLING_TIMEOUT


# --- looking ----------------------------------------------------------------------------------------------------------


async def test_peek_takes_nothing(bench):
    assert (await bench.peek()).code == ResponseCode.PULL_NOT_FOUND
    for body in (b"a", b"b"):
        bench.append(TOPIC, body)
    answer = await bench.peek(max_msg_nums=1)
    assert (answer.code, answer.fields["restNum"]) == (ResponseCode.SUCCESS, "2")
    assert b"a" in answer.body
    assert (await bench.pop()).bodies == [b"a", b"b"]


async def test_a_notification_says_whether_there_is_a_message(bench):
    assert (await bench.notification())["hasMsg"] == "false"
    waiting = asyncio.ensure_future(bench.notification(poll_time=10_000))
    await bench.clock.settle()
    bench.append(TOPIC, b"a")
    assert (await waiting)["hasMsg"] == "true"
    await bench.pop()
    waiting = asyncio.ensure_future(bench.notification(poll_time=10_000))
    await bench.clock.advance(11)
    assert (await waiting) == {"hasMsg": "false", "pollingFull": "false"}
    await bench.clock.advance(60)
    assert (await bench.notification())["hasMsg"] == "true", "it waits in the retry topic"


# --- over restarts ----------------------------------------------------------------------------------------------------


def restart(bench: PopBench, *, crash: bool = False) -> PopBench:
    """The same broker started again: on what a crash at this moment would have left, or after an orderly end."""
    data = bench.settings.data
    assert data is not None
    if crash:
        data = Path(shutil.copytree(data, data.with_name(data.name + "+")))
    bench.stop()
    return PopBench(data, bench.clock)


@pytest.mark.parametrize("crash", [False, True])
async def test_what_is_out_comes_again_after_a_restart_and_what_is_done_does_not(tmp_path, crash):
    bench = PopBench(tmp_path / "data", ManualClock())
    bench.create_topic(TOPIC)
    for number in range(4):
        bench.append(TOPIC, b"%d" % number)
    popped = await bench.pop(invisible_time=30_000)
    await bench.change(popped.messages[2], 90_000)
    await bench.ack(popped.messages[0])
    bench = restart(bench, crash=crash)
    assert (await bench.pop()).code == ResponseCode.POLLING_TIMEOUT
    await bench.ack(popped.messages[3])
    await bench.clock.advance(30)
    again = await bench.pop()
    assert again.bodies == [b"1"]
    assert (await bench.ack(again.messages[0])).code == ResponseCode.SUCCESS
    bench = restart(bench, crash=crash)
    await bench.clock.advance(65)
    assert (await bench.pop()).bodies == [b"2"]
    bench.stop()


async def test_a_crash_right_after_a_pop_loses_nothing(tmp_path):
    bench = PopBench(tmp_path / "data", ManualClock())
    bench.create_topic(TOPIC)
    bench.append(TOPIC, b"a")
    await bench.pop(invisible_time=30_000)
    bench = restart(bench, crash=True)
    await bench.clock.advance(30)
    assert b"a" in (await bench.pop()).bodies
    bench.stop()


async def test_the_log_is_read_again_only_from_the_oldest_open_lease(tmp_path):
    bench = PopBench(tmp_path, ManualClock())
    bench.create_topic(TOPIC)
    for number in range(20):
        bench.append(TOPIC, b"%d" % number)
    for _ in range(16):
        (message,) = (await bench.pop(max_msg_nums=1)).messages
        await bench.ack(message)
    await bench.pop(max_msg_nums=1)
    bench = restart(bench)
    assert bench.state.load("pop_leases") == {"0": 4, **{str(queue): 4 for queue in range(1, 8)}}
    assert [lease.offsets for lease in bench.pop_service.leases] == [(16,)]
    bench.stop()


# --- names ------------------------------------------------------------------------------------------------------------


def test_names_of_retry_topics():
    old, new = retry_topic("t", "g"), retry_topic_v2("t", "g")
    assert (old, new) == ("%RETRY%g_t", "%RETRY%g+t")
    assert [kind_of(topic) for topic in ("t", old, new)] == ["0", "1", "2"]
    assert [real_topic("t", "g", kind) for kind in "012"] == ["t", old, new]
    assert [normal_topic(topic, "g") for topic in ("t", old, new)] == ["t", "t", "t"]
