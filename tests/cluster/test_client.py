"""The life that producers, consumers and operators' clients have in common."""

from __future__ import annotations

import asyncio
import os
import signal
from typing import Any

import pytest

from rocketstream import (
    AdminClient,
    ConsumeResult,
    LitePullConsumer,
    Message,
    Producer,
    PushConsumer,
    StartFrom,
    TransactionProducer,
    TransactionState,
)
from rocketstream.broker import EmbeddedBroker
from rocketstream.cluster.client import ClientCore, ClientState
from rocketstream.cluster.client_instance import InstanceState
from rocketstream.cluster.client_instances import ClientInstances
from rocketstream.cluster.settings import ClientSettings
from rocketstream.errors import ClientStateError, ConfigurationError
from tests.scripted import eventually


class Fragile(ClientCore):
    """Fails to start or to end when it is told to."""

    fails_to_start = False
    fails_to_end = False

    async def on_start(self) -> None:
        await super().on_start()
        self.seen = self.state
        if self.fails_to_start:
            raise RuntimeError("cannot start")

    async def on_shutdown(self, timeout: float | None) -> None:
        self.seen = self.state
        if self.fails_to_end:
            raise RuntimeError("cannot end")


@pytest.fixture
def instances(clock):
    return ClientInstances(clock)


@pytest.fixture
def core(instances, name_server):
    return Fragile("the client", ClientSettings(name_servers=(name_server.address,)), instances=instances)


@pytest.mark.behaviour("START-01")
async def test_a_start_that_fails_gives_everything_back_and_can_be_repeated(core, instances, clock):
    core.fails_to_start = True
    with pytest.raises(RuntimeError, match="cannot start"):
        await core.start()
    assert core.seen is ClientState.START_FAILED
    assert core.state is ClientState.CREATE_JUST
    assert instances._instances == {}
    assert clock.pending == []
    with pytest.raises(ClientStateError, match=r"^the client is CREATE_JUST: call start\(\) first$"):
        core.check_running()
    core.fails_to_start = False
    await core.start()
    core.check_running()
    assert core.is_running
    assert core.instance.state is InstanceState.RUNNING
    assert core.clock is clock
    await core.shutdown()


@pytest.mark.behaviour("START-01")
async def test_an_end_that_fails_is_an_end(core, instances, clock):
    await core.start()
    instance = core.instance
    core.fails_to_end = True
    with pytest.raises(RuntimeError, match="cannot end"):
        await core.shutdown()
    assert core.state is core.seen is ClientState.SHUTDOWN_ALREADY
    assert instance.state is InstanceState.STOPPED
    assert clock.pending == []
    await core.shutdown()
    for use in (core.check_running, lambda: core.instance):
        with pytest.raises(ClientStateError, match=r"^the client is SHUTDOWN_ALREADY: it has been shut down$"):
            use()


def test_names_left_at_their_default_are_unique_and_others_are_kept(instances):
    settings = ClientSettings(name_servers=("127.0.0.1:1",), unit_name="unit")

    def client_id(name):
        return ClientCore("c", settings, instance_name=name, instances=instances).client_id

    assert len({client_id(None), client_id(None), client_id("DEFAULT"), client_id("DEFAULT")}) == 4
    assert client_id("mine") == client_id("mine")
    assert client_id("mine").endswith("@mine@unit")
    for wrong in ("", " ", 5):
        with pytest.raises(ConfigurationError, match=r"^instance_name=.* must be a text that is not empty, or None$"):
            client_id(wrong)


# --- Ctrl-C while a caller waits for the start ------------------------------------------------------------------------


def interrupt(client: Any, monkeypatch: pytest.MonkeyPatch, where: str) -> None:
    """Press Ctrl-C when the core has done this, before the waiting caller hears of it."""
    done = getattr(client.core, where)

    async def press(*arguments: Any) -> None:
        await done(*arguments)
        os.kill(os.getpid(), signal.SIGINT)
        if where == "on_start":
            await asyncio.Event().wait()

    monkeypatch.setattr(client.core, where, press)


def decide(*_: Any) -> TransactionState:
    return TransactionState.COMMIT


def succeed(*_: Any) -> ConsumeResult:
    return ConsumeResult.SUCCESS


@pytest.fixture(params=[Producer, TransactionProducer, PushConsumer, LitePullConsumer, AdminClient])
def client(request: pytest.FixtureRequest, embedded_broker: EmbeddedBroker) -> Any:
    with AdminClient(embedded_broker.address) as admin:
        admin.create_topic("orders", 1)
    address, kind = embedded_broker.address, request.param
    if kind is AdminClient:
        return kind(address)
    settings = {TransactionProducer: {"execute": decide, "check": decide}, PushConsumer: {"listener": succeed}}
    made = kind("g", address, **settings.get(kind, {}))
    if hasattr(made, "subscribe"):
        made.subscribe("orders")
    return made


def test_a_start_that_is_interrupted_leaves_nothing_and_can_be_repeated(client, monkeypatch):
    with monkeypatch.context() as patched:
        interrupt(client, patched, "on_start")
        with pytest.raises(KeyboardInterrupt):
            client.start()
        assert client.core.state is ClientState.CREATE_JUST
        assert not client.core.has_instance, "its connections are given back"
    client.start()
    assert client.core.state is ClientState.RUNNING
    client.shutdown()


def test_an_interrupt_right_after_the_start_ends_the_client(client, monkeypatch):
    interrupt(client, monkeypatch, "start")
    with pytest.raises(KeyboardInterrupt):
        client.start()
    assert client.core.state is ClientState.SHUTDOWN_ALREADY
    assert not client.core.has_instance


def test_an_interrupt_while_the_start_is_handed_over_leaves_nothing(client, monkeypatch):
    submit = client.core.io.submit

    def hand_over(*arguments: Any, **how: Any) -> Any:
        submit(*arguments, **how).result()
        monkeypatch.setattr(client.core.io, "submit", submit)
        raise KeyboardInterrupt

    monkeypatch.setattr(client.core.io, "submit", hand_over)
    with pytest.raises(KeyboardInterrupt):
        client.start()
    assert client.core.state is ClientState.SHUTDOWN_ALREADY
    assert not client.core.has_instance


def test_what_was_consumed_before_an_interrupted_start_returns_is_stored(embedded_broker, monkeypatch):
    """A listener may be called before `start` has returned to its caller."""
    address = embedded_broker.address
    with AdminClient(address) as admin, Producer("p", address) as producer:
        admin.create_topic("orders", 1)
        producer.send(Message("orders", b"1"))
        consumer = PushConsumer("g", address, listener=succeed, start_from=StartFrom.FIRST)
        consumer.subscribe("orders")
        start = consumer.core.start

        async def start_and_consume() -> None:
            await start()
            await eventually(lambda: consumer.metrics.get("orders", {}).get("ok_messages"))
            os.kill(os.getpid(), signal.SIGINT)

        monkeypatch.setattr(consumer.core, "start", start_and_consume)
        with pytest.raises(KeyboardInterrupt), consumer:
            pass
        progress = admin.consumer_progress("g", topic="orders")
        assert [queue.consumer_offset for queue in progress.queues] == [1]
        assert progress.members == 0
