"""Sends, as producers see them."""

from __future__ import annotations

import asyncio

import pytest

from rocketstream.message import MessageQueue
from rocketstream.wire.batch import BatchItem, encode_batch
from rocketstream.wire.bodies.group import SubscriptionGroupConfig
from rocketstream.wire.codes import RequestCode, ResponseCode
from rocketstream.wire.command import Command
from rocketstream.wire.headers.send import SendMessageRequestHeader
from rocketstream.wire.message_id import decode_offset_id
from rocketstream.wire.properties import decode_properties
from tests.broker.send_bench import ADDRESS, KEY, Bench


@pytest.fixture
async def bench():
    bench = Bench()
    bench.create("t", queues=4)
    yield bench
    bench.stop()


async def test_a_message_is_stored_and_its_place_is_told(bench):
    first = await bench.send(body=b"one", queue_id=2, properties={"TAGS": "a"}, flag=7, sys_flag=1)
    second = await bench.send(body=b"two", queue_id=2)
    assert (first.code, first.remark) == (ResponseCode.SUCCESS, None)
    one, two = bench.stored(queue_id=2)
    assert first.fields == {
        "msgId": one.message_id,
        "queueId": "2",
        "queueOffset": "0",
        "transactionId": KEY,
        "MSG_REGION": "DefaultRegion",
        "TRACE_ON": "true",
    }
    assert decode_offset_id(first.fields["msgId"]) == (ADDRESS, one.position)
    assert second.fields["queueOffset"] == "1"
    assert (one.body, one.flag, one.sys_flag, one.born_host) == (b"one", 7, 1, "127.0.0.1:55555")
    assert two.born_timestamp == bench.clock.wall_ms()
    assert decode_properties(one.properties) == {
        "UNIQ_KEY": KEY,
        "TAGS": "a",
        "MSG_REGION": "DefaultRegion",
        "TRACE_ON": "true",
        "CLUSTER": "DefaultCluster",
    }


async def test_the_long_names_of_the_first_version(bench):
    header = SendMessageRequestHeader(
        producer_group="p",
        topic="t",
        default_topic="TBW102",
        default_topic_queue_nums=4,
        queue_id=1,
        sys_flag=0,
        born_timestamp=5,
        flag=0,
    )
    answer = await bench.ask(RequestCode.SEND_MESSAGE, header, b"x")
    assert answer.code == ResponseCode.SUCCESS
    (record,) = bench.stored(queue_id=1)
    # Without a unique id the broker makes one.
    assert decode_properties(record.properties)["UNIQ_KEY"] == answer.fields["transactionId"]
    assert len(answer.fields["transactionId"]) == 32


@pytest.mark.parametrize(
    ("sent", "kept"),
    [
        (f"UNIQ_KEY\x01{KEY}", {}),
        (f"UNIQ_KEY\x01{KEY}\x02POP_CK\x01forged\x02", {}),
        (f"UNIQ_KEY\x01{KEY}\x02CLUSTER\x01other\x02MSG_REGION\x01x\x02k\x01v\x02", {"k": "v"}),
    ],
)
async def test_what_the_broker_writes_itself_nobody_brings_along(bench, sent, kept):
    await bench.send(properties=sent)
    (record,) = bench.stored()
    own = {"MSG_REGION": "DefaultRegion", "TRACE_ON": "true", "CLUSTER": "DefaultCluster"}
    assert decode_properties(record.properties) == {"UNIQ_KEY": KEY, **own, **kept}
    assert record.properties.count("CLUSTER\x01") == 1


async def test_any_queue_when_none_is_asked_for(bench):
    queues = {(await bench.send(queue_id=-1)).fields["queueId"] for _ in range(200)}
    assert queues == {"0", "1", "2", "3"}


async def test_a_queue_that_is_not_there(bench):
    answer = await bench.send(queue_id=4)
    assert answer.code == ResponseCode.INVALID_PARAMETER
    assert answer.remark.startswith("request queueId[4] is illegal, ")
    assert answer.fields == {"MSG_REGION": "DefaultRegion", "TRACE_ON": "true"}


@pytest.mark.parametrize(
    ("topic", "code"),
    [
        ("", ResponseCode.INVALID_PARAMETER),
        ("a b", ResponseCode.INVALID_PARAMETER),
        ("x" * 128, ResponseCode.INVALID_PARAMETER),
        ("SCHEDULE_TOPIC_XXXX", ResponseCode.NO_PERMISSION),
        ("RMQ_SYS_TRANS_HALF_TOPIC", ResponseCode.NO_PERMISSION),
        ("new", ResponseCode.SUCCESS),
    ],
)
async def test_topics_that_may_be_sent_to(bench, topic, code):
    assert (await bench.send(topic)).code == code


async def test_topics_are_not_made_where_that_is_switched_off():
    bench = Bench(auto_create_topics=False)
    assert (await bench.send("new")).code == ResponseCode.TOPIC_NOT_EXIST
    assert bench.topics.get("new") is None
    bench.stop()


