"""A producer's life: its states, whom it shares a client instance with, and that nothing is left of it."""

from __future__ import annotations

import asyncio
import contextlib
import threading

import pytest

from rocketstream.clock import ManualClock
from rocketstream.cluster.client import ClientState
from rocketstream.cluster.client_instances import ClientInstances
from rocketstream.errors import ClientStateError, ConfigurationError, NameServerError
from rocketstream.producer import Producer
from rocketstream.remoting.io_thread import IoThread
from rocketstream.wire.bodies.heartbeat import HeartbeatData
from rocketstream.wire.codes import RequestCode
from tests.producer.peers import make_core, ready
from tests.scripted import ScriptedNameServer

UNREGISTER = int(RequestCode.UNREGISTER_CLIENT)


@pytest.fixture
def instances(clock: ManualClock) -> ClientInstances:
    return ClientInstances(clock)


def nothing_left(instances: ClientInstances, clock: ManualClock) -> bool:
    return not instances._instances and not instances._users and clock.pending == []


@pytest.mark.behaviour("START-01")
async def test_the_states_of_a_life(name_server, instances, clock):
    core = make_core(name_server.address, instances=instances)
    assert core.state is ClientState.CREATE_JUST
    starting = asyncio.ensure_future(core.start())
    await asyncio.sleep(0)
    assert core.state is ClientState.START_FAILED
    with pytest.raises(ClientStateError, match=r"^producer of group 'g' cannot start: it is START_FAILED$"):
        await core.start()
    await starting
    assert core.state is ClientState.RUNNING
    with pytest.raises(ClientStateError, match=r"^producer of group 'g' cannot start: it is RUNNING$"):
        await core.start()
    assert core.state is ClientState.RUNNING
    await core.shutdown()
    assert core.state is ClientState.SHUTDOWN_ALREADY
    with pytest.raises(ClientStateError, match=r"^producer of group 'g' cannot start: it is SHUTDOWN_ALREADY$"):
        await core.start()
    await core.shutdown()
    assert core.state is ClientState.SHUTDOWN_ALREADY
    assert nothing_left(instances, clock)
    assert repr(core) == f"<producer of group 'g' SHUTDOWN_ALREADY, client id {core.client_id}>"


@pytest.mark.behaviour("START-01")
async def test_a_shutdown_before_the_start_is_nothing(name_server, instances):
    core = make_core(name_server.address, instances=instances)
    await core.shutdown()
    assert core.state is ClientState.CREATE_JUST
    await core.start()
    assert core.state is ClientState.RUNNING
    await core.shutdown()


@pytest.mark.behaviour("START-01")
async def test_two_shutdowns_at_once_are_one(name_server, instances, clock, a):
    name_server.set_route("t", {"a": {0: a.address}})
    core = make_core(name_server.address, instances=instances)
    await core.start()
    await core.send(ready(core))
    await asyncio.gather(core.shutdown(), core.shutdown())
    assert a.count(UNREGISTER) == 1
    assert nothing_left(instances, clock)


async def test_a_producer_tells_brokers_that_it_is_there_and_that_it_goes(name_server, started, a):
    name_server.set_route("ns%t", {"a": {0: a.address}})
    core = await started(namespace="ns")
    await core.send(ready(core))
    assert list(core.topics()) == ["ns%t"]
    assert await core.instance.heartbeat() == 1
    heartbeat = HeartbeatData.decode(a.received[-1].body)
    assert heartbeat.client_id == core.client_id
    assert [data.group_name for data in heartbeat.producer_data_set] == ["ns%g"]
    await core.shutdown()
    (told,) = (command for command in a.received if command.code == UNREGISTER)
    assert (told.fields["producerGroup"], told.fields["clientID"]) == ("ns%g", core.client_id)


async def test_a_dead_name_server_fails_the_start_and_it_can_be_tried_again(instances, clock):
    name_server = await ScriptedNameServer().start()
    await name_server.stop()
    core = make_core(name_server.address, instances=instances)
    with pytest.raises(NameServerError, match=f"no name server can be reached: {name_server.address}: cannot connect"):
        await core.start()
    assert core.state is ClientState.CREATE_JUST
    assert nothing_left(instances, clock)
    await name_server.start()
    await core.start()
    assert core.state is ClientState.RUNNING
    await core.shutdown()
    await name_server.stop()


async def test_a_start_that_is_cancelled_leaves_nothing(name_server, instances, clock):
    core = make_core(name_server.address, instances=instances)
    starting = asyncio.ensure_future(core.start())
    await asyncio.sleep(0)
    starting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await starting
    assert core.state is ClientState.CREATE_JUST
    assert nothing_left(instances, clock)


