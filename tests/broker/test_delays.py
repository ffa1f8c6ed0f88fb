"""Delayed messages, on a clock that is moved by hand."""

from __future__ import annotations

import asyncio

import pytest

from rocketstream.broker.refusal import Refusal
from rocketstream.wire.codes import RequestCode, ResponseCode
from rocketstream.wire.properties import decode_properties
from tests.broker.send_bench import Bench


@pytest.fixture
async def bench():
    bench = Bench()
    bench.create(queues=2)
    yield bench
    bench.stop()


async def delayed(bench, body, level, **more):
    key = f"{int.from_bytes(body, 'big'):032X}"
    answer = await bench.send(body=body, properties={"UNIQ_KEY": key, "DELAY": str(level), "TAGS": "a"}, **more)
    assert answer.code == ResponseCode.SUCCESS
    return answer


async def test_every_level_is_delivered_at_its_time(bench):
    for level in range(1, 19):
        await delayed(bench, b"%d" % level, level)
    passed = 0
    for level, seconds in enumerate(bench.settings.delay_levels, 1):
        await bench.clock.advance(seconds - passed - 0.001)
        assert len(bench.stored()) == level - 1
        await bench.clock.advance(0.001)
        assert bench.bodies()[-1] == b"%d" % level
        passed = seconds
    # Nothing is left that would wake the loop but what comes every few seconds.
    assert len(bench.clock.pending) == len(Bench().clock.pending)


async def test_what_the_consumer_sees(bench):
    answer = await delayed(bench, b"x", 1, queue_id=1, flag=5)
    assert (answer.fields["queueId"], answer.fields["queueOffset"]) == ("1", "0")
    assert "recallHandle" not in answer.fields
    assert bench.stored(queue_id=1) == []
    await bench.clock.advance(1)
    (record,) = bench.stored(queue_id=1)
    assert (record.flag, record.born_host) == (5, "127.0.0.1:55555")
    assert record.store_timestamp - record.born_timestamp == 1000
    properties = decode_properties(record.properties)
    assert (properties["TAGS"], properties["DELAY"], properties["REAL_TOPIC"]) == ("a", "1", "t")


async def test_a_level_keeps_its_order(bench):
    for number in range(5):
        await delayed(bench, b"%d" % number, 2)
        await bench.clock.advance(0.3)
    await bench.clock.advance(3.55)
    assert bench.bodies() == [b"0"]
    await bench.clock.advance(1.25)
    assert bench.bodies() == [b"0", b"1", b"2", b"3", b"4"]


async def test_many_at_once(bench):
    for number in range(500):
        await delayed(bench, b"%03d" % number, 1)
    await bench.clock.advance(1)
    assert bench.bodies() == [b"%03d" % number for number in range(500)]


async def test_a_new_life_goes_on(tmp_path):
    bench = Bench(tmp_path, flush="async")
    bench.create()
    await delayed(bench, b"a", 1)
    await delayed(bench, b"b", 2)
    await bench.clock.advance(2)
    assert bench.bodies() == [b"a"]
    bench.restart()
    assert bench.bodies() == [b"a"]
    await bench.clock.advance(4)
    assert bench.bodies() == [b"a", b"b"]
    # After a crash nobody knows that they were delivered; they are found in their topic.
    await delayed(bench, b"c", 1)
    bench.restart(saved={"delay_offsets": {}})
    await bench.clock.advance(10)
    assert bench.bodies() == [b"a", b"b", b"c"]
    answer = await bench.ask(RequestCode.GET_ALL_DELAY_OFFSET)
    assert b'"1": 2, "2": 1, "3": 0' in answer.body
    bench.stop()


async def test_progress_is_saved_only_when_what_was_done_is_durable(bench):
    await delayed(bench, b"a", 1)
    synced = asyncio.get_running_loop().create_future()
    bench.store.durable = lambda position: None if synced.done() else synced
    await bench.clock.advance(6)
    assert bench.bodies() == [b"a"]
    assert (bench.state.load("delay_offsets") or {}).get("1", 0) == 0
    synced.set_result(None)
    await bench.clock.advance(6)
    assert bench.state.load("delay_offsets")["1"] == 1


async def test_a_store_that_takes_nothing_is_tried_again(bench, caplog):
    await delayed(bench, b"a", 1)
    append = bench.store.append

    def refuse(message):
        raise Refusal(ResponseCode.SERVICE_NOT_AVAILABLE, "the disk is full")

    bench.store.append = refuse
    await bench.clock.advance(2)
    assert "the disk is full" in caplog.text
    bench.store.append = append
    await bench.clock.advance(1)
    assert bench.bodies() == [b"a"]


async def test_a_clock_that_was_set_back(bench):
    await delayed(bench, b"a", 3)
    bench.clock._wall_offset -= 3600
    await bench.clock.advance(10)
    assert bench.bodies() == [b"a"]
