"""What is added to messages and taken from their topics (RES-05)."""

from __future__ import annotations

import pytest

from rocketstream.cluster.client import ClientState
from rocketstream.cluster.projects import project_of, with_project, without_project
from rocketstream.consumer.listener import make_listener
from rocketstream.consumer.results import ConsumeResult
from rocketstream.errors import NameServerError
from rocketstream.message import MessageQueue, ReceivedMessage
from rocketstream.wire.codes import RequestCode, ResponseCode
from rocketstream.wire.command import Command, response
from rocketstream.wire.headers.name_server import GetKVConfigResponseHeader
from tests.consumer.peers import GROUP, RETRY, Heard
from tests.consumer.pull_answers import found, record
from tests.scripted import eventually

PROJECTED = "t%PROJECT_dev%"


@pytest.fixture
def project(a, name_server) -> list[Command]:
    """This machine belongs to project dev; what the name server was asked."""
    asked: list[Command] = []

    def kv_config(command: Command) -> Command:
        asked.append(command)
        return response(command, ResponseCode.SUCCESS, header=GetKVConfigResponseHeader(value="dev"))

    name_server.on(RequestCode.GET_KV_CONFIG, kv_config)
    name_server.set_route(PROJECTED, {"a": {0: a.address}}, queues=1)
    return asked


def test_names():
    assert with_project("dev", "t") == PROJECTED
    assert with_project(None, "t") == "t"
    assert without_project("dev", PROJECTED) == "t"
    assert without_project("dev", "t") == "t"
    assert without_project("dev", "t%PROJECT_test%") == "t%PROJECT_test%", "another project's"
    assert without_project(None, PROJECTED) == PROJECTED
    assert without_project("dev", "%PROJECT_dev%t") == "%PROJECT_dev%t"


@pytest.mark.behaviour("RES-05")
async def test_offsets_and_the_broker_are_on_every_message(a, started):
    heard = Heard()
    await started(heard)
    a.answer(found(5, 2, min_offset=3, max_offset=9))
    await heard.until(2)
    for message in heard.messages:
        assert message.properties["MIN_OFFSET"] == "3"
        assert message.properties["MAX_OFFSET"] == "9"
        assert message.broker_name == "a"
        assert message.queue == MessageQueue("t", "a", 0)


@pytest.mark.behaviour("RES-05")
async def test_topics_lose_the_project_of_the_machine(a, started, project):
    heard = Heard()
    core = await started(heard, topics={PROJECTED: "*"})
    (asked,) = project
    assert asked.fields == {"namespace": "PROJECT_CONFIG", "key": core.client_id.partition("@")[0]}
    a.store("one", topic=PROJECTED)
    await heard.until(1)
    assert [message.topic for message in heard.messages] == ["t"]
    assert [context.queue for context in heard.contexts] == [MessageQueue("t", "a", 0)]
    assert a.pulls_of(topic=PROJECTED), "brokers know it by its whole name"
    assert await core.overview.assignment() == (MessageQueue("t", "a", 0),)


@pytest.mark.behaviour("RES-05")
async def test_topics_lose_the_namespace(a, started, name_server):
    name_server.set_route("NS%t", {"a": {0: a.address}}, queues=1)
    heard = Heard()
    await started(heard, namespace="NS")
    a.store("one", topic="NS%t")
    await heard.until(1)
    assert [message.topic for message in heard.messages] == ["t"]


@pytest.mark.behaviour("RES-05")
async def test_retried_messages_lose_it_too(a, started, project, name_server):
    name_server.set_route(RETRY, {"a": {0: a.address}}, queues=1)
    heard = Heard()
    await started(heard, topics={PROJECTED: "*"})
    a.answer(found(0, records=[record(0, topic=RETRY, properties={"RETRY_TOPIC": PROJECTED})]), topic=RETRY)
    await heard.until(1)
    assert [message.topic for message in heard.messages] == ["t"]


async def test_what_goes_back_has_its_whole_name(a, started, project):
    await started(Heard(ConsumeResult.RECONSUME_LATER), topics={PROJECTED: "*"})
    a.store("one", topic=PROJECTED)
    await eventually(lambda: len(a.sent_back) == 1)
    assert a.sent_back[0].fields["originTopic"] == PROJECTED
    assert a.sent_back[0].fields["group"] == GROUP


async def _refuses(name_server) -> None:
    name_server.on(RequestCode.GET_KV_CONFIG, lambda c: response(c, ResponseCode.SYSTEM_ERROR, "no"))


async def _knows_none(name_server) -> None:
    name_server.on(RequestCode.GET_KV_CONFIG, lambda c: response(c, ResponseCode.QUERY_NOT_FOUND, "none"))


async def _is_empty(name_server) -> None:
    name_server.on(
        RequestCode.GET_KV_CONFIG,
        lambda c: response(c, ResponseCode.SUCCESS, header=GetKVConfigResponseHeader(value=" ")),
    )


@pytest.mark.behaviour("RES-05")
@pytest.mark.parametrize("without", [_refuses, _knows_none, _is_empty])
async def test_without_a_project_topics_stay_as_they_are(a, started, project, name_server, without):
    await without(name_server)
    heard = Heard()
    core = await started(heard, topics={PROJECTED: "*"})
    assert core.state is ClientState.RUNNING
    a.store("one", topic=PROJECTED)
    await heard.until(1)
    assert [message.topic for message in heard.messages] == [PROJECTED]


async def test_name_servers_that_cannot_be_asked_are_no_trouble():
    class Gone:
        async def ask(self, request: Command, timeout: float) -> tuple[str, Command]:
            raise NameServerError("no name server answered")

    assert await project_of(Gone(), "192.0.2.2", 3.0) is None


def test_handlers_are_found_by_the_name_without_the_project():
    seen: list[str] = []
    listener = make_listener(None, {PROJECTED: lambda m: seen.append("projected")}, orderly=False)
    for topic in ("t", PROJECTED):
        assert listener.call([ReceivedMessage(topic)], None) is ConsumeResult.SUCCESS
    assert seen == ["projected"] * 2
    both = {"t": lambda m: seen.append("plain"), PROJECTED: lambda m: seen.append("projected")}
    make_listener(None, both, orderly=False).call([ReceivedMessage("t")], None)
    assert seen[2:] == ["plain"]
