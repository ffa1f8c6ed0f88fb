"""The remoting client against a scripted peer, with time that the test moves."""

from __future__ import annotations

import asyncio
import socket
import threading

import pytest

from rocketstream.errors import (
    ConfigurationError,
    ConnectError,
    ConnectionLostError,
    RemotingClosedError,
    RequestTimeoutError,
    SendRequestError,
    TooManyRequestsError,
)
from rocketstream.remoting.connection import split_address
from rocketstream.remoting.hooks import RpcHook
from rocketstream.remoting.settings import RemotingSettings
from rocketstream.testing.scripted_server import ScriptedServer
from rocketstream.wire.codes import RequestCode, ResponseCode, SerializeType
from rocketstream.wire.command import Command, request, response
from tests.remoting.requests import ASK, SILENT, ok
from tests.scripted import eventually


@pytest.mark.behaviour("REM-01")
async def test_responses_find_their_callers_in_any_order(server, make):
    held: list[Command] = []
    server.on(SILENT, lambda command: held.append(command))
    client = make()
    callers = [
        asyncio.ensure_future(client.invoke(server.address, request(SILENT, {"n": str(n)}), 3)) for n in range(20)
    ]
    await server.until_received(20)
    assert len({command.opaque for command in held}) == 20
    for command in reversed(held):
        server.peers[0].send(response(command, ResponseCode.SUCCESS, header={"n": command.fields["n"]}))
    answers = await asyncio.gather(*callers)
    assert [answer.fields["n"] for answer in answers] == [str(n) for n in range(20)]


@pytest.mark.behaviour("REM-02")
async def test_a_failed_send_fails_the_caller_at_once(server, make, clock):
    client = make()
    await client.invoke(server.address, request(ASK), 3)
    connection = client.connections[server.address]
    write = connection._transport.write
    connection._transport.abort()  # the socket is closing; asyncio has not told us yet
    client._pool._open[server.address] = connection
    before = clock.monotonic()
    with pytest.raises(SendRequestError, match="connection is closed"):
        await client._ask(connection, request(ASK), clock.monotonic() + 3)
    assert clock.monotonic() == before, "no time had to pass"
    assert client.pending == 0
    assert write is not None


@pytest.mark.behaviour("REM-02", "REM-07")
async def test_a_lost_connection_fails_its_requests_at_once_and_leaves_the_table(server, make, clock):
    client = make()
    callers = [asyncio.ensure_future(client.invoke(server.address, request(SILENT), 30)) for _ in range(5)]
    await server.until_received(5)
    server.peers[0].cut()
    outcomes = await asyncio.gather(*callers, return_exceptions=True)
    assert all(isinstance(outcome, ConnectionLostError) for outcome in outcomes)
    assert server.address in str(outcomes[0])
    assert "GET_MIN_OFFSET" in str(outcomes[0])
    assert client.connections == {}
    assert clock.monotonic() == 1000.0, "no time had to pass"


@pytest.mark.behaviour("REM-03")
async def test_the_scan_starts_after_3_s_and_runs_each_second(server, make, clock):
    client = make()
    assert clock.pending == [3.0]
    caller = asyncio.ensure_future(client.invoke(server.address, request(SILENT), 4.5))
    await server.until_received(1)
    await clock.advance(3.0)
    assert clock.pending == [1.0]
    await clock.advance(1.0)
    assert not caller.done()
    assert client.pending == 1
    await clock.advance(1.0)  # 5 s: the first scan after the time-out of 4.5 s
    with pytest.raises(RequestTimeoutError, match=r"no answer to GET_MIN_OFFSET within 4\.5 s"):
        await caller
    assert client.pending == 0


@pytest.mark.behaviour("REM-03")
async def test_a_time_out_before_the_next_scan_is_kept_exactly(server, make, clock):
    client = make()
    caller = asyncio.ensure_future(client.invoke(server.address, request(SILENT), 0.2))
    await server.until_received(1)
    await clock.advance(0.19)
    assert not caller.done()
    await clock.advance(0.01)
    with pytest.raises(RequestTimeoutError):
        await caller


