"""Requests and replies with scripted brokers: order, time, bounds, and what is no reply."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from rocketstream.errors import (
    BrokerError,
    ClientStateError,
    ConfigurationError,
    CorruptMessageError,
    ReplyTimeoutError,
    SendFailedError,
    TooManyRequestsError,
)
from rocketstream.message import Message, ReceivedMessage
from rocketstream.producer.core import ProducerCore
from rocketstream.producer.request_reply import prepare_reply, prepare_request, reply, request
from rocketstream.wire.codes import RequestCode, ResponseCode
from rocketstream.wire.command import Command
from rocketstream.wire.command import request as command
from rocketstream.wire.headers.send import ReplyMessageRequestHeader
from rocketstream.wire.properties import encode_properties
from tests.producer.peers import SILENCE, StoringBroker, in_flight
from tests.scripted import eventually

PUSH = RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT


@pytest.fixture
def routed(name_server, a):
    name_server.set_route("t", {"a": {0: a.address}})


@pytest.fixture
async def core(started, routed) -> ProducerCore:
    return await started()


def ask(core: ProducerCore, timeout: float = 3.0, **choice: Any) -> asyncio.Task[ReceivedMessage]:
    """Begin a request."""
    out, correlation_id = prepare_request(core, Message("t", b"ping"), timeout)
    return asyncio.create_task(request(core, out, correlation_id, timeout=timeout, **choice))


async def push(broker: StoringBroker, body: bytes = b"pong", index: int = -1, sys_flag: int = 0, **others: str) -> None:
    """Hand over the reply to a request that the broker got, and see that it is taken."""
    properties = {"CORRELATION_ID": broker.properties(index)["CORRELATION_ID"], **others}
    header = ReplyMessageRequestHeader(
        producer_group="answering",
        topic="c_REPLY_TOPIC",
        default_topic="TBW102",
        default_topic_queue_nums=4,
        queue_id=0,
        sys_flag=sys_flag,
        born_timestamp=1,
        flag=0,
        properties=encode_properties(properties),
        born_host="127.0.0.1:1",
        store_host="127.0.0.1:2",
        store_timestamp=2,
    )
    before = len(_taken(broker))
    broker.peers[0].send(command(PUSH, header, body))
    await eventually(lambda: len(_taken(broker)) > before)


def _taken(broker: StoringBroker) -> list[Command]:
    return [one for one in broker.received if one.is_response and one.code == ResponseCode.SUCCESS]


async def test_a_request_says_who_waits_and_the_broker_has_heard_of_them(core, a):
    asking = ask(core)
    await in_flight(a, 1)
    assert [one.code for one in a.received] == [RequestCode.HEART_BEAT, RequestCode.SEND_MESSAGE_V2]
    assert core.client_id.encode() in a.received[0].body
    properties = a.properties()
    assert (properties["REPLY_TO_CLIENT"], properties["TTL"]) == (core.client_id, "3000")
    await push(a, TAGS="x")
    received = await asking
    assert (received.body, received.tags, received.topic) == (b"pong", "x", "c_REPLY_TOPIC")
    assert (received.born_host, received.store_host) == ("127.0.0.1:1", "127.0.0.1:2")
    assert received.properties["ARRIVE_TIME"]
    assert len(core.requests) == 0


async def test_a_reply_may_overtake_the_answer_to_the_request(core, a):
    a.script.append(SILENCE)
    asking = ask(core)
    await in_flight(a, 1)
    await push(a)
    assert (await asking).body == b"pong"
    assert len(a.sends) == 1
    await eventually(lambda: core.instance.remoting.pending == 0)


async def test_no_reply_in_time(core, a, clock):
    asking = ask(core, 5.0)
    await in_flight(a, 1)
    await eventually(lambda: core.instance.remoting.pending == 0)
    await clock.advance(4.9)
    assert not asking.done()
    await clock.advance(0.2)
    with pytest.raises(ReplyTimeoutError, match=r"^request \w{32} was sent to topic 't', but no reply came within 5 s"):
        await asking
    assert len(core.requests) == 0
    await push(a)  # too late; nobody minds


async def test_a_request_that_cannot_be_sent_says_why(core, a):
    a.always = (ResponseCode.MESSAGE_ILLEGAL, "not this one")
    with pytest.raises(BrokerError, match="not this one"):
        await ask(core)
    a.always = (ResponseCode.SYSTEM_ERROR, "tired")
    with pytest.raises(SendFailedError, match="tired"):
        await ask(core)
    assert len(core.requests) == 0


async def test_a_reply_that_cannot_be_read_is_the_callers_error(core, a):
    asking = ask(core)
    await in_flight(a, 1)
    await push(a, b"not zlib", sys_flag=0x1)
    with pytest.raises(CorruptMessageError):
        await asking


async def test_replies_find_the_right_producer_of_a_client_and_the_right_request(started, routed, a):
    one = await started(group="one")
    asking = [ask(one), ask(one), ask(one)]
    await in_flight(a, 3)
    for index in (2, 0, 1):
        await push(a, str(index).encode(), index)
    by_request = {a.properties(index)["CORRELATION_ID"]: str(index).encode() for index in range(3)}
    for task in asking:
        received = await task
        assert received.body == by_request[received.properties["CORRELATION_ID"]]


async def test_the_number_of_waiting_requests_is_bounded(started, routed, a):
    core = await started(max_async_messages=1)
    asking = ask(core)
    await in_flight(a, 1)
    with pytest.raises(TooManyRequestsError, match=r"1 requests already wait .*max_async_messages=1"):
        await ask(core)
    await push(a)
    assert (await asking).body == b"pong"


async def test_whoever_waits_when_the_producer_ends_is_told(core, a):
    asking = ask(core)
    await in_flight(a, 1)
    await eventually(lambda: core.instance.remoting.pending == 0)
    await core.shutdown()
    with pytest.raises(ClientStateError, match="was shut down while a request waited for its reply"):
        await asking


async def test_a_caller_who_goes_away_leaves_nothing(core, a):
    a.script.append(SILENCE)
    asking = ask(core)
    await in_flight(a, 1)
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking
    assert len(core.requests) == 0
    await eventually(lambda: core.instance.remoting.pending == 0)


# --- replying -------------------------------------------------------------------------------------------------------


class ReplyTaker(StoringBroker):
    def __init__(self) -> None:
        super().__init__()
        self.on(RequestCode.SEND_REPLY_MESSAGE_V2, self._store)


@pytest.fixture
async def c(name_server):
    async with ReplyTaker() as server:
        yield server


@pytest.fixture
async def d(name_server, c):
    async with ReplyTaker() as server:
        name_server.set_route("c_REPLY_TOPIC", {"c": {0: c.address}, "d": {0: server.address}}, queues=1)
        yield server


ASKED = {"CLUSTER": "c", "CORRELATION_ID": "42", "REPLY_TO_CLIENT": "somebody", "TTL": "3000"}


async def test_a_reply_goes_to_the_broker_of_the_request(started, c, d):
    core = await started(namespace="shop")
    asked = ReceivedMessage("t", b"ping", properties=ASKED, broker_name="d")
    for _ in range(3):
        out = prepare_reply(core, asked, b"pong", tags="x", properties={"mine": "1"})
        receipt = await reply(core, out, asked.broker_name)
    assert receipt.queue == ("c_REPLY_TOPIC", "d", 0)
    assert (len(c.sends), len(d.sends)) == (0, 3)
    assert {one.code for one in d.sends} == {RequestCode.SEND_REPLY_MESSAGE_V2}
    properties = d.properties()
    assert {name: properties[name] for name in ("CORRELATION_ID", "REPLY_TO_CLIENT", "TTL", "MSG_TYPE")} == {
        "CORRELATION_ID": "42",
        "REPLY_TO_CLIENT": "somebody",
        "TTL": "3000",
        "MSG_TYPE": "reply",
    }
    assert (properties["TAGS"], properties["mine"]) == ("x", "1")


async def test_a_reply_that_fails_there_goes_through_another(started, c, d):
    core = await started()
    asked = ReceivedMessage("t", b"ping", properties=ASKED, broker_name="d")
    d.always = (ResponseCode.SYSTEM_ERROR, "channel not found")
    c.always = ResponseCode.SUCCESS
    assert (await reply(core, prepare_reply(core, asked, b"pong"), "d")).queue.broker_name == "c"
    assert len(d.sends) >= 1


async def test_a_reply_to_a_request_of_an_unknown_broker_goes_through_any(started, c, d):
    core = await started()
    asked = ReceivedMessage("t", b"ping", properties=ASKED, broker_name="gone")
    assert (await reply(core, prepare_reply(core, asked, b"pong"), "gone")).queue.topic == "c_REPLY_TOPIC"


@pytest.mark.parametrize("missing", ["CLUSTER", "CORRELATION_ID", "REPLY_TO_CLIENT"])
async def test_what_was_no_request_cannot_be_replied_to(core, missing):
    properties = {name: value for name, value in ASKED.items() if name != missing}
    asked = ReceivedMessage("t", b"x", properties=properties, message_id="7")
    with pytest.raises(ConfigurationError) as caught:
        prepare_reply(core, asked, b"pong")
    assert str(caught.value) == (
        f"message 7 of topic 't' cannot be replied to: it has no property {missing}, so it was not sent with request()"
    )


async def test_replies_are_checked_like_messages(core):
    asked = ReceivedMessage("t", b"ping", properties=ASKED)
    with pytest.raises(ConfigurationError, match="has an empty body"):
        prepare_reply(core, asked, b"")
    with pytest.raises(ConfigurationError, match="expected the ReceivedMessage to reply to, got Message"):
        prepare_reply(core, Message("t", b"x"), b"pong")  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match="is RocketMQ's own"):
        prepare_reply(core, asked, b"pong", properties={"MSG_TYPE": "mine"})
