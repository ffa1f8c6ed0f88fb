"""Concurrent consumption: what becomes of messages that a listener could not do, or does not finish."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from rocketstream.clock import ManualClock
from rocketstream.consumer.results import ConsumeResult
from rocketstream.wire.codes import MessageModel, RequestCode, ResponseCode
from rocketstream.wire.properties import decode_properties
from tests.consumer.peers import GROUP, RETRY, TOPIC, Heard
from tests.consumer.stand_in import OTHER, QUEUE, Answers, ConcurrentConsumer
from tests.scripted import eventually

SUCCESS, LATER = ConsumeResult.SUCCESS, ConsumeResult.RECONSUME_LATER


@pytest.fixture
async def consumer(clock: ManualClock) -> AsyncIterator[Callable[..., ConcurrentConsumer]]:
    async with ConcurrentConsumer.maker(clock) as make:
        yield make


# --- CON-06, CON-07: which have failed --------------------------------------------------------------------------------


@pytest.mark.behaviour("CON-06")
@pytest.mark.parametrize(
    ("answer", "logged"),
    [
        (ValueError("no"), "raised ValueError: no"),
        (SystemExit(3), "raised SystemExit: 3"),
        (KeyboardInterrupt(), "raised KeyboardInterrupt: "),
        (None, "returned nothing"),
        (True, "returned True"),
        ("SUCCESS", "returned 'SUCCESS'"),
    ],
)
async def test_a_listener_that_raises_or_gives_no_answer_has_its_messages_again(consumer, caplog, answer, logged):
    one = consumer(Answers(answer, SUCCESS), consume_message_batch_max_size=2, consume_thread_min=1)
    pq = one.deliver(0, 1, 2)
    await eventually(lambda: pq.count == 0)
    assert one.core.returned_offsets == [0, 1]
    (record,) = [record for record in caplog.records if logged in record.getMessage()]
    assert record.levelname == "WARNING"
    assert "messages ID0, ID1" in record.getMessage()
    if isinstance(answer, BaseException):
        assert record.exc_info is not None
        assert record.exc_info[1] is answer


@pytest.mark.behaviour("CON-06")
@pytest.mark.parametrize("own_loop", [True, False])
@pytest.mark.parametrize("answer", [ValueError("no"), SystemExit(3), asyncio.CancelledError(), None, "SUCCESS"])
async def test_an_async_listener_that_raises_or_gives_no_answer(consumer, caplog, own_loop, answer):
    listener = Answers(answer, SUCCESS)

    async def listen(given: Any, context: Any) -> object:
        await asyncio.sleep(0)
        return listener(given, context)

    one = consumer(listen, own_loop=own_loop, consume_thread_min=1)
    pq = one.deliver(0, 1)
    await eventually(lambda: pq.count == 0)
    assert one.core.returned_offsets == [0]
    assert "raised" in caplog.text or "returned" in caplog.text


async def test_a_message_made_to_come_again_is_no_complaint(consumer, caplog):
    one = consumer(Answers(LATER))
    pq = one.deliver(0)
    await eventually(lambda: pq.count == 0)
    assert one.core.returned_offsets == [0]
    assert caplog.records == []


@pytest.mark.behaviour("CON-07")
@pytest.mark.parametrize(
    ("result", "ack_index", "failed"),
    [
        (SUCCESS, None, []),
        (SUCCESS, 3, []),
        (SUCCESS, 4, []),
        (SUCCESS, 1_000, []),
        (SUCCESS, 2, [3]),
        (SUCCESS, 0, [1, 2, 3]),
        (SUCCESS, -1, [0, 1, 2, 3]),
        (SUCCESS, -2, [0, 1, 2, 3]),
        (SUCCESS, "2", [0, 1, 2, 3]),
        (LATER, None, [0, 1, 2, 3]),
        (LATER, 2, [0, 1, 2, 3]),
        (LATER, 1_000, [0, 1, 2, 3]),
    ],
)
async def test_messages_after_the_acknowledged_one_go_back(consumer, result, ack_index, failed):
    def listen(given: Any, context: Any) -> object:
        if ack_index is not None:
            context.ack_index = ack_index
        return result

    one = consumer(listen, consume_message_batch_max_size=4)
    pq = one.deliver(0, 1, 2, 3)
    await eventually(lambda: pq.count == 0)
    assert one.core.returned_offsets == failed
    assert one.core.stored[-1] == (QUEUE, 4, True)
    told = one.core.stats.snapshot()["t"]
    assert (told["ok_messages"], told["failed_messages"]) == (4 - len(failed), len(failed))


# --- CON-08: broadcasting ---------------------------------------------------------------------------------------------


@pytest.mark.behaviour("CON-08")
@pytest.mark.parametrize(("answer", "dropped"), [(LATER, [0, 1, 2]), (ValueError("no"), [0, 1, 2]), (SUCCESS, [2])])
async def test_broadcasting_drops_what_failed(consumer, caplog, answer, dropped):
    def listen(given: Any, context: Any) -> object:
        context.ack_index = 1
        if isinstance(answer, Exception):
            raise answer
        return answer

    one = consumer(listen, model=MessageModel.BROADCASTING, consume_message_batch_max_size=3)
    pq = one.deliver(0, 1, 2)
    await eventually(lambda: pq.count == 0)
    assert one.core.returned == []
    assert one.core.stored[-1] == (QUEUE, 3, True)
    lines = [record.getMessage() for record in caplog.records if "broadcasts" in record.getMessage()]
    assert [f"queue_offset={offset}," in line for offset, line in zip(dropped, lines, strict=True)] == [True] * len(
        dropped
    )
    told = one.core.stats.snapshot()["t"]
    assert (told["ok_messages"], told["failed_messages"]) == (3 - len(dropped), len(dropped))


# --- CON-09 to CON-11: back to the broker -----------------------------------------------------------------------------


@pytest.mark.parametrize(("asked", "level"), [(None, 0), (0, 0), (5, 5), (-1, -1), ("5", 0)])
async def test_each_failed_message_goes_back_with_the_level_that_the_listener_asked_for(consumer, asked, level):
    def listen(given: Any, context: Any) -> object:
        context.ack_index = 0
        if asked is not None:
            context.delay_level_when_next_consume = asked
        return SUCCESS

    one = consumer(listen, consume_message_batch_max_size=3)
    pq = one.deliver(7, 8, 9, queue=OTHER)
    await eventually(lambda: pq.count == 0)
    assert sorted(one.core.returned) == [(8, OTHER, level), (9, OTHER, level)]


@pytest.mark.behaviour("CON-09")
async def test_a_failed_message_is_sent_back_to_the_broker_that_it_came_from(started, name_server, a, b):
    name_server.set_route(TOPIC, {"a": {0: a.address}, "b": {0: b.address}}, queues=1)
    await started(Heard(LATER))
    await a.until_held()
    await b.until_held()
    a.store("one")
    b.store("zero", properties={"UNIQ_KEY": "FIRST"})
    b.store("two", properties={"UNIQ_KEY": "SECOND"})
    await eventually(lambda: len(a.sent_back) == 1 and len(b.sent_back) == 2)
    sent = sorted((command.fields for command in b.sent_back), key=lambda fields: fields["offset"])
    assert [fields["offset"] for fields in sent] == ["1000", "1001"]
    assert [fields["originMsgId"] for fields in sent] == ["FIRST", "SECOND"]
    for fields in sent:
        assert (fields["group"], fields["originTopic"]) == (GROUP, TOPIC)
        assert (fields["delayLevel"], fields["maxReconsumeTimes"]) == ("0", "16")
    assert a.sends == b.sends == []


@pytest.mark.behaviour("CON-10")
async def test_if_that_fails_it_is_sent_to_the_retry_topic(started, name_server, clock, a):
    name_server.set_route(RETRY, {"a": {0: a.address}}, queues=1)
    a.plan(RequestCode.CONSUMER_SEND_MSG_BACK, *[(ResponseCode.SYSTEM_ERROR, "no")] * 2)
    core = await started(Heard(LATER))
    await a.until_held()
    a.store("first", flag=5, properties={"UNIQ_KEY": "FIRST"})
    await eventually(lambda: len(a.sends) == 1)
    a.store("again", reconsume_times=2, properties={"UNIQ_KEY": "NOW", "ORIGIN_MESSAGE_ID": "THEN"})
    await eventually(lambda: len(a.sends) == 2)
    await eventually(lambda: core.offsets.read_memory(a.queue()) == 2)
    sent = [(c.fields["b"], c.body, c.fields["h"], c.fields["j"], decode_properties(c.fields["i"])) for c in a.sends]
    assert [(topic, body, flag, times) for topic, body, flag, times, _ in sent] == [
        (RETRY, b"first", "5", "1"),
        (RETRY, b"again", "0", "3"),
    ]
    told = [(p["ORIGIN_MESSAGE_ID"], p["RETRY_TOPIC"], p["DELAY"]) for *_, p in sent]
    assert told == [("FIRST", TOPIC, "3"), ("THEN", TOPIC, "5")]


@pytest.mark.behaviour("CON-11")
@pytest.mark.parametrize("unexpected", [False, True])
async def test_what_cannot_be_sent_back_stays_and_is_consumed_again_after_5_s(consumer, clock, unexpected):
    listener = Answers(LATER, SUCCESS)
    one = consumer(listener, consume_message_batch_max_size=3)
    one.core.cannot_return = lambda message: message.queue_offset != 1
    if unexpected:
        one.core.return_error = ValueError("nobody thought of that")
    pq = one.deliver(0, 1, 2)
    await eventually(lambda: pq.count == 2)
    assert one.core.returned_offsets == [0, 1, 2]
    assert (pq.first_offset, one.core.stored_offsets[-1]) == (0, 0)
    await eventually(lambda: clock.pending == [5.0])
    await clock.advance(4.999)
    assert listener.calls == [[0, 1, 2]]
    times = [message.reconsume_times for message in pq._cached.values()]
    assert times == [1, 1]
    await clock.advance(0.001)
    await eventually(lambda: pq.count == 0)
    assert listener.calls == [[0, 1, 2], [0, 2]]
    assert one.core.stored_offsets[-1] == 3


@pytest.mark.behaviour("CON-11")
async def test_neither_the_broker_nor_the_retry_topic_takes_it(started, name_server, clock, a):
    name_server.set_route(RETRY, {"a": {0: a.address}}, queues=1)
    a.plan(RequestCode.CONSUMER_SEND_MSG_BACK, (ResponseCode.SYSTEM_ERROR, "no"))
    a.always = (ResponseCode.NO_PERMISSION, "never")
    listener = Answers(LATER, SUCCESS)
    core = await started(listener)
    await a.until_held()
    a.store("x")
    pq = core.rebalancer.requests[a.queue()].process_queue
    await eventually(lambda: any(m.reconsume_times == 1 for m in list(pq._cached.values())))
    assert (pq.count, core.offsets.read_memory(a.queue())) == (1, 0)
    await clock.advance(4.999)
    assert listener.calls == [[0]]
    await clock.advance(0.001)
    await eventually(lambda: core.offsets.read_memory(a.queue()) == 1)
    assert (listener.calls, pq.count) == ([[0], [0]], 0)


@pytest.mark.parametrize("end", ["dropped", "shut down"])
async def test_what_waits_to_be_consumed_again_is_forgotten_with_its_queue(consumer, clock, end):
    listener = Answers(LATER)
    one = consumer(listener)
    one.core.cannot_return = lambda message: True
    pq = one.deliver(0)
    await eventually(lambda: clock.pending == [5.0])
    if end == "dropped":
        pq.drop()
    else:
        one.core.is_running = False
    await clock.advance(5)
    assert await one.service.stop(60)
    assert listener.calls == [[0]]


async def test_a_stop_waits_until_what_failed_is_back(consumer):
    one = consumer(Answers(LATER))
    one.core.before_return = asyncio.get_running_loop().create_future()
    pq = one.deliver(0)
    await eventually(lambda: one.core.returned_offsets == [0])
    stopping = asyncio.ensure_future(one.service.stop(60))
    await asyncio.sleep(0)
    one.core.before_return.set_result(None)
    assert await stopping is True
    assert (pq.count, one.core.stored_offsets[-1]) == (0, 1)


async def test_a_stop_counts_what_running_listeners_answer(consumer):
    listener = Answers(SUCCESS)
    listener.hold()
    one = consumer(listener, consume_thread_min=1)
    pq = one.deliver(0, 1)
    await eventually(lambda: listener.calls == [[0]])
    stopping = asyncio.ensure_future(one.service.stop(60))
    await asyncio.sleep(0)
    listener.go.release(2)
    assert await stopping is True
    assert (listener.calls, pq.count, one.core.stored_offsets) == ([[0]], 1, [1])


async def test_a_cancelled_async_listener_has_no_answer(consumer):
    begun = threading.Event()

    async def listen(given: Any, context: Any) -> object:
        begun.set()
        await asyncio.get_running_loop().create_future()
        return SUCCESS

    one = consumer(listen)
    pq = one.deliver(0)
    await eventually(begun.is_set)
    assert await one.service.stop(0) is False
    await asyncio.sleep(0)
    assert (pq.count, one.core.stored, one.core.returned) == (1, [], [])