@pytest.mark.behaviour("REM-03")
async def test_a_request_that_times_out_is_never_late_by_more_than_a_scan_period(server, make, clock):
    client = make(dead_after=60)
    await clock.advance(3.3)
    late: dict[int, float] = {}

    async def ask(tenths: int) -> None:
        begun = clock.monotonic()
        with pytest.raises(RequestTimeoutError):
            await client.invoke(server.address, request(SILENT), tenths / 10)
        late[tenths] = clock.monotonic() - begun - tenths / 10

    callers = [asyncio.ensure_future(ask(tenths)) for tenths in range(1, 41)]
    await server.until_received(40)
    for _ in range(600):
        await clock.advance(0.01)
    await asyncio.gather(*callers)
    assert max(late.values()) <= 1.0 + 1e-6
    assert min(late.values()) >= -1e-6


async def test_a_silent_connection_is_presumed_dead_after_a_time_out(server, make, clock):
    client = make()
    caller = asyncio.ensure_future(client.invoke(server.address, request(SILENT), 3))
    await server.until_received(1)
    await clock.advance(4)
    with pytest.raises(RequestTimeoutError):
        await caller
    await eventually(lambda: client.connections == {})
    assert (await client.invoke(server.address, request(ASK), 3)).code == ResponseCode.SUCCESS
    assert server.connections_made == 2


async def test_a_short_time_out_does_not_take_the_connection_from_others(server, make, clock):
    client = make()
    patient = asyncio.ensure_future(client.invoke(server.address, request(SILENT), 30))
    hasty = asyncio.ensure_future(client.invoke(server.address, request(SILENT), 0.5))
    await server.until_received(2)
    await clock.advance(1)
    with pytest.raises(RequestTimeoutError):
        await hasty
    assert not patient.done()
    assert server.address in client.connections
    patient.cancel()


async def test_a_connection_that_answers_others_survives_a_time_out(server, make, clock):
    client = make()
    caller = asyncio.ensure_future(client.invoke(server.address, request(SILENT), 3))
    await server.until_received(1)
    await clock.advance(1)
    await client.invoke(server.address, request(ASK), 3)
    await clock.advance(3)
    with pytest.raises(RequestTimeoutError):
        await caller
    await clock.settle()
    await client.invoke(server.address, request(ASK), 3)
    assert server.connections_made == 1


@pytest.mark.behaviour("REM-04")
async def test_an_answer_nobody_waits_for_is_a_warning_and_nothing_else(server, make, caplog):
    client = make()
    await client.invoke(server.address, request(ASK), 3)
    server.peers[0].send(Command(code=0, opaque=4711, flag=1))
    await eventually(lambda: "4711" in caplog.text)
    assert [record.levelname for record in caplog.records if "4711" in record.message] == ["WARNING"]
    assert (await client.invoke(server.address, request(ASK), 3)).code == ResponseCode.SUCCESS
    assert server.connections_made == 1


async def test_an_answer_that_comes_on_another_connection_is_not_taken(make, caplog):
    async with ScriptedServer() as one, ScriptedServer() as other:
        one.on(SILENT, lambda command: None)
        other.on(ASK, ok)
        client = make()
        caller = asyncio.ensure_future(client.invoke(one.address, request(SILENT), 3))
        (asked,) = await one.until_received(1)
        await client.invoke(other.address, request(ASK), 3)
        other.peers[0].send(Command(code=0, opaque=asked.opaque, flag=1, remark="forged"))
        await eventually(lambda: "no request waits for" in caplog.text)
        assert not caller.done()
        one.peers[0].send(Command(code=0, opaque=asked.opaque, flag=1, remark="real"))
        assert (await caller).remark == "real"


