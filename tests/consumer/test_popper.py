"""Pops on scripted brokers: what is asked, what each answer does, and what is said of the messages."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from rocketstream.consumer.hooks import FilterContext, FilterHook
from rocketstream.consumer.results import ConsumeContext, ConsumeResult
from rocketstream.consumer.start_from import StartFrom
from rocketstream.wire.codes import RequestCode, ResponseCode
from tests.consumer.peers import GROUP, Heard, request_of
from tests.consumer.pop_peers import ALL_QUEUES, POP_TIME, PopAnswer, PopBroker, popped
from tests.consumer.pull_answers import TOPIC
from tests.scripted import eventually


@pytest.fixture
async def a() -> AsyncIterator[PopBroker]:
    """Broker a, whose groups pop."""
    async with PopBroker("a") as server:
        yield server


# --- what is asked ----------------------------------------------------------------------------------------------------


@pytest.mark.behaviour("POP-01")
@pytest.mark.parametrize(
    ("settings", "init_mode", "order"),
    [
        ({}, "1", "false"),
        ({"start_from": StartFrom.FIRST}, "0", "false"),
        ({"orderly": True}, "1", "true"),
    ],
)
async def test_a_pop(a, started, clock, settings, init_mode, order):
    await started(topics={TOPIC: "x || y"}, **settings)
    pop = await a.until_popped(1)
    assert pop.fields == {
        "consumerGroup": GROUP,
        "topic": TOPIC,
        "queueId": "-1",
        "maxMsgNums": "32",
        "invisibleTime": "60000",
        "pollTime": "15000",
        "bornTime": str(clock.wall_ms()),
        "initMode": init_mode,
        "expType": "TAG",
        "exp": "x || y",
        "order": order,
        "bname": "a",
    }


@pytest.mark.behaviour("POP-01")
async def test_found_messages_are_consumed_and_the_next_pop_is_sent_at_once(a, started):
    heard = Heard()
    core = await started(heard)
    a.give(popped([5, 6], rest=9))
    await heard.until(2)
    await a.until_popped(2)
    assert heard.offsets == [5, 6]
    assert {message.topic for message in heard.messages} == {TOPIC}
    assert {message.properties["POP_CK"] for message in heard.messages} == {
        f"5 {POP_TIME} 60000 3 0 a 0 {offset}" for offset in (5, 6)
    }
    (status,) = [one for one in core.overview.queues() if one.popped]
    assert (status.queue, status.waits_for) == (ALL_QUEUES, None)


@pytest.mark.behaviour("POP-01")
async def test_nothing_new_and_polls_that_found_nothing_are_popped_again_at_once(a, started, clock):
    await started()
    await a.until_popped(1)
    a.give(PopAnswer(ResponseCode.SUCCESS))  # NO_NEW_MSG
    await a.until_popped(2)
    for code in (ResponseCode.POLLING_TIMEOUT, ResponseCode.PULL_NOT_FOUND):  # POLLING_NOT_FOUND
        count = len(a.pops)
        await clock.advance(15)
        a.give(PopAnswer(code))
        await a.until_popped(count + 1)


async def _again_after(a: PopBroker, core, clock, answer: PopAnswer, seconds: float, reason: str) -> None:
    request = request_of(core, ALL_QUEUES)
    await a.until_popped(1)
    a.give(answer)
    await eventually(lambda: request.waiting is not None)
    assert request.waiting.text.startswith(reason)
    await clock.advance(seconds - 0.001)
    assert len(a.pops) == 1
    await clock.advance(0.001)
    await a.until_popped(2)
    assert request.waiting is None


@pytest.mark.behaviour("POP-01")
async def test_a_broker_with_too_many_polls_is_asked_again_in_3_seconds(a, started, clock):
    core = await started()
    full = PopAnswer(ResponseCode.POLLING_FULL)
    await _again_after(a, core, clock, full, 3.0, "the broker has too many waiting pops")


@pytest.mark.parametrize(
    ("code", "seconds"), [(ResponseCode.SYSTEM_ERROR, 3.0), (ResponseCode.FLOW_CONTROL, 0.020)], ids=["error", "flow"]
)
async def test_a_refused_pop_comes_again(a, started, clock, code, seconds):
    core = await started()
    await _again_after(a, core, clock, PopAnswer(code), seconds, a.address)


async def test_an_answer_that_makes_no_sense_is_an_error(a, started, clock):
    core = await started()
    odd = popped([5])
    odd = odd._replace(header=odd.header.__class__(**{**_fields(odd.header), "start_offset_info": "nonsense"}))
    await _again_after(a, core, clock, odd, 3.0, "'nonsense' is not what a broker says of popped messages")


def _fields(header):
    return {name: getattr(header, name) for name in header.__dataclass_fields__}


async def test_a_broker_that_does_not_hold_pops_back_is_not_asked_without_end(a, started, clock):
    core = await started()
    quick = PopAnswer(ResponseCode.POLLING_TIMEOUT)
    await _again_after(a, core, clock, quick, 1.0, "the broker does not hold pops back")


# --- flow control -----------------------------------------------------------------------------------------------------


@pytest.mark.behaviour("POP-03")
async def test_no_more_is_popped_while_96_are_not_acknowledged(a, started, clock, held_up):
    core = await started(held_up)
    request = request_of(core, ALL_QUEUES)
    a.give(popped(range(32)), popped(range(32, 64)), popped(range(64, 96)), popped([96]))
    await eventually(lambda: request.process_queue.unacked == 97)
    await eventually(lambda: request.waiting is not None)
    for _ in range(10):
        await clock.advance(0.050)
    assert len(a.pops) == 4
    assert "more than 96 messages are not acknowledged: 97" in request.waiting.text
    held_up.let_go(0)
    await eventually(lambda: request.process_queue.unacked == 96)
    assert len(a.pops) == 4
    await clock.advance(0.050)
    await a.until_popped(5)


async def test_a_queue_that_is_half_empty_again_does_not_wait_any_longer(a, started, held_up):
    core = await started(held_up, pop_threshold_for_queue=4)
    request = request_of(core, ALL_QUEUES)
    a.give(popped(range(5)))
    await eventually(lambda: request.waiting is not None)
    held_up.let_go()
    await a.until_popped(2)


async def test_a_suspended_consumer_does_not_pop(a, started, clock):
    core = await started()
    await a.until_popped(1)
    await core.set_paused(True)
    a.give(popped([1]))
    request = request_of(core, ALL_QUEUES)
    await eventually(lambda: request.waiting is not None)
    assert len(a.pops) == 1
    await core.set_paused(False)
    await a.until_popped(2)


# --- what is said of messages -----------------------------------------------------------------------------------------


@pytest.mark.behaviour("POP-02")
async def test_success_is_acknowledged(a, started):
    core = await started()
    a.give(popped([5]))
    await eventually(lambda: a.acked == [(0, 5)])
    (ack,) = a.requests(RequestCode.ACK_MESSAGE)
    assert ack.fields == {
        "consumerGroup": GROUP,
        "topic": TOPIC,
        "queueId": "0",
        "offset": "5",
        "extraInfo": f"5 {POP_TIME} 60000 3 0 a 0 5",
        "bname": "a",
    }
    assert request_of(core, ALL_QUEUES).process_queue.unacked == 0
    assert a.hidden == []


@pytest.mark.behaviour("POP-02")
@pytest.mark.parametrize("batches", [True, False], ids=["together", "one by one"])
async def test_each_of_several_is_acknowledged(a, started, batches):
    if not batches:
        a.plan(RequestCode.BATCH_ACK_MESSAGE, ResponseCode.REQUEST_CODE_NOT_SUPPORTED)
    await started(consume_message_batch_max_size=4)
    a.give(popped([5, 6, 8]))
    await eventually(lambda: a.acked == [(0, 5), (0, 6), (0, 8)])
    assert len(a.requests(RequestCode.ACK_MESSAGE)) == (0 if batches else 3)
    if batches:
        (ack,) = a.batch_acks
        assert (ack.consumer_group, ack.topic, ack.retry, ack.start_offset) == (GROUP, TOPIC, "0", 5)
        assert (ack.revive_queue_id, ack.pop_time, ack.invisible_time) == (3, POP_TIME, 60_000)


@pytest.mark.behaviour("POP-02")
@pytest.mark.parametrize(
    ("times", "seconds"), [(0, 10), (1, 30), (2, 60), (3, 120), (15, 7200)], ids=lambda value: str(value)
)
@pytest.mark.parametrize(
    "result", [ConsumeResult.RECONSUME_LATER, None, ValueError("no")], ids=["later", "none", "raised"]
)
async def test_a_failure_comes_again_the_later_the_more_often_it_failed(a, started, times, seconds, result):
    core = await started(Heard(result))
    a.give(popped([5], reconsume_times=times))
    await eventually(lambda: a.hidden == [(0, 5, seconds)])
    (request,) = a.requests(RequestCode.CHANGE_MESSAGE_INVISIBLETIME)
    assert request.fields["extraInfo"] == f"5 {POP_TIME} 60000 3 0 a 0 5"
    assert (request.fields["topic"], request.fields["consumerGroup"]) == (TOPIC, GROUP)
    assert a.acked == []
    assert request_of(core, ALL_QUEUES).process_queue.unacked == 0


async def test_what_lies_in_the_retry_topic_is_acknowledged_there(a, started):
    heard = Heard()
    await started(heard)
    a.give(popped([5], properties={"POP_CK": f"4 {POP_TIME} 60000 3 1 a 0 5"}))
    await eventually(lambda: a.acked == [(0, 5)])
    (ack,) = a.requests(RequestCode.ACK_MESSAGE)
    assert ack.fields["topic"] == f"%RETRY%{GROUP}_{TOPIC}"


async def test_what_a_listener_does_to_the_properties_does_not_matter(a, started):
    """What is acknowledged was noted when the message came."""

    def listener(messages, context: ConsumeContext) -> ConsumeResult:
        for message in messages:
            message.properties.clear()
        return ConsumeResult.SUCCESS

    await started(listener)
    a.give(popped([5, 7]))
    await eventually(lambda: a.acked == [(0, 5), (0, 7)])


@pytest.mark.behaviour("POP-02")
async def test_a_part_of_a_batch(a, started):
    def listener(messages, context: ConsumeContext) -> ConsumeResult:
        context.ack_index = 1
        context.delay_level_when_next_consume = 2
        return ConsumeResult.SUCCESS

    await started(listener, consume_message_batch_max_size=3)
    a.give(popped([5, 6, 7]))
    await eventually(lambda: a.acked == [(0, 5), (0, 6)] and a.hidden == [(0, 7, 60)])


async def test_what_failed_too_often_goes_to_the_dead_letters_and_is_acknowledged(a, started):
    await started(Heard(ConsumeResult.RECONSUME_LATER))
    a.give(popped([5], reconsume_times=16))
    await eventually(lambda: a.acked == [(0, 5)])
    (back,) = a.sent_back
    assert (back.fields["delayLevel"], back.fields["offset"]) == ("-1", "1005")


async def test_what_cannot_be_sent_away_comes_again(a, started):
    a.plan(RequestCode.CONSUMER_SEND_MSG_BACK, ResponseCode.SYSTEM_ERROR)
    a.plan(RequestCode.SEND_MESSAGE_V2, *[ResponseCode.MESSAGE_ILLEGAL] * 9)
    await started(Heard(ConsumeResult.RECONSUME_LATER))
    a.give(popped([5], reconsume_times=16))
    await eventually(lambda: a.hidden == [(0, 5, 7200)])
    assert a.acked == []


@pytest.mark.behaviour("POP-02")
async def test_what_was_not_done_within_its_lease_is_not_acknowledged(a, started, clock, held_up):
    core = await started(held_up)
    a.give(popped([5]))
    await held_up.until(1)
    await clock.advance(60)
    held_up.let_go()
    pq = request_of(core, ALL_QUEUES).process_queue
    await eventually(lambda: pq.unacked == 0)
    a.give(popped([6]))
    await eventually(lambda: a.acked == [(0, 6)])
    assert a.hidden == []


@pytest.mark.behaviour("POP-02")
async def test_what_was_not_begun_within_its_lease_is_not_consumed(a, started, clock, held_up):
    core = await started(held_up, consume_thread_min=1, consume_thread_max=1)
    a.give(popped([5, 6]))
    await held_up.until(1)
    await clock.advance(60)
    held_up.let_go()
    pq = request_of(core, ALL_QUEUES).process_queue
    await eventually(lambda: pq.unacked == 0)
    a.give(popped([7]))
    await eventually(lambda: a.acked == [(0, 7)])
    assert held_up.offsets == [5, 7]
    assert a.hidden == []


async def test_what_a_filter_leaves_out_is_acknowledged_and_not_consumed(a, started):
    class Odd(FilterHook):
        def filter(self, context: FilterContext) -> None:
            context.messages[:] = [message for message in context.messages if message.queue_offset % 2]

    heard = Heard()
    core = await started(heard, topics={TOPIC: "x"}, filter_hooks=[Odd()])
    odd, even = popped([5, 6, 7], tags="x"), popped([5], tags="y")
    a.give(odd, even._replace(header=odd.header))
    await eventually(lambda: a.acked == [(0, 5), (0, 5), (0, 6), (0, 7)])
    assert heard.offsets == [5, 7]
    assert request_of(core, ALL_QUEUES).process_queue.unacked == 0


async def test_an_end_gives_back_what_was_not_begun(a, started, held_up):
    core = await started(held_up, consume_thread_min=1, consume_thread_max=1)
    a.give(popped([5, 6, 7]))
    await held_up.until(1)
    ending = asyncio.ensure_future(core.shutdown(30.0))
    await eventually(lambda: not core.is_running)
    held_up.let_go()
    await ending
    assert a.acked == [(0, 5)]
    assert a.hidden == [(0, 6, 1.0), (0, 7, 1.0)]
    assert a.requests(RequestCode.UPDATE_CONSUMER_OFFSET) == []
