"""Pulls, as consumers see them."""

from __future__ import annotations

import asyncio

import pytest

from rocketstream.broker.refusal import Refusal
from rocketstream.broker.store.values import NewMessage
from rocketstream.wire.bodies.group import SubscriptionGroupConfig
from rocketstream.wire.codes import MessageModel, RequestCode, ResponseCode
from rocketstream.wire.record_decoder import decode_records
from rocketstream.wire.subscription import subscription
from tests.broker.send_bench import Bench


@pytest.fixture
async def bench():
    bench = Bench()
    bench.create()
    yield bench
    bench.stop()


def bodies(answer) -> list[bytes]:
    decoded = decode_records(answer.body)
    assert not decoded.corrupt
    return [message.body for message in decoded.messages]


async def test_messages_from_an_offset_on(bench):
    for number in range(5):
        await bench.send(body=b"%d" % number)
    answer = await bench.pull(offset=2, max_msg_nums=2)
    assert (answer.code, answer.remark) == (ResponseCode.SUCCESS, "FOUND")
    assert answer.fields == {
        "suggestWhichBrokerId": "0",
        "nextBeginOffset": "4",
        "minOffset": "0",
        "maxOffset": "5",
        "topicSysFlag": "0",
        "groupSysFlag": "0",
    }
    assert bodies(answer) == [b"2", b"3"]
    lite = await bench.ask(RequestCode.LITE_PULL_MESSAGE, bench.pull_header(offset=4))
    assert bodies(lite) == [b"4"]


async def test_limits(bench):
    for _ in range(50):
        await bench.send(body=b"x" * 100)
    assert len(bodies(await bench.pull(max_msg_nums=1000))) == 32
    bench.settings.max_pull_bytes = 1000
    assert 1 <= len(bodies(await bench.pull())) < 6
    bench.settings.max_pull_bytes = 1
    assert len(bodies(await bench.pull())) == 1


@pytest.mark.parametrize(
    ("topic", "offset", "code", "remark", "next_offset"),
    [
        ("t", 3, ResponseCode.PULL_NOT_FOUND, "OFFSET_OVERFLOW_ONE", "3"),
        ("t", 4, ResponseCode.PULL_OFFSET_MOVED, "OFFSET_OVERFLOW_BADLY", "3"),
        ("t", -1, ResponseCode.PULL_OFFSET_MOVED, "OFFSET_TOO_SMALL", "0"),
        ("empty", 0, ResponseCode.PULL_NOT_FOUND, "NO_MESSAGE_IN_QUEUE", "0"),
        ("empty", 7, ResponseCode.PULL_OFFSET_MOVED, "NO_MESSAGE_IN_QUEUE", "0"),
    ],
)
async def test_what_is_said_of_offsets(bench, topic, offset, code, remark, next_offset):
    bench.create("empty")
    for _ in range(3):
        await bench.send()
    answer = await bench.pull(topic, offset)
    assert (answer.code, answer.remark, answer.fields["nextBeginOffset"]) == (code, remark, next_offset)
    assert answer.body == b""


async def test_by_tags_and_by_sql(bench):
    for tag, size in (("a", "1"), ("b", "5"), ("", "9")):
        await bench.send(body=tag.encode() or b"-", properties={"TAGS": tag, "size": size} if tag else {"size": size})
    assert bodies(await bench.pull(subscription="a")) == [b"a"]
    assert bodies(await bench.pull(subscription=" a || b ||")) == [b"a", b"b"]
    assert bodies(await bench.pull(subscription=None, expression_type=None)) == [b"a", b"b", b"-"]
    sql = {"expression_type": "SQL92"}
    assert bodies(await bench.pull(subscription="size > 4 AND TAGS IS NOT NULL", **sql)) == [b"b"]
    nothing = await bench.pull(subscription="c")
    assert (nothing.code, nothing.remark) == (ResponseCode.PULL_RETRY_IMMEDIATELY, "NO_MATCHED_MESSAGE")
    assert nothing.fields["nextBeginOffset"] == "3"
    for wrong in ({"subscription": "||"}, {"subscription": "", **sql}):
        assert (await bench.pull(**wrong)).code == ResponseCode.SUBSCRIPTION_PARSE_FAILED
    # As 5.5.0 does: what it cannot read does not filter.
    for wrong in ({"subscription": "size >", **sql}, {"subscription": "x", "expression_type": "?"}):
        assert len(bodies(await bench.pull(**wrong))) == 3
    assert (await bench.pull(subscription="a", expression_type="")).code == ResponseCode.PULL_RETRY_IMMEDIATELY
    bench.settings.sql_filter = False
    refused = await bench.pull(subscription="size > 4", **sql)
    assert refused.code == ResponseCode.SYSTEM_ERROR
    assert refused.remark == "The broker does not support consumer to filter message by SQL92"


async def test_by_the_groups_subscription(bench):
    plain = {"sys_flag": 0, "subscription": None, "sub_version": 5}
    assert (await bench.pull(**plain)).code == ResponseCode.SUBSCRIPTION_NOT_EXIST
    await bench.heartbeat(subscriptions=(subscription("t", "a", version=5),))
    await bench.send(body=b"a", properties={"TAGS": "a"})
    await bench.send(body=b"b", properties={"TAGS": "b"})
    assert bodies(await bench.pull(**plain)) == [b"a"]
    assert (await bench.pull(**{**plain, "sub_version": 6})).code == ResponseCode.SUBSCRIPTION_NOT_LATEST
    bench.create("other")
    assert (await bench.pull("other", **plain)).code == ResponseCode.SUBSCRIPTION_NOT_EXIST
    await bench.heartbeat(subscriptions=(subscription("t", "TAGS = 'b'", "SQL92", 6),))
    assert bodies(await bench.pull(**plain)) == [b"b"]
    await bench.heartbeat(subscriptions=(subscription("t", "TAGS =", "SQL92", 7),))
    assert (await bench.pull(**plain)).code == ResponseCode.FILTER_DATA_NOT_EXIST