@pytest.mark.behaviour("REM-05")
@pytest.mark.parametrize("ending", ["response", "cut", "timeout", "refused", "close"])
async def test_a_callback_runs_exactly_once_whatever_comes_first(server, make, clock, ending):
    client = make()
    held: list[Command] = []
    server.on(SILENT, lambda command: held.append(command))
    calls: list[object] = []
    done = asyncio.Event()
    loop = asyncio.get_running_loop()

    def callback(outcome: object) -> None:
        calls.append(outcome)
        loop.call_soon_threadsafe(done.set)

    address = server.address
    if ending == "refused":
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            address = f"127.0.0.1:{free.getsockname()[1]}"
    client.invoke_with_callback(address, request(SILENT), 3, callback)
    if ending != "refused":
        await server.until_received(1)
        peer = server.peers[0]
    if ending == "response":
        peer.send(ok(held[0]))
    elif ending == "cut":
        peer.cut()
    elif ending == "timeout":
        await clock.advance(5)
    elif ending == "close":
        await client.close()
    await asyncio.wait_for(done.wait(), 10)
    # Whatever else could end it now comes too.
    if ending in ("timeout", "response") and server.peers:
        server.peers[0].send(ok(held[0]))
        server.peers[0].cut()
        await eventually(lambda: client.connections == {})
    await clock.advance(10)
    await client.close()
    await asyncio.to_thread(client._callback_threads.shutdown, True)
    assert len(calls) == 1
    expected = {
        "response": Command,
        "cut": ConnectionLostError,
        "timeout": RequestTimeoutError,
        "refused": ConnectError,
        "close": RemotingClosedError,
    }
    assert isinstance(calls[0], expected[ending])


@pytest.mark.behaviour("REM-05")
async def test_a_callback_is_owed_even_by_a_closed_client(server, make):
    client = make()
    await client.close()
    outcomes: list[object] = []
    client.invoke_with_callback(server.address, request(ASK), 3, outcomes.append)
    await eventually(lambda: bool(outcomes))
    assert isinstance(outcomes[0], RemotingClosedError)


@pytest.mark.behaviour("REM-05", "REM-06")
@pytest.mark.parametrize("ending", ["response", "cut", "timeout", "go away"])
async def test_the_quick_way_has_one_outcome_too_and_gives_its_permit_back(server, make, clock, ending):
    client = make()
    held: list[Command] = []
    server.on(SILENT, lambda command: held.append(command))
    outcomes: list[object] = []
    assert not client.try_invoke(server.address, request(SILENT), clock.monotonic() + 5, outcomes.append), (
        "no connection"
    )
    await client.connect(server.address)
    assert client.try_invoke(server.address, request(SILENT), clock.monotonic() + 5, outcomes.append)
    assert client.permits_in_use == (1, 0)
    await server.until_received(1)
    peer = server.peers[0]
    if ending == "response":
        peer.send(ok(held[0]))
    elif ending == "go away":
        peer.send(response(held[0], ResponseCode.GO_AWAY))
    elif ending == "cut":
        peer.cut()
    else:
        await clock.advance(6)
    await eventually(lambda: bool(outcomes))
    assert client.permits_in_use == (0, 0)
    assert client.pending == 0
    await clock.advance(10)
    expected = {"response": Command, "go away": Command, "cut": ConnectionLostError, "timeout": RequestTimeoutError}
    assert [type(outcome) for outcome in outcomes] == [expected[ending]]


@pytest.mark.behaviour("REM-05", "REM-06")
async def test_a_request_that_was_begun_ends_like_any_other(server, make, clock):
    held: list[Command] = []
    server.on(SILENT, lambda command: held.append(command))
    client = make()
    first = client.begin(server.address, request(ASK, {"n": "1"}), 3)  # nothing is connected yet
    assert (await first).fields == {"n": "1"}
    second = client.begin(server.address, request(ASK, {"n": "2"}), 3)
    assert client.pending == 1, "it was written at once"
    assert (await second).fields == {"n": "2"}
    late = client.begin(server.address, request(SILENT), 5)
    await server.until_received(3)
    await clock.advance(6)
    with pytest.raises(RequestTimeoutError):
        await late
    await client.connect(server.address)
    lost = client.begin(server.address, request(SILENT), 5)
    await server.until_received(4)
    server.peers[0].cut()
    with pytest.raises(ConnectionLostError):
        await lost
    refused = client.begin("127.0.0.1:1", request(ASK), 3)
    with pytest.raises(ConnectError):
        await refused
    assert client.permits_in_use == (0, 0)


async def test_a_request_that_was_begun_moves_on_go_away(server, make):
    answers = [ResponseCode.GO_AWAY, ResponseCode.SUCCESS]
    server.on(ASK, lambda command: response(command, answers.pop(0)))
    client = make()
    await client.connect(server.address)
    old = server.peers[0]
    assert (await client.begin(server.address, request(ASK), 3)).code == ResponseCode.SUCCESS
    assert server.connections_made == 2
    await asyncio.wait_for(old.closed, 10)


