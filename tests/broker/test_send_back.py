"""Messages that consumers give back."""

from __future__ import annotations

import pytest

from rocketstream.wire.bodies.group import SubscriptionGroupConfig
from rocketstream.wire.bodies.topic import TopicConfig
from rocketstream.wire.codes import RequestCode, ResponseCode
from rocketstream.wire.headers.send import ConsumerSendMsgBackRequestHeader
from rocketstream.wire.properties import decode_properties
from tests.broker.send_bench import KEY, Bench


@pytest.fixture
async def bench():
    bench = Bench()
    bench.create()
    yield bench
    bench.stop()


async def give_back(bench, record, **more):
    values = {"offset": record.position, "group": "g", "delay_level": 0, "origin_topic": record.topic}
    return await bench.ask(RequestCode.CONSUMER_SEND_MSG_BACK, ConsumerSendMsgBackRequestHeader(**(values | more)))


async def test_it_comes_again_later_and_later(bench):
    await bench.send(body=b"x", properties={"TAGS": "a", "KEYS": "k"}, flag=3)
    (first,) = record, *_ = bench.stored()
    for times, seconds in enumerate((10, 30, 60), 1):
        assert (await give_back(bench, record)).code == ResponseCode.SUCCESS
        await bench.clock.advance(seconds - 0.001)
        assert len(bench.stored("%RETRY%g")) == times - 1
        await bench.clock.advance(0.001)
        record = bench.stored("%RETRY%g")[-1]
        assert (record.body, record.flag, record.reconsume_times) == (b"x", 3, times)
        properties = decode_properties(record.properties)
        assert (properties["RETRY_TOPIC"], properties["ORIGIN_MESSAGE_ID"]) == ("t", first.message_id)
        assert (properties["TAGS"], properties["KEYS"], properties["UNIQ_KEY"]) == ("a", "k", KEY)
        assert properties["WAIT"] == "false"
    assert bench.topics.get("%RETRY%g").read_queue_nums == 1


async def test_the_consumer_names_the_level(bench):
    await bench.send()
    await give_back(bench, bench.stored()[0], delay_level=1)
    await bench.clock.advance(1)
    assert len(bench.stored("%RETRY%g")) == 1


@pytest.mark.parametrize("how", [{"delay_level": -1}, {"max_reconsume_times": 0}])
async def test_dead_letters(bench, how):
    await bench.send()
    assert (await give_back(bench, bench.stored()[0], **how)).code == ResponseCode.SUCCESS
    (record,) = bench.stored("%DLQ%g")
    properties = decode_properties(record.properties)
    assert (record.reconsume_times, properties["DELAY"], properties["RETRY_TOPIC"]) == (1, "0", "t")
    assert "%DLQ%g" in bench.topics.all()


async def test_the_group_says_how_often(bench):
    bench.groups.put(SubscriptionGroupConfig(group_name="g", retry_max_times=1))
    await bench.send()
    await give_back(bench, bench.stored()[0])
    await bench.clock.advance(10)
    await give_back(bench, bench.stored("%RETRY%g")[0])
    assert len(bench.stored("%DLQ%g")) == 1


async def test_what_is_refused(bench):
    await bench.send()
    (record,) = bench.stored()
    answer = await give_back(bench, record, offset=record.position + 1)
    assert (answer.code, answer.remark) == (
        ResponseCode.SYSTEM_ERROR,
        f"look message by offset failed, {record.position + 1}",
    )
    bench.topics.put(TopicConfig(topic_name="%RETRY%g", perm=4))
    assert (await give_back(bench, record)).code == ResponseCode.NO_PERMISSION
    bench.settings.auto_create_groups = False
    assert (await give_back(bench, record, group="new")).code == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST
    bench.groups.put(SubscriptionGroupConfig(group_name="none", retry_queue_nums=0))
    assert (await give_back(bench, record, group="none")).code == ResponseCode.SUCCESS
    assert bench.topics.get("%RETRY%none") is None
    bench.settings.permission = 4
    assert (await give_back(bench, record)).code == ResponseCode.NO_PERMISSION
