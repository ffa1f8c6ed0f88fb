"""The operator's client without a cluster: its life, its arguments, and what it says when nobody answers."""

from __future__ import annotations

import asyncio
import socket

import pytest

from rocketstream import AdminClient
from rocketstream.admin.secrets import REDACTED
from rocketstream.errors import ClientStateError, ConfigurationError, NameServerError
from rocketstream.wire.codes import RequestCode


@pytest.fixture
def nobody() -> str:
    """An address where nothing listens."""
    with socket.create_server(("127.0.0.1", 0)) as once:
        return f"127.0.0.1:{once.getsockname()[1]}"


def test_its_life(nobody):
    admin = AdminClient(nobody)
    assert "CREATE_JUST" in repr(admin)
    admin.close()  # before anything was asked
    admin.start()
    assert "RUNNING" in repr(admin)
    with pytest.raises(ClientStateError, match="AdminClient cannot start: it is RUNNING"):
        admin.start()
    admin.close()
    admin.shutdown()
    with pytest.raises(ClientStateError, match="AdminClient is SHUTDOWN_ALREADY: it has been shut down"):
        admin.topics()


def test_the_first_question_starts_it_and_others_wait_for_that(nobody):
    admin = AdminClient(nobody)
    core = admin._core
    starts: list[str] = []

    async def slow_start() -> None:
        starts.append("start")
        for _ in range(10):
            await asyncio.sleep(0)

    async def answer() -> int:
        return 42

    async def ask_together() -> list[int]:
        return await asyncio.gather(*(core.started(answer()) for _ in range(3)))

    core.on_start = slow_start
    assert core.io.run(ask_together()) == [42, 42, 42]
    assert starts == ["start"]
    admin.close()


def test_a_name_server_that_does_not_answer_is_named(nobody):
    with AdminClient(nobody) as admin:
        with pytest.raises(NameServerError, match=f"no name server answered GET_BROKER_CLUSTER_INFO: {nobody}: "):
            admin.cluster()
        # It can be asked again: a failure is not the end.
        with pytest.raises(NameServerError, match=f"no name server answered GET_ROUTEINFO_BY_TOPIC: {nobody}: "):
            admin.route("t")


@pytest.mark.parametrize(
    ("call", "problem"),
    [
        (lambda admin: admin.route(""), "topic='': a topic needs a name"),
        (lambda admin: admin.route("a b"), "topic='a b' has illegal characters"),
        (lambda admin: admin.create_topic("t", queues=0), "read_queues=0 of topic 't' must be from 1 to 8192"),
        (lambda admin: admin.create_topic("t", queues=True), "read_queues=True of topic 't' must be"),
        (lambda admin: admin.create_topic("t", write_queues=9000), "write_queues=9000 of topic 't' must be"),
        (lambda admin: admin.create_topic("t", permission="X"), "permission='X' must be one of RW, R, W"),
        (lambda admin: admin.create_topic("rmq_sys_x"), "topic='rmq_sys_x' is RocketMQ's own"),
        (lambda admin: admin.delete_topic("SCHEDULE_TOPIC_XXXX"), "topic='SCHEDULE_TOPIC_XXXX' is RocketMQ's own"),
        (lambda admin: admin.consumers("DEFAULT_CONSUMER"), "group='DEFAULT_CONSUMER' is reserved"),
        (lambda admin: admin.consumer_progress("a/b"), "group='a/b' has illegal characters"),
        (lambda admin: admin.reset_offset("g", "t"), "a reset needs to=, offset=, offsets= or like="),
        (lambda admin: admin.reset_offset("g", "t", "latest", offset=1), "a reset needs to=, offset=, offsets= or"),
        (lambda admin: admin.reset_offset("g", "t", "sometime"), "to='sometime': expected 'earliest', 'latest'"),
        (lambda admin: admin.reset_offset("g", "t", 5), "to=5 is no time in milliseconds since the epoch"),
        (lambda admin: admin.peek("t", 0), "n=0 must be from 1 to 100000"),
        (lambda admin: admin.peek("t", start="latest", offset=1), "start and offset are two ways"),
        (lambda admin: admin.peek("t", until="earliest"), "until='earliest' leaves nothing to read"),
        (lambda admin: admin.peek("t", tags=" || "), "the subscription ' || ' to topic 't' names no tag"),
        (lambda admin: admin.messages_by_key("t", " "), "key=' ': a key is a text that is not empty"),
        (lambda admin: admin.messages_by_key("t", "k", limit=0), "limit=0 must be from 1 to 1024"),
        (lambda admin: admin.message("xyz"), "'xyz' is not a message id"),
    ],
)
def test_a_wrong_argument_is_refused_before_anybody_is_asked(nobody, call, problem):
    with AdminClient(nobody) as admin, pytest.raises(ConfigurationError) as caught:
        call(admin)
    assert str(caught.value).startswith(problem)


def test_settings_are_checked_at_once():
    with pytest.raises(ConfigurationError, match="name_servers='nonsense'"):
        AdminClient("nonsense")
    with pytest.raises(ConfigurationError, match=r"api_timeout=-1 must be greater than 0 seconds"):
        AdminClient("127.0.0.1:9876", timeout=-1)
    with pytest.raises(ConfigurationError, match="namespace="):
        AdminClient("127.0.0.1:9876", namespace="a b")


def test_secrets_of_a_server_reach_no_operator(embedded_broker):
    """Not as settings of the broker, and not as those of the name server."""
    secret = b'innerClientAuthenticationCredentials={"accessKey":"rocketmq","secretKey":"hunter2"}\n'
    with AdminClient(embedded_broker.address) as admin:
        (broker,) = admin.cluster().brokers
        ask = admin.core.instance.ask
        admin.core.io.run(ask(broker.address, RequestCode.UPDATE_BROKER_CONFIG, body=secret))
        admin.core.io.run(ask(embedded_broker.address, RequestCode.UPDATE_NAMESRV_CONFIG, body=secret))
        for told in (admin.broker_config(broker.broker_name), admin.node_config(embedded_broker.address)):
            assert told["innerClientAuthenticationCredentials"] == REDACTED
            assert "hunter2" not in str(told)