async def test_closing_ends_what_was_begun(server, make):
    client = make()
    await client.connect(server.address)
    waiting = client.begin(server.address, request(SILENT), 30)
    await server.until_received(1)
    await client.close()
    with pytest.raises(RemotingClosedError):
        await waiting
    with pytest.raises(RemotingClosedError):
        await client.begin(server.address, request(ASK), 3)


async def test_the_quick_way_is_refused_where_something_has_to_be_waited_for(server, make, clock):
    def never(outcome: object) -> None:
        raise AssertionError("it was not sent")

    hooked = make(hooks=(RpcHook(),))
    await hooked.connect(server.address)
    assert not hooked.try_invoke(server.address, request(ASK), clock.monotonic() + 3, never)
    full = make(max_async_requests=1)
    await full.connect(server.address)
    busy = asyncio.ensure_future(full.invoke(server.address, request(SILENT), 30))
    await server.until_received(1)
    assert not full.try_invoke(server.address, request(ASK), clock.monotonic() + 3, never)
    assert not full.try_invoke(server.address, request(ASK), clock.monotonic(), never)
    busy.cancel()


@pytest.mark.behaviour("REM-06")
async def test_asynchronous_requests_are_limited_and_permits_come_back_on_every_path(server, make, clock):
    client = make(max_async_requests=2)
    first = [asyncio.ensure_future(client.invoke(server.address, request(SILENT), 30)) for _ in range(2)]
    await server.until_received(2)
    assert client.permits_in_use == (2, 0)
    waiting = asyncio.ensure_future(client.invoke(server.address, request(ASK), 1))
    await clock.advance(0.9)
    assert not waiting.done()
    await clock.advance(0.1)
    with pytest.raises(TooManyRequestsError, match="2 asynchronous requests are under way"):
        await waiting
    cancelled = asyncio.ensure_future(client.invoke(server.address, request(ASK), 10))
    patient = asyncio.ensure_future(client.invoke(server.address, request(ASK), 10))
    await clock.settle()
    cancelled.cancel()
    first[0].cancel()
    assert (await patient).code == ResponseCode.SUCCESS
    assert client.permits_in_use == (1, 0)
    server.peers[0].cut()
    await asyncio.gather(*first, cancelled, return_exceptions=True)
    assert client.permits_in_use == (0, 0)
    assert client.pending == 0


@pytest.mark.behaviour("REM-06")
async def test_one_way_requests_have_permits_of_their_own(server, make, clock):
    client = make(max_async_requests=1, max_one_way_requests=1)
    busy = asyncio.ensure_future(client.invoke(server.address, request(SILENT), 30))
    await server.until_received(1)
    await client.invoke_one_way(server.address, request(ASK))
    received = await server.until_received(2)
    assert received[1].is_one_way
    assert client.permits_in_use == (1, 0)
    await client._one_way_permits.acquire("x", clock.monotonic() + 1)
    blocked = asyncio.ensure_future(client.invoke_one_way(server.address, request(ASK), 1))
    await clock.advance(1)
    with pytest.raises(TooManyRequestsError, match="1 one-way requests"):
        await blocked
    client._one_way_permits.release()
    busy.cancel()


@pytest.mark.behaviour("REM-07")
async def test_an_address_has_one_connection_made_on_first_use_and_reused(server, make):
    client = make()
    assert server.connections_made == 0
    await asyncio.gather(*(client.invoke(server.address, request(ASK), 3) for _ in range(50)))
    await client.invoke_one_way(server.address, request(ASK))
    await client.invoke(server.address, request(ASK), 3)
    assert server.connections_made == 1
    assert repr(client.connections[server.address]).endswith("open>")


class Recorder(RpcHook):
    def __init__(self, name: str, log: list[tuple[str, str, str]]) -> None:
        self.name = name
        self.log = log
        self.threads: set[int] = set()

    def before_request(self, address: str, request: Command) -> None:
        request.fields[self.name] = "was here"
        self.log.append((self.name, "before", request.name))
        self.threads.add(threading.get_ident())

    def after_response(self, address: str, request: Command, response: Command) -> None:
        self.log.append((self.name, "after", response.name))
        self.threads.add(threading.get_ident())


