"""Replies to requests."""

from __future__ import annotations

import pytest

from rocketstream.wire.codes import RequestCode, ResponseCode
from rocketstream.wire.headers.send import ReplyMessageRequestHeader
from rocketstream.wire.properties import decode_properties
from tests.broker.send_bench import ADDRESS, Bench, FakeConnection

REPLIES = "DefaultCluster_REPLY_TOPIC"


@pytest.fixture
async def bench():
    bench = Bench()
    yield bench
    bench.stop()


async def reply(bench, **more):
    properties = {"REPLY_TO_CLIENT": "client-1", "CORRELATION_ID": "c"}
    return await bench.send(
        REPLIES, b"hi", **({"code": RequestCode.SEND_REPLY_MESSAGE_V2, "properties": properties} | more)
    )


async def test_it_is_pushed_to_who_asked_and_kept(bench):
    asker = FakeConnection("127.0.0.1:77")
    await bench.heartbeat(producer="askers", connection=asker)
    answer = await reply(bench)
    (record,) = bench.stored(REPLIES)
    assert answer.code == ResponseCode.SUCCESS
    assert (answer.fields["msgId"], answer.fields["queueId"]) == (record.message_id, "0")
    (pushed,) = asker.asked
    assert (pushed.code, pushed.body) == (RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT, b"hi")
    header = ReplyMessageRequestHeader.from_fields(pushed.fields)
    assert (header.topic, header.born_host, header.store_host) == (REPLIES, "127.0.0.1:55555", ADDRESS)
    properties = decode_properties(header.properties)
    assert (properties["CORRELATION_ID"], properties["PUSH_REPLY_TIME"]) == ("c", str(bench.clock.wall_ms()))


@pytest.mark.parametrize("trouble", [ResponseCode.SYSTEM_ERROR, TimeoutError(), ConnectionError()])
async def test_the_asker_does_not_take_it(bench, trouble):
    await bench.heartbeat(producer="askers", connection=FakeConnection("127.0.0.1:77", answer=trouble))
    answer = await reply(bench)
    assert (answer.code, answer.remark) == (ResponseCode.SYSTEM_ERROR, "push reply message to client-1fail.")
    assert len(bench.stored(REPLIES)) == 1


async def test_the_asker_is_gone(bench):
    answer = await reply(bench)
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert answer.remark == "push reply message fail, channel of <client-1> not found."
    answer = await reply(bench, properties={})
    assert answer.remark == "reply message properties[REPLY_TO_CLIENT] is null"


async def test_a_reply_is_checked_like_a_send(bench):
    answer = await reply(bench, queue_id=9)
    assert (answer.code, answer.fields["TRACE_ON"]) == (ResponseCode.INVALID_PARAMETER, "true")
    bench.settings.max_message_size = 1
    await bench.heartbeat(producer="askers")
    assert (await reply(bench)).fields["msgId"] == "0"
