"""The remoting client behind a line that is cut, delayed, split, repeated and garbled: each fault by itself.

`test_remoting_storm.py` has all of them at once.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections import Counter
from collections.abc import AsyncIterator, Callable
from random import Random

import pytest

from rocketstream.clock import ManualClock
from rocketstream.errors import ConnectError, ConnectionLostError, RequestTimeoutError, SendRequestError
from rocketstream.remoting.client import RemotingClient
from rocketstream.remoting.settings import RemotingSettings
from rocketstream.testing.fault_proxy import FaultProxy
from rocketstream.testing.scripted_server import ScriptedServer
from rocketstream.wire.codes import RequestCode, ResponseCode, SerializeType
from rocketstream.wire.command import Command, request
from tests.faults.storm import ASK, ECHO, echo
from tests.scripted import eventually

SILENT = RequestCode.GET_MIN_OFFSET
LOG = "rocketstream.remoting"
UNKNOWN = "which no request waits for"


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
async def server() -> AsyncIterator[ScriptedServer]:
    async with ScriptedServer() as server:
        server.on(ASK, echo)
        server.on(SILENT, lambda command: None)
        yield server


@pytest.fixture
async def line(server: ScriptedServer, clock: ManualClock) -> AsyncIterator[FaultProxy]:
    async with FaultProxy(server.address, clock=clock, seed=7) as line:
        yield line


@pytest.fixture
async def make(clock: ManualClock) -> AsyncIterator[Callable[..., RemotingClient]]:
    clients: list[RemotingClient] = []

    def make(**settings: object) -> RemotingClient:
        client = RemotingClient(RemotingSettings(**settings), clock=clock)  # type: ignore[arg-type]
        client.start()
        clients.append(client)
        return client

    yield make
    for client in clients:
        await client.close()
        assert client.pending == 0
        assert client.permits_in_use == (0, 0)


async def ask(client: RemotingClient, line: FaultProxy, number: int, timeout: float = 2.0) -> Command:
    answer = await client.invoke(line.address, ECHO.ask(number), timeout)
    assert ECHO.answered(number, answer)
    return answer


@pytest.mark.behaviour("REM-04", "REM-05")
async def test_an_answer_that_comes_twice_is_told_once_and_warned_of_once(line, make, caplog):
    client = make()
    line.duplicate(1)
    calls: list[object] = []
    client.invoke_with_callback(line.address, ECHO.ask(1), 2, calls.append)
    await eventually(lambda: UNKNOWN in caplog.text and bool(calls))
    line.duplicate(0)
    await ask(client, line, 2)
    assert len(calls) == 1
    assert [record.levelname for record in caplog.records if UNKNOWN in record.message] == ["WARNING"]
    assert line.stats.connections_made == 1


@pytest.mark.behaviour("REM-07")
@pytest.mark.parametrize(
    ("spared", "reason"), [(0, r"frame length -?\d+ is not between"), (8, "the header is not JSON")]
)
async def test_garbled_answers_end_the_connection_with_the_reason_and_the_next_one_works(line, make, spared, reason):
    client = make()
    await ask(client, line, 1)
    line.garble(1.0, "down", after_bytes=spared, replace=True)
    with pytest.raises(ConnectionLostError, match=f"{line.address}.*not RocketMQ's protocol: {reason}"):
        await ask(client, line, 2)
    assert client.connections == {}
    line.heal()
    await ask(client, line, 3)
    assert line.stats.connections_made == 2


async def test_flipped_bits_do_no_more_than_lose_requests(line, make, clock, caplog):
    # A flipped bit in a body or a number is not to be seen by anybody: frames have no checksum. So answers may be
    # wrong here; what may not be is a caller without an outcome, or an exception that nobody catches.
    client = make()
    outcomes: Counter[str] = Counter()

    async def caller(number: int) -> None:
        try:
            await client.invoke(line.address, ECHO.ask(number), 2)
        except (ConnectionLostError, SendRequestError, RequestTimeoutError) as error:
            outcomes[type(error).__name__] += 1
        else:
            outcomes["answered"] += 1

    line.garble(0.002, "down")
    for round_ in range(100):
        callers = [asyncio.ensure_future(caller(round_ * 20 + number)) for number in range(20)]
        while not all(done.done() for done in callers):
            await clock.advance(0.1)
        await asyncio.gather(*callers)
    assert outcomes.total() == 2000
    assert outcomes["answered"] > 0
    assert outcomes["ConnectionLostError"] > 0
    assert client.pending == 0
    assert client.permits_in_use == (0, 0)
    assert [record for record in caplog.records if record.levelno >= logging.ERROR] == []
    line.heal()
    await clock.advance(0)
    client.disconnect(line.address, "a clean line")
    await eventually(lambda: client.connections == {})
    await ask(client, line, 1)


@pytest.mark.behaviour("REM-01", "REM-14")
@pytest.mark.parametrize("encoding", [SerializeType.JSON, SerializeType.ROCKETMQ], ids=["json", "binary"])
async def test_bytes_that_come_one_by_one_make_the_same_answers(line, make, encoding):
    client = make(serialize_type=encoding)
    line.split(1)
    await asyncio.gather(*(ask(client, line, number) for number in range(20)))
    line.split((1, 5000))
    body = bytes(range(256)) * 400
    answer = await client.invoke(line.address, request(ASK, {"n": "1"}, body), 2)
    assert answer.body == body
    assert line.stats.connections_made == 1


@pytest.mark.behaviour("REM-03", "REM-04")
async def test_an_answer_later_than_the_time_out_is_a_time_out_and_then_a_warning(line, make, clock, caplog):
    client = make()
    line.delay(2.0, "down")
    caller = asyncio.ensure_future(ask(client, line, 1, timeout=1.0))
    await line.until(lambda stats: stats.frames_down == 1)
    await clock.advance(1.0)
    with pytest.raises(RequestTimeoutError, match=rf"{line.address}: no answer to GET_MAX_OFFSET within 1 s"):
        await caller
    assert client.pending == 0
    await clock.advance(1.0)
    await eventually(lambda: UNKNOWN in caplog.text)
    line.delay(0)
    await ask(client, line, 2)
    assert line.stats.connections_made == 1, "a late answer is no reason to give up the connection"


@pytest.mark.behaviour("REM-03", "REM-05", "REM-06")
async def test_whichever_of_answer_and_time_out_comes_first_is_the_only_one(line, make, clock, caplog):
    caplog.set_level(logging.ERROR, LOG)
    client = make(dead_after=60)
    told: list[tuple[int, object]] = []
    line.delay((0.0, 2.0), "down")
    random = Random(3)
    for number in range(1000):
        # Tenths of seconds: answers and time-outs fall on the very same moments.
        timeout = random.randint(1, 20) / 10
        client.invoke_with_callback(
            line.address, ECHO.ask(number), timeout, lambda outcome, number=number: told.append((number, outcome))
        )
    await line.until(lambda stats: stats.frames_down == 1000)
    while client.pending or client.permits_in_use != (0, 0):
        await clock.advance(0.1)
    await clock.advance(5)
    await client.close()
    await eventually(lambda: len(told) >= 1000)
    assert sorted(number for number, _ in told) == list(range(1000))
    kinds = Counter(type(outcome) for _, outcome in told)
    assert set(kinds) == {Command, RequestTimeoutError}
    assert all(ECHO.answered(number, outcome) for number, outcome in told if isinstance(outcome, Command))


@pytest.mark.behaviour("REM-03")
async def test_a_peer_that_dies_silently_is_a_time_out_and_its_connection_is_given_up(line, make, clock):
    client = make()
    await ask(client, line, 1)
    line.stall()
    callers = [asyncio.ensure_future(ask(client, line, number, timeout=3.0)) for number in range(5)]
    await eventually(lambda: client.pending == 5)
    await clock.advance(4.0)
    outcomes = await asyncio.gather(*callers, return_exceptions=True)
    assert {type(outcome) for outcome in outcomes} == {RequestTimeoutError}
    await eventually(lambda: client.connections == {})
    # A dead machine's new connections: accepted (by the kernel, here), never answered.
    caller = asyncio.ensure_future(ask(client, line, 6, timeout=3.0))
    await eventually(lambda: client.pending == 1)
    await clock.advance(4.0)
    with pytest.raises(RequestTimeoutError):
        await caller
    line.heal()
    await ask(client, line, 7)


async def test_one_swallowed_answer_costs_one_caller(line, make, clock):
    client = make()
    line.on_frame = lambda way, command: None if way == "down" and command.fields["n"] == "3" else command
    callers = [asyncio.ensure_future(ask(client, line, number)) for number in range(6)]
    await line.until(lambda stats: stats.frames_down == 6)
    await eventually(lambda: client.pending == 1)
    await clock.advance(3.0)
    outcomes = await asyncio.gather(*callers, return_exceptions=True)
    assert [type(outcome) for outcome in outcomes] == [*[Command] * 3, RequestTimeoutError, *[Command] * 2]


@pytest.mark.behaviour("REM-02", "REM-07")
@pytest.mark.parametrize("way", ["up", "down"])
async def test_a_cut_anywhere_in_a_frame_is_a_lost_connection_at_once(line, make, clock, way):
    client = make()
    await ask(client, line, 10)
    size = line.stats.bytes_up if way == "up" else line.stats.bytes_down
    for number, left in enumerate((1, 2, 3, 4, 5, 7, 8, 9, size // 2, size - 1), start=11):
        line.cut(way, after_bytes=left)
        with pytest.raises(ConnectionLostError, match="ended before GET_MAX_OFFSET was answered: the peer closed it"):
            await ask(client, line, number)
        assert client.connections == {}
        await ask(client, line, number)  # of the same size: opaques have two digits by then, or one as before
    assert clock.monotonic() == 1000.0, "no time had to pass"


@pytest.mark.behaviour("REM-07", "REM-09")
async def test_cuts_around_connecting_are_told_apart(line, make, clock):
    client = make()
    line.refuse()
    with pytest.raises(ConnectError, match=f"{line.address}: cannot connect"):
        await ask(client, line, 1)
    line.refuse(False)
    line.stall()  # the kernel accepts, nobody reads
    caller = asyncio.ensure_future(ask(client, line, 2))
    await eventually(lambda: client.pending == 1)
    await line.until(lambda stats: stats.connections_open == 1)
    line.cut()
    with pytest.raises(ConnectionLostError):
        await caller
    line.heal()
    await ask(client, line, 3)
    assert clock.monotonic() == 1000.0, "no time had to pass"


async def test_a_proxy_whose_broker_is_down_resets_its_client(make):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # and nobody listens; let go of, anybody might
        nobody = f"127.0.0.1:{taken.getsockname()[1]}"
        async with FaultProxy(nobody) as line:
            client = make()
            with pytest.raises(SendRequestError):
                await ask(client, line, 1)
            await eventually(lambda: client.connections == {})


@pytest.mark.parametrize("turns", range(12))
async def test_a_client_closed_while_it_connects_leaves_no_connection(server, make, turns):
    client = make()
    caller = asyncio.ensure_future(client.invoke(server.address, ECHO.ask(1), 2))
    for _ in range(turns):
        await asyncio.sleep(0)
    await client.close()
    await asyncio.gather(caller, return_exceptions=True)
    async with asyncio.timeout(10):
        while server.peers:
            await server.peers[0].closed
    assert client.connections == {}


@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
def test_a_one_way_request_written_just_before_the_end_still_leaves(loop):
    # This is how a consumer tells its last offsets.
    async def scenario() -> None:
        async with ScriptedServer() as server:
            client = RemotingClient()
            await client.connect(server.address)
            await client.invoke_one_way(server.address, ECHO.ask(1))
            await client.close()
            async with asyncio.timeout(10):
                (received,) = await server.until_received(1)
            assert received.fields == {"n": "1"}

    with asyncio.Runner(loop_factory=pytest.importorskip(loop).new_event_loop) as runner:
        runner.run(scenario())


@pytest.mark.behaviour("REM-05")
async def test_go_away_replaces_the_connection_under_load_without_failing_anyone(server, line, make):
    said: list[int] = []

    def go_away(way: str, command: Command) -> Command:
        # A broker that shuts down says it to every request that is still on its way.
        if way == "down" and len(said) < 300:
            said.append(command.opaque)
            command.code, command.fields, command.body = int(ResponseCode.GO_AWAY), {}, b""
        return command

    line.on_frame = go_away
    client = make()
    await asyncio.gather(*(ask(client, line, number) for number in range(1000)))
    assert len(said) == 300
    assert line.stats.connections_made == 2
    await line.until(lambda stats: stats.connections_open == 1)
    assert list(client.connections) == [line.address]