@pytest.mark.behaviour("REM-08")
async def test_hooks_see_every_kind_of_call_and_can_add_fields(server, make):
    log: list[tuple[str, str, str]] = []
    hooks = (Recorder("one", log), Recorder("two", log))
    client = make(hooks=hooks)
    await client.invoke(server.address, request(ASK), 3)
    assert log == [
        ("one", "before", "GET_MAX_OFFSET"),
        ("two", "before", "GET_MAX_OFFSET"),
        ("one", "after", "SUCCESS"),
        ("two", "after", "SUCCESS"),
    ]
    log.clear()
    await client.invoke_one_way(server.address, request(ASK))
    received = await server.until_received(2)
    assert log == [("one", "before", "GET_MAX_OFFSET"), ("two", "before", "GET_MAX_OFFSET")]
    log.clear()
    outcomes: list[object] = []
    client.invoke_with_callback(server.address, request(ASK), 3, outcomes.append)
    await eventually(lambda: bool(outcomes))
    assert [entry[1] for entry in log] == ["before", "before", "after", "after"]
    assert all(command.fields["one"] == command.fields["two"] == "was here" for command in received)
    assert threading.get_ident() not in hooks[0].threads, "users' hooks stay off the I/O thread"


@pytest.mark.behaviour("REM-08")
async def test_a_hook_that_raises_before_fails_the_request_and_after_is_logged(server, make, caplog):
    class Broken(RpcHook):
        def before_request(self, address: str, request: Command) -> None:
            if "stop" in request.fields:
                raise RuntimeError("not this one")

        def after_response(self, address: str, request: Command, response: Command) -> None:
            raise RuntimeError("after the fact")

    client = make(hooks=(Broken(),))
    with pytest.raises(RuntimeError, match="not this one"):
        await client.invoke(server.address, request(ASK, {"stop": "1"}), 3)
    assert server.received == []
    assert (await client.invoke(server.address, request(ASK), 3)).code == ResponseCode.SUCCESS
    assert "after the fact" in caplog.text


@pytest.mark.behaviour("REM-09")
async def test_the_ways_to_fail_are_told_apart(server, make, clock):
    client = make(connect_timeout=2)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        nobody = f"127.0.0.1:{free.getsockname()[1]}"
    with pytest.raises(ConnectError, match=f"{nobody}: cannot connect"):
        await client.invoke(nobody, request(ASK), 3)
    with pytest.raises(ConfigurationError, match="is not an address"):
        await client.invoke("no-port", request(ASK), 3)
    answer = await client.invoke(server.address, request(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER), 3)
    assert answer.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED
    assert answer.remark == "no handler for GET_ALL_TOPIC_LIST_FROM_NAMESERVER"


@pytest.mark.behaviour("REM-11")
async def test_a_slow_callback_never_blocks_reading(server, make):
    client = make(callback_threads=1)
    release = threading.Event()
    entered = threading.Event()

    def slow(outcome: object) -> None:
        entered.set()
        release.wait(30)

    client.invoke_with_callback(server.address, request(ASK), 3, slow)
    await asyncio.to_thread(entered.wait, 30)
    try:
        for _ in range(10):
            assert (await client.invoke(server.address, request(ASK), 3)).code == ResponseCode.SUCCESS
    finally:
        release.set()


@pytest.mark.behaviour("REM-11")
async def test_callbacks_that_wait_for_requests_of_their_own_do_not_starve_their_hooks(server, make):
    class Slow(RpcHook):
        def before_request(self, address: str, request: Command) -> None:
            pass

    client = make(hooks=(Slow(),), callback_threads=1)
    loop = asyncio.get_running_loop()
    done = asyncio.Event()

    def blocks(outcome: object) -> None:
        again = asyncio.run_coroutine_threadsafe(client.invoke(server.address, request(ASK), 3), loop)
        assert again.result(30).code == ResponseCode.SUCCESS
        loop.call_soon_threadsafe(done.set)

    client.invoke_with_callback(server.address, request(ASK), 3, blocks)
    await asyncio.wait_for(done.wait(), 30)


