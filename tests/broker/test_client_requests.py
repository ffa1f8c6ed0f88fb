from __future__ import annotations

import asyncio

import pytest

from rocketstream.broker.client_requests import ClientRequests
from rocketstream.message import MessageQueue
from rocketstream.wire.bodies.offsets import GetConsumerStatusBody
from rocketstream.wire.codes import RequestCode, ResponseCode
from rocketstream.wire.command import Command, response
from rocketstream.wire.headers.group import (
    ConsumeMessageDirectlyRequestHeader,
    GetConsumerRunningInfoRequestHeader,
    GetConsumerStatusRequestHeader,
)
from rocketstream.wire.record_decoder import decode_records
from tests.broker.parts import FakeConnection, Parts, ask, heartbeat, request, succeed

QUEUE = MessageQueue("t", "broker-a", 0)


@pytest.fixture
def parts() -> Parts:
    parts = Parts()
    parts.create_topic("t", topic_sys_flag=3)
    return parts


@pytest.fixture
def client_requests(parts) -> ClientRequests:
    return ClientRequests(
        settings=parts.settings, store=parts.store, topics=parts.topics, groups=parts.groups, members=parts.members
    )


async def join(parts: Parts, client_id: str, version: int = 513) -> FakeConnection:
    connection = parts.connect()
    await succeed(parts.members, connection, heartbeat(client_id, {"g": ("t",)}, version=version))
    connection.sent.clear()
    return connection


def running_info(client_id: str = "one") -> Command:
    header = GetConsumerRunningInfoRequestHeader(consumer_group="g", client_id=client_id, jstack_enable=True)
    return request(RequestCode.GET_CONSUMER_RUNNING_INFO, header)


async def test_a_question_goes_on_to_the_client_and_its_answer_comes_back(parts, client_requests):
    member = await join(parts, "one")
    member.answers[RequestCode.GET_CONSUMER_RUNNING_INFO] = lambda asked: response(asked, 1, "busy", {"a": "b"}, b"{}")
    answer = await ask(client_requests, parts.connect(), running_info())
    assert (answer.code, answer.remark, answer.fields, answer.body) == (1, "busy", {"a": "b"}, b"{}")
    assert answer.opaque == 7, "the number of who asked, not that of the client"
    (asked,) = member.sent
    assert asked.fields["jstackEnable"] == "true"


async def test_who_is_not_there_or_too_old_is_not_asked(parts, client_requests):
    answer = await ask(client_requests, parts.connect(), running_info())
    assert (answer.code, answer.remark) == (ResponseCode.SYSTEM_ERROR, "The Consumer <g> <one> not online")
    old = await join(parts, "old", version=61)
    answer = await ask(client_requests, parts.connect(), running_info("old"))
    assert "too low to finish" in (answer.remark or "")
    assert old.sent == []


async def test_a_client_that_does_not_answer(parts, client_requests):
    await join(parts, "one")
    asking = asyncio.ensure_future(ask(client_requests, parts.connect(), running_info()))
    await parts.clock.advance(9.9)
    assert not asking.done()
    await parts.clock.advance(0.2)
    assert (await asking).code == ResponseCode.CONSUME_MSG_TIMEOUT


async def test_a_client_that_goes_while_it_is_asked(parts, client_requests):
    member = await join(parts, "one")
    asking = asyncio.ensure_future(ask(client_requests, parts.connect(), running_info()))
    await parts.clock.settle()
    member.close()
    answer = await asking
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert (answer.remark or "").startswith("invoke consumer <g> <one> Exception")


async def test_a_message_is_given_to_a_listener(parts, client_requests):
    stored = parts.append("t", b"hello")
    member = await join(parts, "one")
    member.answers[RequestCode.CONSUME_MESSAGE_DIRECTLY] = lambda asked: response(asked, 0, body=b"{}")

    def directly(message_id: str) -> Command:
        header = ConsumeMessageDirectlyRequestHeader(consumer_group="g", client_id="one", msg_id=message_id, topic="t")
        return request(RequestCode.CONSUME_MESSAGE_DIRECTLY, header)

    await succeed(client_requests, parts.connect(), directly(stored.message_id))
    (asked,) = member.sent
    (message,) = decode_records(asked.body)[0]
    assert message.body == b"hello"
    fields = asked.fields
    assert (fields["brokerName"], fields["topicSysFlag"], fields["groupSysFlag"]) == ("broker-a", "3", "0")
    nowhere = stored.message_id[:-4] + "FFFF"
    answer = await ask(client_requests, parts.connect(), directly(nowhere))
    assert "can not find message by the offset" in (answer.remark or "")


async def test_the_offsets_that_members_have_in_memory(parts, client_requests):
    def has(offset: int):
        return lambda asked: response(
            asked, 0, body=GetConsumerStatusBody(message_queue_table={QUEUE: offset}, consumer_table={}).encode()
        )

    for client_id, offset in (("one", 1), ("two", 2)):
        (await join(parts, client_id)).answers[RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT] = has(offset)

    async def status(client_id: str | None = None):
        header = GetConsumerStatusRequestHeader(topic="t", group="g", client_addr=client_id)
        wanted = request(RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS, header)
        return GetConsumerStatusBody.decode((await succeed(client_requests, parts.connect(), wanted)).body)

    assert (await status()).consumer_table == {"one": {QUEUE: 1}, "two": {QUEUE: 2}}
    assert (await status("two")).consumer_table == {"two": {QUEUE: 2}}
    await join(parts, "silent")
    asking = asyncio.ensure_future(status())
    await parts.clock.advance(5.0)
    assert set((await asking).consumer_table) == {"one", "two"}


async def test_the_status_of_a_group_without_members(parts, client_requests):
    header = GetConsumerStatusRequestHeader(topic="t", group="x")
    wanted = request(RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS, header)
    assert (await ask(client_requests, parts.connect(), wanted)).code == ResponseCode.SYSTEM_ERROR
