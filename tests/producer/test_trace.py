"""The trace of what is sent, and the dispatcher that sends traces: bounded, dropped with a count, never in the way."""

from __future__ import annotations

import asyncio
import base64
import logging

import pytest

from rocketstream import TransactionProducer, TransactionState
from rocketstream.message import Message
from rocketstream.producer import trace as trace_module
from rocketstream.producer.dispatch import Send
from rocketstream.producer.timer import recall
from rocketstream.producer.trace import MAX_RECORDS, MAX_WAITING, TraceDispatcher
from rocketstream.wire.codes import RequestCode, ResponseCode
from rocketstream.wire.command import response
from rocketstream.wire.headers.send import RecallMessageResponseHeader
from rocketstream.wire.trace import (
    TRACE_TOPIC,
    EndTransactionTrace,
    PublishTrace,
    RecallTrace,
    TracedMessageType,
    decode_traces,
)
from tests.producer.peers import SILENCE, StoringBroker, ready
from tests.producer.test_transaction import TransactionBroker
from tests.scripted import eventually


@pytest.fixture
def routed(name_server, a):
    for topic in ("t", TRACE_TOPIC):
        name_server.set_route(topic, {"a": {0: a.address}}, queues=1)


def traces(broker: StoringBroker, topic: str = TRACE_TOPIC) -> list:
    bodies = [command.body for command in broker.sends if command.fields["b"] == topic]
    return decode_traces("".join(body.decode() for body in bodies))


async def sent(broker: StoringBroker, clock, count: int, topic: str = TRACE_TOPIC) -> list:
    await clock.advance(0.5)
    await eventually(lambda: len(traces(broker, topic)) >= count)
    return traces(broker, topic)


# --- what is traced ---------------------------------------------------------------------------------------------------


async def test_a_send(started, routed, a, clock):
    core = await started(trace=True)
    receipt = await core.send(ready(core, body=b"12345", tags="red", keys="k1 k2"))
    (trace,) = await sent(a, clock, 1)
    assert trace == PublishTrace(
        timestamp=clock.wall_ms() - 500,
        region="DefaultRegion",
        group="g",
        topic="t",
        message_id=receipt.message_id,
        tags="red",
        keys="k1 k2",
        store_host=a.address,
        body_length=5,
        cost_ms=0,
        message_type=TracedMessageType.NORMAL,
        offset_message_id=receipt.offset_message_id,
        success=True,
    )
    assert set(a.properties()["KEYS"].split()) == {receipt.message_id, "k1", "k2"}, "by these it is found"


async def test_the_quick_way_is_traced_too(started, routed, a, clock):
    core = await started(trace=True)
    await core.send(ready(core))
    future = core.new_future(None)
    core._dispatcher.start(Send(ready(core, keys="quick"), future, 0, 5.0, core.clock.monotonic()))
    await asyncio.wrap_future(future)
    assert [trace.keys for trace in await sent(a, clock, 2)] == [None, "quick"]


async def test_each_message_of_a_batch_is_found_by_its_own_id(started, routed, a, clock):
    core = await started(trace=True)
    (out,) = core.preparation.batches([Message("t", b"a", keys="k"), Message("t", b"b")])
    receipt = await core.send(out)
    found = await sent(a, clock, 2)
    assert ",".join(trace.message_id for trace in found) == receipt.message_id
    assert len({trace.message_id for trace in found}) == 2


@pytest.mark.parametrize(
    ("fields", "kind"),
    [({"delay_level": 2}, TracedMessageType.DELAY), ({"delay": 9.0}, TracedMessageType.DELAY)],
    ids=["level", "timer"],
)
async def test_kinds_of_messages(started, routed, a, clock, fields, kind):
    core = await started(trace=True)
    await core.send(ready(core, **fields))
    (trace,) = await sent(a, clock, 1)
    assert trace.message_type is kind


@pytest.mark.parametrize(("switch", "count"), [("true", 1), ("false", 0)])
async def test_the_broker_says_whether_and_where(started, routed, a, clock, switch, count):
    store = a._store

    def stored(command):
        answer = store(command)
        answer.fields.update({"MSG_REGION": "far-away", "TRACE_ON": switch})
        return answer

    a.on(RequestCode.SEND_MESSAGE_V2, stored)
    core = await started(trace=True)
    await core.send(ready(core))
    await clock.advance(1.0)
    await core.shutdown()
    assert [trace.region for trace in traces(a)] == ["far-away"] * count