@pytest.mark.behaviour("REM-12")
async def test_sockets_are_set_up_as_asked(server, make):
    client = make(socket_send_buffer=65536, socket_receive_buffer=32768)
    connection = await client.connect(server.address)
    sock = connection._transport.get_extra_info("socket")
    assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) != 0
    assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) != 0
    # Linux doubles what is asked for, to have room for its own books.
    assert 65536 <= sock.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF) <= 2 * 65536
    assert 32768 <= sock.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF) <= 2 * 32768


@pytest.mark.behaviour("REM-12")
async def test_a_connect_ends_after_its_time_out(make, clock):
    with socket.socket() as full:  # a listener whose backlog is full answers nobody
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        address = f"127.0.0.1:{full.getsockname()[1]}"
        fillers = [socket.socket() for _ in range(4)]
        for filler in fillers:
            filler.setblocking(False)
            filler.connect_ex(full.getsockname())
        client = make()
        caller = asyncio.ensure_future(client.invoke(address, request(ASK), 30))
        await clock.advance(2.9)
        assert not caller.done()
        await clock.advance(0.2)
        with pytest.raises(ConnectError, match="no connection within 3 s"):
            await caller
        for filler in fillers:
            filler.close()


@pytest.mark.behaviour("REM-12")
async def test_an_idle_connection_is_closed_after_120_s_but_not_one_that_is_waited_on(server, make, clock):
    client = make()
    await client.invoke(server.address, request(ASK), 3)
    await clock.advance(119)
    assert server.address in client.connections
    await clock.advance(2)
    await eventually(lambda: client.connections == {})
    waiting = asyncio.ensure_future(client.invoke(server.address, request(SILENT), 500))
    await server.until_received(2)
    await clock.advance(200)
    assert server.address in client.connections
    waiting.cancel()


@pytest.mark.behaviour("REM-14")
@pytest.mark.parametrize("encoding", [SerializeType.JSON, SerializeType.ROCKETMQ])
async def test_requests_go_out_in_the_chosen_encoding_and_answers_of_both_are_read(server, make, encoding):
    client = make(serialize_type=encoding)
    other = SerializeType(1 - encoding)

    def in_other_encoding(command: Command) -> Command:
        answer = ok(command)
        answer.serialize_type = other
        return answer

    server.on(SILENT, in_other_encoding)
    same = await client.invoke(server.address, request(ASK, {"a": "ü"}, b"body"), 3)
    crossed = await client.invoke(server.address, request(SILENT, {"a": "ü"}, b"body"), 3)
    assert [command.serialize_type for command in server.received] == [encoding, encoding]
    assert (same.serialize_type, crossed.serialize_type) == (encoding, other)
    assert same.fields == crossed.fields == {"a": "ü"}
    assert same.body == crossed.body == b"body"


async def test_bytes_that_are_no_protocol_end_the_connection_with_the_reason(server, make):
    client = make()
    caller = asyncio.ensure_future(client.invoke(server.address, request(SILENT), 3))
    await server.until_received(1)
    server.peers[0].send_bytes(b"HTTP/1.1 400 Bad Request\r\n\r\n")
    with pytest.raises(ConnectionLostError, match=r"not RocketMQ's protocol: frame length \d+ is not between"):
        await caller


async def test_go_away_moves_the_request_to_a_new_connection_without_failing_anyone(server, make):
    leaving: list[int] = []
    held: list[Command] = []

    def answer(command: Command) -> Command:
        if not leaving:
            leaving.append(command.opaque)
            return response(command, ResponseCode.GO_AWAY, "please go away")
        return ok(command)

    server.on(SILENT, lambda command: held.append(command))
    server.on(ASK, answer)
    client = make()
    waiting = asyncio.ensure_future(client.invoke(server.address, request(SILENT), 30))
    await server.until_received(1)
    old = server.peers[0]
    moved = await client.invoke(server.address, request(ASK, {"n": "1"}), 3)
    assert moved.code == ResponseCode.SUCCESS
    assert moved.fields == {"n": "1"}
    assert server.connections_made == 2
    assert not waiting.done(), "who still waits on the old connection keeps it"
    old.send(ok(held[0]))
    assert (await waiting).code == ResponseCode.SUCCESS
    await asyncio.wait_for(old.closed, 10)
    assert list(client.connections) == [server.address]


