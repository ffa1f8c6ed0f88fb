"""The trace of what is consumed, in RocketMQ's own format (START-14)."""

from __future__ import annotations

import logging

import pytest

from rocketstream.cluster.client import ClientState
from rocketstream.consumer.hooks import ConsumeHook, ConsumeHookContext
from rocketstream.consumer.results import ConsumeResult, OrderlyResult
from rocketstream.consumer.trace import TraceHook
from rocketstream.message import MessageQueue, ReceivedMessage
from rocketstream.producer.trace import TraceDispatcher
from rocketstream.wire.codes import ResponseCode
from rocketstream.wire.trace import TRACE_TOPIC, ConsumeBeginTrace, ConsumeEndTrace, ConsumeReturn
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


# --- the hook alone ---------------------------------------------------------------------------------------------------


class Kept(TraceDispatcher):
    """Keeps what it gets."""

    def __init__(self, clock) -> None:
        super().__init__(TRACE_TOPIC, clock, None)
        self.records: list[object] = []

    def record(self, trace) -> None:
        self.records.append(trace)


def call(*messages: ReceivedMessage) -> ConsumeHookContext:
    return ConsumeHookContext("g", MessageQueue("t", "a", 0), messages)


async def test_the_time_of_a_call_is_shared_by_its_messages(clock):
    kept = Kept(clock)
    hook = TraceHook("g", clock, kept)
    context = call(*(ReceivedMessage("t", message_id=f"ID{n}") for n in range(3)))
    hook.before(context)
    await clock.advance(0.9)
    context.success, context.return_type = True, "TIME_OUT"
    hook.after(context)
    hook.take()
    before, after = kept.records[:3], kept.records[3:]
    assert [one.message_id for one in before] == [one.message_id for one in after] == ["ID0", "ID1", "ID2"]
    assert {one.cost_ms for one in after} == {300}
    assert {one.returned for one in after} == {ConsumeReturn.TIME_OUT}
    assert len({one.request_id for one in kept.records}) == 1


async def test_what_is_not_traced(clock):
    kept = Kept(clock)
    hook = TraceHook("g", clock, kept)
    quiet = ReceivedMessage("t", message_id="ID0", properties={"TRACE_ON": "false"})
    trace = ReceivedMessage(TRACE_TOPIC, message_id="ID1")
    for context in (call(quiet, trace), call()):
        hook.before(context)
        context.success, context.return_type = True, "SUCCESS"
        hook.after(context)
    hook.take()
    assert kept.records == []