async def test_a_topic_of_ones_own_in_a_namespace(started, name_server, a, clock):
    for topic in ("NS%t", "NS%mine"):
        name_server.set_route(topic, {"a": {0: a.address}}, queues=1)
    core = await started(trace="mine", namespace="NS")
    await core.send(ready(core))
    (trace,) = await sent(a, clock, 1, "NS%mine")
    assert (trace.topic, trace.group) == ("t", "g")


async def test_a_recall(started, routed, a, clock):
    a.on(
        RequestCode.RECALL_MESSAGE,
        lambda command: response(
            command,
            ResponseCode.SUCCESS,
            None,
            {**RecallMessageResponseHeader(msg_id="ID").to_fields(), "MSG_REGION": "r"},
        ),
    )
    core = await started(trace=True)
    await core.send(ready(core))
    handle = base64.urlsafe_b64encode(b"v1 t a 1700000000000 ID").decode()
    await recall(core, "t", handle)
    (_, trace) = await sent(a, clock, 2)
    assert trace == RecallTrace(clock.wall_ms() - 500, "r", "g", "t", "ID", True)


# --- transactions -----------------------------------------------------------------------------------------------------


async def test_ends_of_transactions(name_server):
    async with TransactionBroker() as broker:
        for topic in ("t", TRACE_TOPIC):
            name_server.set_route(topic, {"a": {0: broker.address}}, queues=1)
        with_rollback = {"execute": lambda message, arg: arg, "check": lambda message: TransactionState.ROLLBACK}
        producer = TransactionProducer("g", name_server.address, **with_rollback, trace=True)
        await asyncio.to_thread(producer.start)
        try:
            receipt = await asyncio.to_thread(producer.send, Message("t", b"x", keys="k"), TransactionState.COMMIT)
            broker.ask("asked")
            await eventually(lambda: len(broker.ends) == 2)
        finally:
            await asyncio.to_thread(producer.shutdown)
        found = {trace.message_id + type(trace).__name__: trace for trace in traces(broker)}
    half = found[receipt.message_id + "PublishTrace"]
    assert half.message_type is TracedMessageType.TRANSACTION_HALF
    end = found[receipt.message_id + "EndTransactionTrace"]
    assert (end.state, end.from_check, end.keys, end.transaction_id) == ("COMMIT_MESSAGE", False, "k", "TX")
    assert (end.store_host, end.topic, end.group) == (broker.address, "t", "g")
    asked = found["askedEndTransactionTrace"]
    assert isinstance(asked, EndTransactionTrace)
    assert (asked.state, asked.from_check, asked.topic) == ("ROLLBACK_MESSAGE", True, "t")


# --- what happens when traces cannot be sent --------------------------------------------------------------------------


@pytest.mark.parametrize("outcome", [ResponseCode.SYSTEM_ERROR, SILENCE], ids=["refused", "silence"])
async def test_a_dead_trace_topic_neither_slows_nor_fails_sends(started, name_server, a, b, clock, caplog, outcome):
    name_server.set_route("t", {"a": {0: a.address}}, queues=1)
    name_server.set_route(TRACE_TOPIC, {"b": {0: b.address}}, queues=1)
    b.always = outcome
    core = await started(trace=True)
    with caplog.at_level(logging.WARNING, "rocketstream.producer"):
        for _ in range(3 * MAX_RECORDS):
            await core.send(ready(core))
        assert len(a.sends) == 3 * MAX_RECORDS
        ending = asyncio.ensure_future(core.shutdown())
        while not ending.done():
            await clock.advance(0.5)
            await asyncio.sleep(0)
    assert core._trace.dispatcher.dropped == 3 * MAX_RECORDS
    warnings = [one for one in caplog.messages if "traces for topic" in one]
    assert len(warnings) == 1, "once a minute is enough"
    assert f"traces for topic '{TRACE_TOPIC}' were dropped" in warnings[0]


class Sender:
    """Keeps what it is to send; waits while it is held."""

    def __init__(self) -> None:
        self.sent: list[Message] = []
        self.free = asyncio.Event()
        self.free.set()

    async def __call__(self, message: Message) -> None:
        await self.free.wait()
        self.sent.append(message)


