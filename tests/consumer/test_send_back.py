"""Failed messages go back to their broker, or else to the retry topic."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from rocketstream.clock import ManualClock
from rocketstream.cluster.client_instance import ClientInstance
from rocketstream.cluster.settings import ClientSettings
from rocketstream.consumer.send_back import RetryCopy, SendBack, retry_copy, send_back_header
from rocketstream.consumer.settings import ConsumerSettings
from rocketstream.consumer.topic_names import TopicNames
from rocketstream.errors import SendFailedError
from rocketstream.message import MessageHeader, MessageQueue, ReceivedMessage
from rocketstream.wire.codes import RequestCode, ResponseCode
from rocketstream.wire.command import response
from tests.scripted import ScriptedBroker, ScriptedNameServer

QUEUE = MessageQueue("orders", "a", 3)


def failed(times: int = 0, properties: dict[str, str] | None = None, broker_name: str = "a") -> ReceivedMessage:
    """A message that a listener could not do."""
    return ReceivedMessage(
        "orders",
        b"body",
        tags="paid",
        properties=properties,
        broker_name=broker_name,
        queue_id=3,
        queue_offset=17,
        message_id="UNIQUE",
        header=MessageHeader(flag=5, commit_log_offset=4711, reconsume_times=times, offset_message_id="OFFSET"),
    )


class Inner:
    """The inner producer: notes what it is to send."""

    def __init__(self) -> None:
        self.sent: list[RetryCopy] = []
        self.fault: Exception | None = None

    async def __call__(self, copy: RetryCopy) -> None:
        self.sent.append(copy)
        if self.fault is not None:
            raise self.fault


@pytest.fixture
def inner() -> Inner:
    return Inner()


@pytest.fixture
async def broker() -> AsyncIterator[ScriptedBroker]:
    async with ScriptedBroker() as server:
        server.on(RequestCode.CONSUMER_SEND_MSG_BACK, lambda command: response(command, ResponseCode.SUCCESS))
        yield server


@pytest.fixture
async def instance(broker: ScriptedBroker) -> AsyncIterator[ClientInstance]:
    async with ScriptedNameServer() as name_server:
        name_server.set_route("orders", {"a": {0: broker.address}})
        instance = ClientInstance("me", ClientSettings.make(name_server.address), clock=ManualClock())
        await instance.start()
        await instance.routes.get("orders")
        yield instance
        await instance.stop()


@pytest.fixture
def make(instance: ClientInstance, inner: Inner):
    def make(group: str = "g", namespace: str | None = None, **settings: Any) -> SendBack:
        names = TopicNames(group, namespace, ())
        return SendBack(instance, ConsumerSettings(group="g", **settings), group, names, inner)

    return make


def orders_back(broker: ScriptedBroker) -> list[dict[str, str]]:
    return [command.fields for command in broker.received if command.code == RequestCode.CONSUMER_SEND_MSG_BACK]


@pytest.mark.behaviour("CON-09")
async def test_a_failed_message_goes_back_to_the_broker_it_came_from(make, broker, inner):
    await make().send_back(failed(), QUEUE, 0)
    assert orders_back(broker) == [
        {
            "offset": "4711",
            "group": "g",
            "delayLevel": "0",
            "originMsgId": "UNIQUE",
            "originTopic": "orders",
            "unitMode": "false",
            "maxReconsumeTimes": "16",
            "bname": "a",
        }
    ]
    assert inner.sent == []


@pytest.mark.behaviour("CON-09")
@pytest.mark.parametrize("delay_level", [-1, 0, 7])
async def test_the_listeners_delay_level_and_the_settings_are_passed_on(make, broker, delay_level):
    send_back = make("ns%g", "ns", max_reconsume_times=3, unit_mode=True)
    await send_back.send_back(failed(times=2), QUEUE, delay_level)
    (fields,) = orders_back(broker)
    assert fields["delayLevel"] == str(delay_level)
    assert fields["maxReconsumeTimes"] == "3"
    assert fields["unitMode"] == "true"
    assert (fields["group"], fields["originTopic"]) == ("ns%g", "ns%orders")


def test_a_message_without_an_id_of_its_producer_goes_back_by_its_place():
    message = ReceivedMessage("t", b"", header=MessageHeader(offset_message_id="OFFSET"))
    assert send_back_header(message, "g", 0, 16, False, "t").origin_msg_id == "OFFSET"


@pytest.mark.behaviour("CON-10")
async def test_a_message_that_its_broker_refuses_is_sent_to_the_retry_topic(make, broker, inner, caplog):
    broker.on(
        RequestCode.CONSUMER_SEND_MSG_BACK,
        lambda command: response(command, ResponseCode.SYSTEM_ERROR, "look message by offset failed"),
    )
    await make().send_back(failed(times=2, properties={"mine": "1"}), QUEUE, 0)
    assert inner.sent == [
        RetryCopy(
            topic="%RETRY%g",
            body=b"body",
            flag=5,
            properties={
                "mine": "1",
                "TAGS": "paid",
                "UNIQ_KEY": "UNIQUE",
                "ORIGIN_MESSAGE_ID": "UNIQUE",
                "RETRY_TOPIC": "orders",
                "RECONSUME_TIME": "3",
                "MAX_RECONSUME_TIMES": "16",
                "DELAY": "5",
            },
        )
    ]
    assert "look message by offset failed" in caplog.text


@pytest.mark.behaviour("CON-10")
async def test_a_broker_that_is_gone_or_unknown_is_got_round(make, broker, inner):
    send_back = make("ns%g", "ns")
    await send_back.send_back(failed(broker_name="b"), QUEUE._replace(broker_name="b"), 0)
    await broker.stop()
    await send_back.send_back(failed(), QUEUE, -1)
    assert [copy.topic for copy in inner.sent] == ["%RETRY%ns%g"] * 2
    assert [copy.properties["RETRY_TOPIC"] for copy in inner.sent] == ["ns%orders"] * 2


@pytest.mark.behaviour("CON-10")
async def test_what_the_last_way_raises_is_raised(make, broker, inner):
    await broker.stop()
    inner.fault = SendFailedError("%RETRY%g", [], 3.0)
    with pytest.raises(SendFailedError):
        await make().send_back(failed(), QUEUE, 0)
    assert len(inner.sent) == 1


async def test_the_queue_of_a_static_topic_has_no_broker_that_could_find_a_message(make, broker, inner):
    logical = QUEUE._replace(broker_name="__syslo__global__")
    await make().send_back(failed(broker_name="__syslo__global__"), logical, 0)
    assert orders_back(broker) == []
    assert len(inner.sent) == 1


# --- the copy -----------------------------------------------------------------------------------------------------


@pytest.mark.behaviour("CON-10")
def test_the_first_id_is_kept_for_ever():
    copy = retry_copy(failed(3, {"ORIGIN_MESSAGE_ID": "FIRST", "RETRY_TOPIC": "orders"}), "g", 16, "orders")
    assert copy.properties["ORIGIN_MESSAGE_ID"] == "FIRST"
    blank = retry_copy(failed(3, {"ORIGIN_MESSAGE_ID": " "}), "g", 16, "orders")
    assert blank.properties["ORIGIN_MESSAGE_ID"] == "UNIQUE"


@pytest.mark.behaviour("CON-10")
@pytest.mark.parametrize("times", [0, 1, 15])
def test_times_and_delays_grow(times):
    properties = retry_copy(failed(times, {"RECONSUME_TIME": "99", "DELAY": "1"}), "g", 5, "orders").properties
    assert properties["RECONSUME_TIME"] == str(times + 1)
    assert properties["DELAY"] == str(3 + times)
    assert properties["MAX_RECONSUME_TIMES"] == "5"


def test_an_orderly_consumer_has_counted_already():
    assert retry_copy(failed(4), "g", 4, "orders", reconsume_times=4).properties["RECONSUME_TIME"] == "4"


def test_a_copy_is_no_half_of_a_transaction_and_leaves_the_message_as_it_is():
    message = failed(1, {"TRAN_MSG": "true", "PGROUP": "p"})
    before = dict(message.properties)
    copy = retry_copy(message, "g", 16, "orders")
    assert "TRAN_MSG" not in copy.properties
    assert copy.properties["PGROUP"] == "p"
    assert message.properties == before