async def test_what_is_refused(bench):
    missing = await bench.pull("missing")
    assert missing.code == ResponseCode.TOPIC_NOT_EXIST
    assert missing.remark == "topic[missing] not exist, apply first please!"
    wrong = await bench.pull(queue_id=1)
    assert wrong.code == ResponseCode.INVALID_PARAMETER
    assert wrong.remark.startswith("queueId[1] is illegal, topic:[t] topicConfig.readQueueNums:[1]")
    bench.create("write-only", perm=2)
    forbidden = await bench.pull("write-only")
    assert (forbidden.code, forbidden.fields) == (ResponseCode.NO_PERMISSION, {"forbiddenType": "3"})
    bench.groups.put(SubscriptionGroupConfig(group_name="g", consume_enable=False))
    forbidden = await bench.pull()
    assert (forbidden.code, forbidden.fields) == (ResponseCode.NO_PERMISSION, {"forbiddenType": "2"})
    bench.groups.put(SubscriptionGroupConfig(group_name="g", consume_broadcast_enable=False))
    await bench.heartbeat(subscriptions=(subscription("t"),), message_model=MessageModel.BROADCASTING)
    forbidden = await bench.pull(sys_flag=0, sub_version=0)
    assert (forbidden.code, forbidden.fields) == (ResponseCode.NO_PERMISSION, {"forbiddenType": "4"})
    bench.settings.permission = 2
    assert (await bench.pull()).fields == {"forbiddenType": "1"}
    bench.settings.permission = 6
    bench.settings.auto_create_groups = False
    assert (await bench.pull(consumer_group="new")).code == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST


async def test_an_offset_is_committed_by_the_way(bench):
    await bench.send()
    await bench.heartbeat(subscriptions=(subscription("t"),))
    await bench.pull(sys_flag=4, commit_offset=1)
    assert bench.offsets.get("g", "t", 0) == -1
    await bench.pull(sys_flag=4 | 1, commit_offset=1)
    assert bench.offsets.get("g", "t", 0) == 1


async def test_a_reset_is_told_once(bench):
    for _ in range(3):
        await bench.send()
    await bench.heartbeat(subscriptions=(subscription("t"),))
    bench.offsets.reset("g", "t", 0, 1)
    answer = await bench.pull(offset=3)
    assert (answer.code, answer.remark) == (ResponseCode.PULL_OFFSET_MOVED, "OFFSET_RESET")
    assert [answer.fields[name] for name in ("nextBeginOffset", "minOffset", "maxOffset")] == ["1", "0", "3"]
    assert (await bench.pull(offset=1)).code == ResponseCode.SUCCESS


async def test_a_pull_waits_if_it_says_so(bench):
    waits = {"sys_flag": 4 | 2 | 1, "suspend_timeout_millis": 15000}
    assert await bench.pull(**waits) is None
    assert bench.polls.held == 1
    assert bench.offsets.get("g", "t", 0) == 0
    await bench.send(body=b"now")
    (answer,) = [one for one in bench.connection.sent if one.remark == "FOUND"]
    assert bodies(answer) == [b"now"]
    assert bench.polls.held == 0


async def test_its_time_is_over(bench):
    assert await bench.pull(sys_flag=4 | 2, suspend_timeout_millis=15000) is None
    await bench.clock.advance(14.9)
    assert bench.connection.sent == []
    await bench.clock.advance(0.1)
    (answer,) = bench.connection.sent
    assert (answer.code, answer.remark) == (ResponseCode.PULL_NOT_FOUND, "NO_MESSAGE_IN_QUEUE")
    assert answer.fields["nextBeginOffset"] == "0"


async def test_a_topic_that_is_gone_when_its_time_is_over(bench):
    assert await bench.pull(sys_flag=4 | 2) is None
    bench.topics.delete("t")
    await bench.clock.advance(15)
    assert [answer.code for answer in bench.connection.sent] == [ResponseCode.TOPIC_NOT_EXIST]


@pytest.mark.parametrize("held", [False, True])
async def test_nobody_sees_what_is_not_durable_yet(bench, held):
    synced = asyncio.get_running_loop().create_future()
    header = {"a": "p", "b": "t", "c": "TBW102", "d": "4", "e": "0", "f": "0", "g": "1", "h": "0"}
    bench.store.durable = lambda position: None if synced.done() or position < bench.stored()[-1].position else synced
    if held:
        assert await bench.pull(sys_flag=4 | 2) is None
    await bench.ask(RequestCode.SEND_MESSAGE_V2, header, b"x")
    if not held:
        assert await bench.pull() is None
    assert bench.connection.sent == []
    synced.set_result(None)
    await bench.clock.settle()
    assert [bodies(one) for one in bench.connection.sent if one.remark == "FOUND"] == [[b"x"]]


async def test_a_disk_that_breaks_while_somebody_waits(bench):
    synced = asyncio.get_running_loop().create_future()
    assert await bench.pull(sys_flag=4 | 2) is None
    bench.store.durable = lambda position: synced
    bench.intake.put(NewMessage(topic="t", queue_id=0, body=b"x"))
    await bench.clock.settle()
    synced.set_exception(Refusal(ResponseCode.SERVICE_NOT_AVAILABLE, "the disk is full"))
    await bench.clock.settle()
    assert [one.remark for one in bench.connection.sent] == ["the disk is full"]
    bench.store.durable = lambda position: None