async def test_too_large(bench):
    bench.settings.max_message_size = 1000
    assert (await bench.send(body=b"x" * 1000)).code == ResponseCode.SUCCESS
    answer = await bench.send(body=b"x" * 1001)
    assert answer.code == ResponseCode.MESSAGE_ILLEGAL
    assert "msg body length limit 1000B" in answer.remark
    assert (await bench.send(properties={"big": "x" * 32_700})).code == ResponseCode.MESSAGE_ILLEGAL
    assert (await bench.send(body=b"")).code == ResponseCode.SYSTEM_ERROR
    assert len(bench.stored()) == 1


async def test_one_way_gets_no_answer(bench):
    await bench.send()
    fields = {"a": "p", "b": "t", "c": "TBW102", "d": "4", "e": "0", "f": "0", "g": "1", "h": "0"}
    before = len(bench.connection.sent)
    bench.dispatcher.handle(bench.connection, Command(RequestCode.SEND_MESSAGE_V2, 99, 2, fields, body=b"quiet"))
    assert bench.bodies() == [b"x", b"quiet"]
    assert len(bench.connection.sent) == before


async def test_a_batch_is_many_messages_in_a_row(bench):
    await bench.send(queue_id=1)
    items = [BatchItem(b"%d" % number, f"TAGS\x01t{number}\x02DELAY\x013\x02", number) for number in range(3)]
    answer = await bench.send(
        body=encode_batch(items), queue_id=1, code=RequestCode.SEND_BATCH_MESSAGE, batch=True, properties=""
    )
    assert answer.code == ResponseCode.SUCCESS
    stored = bench.stored(queue_id=1)[1:]
    assert [(record.body, record.flag, record.queue_offset) for record in stored] == [
        (b"0", 0, 1),
        (b"1", 1, 2),
        (b"2", 2, 3),
    ]
    # As RocketMQ: each has its own properties and nothing else, and nothing of a batch is delayed.
    assert decode_properties(stored[2].properties) == {"TAGS": "t2", "DELAY": "3"}
    assert answer.fields["msgId"] == ",".join(record.message_id for record in stored)
    assert answer.fields["queueOffset"] == "1"
    assert "transactionId" not in answer.fields


async def test_batches_that_are_refused(bench):
    async def send(topic, body, **more):
        return await bench.send(topic, body, code=RequestCode.SEND_BATCH_MESSAGE, batch=True, **more)

    good = encode_batch([BatchItem(b"x")])
    assert (await send("%RETRY%g", good)).code == ResponseCode.MESSAGE_ILLEGAL
    assert (await send("t", good + b"\0")).code == ResponseCode.SYSTEM_ERROR
    assert (await send("t", good, properties={"DELAY": "1"})).code == ResponseCode.MESSAGE_ILLEGAL
    assert (await send("t", good, sys_flag=4)).code == ResponseCode.MESSAGE_ILLEGAL
    bench.settings.max_message_size = 10
    assert (await send("t", good)).code == ResponseCode.SYSTEM_ERROR
    assert bench.stored() == []


async def test_a_message_for_a_retry_topic(bench):
    answer = await bench.send("%RETRY%g", reconsume_times=16)
    assert (answer.code, bench.bodies("%RETRY%g")) == (ResponseCode.SUCCESS, [b"x"])
    await bench.send("%RETRY%g", b"too often", reconsume_times=17)
    await bench.send("%RETRY%g", b"by its own count", reconsume_times=3, max_reconsume_times=2)
    assert bench.bodies("%DLQ%g") == [b"too often", b"by its own count"]
    assert decode_properties(bench.stored("%DLQ%g")[0].properties)["DELAY"] == "-1"
    # Who has locks consumes in order, and is rid of what it sends back.
    bench.locks.lock("g", [MessageQueue("t", "broker-a", 0)], "me")
    await bench.send("%RETRY%g", b"in order")
    assert bench.bodies("%DLQ%g")[-1] == b"in order"
    bench.settings.auto_create_groups = False
    assert (await bench.send("%RETRY%other")).code == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST
    bench.groups.put(SubscriptionGroupConfig(group_name="other", retry_max_times=0))
    await bench.send("%RETRY%other", reconsume_times=1)
    assert bench.bodies("%DLQ%other") == [b"x"]


async def test_a_compacted_topic_wants_keys(bench):
    bench.create("c", attributes={"cleanup.policy": "COMPACTION"})
    answer = await bench.send("c")
    assert (answer.code, answer.remark) == (ResponseCode.MESSAGE_ILLEGAL, "Required message key is missing")
    assert (await bench.send("c", properties={"KEYS": "k"})).code == ResponseCode.SUCCESS


async def test_an_answer_waits_until_the_message_is_durable(bench):
    synced = asyncio.get_running_loop().create_future()
    positions = []

    def durable(position):
        positions.append(position)
        return synced

    bench.store.durable = durable
    header = {"a": "p", "b": "t", "c": "TBW102", "d": "4", "e": "0", "f": "0", "g": "1", "h": "0"}
    assert await bench.ask(RequestCode.SEND_MESSAGE_V2, header, b"x") is None
    assert positions == [bench.stored()[0].position]
    synced.set_result(None)
    await bench.clock.settle()
    assert bench.connection.sent[-1].code == ResponseCode.SUCCESS