async def test_records_leave_in_groups(clock):
    sender = Sender()
    dispatcher = TraceDispatcher("traces", clock, sender)
    for number in range(MAX_RECORDS + 1):
        dispatcher.add("x", f"ID{number}", None)
    await clock.advance(0)
    assert [len(message.body) for message in sender.sent] == [MAX_RECORDS, 1]


async def test_a_few_records_wait_for_company_but_not_for_long(clock):
    sender = Sender()
    dispatcher = TraceDispatcher("traces", clock, sender)
    dispatcher.add("a", "ID1", None)
    await clock.advance(0.4)
    dispatcher.add("b", "ID2", None)
    assert sender.sent == []
    await clock.advance(0.1)
    assert [message.body for message in sender.sent] == [b"ab"]


async def test_too_many_are_dropped_and_counted(clock, caplog):
    sender = Sender()
    sender.free.clear()
    dispatcher = TraceDispatcher("traces", clock, sender)
    for number in range(MAX_RECORDS):
        dispatcher.add("x", f"ID{number}", None)
    await clock.advance(0)  # these are on their way
    with caplog.at_level(logging.WARNING):
        for _ in range(MAX_WAITING + 5):
            dispatcher.add("x", "ID", None)
        assert not dispatcher.has_room
        assert dispatcher.dropped == 5
        assert repr(dispatcher) == f"<TraceDispatcher traces, {MAX_WAITING} waiting, 5 dropped>"
        await clock.advance(60)
        dispatcher.add("x", "ID", None)
    assert caplog.messages == [
        f"1 traces for topic 'traces' were dropped (1 in all): {MAX_WAITING} are waiting to be sent already",
        f"5 traces for topic 'traces' were dropped (6 in all): {MAX_WAITING} are waiting to be sent already",
    ]
    sender.free.set()
    await dispatcher.end()
    assert sum(len(message.body) for message in sender.sent) == MAX_RECORDS + MAX_WAITING


async def test_the_end_waits_only_so_long(clock, caplog):
    sender = Sender()
    sender.free.clear()
    dispatcher = TraceDispatcher("traces", clock, sender)
    for number in range(MAX_RECORDS + 3):
        dispatcher.add("x", f"ID{number}", None)
    ending = asyncio.ensure_future(dispatcher.end(2.0))
    await clock.advance(1.9)
    assert not ending.done()
    await clock.advance(0.2)
    await ending
    assert (dispatcher.dropped, sender.sent) == (MAX_RECORDS + 3, [])
    dispatcher.add("late", "ID", None)
    assert dispatcher.dropped == MAX_RECORDS + 4


async def test_keys_stay_within_what_a_message_can_have(clock):
    sender = Sender()
    dispatcher = TraceDispatcher("traces", clock, sender)
    for number in range(50):
        dispatcher.add("x", f"ID{number}", f"{number:0>1000}")
    dispatcher.add("x", "BIG", "k" * 30_000)
    dispatcher.add("x", "UMLAUT", "ä" * 3_900)
    await dispatcher.end()
    sizes = [len(message.keys.encode()) for message in sender.sent]
    assert max(sizes) < 32_000
    keys = {key for message in sender.sent for key in message.keys.split(" ")}
    assert {f"ID{number}" for number in range(50)} | {"BIG", "UMLAUT"} <= keys, "by its id it is always found"
    assert sum(len(message.body) for message in sender.sent) == 52


async def test_a_sender_that_fails_in_any_way_is_tried_again(clock):
    outcomes: list[object] = [ValueError("odd"), None]
    sent_bodies: list[bytes] = []

    async def send(message: Message) -> None:
        outcome = outcomes.pop(0)
        if isinstance(outcome, Exception):
            raise outcome
        sent_bodies.append(message.body)

    dispatcher = TraceDispatcher("traces", clock, send)
    dispatcher.add("a", "ID", None)
    await clock.advance(0.5)
    dispatcher.add("b", "ID", None)
    await clock.advance(0.5)
    assert (sent_bodies, dispatcher.dropped) == ([b"b"], 1)


def test_the_bounds_fit_together():
    assert trace_module.MAX_KEYS * 2 < 32_767
