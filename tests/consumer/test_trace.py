"""The trace of what is consumed, in RocketMQ's own format (START-14)."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest

from rocketstream.cluster.client import ClientState
from rocketstream.consumer.hooks import ConsumeHook, ConsumeHookContext
from rocketstream.consumer.results import ConsumeResult, OrderlyResult
from rocketstream.consumer.trace import MAX_CALLS, CallTrace
from rocketstream.message import ReceivedMessage
from rocketstream.producer.trace import TraceDispatcher
from rocketstream.wire.codes import ResponseCode
from rocketstream.wire.trace import TRACE_TOPIC, ConsumeBeginTrace, ConsumeEndTrace, ConsumeReturn, decode_traces
from tests.busy_clock import BusyClock
from tests.consumer.peers import GROUP, Heard
from tests.consumer.pull_answers import record
from tests.producer.peers import SILENCE
from tests.scripted import eventually


@pytest.fixture
def trace_topic(a, name_server) -> str:
    name_server.set_route(TRACE_TOPIC, {"a": {0: a.address}}, queues=1)
    return TRACE_TOPIC


def traces(a) -> list[list[str]]:
    """The values of all records that were sent, in order."""
    text = "".join(command.body.decode() for command in a.sends)
    return [one.split("\x01") for one in text.split("\x02") if one]


def traced(offset: int, **others):
    properties = {"UNIQ_KEY": f"ID{offset}", "MSG_REGION": "Default", **others.pop("properties", {})}
    return record(offset, properties=properties, **others)


def test_texts_as_java_writes_them():
    begin = ConsumeBeginTrace(1700, "Default", "g", "REQ", "ID", 2, "k1 k2")
    assert begin.encode() == "SubBefore\x011700\x01Default\x01g\x01REQ\x01ID\x012\x01k1 k2\x02"
    end = ConsumeEndTrace("REQ", "ID", 7, True, None, ConsumeReturn.SUCCESS, 1800, "g")
    assert end.encode() == "SubAfter\x01REQ\x01ID\x017\x01true\x01null\x010\x011800\x01g\x02"
    java = ["SUCCESS", "TIME_OUT", "EXCEPTION", "RETURNNULL", "FAILED"]
    assert [one.name for one in sorted(ConsumeReturn)] == java


@pytest.mark.behaviour("START-14")
@pytest.mark.parametrize("orderly", [False, True], ids=["concurrent", "orderly"])
async def test_everything_consumed_is_traced(a, started, clock, trace_topic, orderly):
    heard = Heard(OrderlyResult.SUCCESS if orderly else ConsumeResult.SUCCESS)
    await started(heard, orderly=orderly, trace=True)
    await a.until_held()
    a.store(traced(0, properties={"KEYS": "k1 k2"}, reconsume_times=2))
    await heard.until(1)
    await _sent(a, clock, 2)
    before, after = traces(a)
    now = str(clock.wall_ms() - 500)
    request = before[4]
    assert before == ["SubBefore", before[1], "Default", GROUP, request, "ID0", "2", "k1 k2"]
    assert after == ["SubAfter", request, "ID0", "0", "true", "k1 k2", "0", after[7], GROUP]
    assert before[1] <= now
    assert len(request) == 32
    assert a.properties()["KEYS"].split() == ["ID0", "k1", "k2"]
    assert {command.fields["b"] for command in a.sends} == {TRACE_TOPIC}


async def _sent(a, clock, count: int) -> None:
    for _ in range(200):
        await clock.advance(0.01)
        if len(traces(a)) >= count:
            return
    await eventually(lambda: len(traces(a)) >= count)


@pytest.mark.parametrize(
    ("result", "success", "code"),
    [
        (ConsumeResult.RECONSUME_LATER, "false", ConsumeReturn.FAILED),
        (ValueError("no"), "false", ConsumeReturn.EXCEPTION),
        (None, "false", ConsumeReturn.RETURNNULL),
    ],
    ids=["later", "raised", "none"],
)
async def test_how_it_ended(a, started, clock, trace_topic, result, success, code):
    heard = Heard(result)
    await started(heard, trace=True)
    a.store(traced(0))
    await heard.until(1)
    await _sent(a, clock, 2)
    after = traces(a)[1]
    assert (after[4], after[6]) == (success, str(int(code)))


@pytest.mark.behaviour("START-14")
async def test_a_trace_that_cannot_start_is_a_warning(a, started, caplog, clock):
    """The trace topic has no route, nor has the topic from which brokers make others."""
    heard = Heard()
    with caplog.at_level(logging.WARNING):
        core = await started(heard, trace=True)
    assert core.state is ClientState.RUNNING
    (warning,) = [one for one in caplog.messages if "trace" in one]
    assert warning.startswith(f"consumer of group 'g' starts without a trace, topic '{TRACE_TOPIC}' cannot be reached:")
    a.store("one", "two")
    await heard.until(2)


async def test_without_trace_nothing_is_traced(a, started, trace_topic, clock):
    heard = Heard()
    core = await started(heard)
    a.store(traced(0))
    await heard.until(1)
    await core.shutdown(1.0)
    assert a.sends == []


@pytest.mark.parametrize("outcome", [ResponseCode.SYSTEM_ERROR, SILENCE], ids=["refused", "silence"])
async def test_a_trace_that_is_not_taken_holds_nothing_up(a, started, trace_topic, clock, outcome):
    a.always = outcome
    heard = Heard()
    await started(heard, trace=True)
    for offset in range(5):
        a.store(traced(offset))
        await heard.until(offset + 1)
        await clock.advance(0.5)
    assert heard.offsets == [0, 1, 2, 3, 4]
    a.always = ResponseCode.SUCCESS
    await clock.advance(10)


async def test_the_last_traces_are_sent_at_the_end(a, started, trace_topic, clock):
    heard = Heard()
    core = await started(heard, trace=True)
    a.store(traced(0))
    await heard.until(1)
    await core.shutdown(1.0)
    assert [one[0] for one in traces(a)] == ["SubBefore", "SubAfter"]


async def test_a_topic_of_ones_own_and_a_namespace(a, started, name_server, clock):
    for topic in ("NS%t", "NS%traces"):
        name_server.set_route(topic, {"a": {0: a.address}}, queues=1)
    heard = Heard()
    core = await started(heard, trace="traces", namespace="NS")
    a.store(traced(0, topic="NS%t"), topic="NS%t")
    await heard.until(1)
    await core.shutdown(1.0)
    assert {command.fields["b"] for command in a.sends} == {"NS%traces"}
    assert {one[-1] if one[0] == "SubAfter" else one[3] for one in traces(a)} == {GROUP}


async def test_hooks_of_the_user_run_beside_it(a, started, trace_topic):
    class Noted(ConsumeHook):
        def __init__(self) -> None:
            self.statuses: list[str] = []

        def after(self, context: ConsumeHookContext) -> None:
            self.statuses.append(context.status)

    heard, noted = Heard(), Noted()
    core = await started(heard, trace=True, consume_hooks=[noted])
    a.store(traced(0))
    await heard.until(1)
    await core.shutdown(1.0)
    assert noted.statuses == ["SUCCESS"]
    assert len(traces(a)) == 2


# --- the notes and the records ----------------------------------------------------------------------------------------


class Kept(TraceDispatcher):
    """Keeps what it gets."""

    def __init__(self, clock) -> None:
        super().__init__(TRACE_TOPIC, clock, None)
        self.texts: list[str] = []
        self.full = False

    @property
    def has_room(self) -> bool:
        return not self.full

    def add(self, text, message_id, keys, count=1) -> None:
        assert text.count("\x02") == count
        self.texts.append(text)

    @property
    def records(self) -> list[Any]:
        return decode_traces("".join(self.texts))


@pytest.fixture
async def kept(clock) -> Kept:
    return Kept(clock)


@pytest.fixture
async def trace(clock, kept) -> CallTrace:
    return CallTrace("g", clock, kept)


def messages(*ids: str, **properties: str) -> list[ReceivedMessage]:
    return [ReceivedMessage("t", message_id=one, properties={"UNIQ_KEY": one, **properties}) for one in ids]


async def test_the_time_of_a_call_is_shared_by_its_messages(clock, kept, trace):
    call = trace.begin(messages("ID0", "ID1", "ID2"))
    await clock.advance(0.9)
    trace.end_call(call, "TIME_OUT", False)
    trace.take()
    before, after = kept.records[:3], kept.records[3:]
    assert [one.message_id for one in before] == [one.message_id for one in after] == ["ID0", "ID1", "ID2"]
    assert {one.cost_ms for one in after} == {300}
    assert {one.returned for one in after} == {ConsumeReturn.TIME_OUT}
    assert {one.timestamp for one in after} == {clock.wall_ms()}
    assert {one.timestamp for one in before} == {clock.wall_ms() - 900}
    assert len({one.request_id for one in kept.records}) == 1


async def test_the_begin_is_told_while_the_listener_runs(clock, kept, trace):
    call = trace.begin(messages("ID0", MSG_REGION="here", KEYS="k"))
    await clock.advance(0)
    (begin,) = kept.records
    assert (begin.message_id, begin.region, begin.keys) == ("ID0", "here", "k")
    trace.end_call(call, "SUCCESS", True)
    await clock.advance(0)
    assert [type(one) for one in kept.records] == [ConsumeBeginTrace, ConsumeEndTrace]
    trace.take()
    assert len(kept.records) == 2, "once"


async def test_a_message_without_a_region_is_of_the_default_one(kept, trace):
    trace.begin(messages("ID0"))
    trace.take()
    assert [one.region for one in kept.records] == ["DefaultRegion"]


async def test_two_calls_have_two_numbers(kept, trace):
    for one in ("ID0", "ID1"):
        trace.end_call(trace.begin(messages(one)), "SUCCESS", True)
    trace.take()
    assert len({one.request_id for one in kept.records}) == 2


async def test_what_is_not_traced(kept, trace):
    quiet = ReceivedMessage("t", message_id="ID0", properties={"TRACE_ON": "false"})
    own = ReceivedMessage(TRACE_TOPIC, message_id="ID1")
    for noted in ([quiet, own], []):
        trace.end_call(trace.begin(noted), "SUCCESS", True)
    trace.take()
    assert kept.records == []


async def test_many_calls_are_written_over_several_turns(clock, kept, trace):
    """So that nothing else on the I/O thread waits for long."""
    for _ in range(30):
        trace.end_call(trace.begin(messages(*(f"ID{n}" for n in range(100)))), "SUCCESS", True)
    trace.take()
    assert len(kept.records) == 2 * 1000
    await eventually(lambda: len(kept.records) == 2 * 3000)


async def test_more_calls_than_may_wait_are_dropped_and_counted(clock, kept, trace):
    for _ in range(MAX_CALLS):
        assert trace.begin(messages("ID"))
    assert trace.begin(messages("ID0", "ID1")) is None
    await eventually(lambda: len(kept.records) == MAX_CALLS)
    assert trace.dropped == 4, "two records for each message"
    assert trace.begin(messages("ID"))


async def test_without_room_nothing_is_noted_until_there_is_some(clock, kept, trace):
    kept.full = True
    trace.begin(messages("ID"))
    await clock.advance(0)
    assert trace.begin(messages("ID")) is None
    await clock.advance(0.1)
    assert trace.dropped == 4, "counted while there is still no room"
    assert trace.begin(messages("ID")) is None
    kept.full = False
    await clock.advance(0.1)
    assert trace.begin(messages("ID")) is not None
    assert trace.dropped == 6, "the first, for which there was no room, and those that nobody noted"


async def test_a_consumer_that_is_too_busy_is_traced_in_part(kept):
    busy = BusyClock()
    trace = CallTrace("g", busy, kept, cpu=lambda: busy._now)
    busy.step = 0.020
    trace.begin(messages("ID0"))
    trace.take()
    assert len(kept.records) == 1, "what was noted is written"
    assert trace.begin(messages("ID1")) is None
    busy.step = 0.0
    await busy.advance(2.0)
    assert trace.begin(messages("ID2")) is not None
    assert trace.dropped == 2


async def test_a_consumer_that_has_time_is_traced_whole(clock, kept, trace):
    for number in range(200):
        trace.end_call(trace.begin(messages(f"ID{number}")), "SUCCESS", True)
        await clock.advance(0.001)
    assert len(kept.records) == 400


async def test_nothing_is_noted_after_the_end(clock, trace, kept):
    trace.begin(messages("ID0"))
    await trace.end()
    assert len(kept.records) == 1
    assert trace.begin(messages("ID1")) is None


async def test_a_listener_that_ends_after_the_loop(clock, kept):
    made: list[CallTrace] = []

    async def make() -> None:
        made.append(CallTrace("g", clock, kept))

    await asyncio.to_thread(asyncio.run, make())
    call = made[0].begin(messages("ID"))
    assert call is not None
    made[0].end_call(call, "SUCCESS", True)


async def test_a_trace_topic_that_brokers_make_is_no_reason_to_warn(a, started, name_server, caplog):
    name_server.set_route("TBW102", {"a": {0: a.address}}, queues=1)
    with caplog.at_level(logging.INFO):
        await started(Heard(), trace=True)
    (line,) = [one for one in caplog.messages if "trace" in one]
    assert line == f"consumer of group 'g': the trace topic '{TRACE_TOPIC}' is made with the first trace"


async def test_an_async_listener_is_traced(a, started, clock, trace_topic):
    async def listen(messages, context):
        return ConsumeResult.SUCCESS

    core = await started(listen, trace=True)
    await a.until_held()
    a.store(traced(0))
    await eventually(lambda: core.offsets.read_memory(a.queue()) == 1)
    await _sent(a, clock, 2)
    assert [one[0] for one in traces(a)] == ["SubBefore", "SubAfter"]
