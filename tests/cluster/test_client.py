"""The life that producers, consumers and operators' clients have in common."""

from __future__ import annotations

import pytest

from rocketstream.cluster.client import ClientCore, ClientState
from rocketstream.cluster.client_instance import InstanceState
from rocketstream.cluster.client_instances import ClientInstances
from rocketstream.cluster.settings import ClientSettings
from rocketstream.errors import ClientStateError, ConfigurationError


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
