"""Timer messages: never to a broker that would deliver them at once; recall handles and what can be wrong with them."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Callable

import pytest

from rocketstream.cluster.versions import V5_0_0, version_text
from rocketstream.errors import ConfigurationError, RecallFailedError, SendFailedError, UnsupportedByBrokerError
from rocketstream.producer.dispatch import Send
from rocketstream.producer.timer import RecallHandle, recall
from rocketstream.wire.codes import RequestCode, ResponseCode
from rocketstream.wire.command import Command, response
from tests.producer.peers import StoringBroker, ready


@pytest.fixture
def routed(name_server, a):
    name_server.set_route("t", {"a": {0: a.address}})


def versioned(broker: StoringBroker, version: int) -> None:
    broker.VERSION = version  # type: ignore[misc]


async def test_the_brokers_version_is_asked_for_once(started, routed, a):
    core = await started()
    for _ in range(3):
        await core.send(ready(core, delay=1.5))
    assert [one.code for one in a.received] == [RequestCode.HEART_BEAT] + [RequestCode.SEND_MESSAGE_V2] * 3
    assert a.properties()["TIMER_DELAY_MS"] == "1500"


@pytest.mark.parametrize("when", [{"delay": 1.0}, {"deliver_at": 4_000_000_000_000}])
async def test_nothing_leaves_for_an_old_broker(started, routed, a, when):
    versioned(a, 407)
    core = await started()
    text = f"timer messages \\(delay, deliver_at\\) need RocketMQ 5; broker a at {a.address} is 4.9.7: use delay_level"
    with pytest.raises(UnsupportedByBrokerError, match=text):
        await core.send(ready(core, **when))
    choice = {"queue": None, "sharding_key": None, "selector": None, "arg": None}
    with pytest.raises(UnsupportedByBrokerError, match=text):
        await core.send_one_way(ready(core, **when), **choice)
    # The quick way must not skip it, either; by now it could be taken.
    await core.send(ready(core))
    future = core.new_future(None)
    core._dispatcher.start(Send(ready(core, **when), future, 0, 5.0, core.clock.monotonic()))
    with pytest.raises(UnsupportedByBrokerError, match=text):
        await asyncio.wrap_future(future)
    assert a.bodies == [b"x"]


async def test_a_broker_that_does_not_tell_its_version_gets_no_timer_message(started, routed, a):
    a.on(RequestCode.HEART_BEAT, lambda command: response(command, ResponseCode.SYSTEM_ERROR, "not today"))
    core = await started(retries=1)
    with pytest.raises(SendFailedError, match="HEART_BEAT: not today"):
        await core.send(ready(core, delay=1))
    assert a.sends == []


def handle(text: str) -> str:
    return base64.urlsafe_b64encode(text.encode()).decode()


GOOD = handle("v1 t a 1700000000000 7F00")


def test_a_handle_is_read():
    assert RecallHandle.parse(GOOD) == RecallHandle("t", "a", 1_700_000_000_000, "7F00")


@pytest.mark.parametrize(
    "wrong",
    ["", "nonsense", "ä", handle("v2 t a 1 7F00"), handle("v1 t a 1"), handle("v1 t a soon 7F00"), None, 7, b"\xff"],
)
async def test_what_is_no_handle_is_refused_before_anything_is_asked(started, routed, a, wrong):
    core = await started()
    with pytest.raises(ConfigurationError, match="is not a recall handle: take the recall_handle of the receipt"):
        await recall(core, "t", wrong)
    assert a.received == []


async def test_a_handle_of_another_topic_or_a_retry_topic(started, routed):
    core = await started()
    with pytest.raises(ConfigurationError, match="topic='u' does not fit the handle, which is of topic 't'"):
        await recall(core, "u", GOOD)
    with pytest.raises(ConfigurationError, match="messages of retry and dead-letter topics cannot be recalled"):
        await recall(core, "%RETRY%g", GOOD)
    namespaced = await started(group="h", namespace="shop")
    with pytest.raises(ConfigurationError, match="does not fit the handle"):
        await recall(namespaced, "t", GOOD)


async def test_a_recall(started, routed, a):
    asked: list[Command] = []

    def take(command: Command) -> Command:
        asked.append(command)
        return response(command, ResponseCode.SUCCESS, header={"msgId": "7F00"})

    a.on(RequestCode.RECALL_MESSAGE, take)
    core = await started()
    assert await recall(core, "t", GOOD) == "7F00"
    assert asked[0].fields == {"producerGroup": "g", "topic": "t", "recallHandle": GOOD, "bname": "a"}


@pytest.mark.parametrize(
    ("code", "remark", "kind", "text"),
    [
        ("REQUEST_CODE_NOT_SUPPORTED", "x", UnsupportedByBrokerError, "is 5.1.0, which cannot recall messages yet"),
        ("NO_PERMISSION", "forbidden", UnsupportedByBrokerError, "recallMessageEnable=true .*: forbidden"),
        (
            "ILLEGAL_OPERATION",
            "recall failed, timestamp invalid",
            RecallFailedError,
            r"did not recall message 7F00: it was due at 2023-11-14T22:13:20.000\+00:00, which is past",
        ),
        ("ILLEGAL_OPERATION", "recall failed, x", RecallFailedError, "did not recall message 7F00: recall failed, x"),
        ("SYSTEM_ERROR", "recall failed, execute error", RecallFailedError, "execute error"),
    ],
)
async def test_refusals_are_explained(started, routed, a, code, remark, kind, text):
    versioned(a, V5_0_0 + 20)
    answer: Callable[[Command], Command] = lambda command: response(command, ResponseCode[code], remark)  # noqa: E731
    a.on(RequestCode.RECALL_MESSAGE, answer)
    core = await started()
    with pytest.raises(kind, match=text) as caught:
        await recall(core, "t", GOOD)
    assert a.address in str(caught.value)


async def test_an_old_broker_is_not_even_asked(started, routed, a):
    versioned(a, 407)
    core = await started()
    with pytest.raises(UnsupportedByBrokerError, match=f"needs RocketMQ 5; broker a at {a.address} is 4.9.7"):
        await recall(core, "t", GOOD)
    assert a.count(RequestCode.RECALL_MESSAGE) == 0


@pytest.mark.parametrize(
    ("ordinal", "text"),
    [
        (407, "4.9.7"),
        (406, "4.9.7-SNAPSHOT"),
        (213, "4.0.0"),
        (V5_0_0, "5.0.0"),
        (513, "5.5.0"),
        (100, "older than 4.0.0 (100)"),
    ],
)
def test_versions(ordinal, text):
    assert version_text(ordinal) == text
