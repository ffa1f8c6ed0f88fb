"""Requests that callers write from their own threads: they end like all others, and bytes never mix."""

from __future__ import annotations

import asyncio
import random
import threading

import pytest

from rocketstream.clock import ManualClock
from rocketstream.errors import ConnectionLostError, RemotingClosedError, RequestTimeoutError
from rocketstream.remoting.client import Outcome, RemotingClient
from rocketstream.remoting.hooks import RpcHook
from rocketstream.remoting.io_thread import IoThread
from rocketstream.remoting.settings import RemotingSettings
from rocketstream.testing.scripted_server import ScriptedServer
from rocketstream.wire.codes import ResponseCode
from rocketstream.wire.command import Command, request, response
from tests.remoting.requests import ASK, SILENT
from tests.scripted import eventually


async def here(
    client: RemotingClient, address: str, command: Command, deadline: float, outcomes: list[Outcome]
) -> bool:
    """Write it on a thread of its own."""
    return await asyncio.to_thread(client.try_invoke_here, address, command, deadline, outcomes.append)


async def with_a_line(client: RemotingClient, server: ScriptedServer, clock: ManualClock) -> None:
    """Connect, and let a first caller have the line made."""
    connection = await client.connect(server.address)
    assert not await here(client, server.address, request(ASK), clock.monotonic() + 30, [])
    await eventually(lambda: connection.line is not None and connection.line.settled)


@pytest.mark.behaviour("REM-05", "REM-07")
@pytest.mark.parametrize("ending", ["response", "go away", "cut", "timeout", "closed"])
async def test_a_request_of_a_callers_thread_has_one_outcome(server, make, clock, ending):
    client = make()
    held: list[Command] = []
    server.on(SILENT, lambda command: held.append(command))
    await with_a_line(client, server, clock)
    outcomes: list[Outcome] = []
    assert await here(client, server.address, request(SILENT), clock.monotonic() + 5, outcomes)
    assert client.permits_in_use == (0, 0)
    await server.until_received(1)
    if ending == "response":
        server.peers[0].send(response(held[0], ResponseCode.SUCCESS))
    elif ending == "go away":
        server.peers[0].send(response(held[0], ResponseCode.GO_AWAY))
    elif ending == "cut":
        server.peers[0].cut()
    elif ending == "timeout":
        await clock.advance(6)
    else:
        await client.close()
    await eventually(lambda: bool(outcomes))
    await clock.advance(10)
    assert client.pending == 0
    expected = {
        "response": Command,
        "go away": Command,
        "cut": ConnectionLostError,
        "timeout": RequestTimeoutError,
        "closed": RemotingClosedError,
    }
    assert [type(outcome) for outcome in outcomes] == [expected[ending]]
    assert server.connections_made == 1


async def test_who_would_have_to_wait_is_sent_away(server, make, clock):
    client = make()
    outcomes: list[Outcome] = []
    assert not client.try_invoke_here(server.address, request(ASK), clock.monotonic() + 9, outcomes.append), (
        "no connection"
    )
    await with_a_line(client, server, clock)
    assert not client.try_invoke_here(server.address, request(ASK), clock.monotonic() + 0.1, outcomes.append), "a timer"
    waiting = client.begin(server.address, request(ASK), 3)
    assert not client.try_invoke_here(server.address, request(ASK), clock.monotonic() + 9, outcomes.append), (
        "the I/O thread's own bytes have not left yet"
    )
    await waiting
    hooked = make(hooks=(RpcHook(),))
    await hooked.connect(server.address)
    assert not hooked.try_invoke_here(server.address, request(ASK), clock.monotonic() + 9, outcomes.append), "a hook"
    assert not outcomes


async def test_a_signing_hook_signs_on_the_callers_thread(server, make, clock):
    class Signer(RpcHook):
        inline = True

        def before_request(self, address: str, request: Command) -> None:
            request.fields["signed"] = "yes"

    client = make(hooks=(Signer(),))
    await with_a_line(client, server, clock)
    outcomes: list[Outcome] = []
    assert await here(client, server.address, request(ASK, {"n": "1"}), clock.monotonic() + 9, outcomes)
    await eventually(lambda: bool(outcomes))
    assert isinstance(outcomes[0], Command)
    assert outcomes[0].fields == {"n": "1", "signed": "yes"}


