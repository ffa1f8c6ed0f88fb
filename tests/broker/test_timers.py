"""Timer messages and their recall, on a clock that is moved by hand."""

from __future__ import annotations

import base64

import pytest

from rocketstream.broker.refusal import Refusal
from rocketstream.wire.codes import RequestCode, ResponseCode
from rocketstream.wire.headers.send import RecallMessageRequestHeader
from rocketstream.wire.properties import decode_properties
from tests.broker.send_bench import Bench


@pytest.fixture
async def bench():
    bench = Bench(recall_enabled=True)
    bench.create()
    yield bench
    bench.stop()


async def timed(bench, body, milliseconds):
    key = f"{int.from_bytes(body, 'big'):032X}"
    properties = {"UNIQ_KEY": key, "TIMER_DELAY_MS": str(milliseconds)}
    answer = await bench.send(body=body, properties=properties)
    assert answer.code == ResponseCode.SUCCESS
    return answer


async def recall(bench, handle, topic="t"):
    header = RecallMessageRequestHeader(producer_group="p", topic=topic, recall_handle=handle)
    answer = await bench.ask(RequestCode.RECALL_MESSAGE, header)
    assert answer.fields["MSG_REGION"] == "DefaultRegion"
    return answer


async def test_it_comes_at_the_end_of_its_second(bench):
    await timed(bench, b"late", 7000)
    await timed(bench, b"soon", 1500)
    await timed(bench, b"sooner", 1000)
    await bench.clock.advance(0.999)
    assert bench.bodies() == []
    await bench.clock.advance(0.001)
    assert bench.bodies() == [b"sooner"]
    await bench.clock.advance(1)
    assert bench.bodies() == [b"sooner", b"soon"]
    await bench.clock.advance(4.999)
    assert len(bench.bodies()) == 2
    await bench.clock.advance(0.001)
    assert bench.bodies()[-1] == b"late"


async def test_what_the_consumer_sees(bench):
    start = bench.clock.wall_ms()
    answer = await timed(bench, b"x", 1500)
    handle = base64.urlsafe_b64decode(answer.fields["recallHandle"]).decode()
    assert handle == f"v1 t broker-a {start + 1001} {answer.fields['transactionId']}"
    await bench.clock.advance(2)
    properties = decode_properties(bench.stored()[0].properties)
    assert properties["TIMER_OUT_MS"] == str(start + 1000)
    assert (properties["TIMER_ENQUEUE_MS"], properties["TIMER_DEQUEUE_MS"]) == (str(start), str(start + 2000))
    assert (properties["REAL_TOPIC"], properties["REAL_QID"]) == ("t", "0")


async def test_a_recalled_message_does_not_come(bench):
    answer = await timed(bench, b"a", 5500)
    await timed(bench, b"b", 5500)
    recalled = await recall(bench, answer.fields["recallHandle"])
    assert (recalled.code, recalled.fields["msgId"]) == (ResponseCode.SUCCESS, answer.fields["transactionId"])
    await bench.clock.advance(10)
    assert bench.bodies() == [b"b"]
    too_late = await recall(bench, answer.fields["recallHandle"])
    assert (too_late.code, too_late.remark) == (ResponseCode.ILLEGAL_OPERATION, "recall failed, timestamp invalid")


@pytest.mark.parametrize(
    ("handle", "topic", "code"),
    [
        ("", "t", ResponseCode.ILLEGAL_OPERATION),
        ("?", "t", ResponseCode.ILLEGAL_OPERATION),
        ("v2 t broker-a {due} id", "t", ResponseCode.ILLEGAL_OPERATION),
        ("v1 t broker-a {due}", "t", ResponseCode.ILLEGAL_OPERATION),
        ("v1 other broker-a {due} id", "t", ResponseCode.ILLEGAL_OPERATION),
        ("v1 t broker-b {due} id", "t", ResponseCode.ILLEGAL_OPERATION),
        ("v1 t broker-a x id", "t", ResponseCode.ILLEGAL_OPERATION),
        ("v1 t broker-a {due} id", "other", ResponseCode.TOPIC_NOT_EXIST),
        ("v1 t broker-a {due} id", "t", ResponseCode.SUCCESS),
    ],
)
async def test_handles(bench, handle, topic, code):
    text = handle.format(due=bench.clock.wall_ms() + 5000)
    if len(text) > 1:
        text = base64.urlsafe_b64encode(text.encode()).decode()
    assert (await recall(bench, text, topic)).code == code


async def test_a_broker_that_does_not_recall(bench):
    answer = await timed(bench, b"a", 5500)
    bench.settings.recall_enabled = False
    refused = await recall(bench, answer.fields["recallHandle"])
    assert (refused.code, refused.remark) == (ResponseCode.NO_PERMISSION, "recall failed, operation is forbidden")


async def test_a_new_life_goes_on(tmp_path):
    bench = Bench(tmp_path, flush="async", recall_enabled=True)
    bench.create()
    await timed(bench, b"a", 1000)
    long = await timed(bench, b"b", 20_000)
    await timed(bench, b"c", 30_000)
    await bench.clock.advance(6)
    assert bench.bodies() == [b"a"]
    await recall(bench, long.fields["recallHandle"])
    bench.restart()
    await bench.clock.advance(20)
    assert bench.bodies() == [b"a"]
    bench.restart(saved={"timers": {}})
    await bench.clock.advance(20)
    assert bench.bodies() == [b"a", b"c"]
    bench.restart()
    assert repr(bench.timers) == "<Timers 0 messages wait>"
    await bench.clock.advance(60)
    assert bench.bodies() == [b"a", b"c"]
    bench.stop()


async def test_a_store_that_takes_nothing_is_tried_again(bench, caplog):
    await timed(bench, b"a", 1000)
    await timed(bench, b"b", 1000)
    append = bench.store.append
    calls = []

    def refuse(message):
        calls.append(message)
        if len(calls) == 1:
            return append(message)
        raise Refusal(ResponseCode.SERVICE_NOT_AVAILABLE, "the disk is full")

    bench.store.append = refuse
    await bench.clock.advance(1)
    assert "the disk is full" in caplog.text
    bench.store.append = append
    await bench.clock.advance(2)
    assert bench.bodies() == [b"a", b"b"]