async def test_go_away_twice_is_a_send_error(server, make):
    server.on(ASK, lambda command: response(command, ResponseCode.GO_AWAY, "please go away"))
    client = make()
    with pytest.raises(SendRequestError, match="going away"):
        await client.invoke(server.address, request(ASK), 3)


@pytest.mark.parametrize("kind", ["answers", "raises", "unknown", "one-way"])
async def test_requests_of_a_broker_are_processed_off_the_io_thread(server, make, kind):
    client = make()
    await client.invoke(server.address, request(ASK), 3)
    threads: list[int] = []

    def processor(address: str, command: Command) -> Command:
        threads.append(threading.get_ident())
        if kind == "raises":
            raise ValueError("cannot do that")
        return response(command, ResponseCode.SUCCESS, "done")

    client.register_processor(RequestCode.GET_CONSUMER_RUNNING_INFO, processor)
    code = RequestCode.NOTIFY_CONSUMER_IDS_CHANGED if kind == "unknown" else RequestCode.GET_CONSUMER_RUNNING_INFO
    asked = Command(code=code, opaque=77, flag=2 if kind == "one-way" else 0)
    server.peers[0].send(asked)
    if kind == "one-way":
        await eventually(lambda: bool(threads))
        await client.invoke(server.address, request(ASK), 3)
        assert all(not command.is_response for command in server.received)
        return
    answer = (await server.until_received(2))[1]
    assert answer.is_response
    assert answer.opaque == 77
    if kind == "unknown":
        assert answer.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED
    elif kind == "raises":
        assert (answer.code, answer.remark) == (ResponseCode.SYSTEM_ERROR, "ValueError: cannot do that")
    else:
        assert (answer.code, answer.remark) == (ResponseCode.SUCCESS, "done")
    assert threading.get_ident() not in threads


async def test_a_peer_that_does_not_read_holds_back_the_sender_until_its_deadline(make, clock):
    writers: list[asyncio.StreamWriter] = []

    async def never_read(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writers.append(writer)
        writer.transport.pause_reading()

    listener = await asyncio.start_server(never_read, "127.0.0.1", 0)
    address = f"127.0.0.1:{listener.sockets[0].getsockname()[1]}"
    client = make(socket_send_buffer=16384)
    big = b"x" * (8 * 1024 * 1024)
    first = asyncio.ensure_future(client.invoke(address, request(ASK, body=big), 60))
    await eventually(lambda: bool(client.connections) and client.connections[address].congested)
    second = asyncio.ensure_future(client.invoke(address, request(ASK, body=big), 1))
    await clock.advance(1.1)
    with pytest.raises(SendRequestError, match="does not read"):
        await second
    first.cancel()
    await client.close()
    writers[0].transport.abort()
    listener.close()
    await asyncio.sleep(0)


async def test_closing_fails_what_is_under_way_and_refuses_more(server, make):
    client = make()
    caller = asyncio.ensure_future(client.invoke(server.address, request(SILENT), 30))
    await server.until_received(1)
    await client.close()
    with pytest.raises(RemotingClosedError):
        await caller
    with pytest.raises(RemotingClosedError):
        await client.invoke(server.address, request(ASK), 3)
    assert repr(client).startswith("<RemotingClient closed, 0 connections, 0 pending")


@pytest.mark.parametrize("setting", ["connect_timeout", "scan_period", "max_async_requests", "callback_threads"])
def test_settings_that_cannot_work_are_refused_by_name(setting):
    with pytest.raises(ConfigurationError, match=f"{setting}=0 must be greater than 0"):
        RemotingSettings(**{setting: 0})


@pytest.mark.parametrize("address", ["no-port", ":1", "[]:1", "[::1", "[::1:9876", "host]:1", "h:0", "h:65536", "h:x"])
def test_what_is_not_an_address_is_refused(address):
    with pytest.raises(ConfigurationError, match="is not an address"):
        split_address(address)
    assert split_address("[::1]:9876") == ("::1", 9876)
    assert split_address("broker-a.example:1") == ("broker-a.example", 1)