async def test_what_the_socket_does_not_take_goes_first_by_the_io_thread(make, clock):
    """A peer that reads late: one frame is written in part, others queue up behind it, all arrive whole."""
    async with ScriptedServer() as server:
        server.on(ASK, lambda to: response(to, ResponseCode.SUCCESS, header=to.fields))
        client = make(socket_send_buffer=64 * 1024)
        await with_a_line(client, server, clock)
        transport = server.peers[0].transport
        assert transport is not None
        transport.pause_reading()
        outcomes: list[Outcome] = []
        size = 12 * 1024 * 1024
        assert await here(
            client, server.address, request(ASK, {"n": "0"}, bytes(size)), clock.monotonic() + 90, outcomes
        )
        assert not await here(client, server.address, request(ASK, {"n": "x"}), clock.monotonic() + 90, outcomes)
        later = [client.begin(server.address, request(ASK, {"n": str(n)}, b"b" * n), 90) for n in (1, 2)]
        transport.resume_reading()
        answers = await asyncio.gather(*later)
        await eventually(lambda: bool(outcomes))
        assert [answer.fields["n"] for answer in answers] == ["1", "2"]
        assert [(command.fields["n"], len(command.body)) for command in server.received] == [
            ("0", size),
            ("1", 1),
            ("2", 2),
        ]


async def test_there_is_no_line_through_tls(make, clock, tls_server):
    server, context = tls_server
    client = make(tls=context)
    connection = await client.connect(server.address)
    for _ in range(2):
        assert not await here(client, server.address, request(ASK), clock.monotonic() + 30, [])
        await clock.settle()
    assert connection.line is None
    assert (await client.invoke(server.address, request(ASK, {"n": "1"}), 3)).fields == {"n": "1"}


@pytest.fixture
async def tls_server():
    import ssl

    import trustme

    authority = trustme.CA()
    ours, theirs = ssl.create_default_context(), ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.configure_trust(ours)
    authority.issue_cert("127.0.0.1").configure_cert(theirs)
    async with ScriptedServer(tls=theirs) as server:
        server.on(ASK, lambda to: response(to, ResponseCode.SUCCESS, header=to.fields))
        yield server, ours


def test_many_threads_and_the_io_thread_never_mix_their_bytes():
    """Bodies of all sizes, from eight callers and from the I/O thread at the same time: each gets its own back."""
    io = IoThread("direct-line-test")

    async def begin() -> tuple[ScriptedServer, RemotingClient]:
        server = await ScriptedServer().start()
        server.on(ASK, lambda to: response(to, ResponseCode.SUCCESS, header=to.fields, body=to.body))
        client = RemotingClient(RemotingSettings(socket_send_buffer=64 * 1024))
        await client.connect(server.address)
        return server, client

    server, client = io.run(begin())
    wrong: list[object] = []
    directly = 0

    def call(number: int) -> None:
        nonlocal directly
        choose = random.Random(number)
        for turn in range(25):
            name = f"{number}.{turn}"
            body = choose.randbytes(choose.choice((0, 10, 1_000, 70_000, 300_000)))
            command = request(ASK, {"n": name}, body)
            done = threading.Event()
            outcomes: list[Outcome] = []

            def conclude(outcome: Outcome, outcomes: list[Outcome] = outcomes, done: threading.Event = done) -> None:
                outcomes.append(outcome)
                done.set()

            deadline = client._clock.monotonic() + 60
            if client.try_invoke_here(server.address, command, deadline, conclude):
                directly += 1
                assert done.wait(60)
                answer = outcomes[0]
            else:
                answer = io.run(client.invoke(server.address, command, 60))
            if not isinstance(answer, Command) or answer.fields["n"] != name or answer.body != body:
                wrong.append((name, answer))

    try:
        threads = [threading.Thread(target=call, args=(number,)) for number in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not wrong
        assert directly, "nobody came through the direct line: the test shows nothing"
    finally:
        io.run(client.close())
        io.run(server.stop())
        io.stop()
