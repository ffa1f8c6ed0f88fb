"""Name servers: how they are given, chosen, left and found again."""

from __future__ import annotations

import socket

import pytest

from rocketstream.clock import ManualClock
from rocketstream.cluster.name_servers import NameServers, configured_name_servers, parse_name_servers
from rocketstream.errors import ConfigurationError, NameServerError
from rocketstream.remoting.client import RemotingClient
from rocketstream.testing.scripted_server import ScriptedServer
from rocketstream.wire.codes import RequestCode, ResponseCode
from rocketstream.wire.command import Command, request, response

ASK = RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER


def ok(command: Command) -> Command:
    return response(command, ResponseCode.SUCCESS)


@pytest.fixture
async def remoting(clock: ManualClock):
    client = RemotingClient(clock=clock)
    client.start()
    yield client
    await client.close()


@pytest.fixture
async def two():
    async with ScriptedServer() as one, ScriptedServer() as other:
        one.on(ASK, ok)
        other.on(ASK, ok)
        yield one, other


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("127.0.0.1:9876", ("127.0.0.1:9876",)),
        ("a:1;b:2", ("a:1", "b:2")),
        (" a:1 , b:2; ", ("a:1", "b:2")),
        (["a:1", "b:2;c:3"], ("a:1", "b:2", "c:3")),
        ("a:1;a:1", ("a:1",)),
        ("[::1]:9876", ("[::1]:9876",)),
    ],
)
def test_name_servers_are_given_in_several_ways(value, expected):
    assert parse_name_servers(value) == expected


@pytest.mark.parametrize(
    "value", ["", ";", "localhost", "localhost:", ":9876", "a:0", "a:65536", "a:b", [], [5], "a:1;b"]
)
def test_what_is_no_address_is_refused_by_name(value):
    with pytest.raises(ConfigurationError, match="name_servers="):
        parse_name_servers(value)


def test_the_environment_is_asked_second_and_the_address_server_third():
    environment = {"NAMESRV_ADDR": "env:9876"}
    assert configured_name_servers("given:1", environment) == ("given:1",)
    assert configured_name_servers(None, environment) == ("env:9876",)
    assert configured_name_servers(None, {}) is None
    assert configured_name_servers(None, {"NAMESRV_ADDR": " "}) is None


@pytest.mark.behaviour("REM-13")
async def test_a_request_fails_over_and_stays_with_the_one_that_answers(remoting, two):
    one, other = two
    servers = NameServers(remoting, [one.address, other.address])
    chosen, spare = (one, other) if servers.chosen == one.address else (other, one)
    assert (await servers.ask(request(ASK), 3))[0] == chosen.address
    await chosen.stop()
    address, answer = await servers.ask(request(ASK), 3)
    assert address == spare.address == servers.chosen
    assert answer.code == ResponseCode.SUCCESS
    assert servers.unreachable == {chosen.address}
    await chosen.start()
    await servers.ask(request(ASK), 3)
    assert (len(chosen.received), len(spare.received)) == (1, 2), "no reason to leave the one that answers"


@pytest.mark.behaviour("REM-13")
async def test_the_scan_finds_out_who_is_gone_and_who_is_back(remoting, two):
    one, other = two
    servers = NameServers(remoting, [one.address, other.address])
    chosen, spare = (one, other) if servers.chosen == one.address else (other, one)
    await servers.scan()
    assert servers.unreachable == frozenset()
    await chosen.stop()
    await servers.scan()
    assert servers.unreachable == {chosen.address}
    assert servers.chosen == spare.address, "an unreachable one is not chosen while another answers"
    await chosen.start()
    await servers.scan()
    assert servers.unreachable == frozenset()


@pytest.mark.behaviour("REM-13")
async def test_an_unreachable_one_is_asked_when_all_others_fail(remoting, two):
    one, other = two
    servers = NameServers(remoting, [one.address, other.address])
    await one.stop()
    await servers.scan()
    await one.start()
    await other.stop()
    assert (await servers.ask(request(ASK), 3))[0] == one.address


@pytest.mark.behaviour("REM-13")
async def test_those_that_answered_come_before_those_that_did_not(remoting, two):
    one, other = two
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        dead = f"127.0.0.1:{free.getsockname()[1]}"
    servers = NameServers(remoting, [dead, one.address, other.address])
    await servers.scan()
    assert servers.unreachable == {dead}
    assert servers._in_order()[0] == servers.chosen
    assert servers._in_order()[-1] == dead


async def test_when_none_answers_the_error_says_what_each_said(remoting):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        nobody = f"127.0.0.1:{free.getsockname()[1]}"
    servers = NameServers(remoting, [nobody])
    with pytest.raises(NameServerError, match=f"no name server answered .*{nobody}: cannot connect"):
        await servers.ask(request(ASK), 3)
    with pytest.raises(NameServerError, match=r"no name server is known: pass name_servers="):
        await NameServers(remoting).ask(request(ASK), 3)


async def test_a_changed_list_replaces_the_old_one_and_leaves_its_connections(remoting, two):
    one, other = two
    servers = NameServers(remoting, [one.address])
    await servers.ask(request(ASK), 3)
    peer = one.peers[0]
    assert servers.replace([other.address])
    await peer.closed
    assert (await servers.ask(request(ASK), 3))[0] == other.address
    assert not servers.replace([other.address])
    assert str(servers) == other.address
