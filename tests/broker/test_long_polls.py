"""Held pulls: who is woken, by what, and what waiting costs."""

from __future__ import annotations

import pytest

from rocketstream.broker.filters import request_match
from rocketstream.broker.store.values import NewMessage
from rocketstream.wire.batch import BatchItem, encode_batch
from rocketstream.wire.codes import RequestCode, ResponseCode
from rocketstream.wire.record_decoder import decode_records
from tests.broker.send_bench import Bench, FakeConnection


@pytest.fixture
async def bench():
    bench = Bench()
    bench.create(queues=2)
    yield bench
    bench.stop()


def hold(bench, woken, name, *, queue_id=0, offset=0, expression="*", kind="TAG", seconds=30.0, connection=None):
    match = request_match(expression, kind)
    client = connection or bench.connection
    bench.polls.hold("t", queue_id, offset, match, seconds, client, lambda: woken.append(name))


async def test_whoever_wants_the_message_is_woken(bench):
    woken = []
    hold(bench, woken, "all")
    hold(bench, woken, "a", expression="a")
    hold(bench, woken, "b", expression="b || c")
    hold(bench, woken, "sql", expression="size > 3", kind="SQL92")
    hold(bench, woken, "small", expression="size < 3", kind="SQL92")
    hold(bench, woken, "other queue", queue_id=1)
    hold(bench, woken, "later", offset=1)
    await bench.send(properties={"TAGS": "a", "size": "5"})
    assert woken == ["all", "a", "sql"]
    assert bench.polls.held == 4
    await bench.send(properties={"TAGS": "b"})
    assert woken[3:] == ["b", "later"]


async def test_a_batch_is_answered_as_a_whole(bench):
    assert await bench.pull(sys_flag=4 | 2) is None
    items = encode_batch([BatchItem(b"%d" % number) for number in range(10)])
    await bench.send(body=items, code=RequestCode.SEND_BATCH_MESSAGE, batch=True)
    (answer,) = [one for one in bench.connection.sent if one.remark == "FOUND"]
    assert len(decode_records(answer.body).messages) == 10


async def test_who_is_passed_by_moves_on_soon(bench):
    assert await bench.pull(sys_flag=4 | 2, subscription="a", suspend_timeout_millis=30_000) is None
    await bench.send(properties={"TAGS": "b"})
    await bench.send(properties={"TAGS": "b"})
    bench.connection.sent.clear()
    await bench.clock.advance(4.9)
    assert bench.connection.sent == []
    await bench.clock.advance(0.1)
    (answer,) = bench.connection.sent
    assert (answer.code, answer.fields["nextBeginOffset"]) == (ResponseCode.PULL_RETRY_IMMEDIATELY, "2")


async def test_a_client_that_goes_is_not_answered(bench):
    woken = []
    gone = FakeConnection()
    hold(bench, woken, "gone", connection=gone)
    hold(bench, woken, "here")
    gone.closed = True
    bench.dispatcher.on_closed(gone)
    assert repr(bench.polls) == "<LongPolls 1 on 1 queues>"
    await bench.send()
    await bench.clock.advance(60)
    assert woken == ["here"]


async def test_one_that_goes_in_the_moment_of_the_message(bench):
    woken = []
    gone = FakeConnection()
    hold(bench, woken, "gone", connection=gone)
    await bench.clock.settle()
    bench.intake.put(NewMessage(topic="t", queue_id=0, body=b"x"))
    gone.closed = True
    bench.dispatcher.on_closed(gone)
    await bench.clock.settle()
    assert woken == []


async def test_times_differ(bench):
    woken = []
    hold(bench, woken, 3, seconds=3)
    hold(bench, woken, 1, seconds=1)
    await bench.clock.advance(1)
    assert woken == [1]
    await bench.clock.advance(2)
    assert woken == [1, 3]
    assert bench.polls.held == 0


async def test_waiting_is_one_timer(bench):
    woken = []
    before = len(bench.clock.pending)
    for number in range(1000):
        hold(bench, woken, number)
    assert len(bench.clock.pending) == before + 1000
    bench.polls.stop()
    assert len(bench.clock.pending) == before
    assert bench.polls.held == 0
    await bench.clock.advance(100)
    assert woken == []