async def test_names_left_at_their_default_are_unique(name_server, instances):
    cores = [make_core(name_server.address, instances=instances) for _ in range(3)]
    cores.append(make_core(name_server.address, instances=instances, instance_name="DEFAULT"))
    assert len({core.client_id for core in cores}) == 4
    for core in cores:
        await core.start()  # the same group four times: these are four clients
    assert len({id(core.instance) for core in cores}) == 4
    for core in cores:
        await core.shutdown()


@pytest.mark.behaviour("START-05")
async def test_producers_with_one_instance_name_share_a_client_until_the_last_leaves(name_server, instances, clock, a):
    name_server.set_route("t", {"a": {0: a.address}})
    one = make_core(name_server.address, instances=instances, instance_name="shared", group="one")
    other = make_core(name_server.address, instances=instances, instance_name="shared", group="other")
    await one.start()
    await other.start()
    assert one.client_id == other.client_id
    assert one.client_id.endswith("@shared")
    assert one.instance is other.instance
    await one.send(ready(one))
    await other.send(ready(other))
    assert (a.connections_made, name_server.connections_made) == (1, 1)
    await one.shutdown()
    assert [command.fields["producerGroup"] for command in a.received if command.code == UNREGISTER] == ["one"]
    await other.send(ready(other))
    await other.shutdown()
    assert nothing_left(instances, clock)


@pytest.mark.behaviour("START-05")
async def test_sharing_with_other_settings_is_refused_and_can_be_tried_again(name_server, instances, clock):
    one = make_core(name_server.address, instances=instances, instance_name="shared", group="one")
    other = make_core(
        name_server.address, instances=instances, instance_name="shared", group="other", client={"api_timeout": 9.0}
    )
    await one.start()
    with pytest.raises(ConfigurationError, match=r"is in use with other settings .* Give this one another instance_"):
        await other.start()
    assert other.state is ClientState.CREATE_JUST, "not START_FAILED for ever"
    await one.shutdown()
    await other.start()
    await other.shutdown()
    assert nothing_left(instances, clock)


@pytest.mark.behaviour("START-08")
async def test_a_second_producer_of_a_group_in_one_client_is_refused(name_server, instances, clock, a):
    name_server.set_route("t", {"a": {0: a.address}})
    one = make_core(name_server.address, instances=instances, instance_name="shared")
    other = make_core(name_server.address, instances=instances, instance_name="shared")
    await one.start()
    with pytest.raises(ClientStateError) as caught:
        await other.start()
    assert str(caught.value) == (
        f"client {one.client_id} already has a producer of group 'g': a group has one producer per client."
        " Use that one, another group, or another instance_name"
    )
    assert other.state is ClientState.CREATE_JUST
    assert one.instance.producers == (one,), "the first one is not disturbed"
    await one.send(ready(one))
    assert a.count(UNREGISTER) == 0
    await one.shutdown()
    assert nothing_left(instances, clock)
    await other.start()
    assert other.state is ClientState.RUNNING
    await other.shutdown()
    assert nothing_left(instances, clock)


# --- the face -------------------------------------------------------------------------------------------------------


@pytest.fixture
def peers():
    """A name server on a thread of its own, for plain calls."""
    thread = IoThread("scripted-peers")
    server = ScriptedNameServer()
    thread.run(server.start())
    yield server
    thread.run(server.stop())
    thread.stop()


@pytest.mark.behaviour("START-01")
def test_the_plain_producer_lives_the_same_life(peers):
    producer = Producer("g", peers.address)
    assert repr(producer) == "<Producer g CREATE_JUST, <AsyncGate 0 of 1000 messages, 0 of 104857600 bytes>>"
    producer.shutdown()
    assert producer.state is ClientState.CREATE_JUST
    producer.start()
    assert producer.state is ClientState.RUNNING
    with pytest.raises(ClientStateError, match="cannot start: it is RUNNING"):
        producer.start()
    producer.shutdown()
    producer.shutdown()
    assert producer.state is ClientState.SHUTDOWN_ALREADY
    with pytest.raises(ClientStateError, match="cannot start: it is SHUTDOWN_ALREADY"):
        producer.start()


def test_a_with_block_shuts_down_whatever_happens_in_it(peers):
    producer = Producer("g", peers.address)
    with contextlib.suppress(ZeroDivisionError), producer:
        assert producer.state is ClientState.RUNNING
        raise ZeroDivisionError
    assert producer.state is ClientState.SHUTDOWN_ALREADY


def test_producers_come_and_go_without_leaving_threads(peers):
    with Producer("g", peers.address):
        pass
    before = {thread.name for thread in threading.enumerate()}
    for _ in range(5):
        with Producer("g", peers.address):
            pass
    left = {thread.name for thread in threading.enumerate()} - before
    assert left == set()
