"""The fault proxy itself: what each fault does to the bytes, seen from both ends."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator

import pytest

from rocketstream.clock import ManualClock
from rocketstream.errors import ClientStateError, ConfigurationError
from rocketstream.testing._faults import FrameCutter
from rocketstream.testing.cluster_proxy import ClusterProxy
from rocketstream.testing.fault_proxy import FaultProxy
from rocketstream.testing.scripted_server import ScriptedServer
from rocketstream.wire.codes import ResponseCode
from rocketstream.wire.command import Command
from tests.testing.bare_peers import ASK, frame, ok


@pytest.fixture
async def server() -> AsyncIterator[ScriptedServer]:
    async with ScriptedServer() as server:
        server.on(ASK, ok)
        yield server


@pytest.fixture
async def proxy(server: ScriptedServer) -> AsyncIterator[FaultProxy]:
    async with FaultProxy(server.address, record=True) as proxy:
        yield proxy


async def test_without_faults_it_is_a_wire(server, proxy, dial):
    client = await dial(proxy)
    client.ask(1, 2, 3)
    assert [answer.fields["n"] for answer in await client.answers(3)] == ["1", "2", "3"]
    stats = proxy.stats
    assert (stats.connections_made, stats.connections_open, stats.connections_cut) == (1, 1, 0)
    assert (stats.frames_up, stats.frames_down) == (3, 3)
    assert (stats.bytes_up, stats.bytes_down) == (3 * len(frame(1)), len(client.data))
    assert b"".join(item.data for item in proxy.recorded if item.direction == "up") == frame(1) + frame(2) + frame(3)
    assert b"".join(item.data for item in proxy.recorded if item.direction == "down") == client.data
    assert [item.command.opaque for item in proxy.recorded if item.direction == "down"] == [1, 2, 3]
    assert "1 connections, up: clear, down: clear" in repr(proxy)


async def test_large_bodies_pass_unchanged(server, proxy, dial):
    client = await dial(proxy)
    client.transport.write(frame(1, size=5_000_000))
    (answer,) = await client.answers(1)
    assert answer.body == b"x" * 5_000_000


async def test_a_stream_that_is_not_rocketmq_passes_as_it_comes(proxy, dial):
    async def upper(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write((await reader.readexactly(18)).upper())
        writer.close()

    listener = await asyncio.start_server(upper, "127.0.0.1", 0)
    async with FaultProxy(f"127.0.0.1:{listener.sockets[0].getsockname()[1]}") as other:
        client = await dial(other)
        client.transport.write(b"get / http/1.1\r\n\r\n")
        assert await client.lost is None
        assert client.data == b"GET / HTTP/1.1\r\n\r\n"
        assert other.stats.frames_up == 0
    listener.close()


async def test_the_end_of_a_peer_ends_the_other_after_its_last_bytes(server, proxy, dial):
    client = await dial(proxy)
    client.ask(1)
    await client.answers(1)
    server.peers[0].send_bytes(frame(7) + frame(8)[:20])
    server.peers[0].transport.close()
    assert await client.lost is None
    assert client.data.endswith(frame(7) + frame(8)[:20])
    await proxy.until(lambda stats: stats.connections_open == 0)
    assert proxy.stats.connections_cut == 0


@pytest.mark.parametrize("reset", [True, False])
async def test_cut_ends_every_connection_now(server, proxy, dial, reset):
    clients = [await dial(proxy) for _ in range(3)]
    for client in clients:
        client.ask(1)
        await client.answers(1)
    assert proxy.cut(reset=reset) == 3
    for client in clients:
        assert isinstance(await client.lost, ConnectionResetError) is reset
    await proxy.until(lambda stats: stats.connections_cut == 3)
    again = await dial(proxy)
    again.ask(2)
    await again.answers(1)


@pytest.mark.parametrize("bytes_left", [1, 7, 100])
async def test_cut_after_some_bytes_is_exact_and_happens_once(server, proxy, dial, bytes_left):
    client = await dial(proxy)
    client.ask(1)
    whole = len((await client.answers(1)) and client.data)
    proxy.cut("down", after_bytes=whole + bytes_left)
    client.ask(2, 3, 4)
    await client.lost
    assert len(client.data) == 2 * whole + bytes_left
    again = await dial(proxy)
    again.ask(5, 6, 7, 8)
    await again.answers(4)


async def test_refuse_turns_connections_away_and_keeps_those_that_exist_and_the_port(proxy, dial):
    client = await dial(proxy)
    address = proxy.address
    proxy.refuse()
    with pytest.raises(ConnectionRefusedError):
        await dial(proxy)
    client.ask(1)
    await client.answers(1)
    proxy.refuse(False)
    again = await dial(proxy)
    again.ask(2)
    await again.answers(1)
    assert proxy.address == address


async def test_an_unreachable_target_resets_the_client(dial):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        nobody = f"127.0.0.1:{free.getsockname()[1]}"
    async with FaultProxy(nobody) as proxy:
        client = await dial(proxy)
        assert isinstance(await client.lost, ConnectionResetError)


async def test_delay_is_measured_by_the_clock_and_keeps_the_order(server, dial):
    clock = ManualClock()
    async with FaultProxy(server.address, clock=clock) as proxy:
        client = await dial(proxy)
        proxy.delay(2.0, "down")
        client.ask(1)
        await proxy.until(lambda stats: stats.frames_down == 1)
        await clock.advance(1.0)
        proxy.delay(0.0, "down")
        client.ask(2)
        await proxy.until(lambda stats: stats.frames_down == 2)
        await clock.advance(0.9)
        assert client.commands == []
        await clock.advance(0.1)
        assert [answer.opaque for answer in await client.answers(2)] == [1, 2]
        proxy.delay((1.0, 3.0), "up")
        client.ask(3)
        await proxy.until(lambda stats: stats.frames_up == 3)
        assert 1.0 <= clock.pending[0] <= 3.0
        await clock.advance(3.0)
        await client.answers(3)


@pytest.mark.parametrize("size", [1, (1, 9), 64])
async def test_split_sends_pieces_of_the_wished_sizes(server, proxy, dial, size):
    client = await dial(proxy)
    proxy.split(size, "down")
    client.ask(1, 2)
    answers = await client.answers(2)
    assert [answer.opaque for answer in answers] == [1, 2]
    most = size[1] if isinstance(size, tuple) else size
    assert max(len(chunk) for chunk in client.chunks) <= most
    if size == 1:
        assert len(client.chunks) == len(client.data)
    chunks = len(client.chunks)
    proxy.split(None)
    client.ask(3)
    await client.answers(3)
    assert len(client.chunks) == chunks + 1


async def test_duplicate_repeats_whole_frames(proxy, dial):
    client = await dial(proxy)
    proxy.duplicate(2)
    client.ask(1, 2)
    assert [answer.opaque for answer in await client.answers(6)] == [1, 1, 1, 2, 2, 2]
    proxy.duplicate(0)
    client.ask(3)
    assert [answer.opaque for answer in await client.answers(7)][6:] == [3]


def damaged(**faults: object) -> tuple[bytes, bytes]:
    proxy = FaultProxy("127.0.0.1:1", seed=42)
    proxy.garble(**faults)
    original = bytes(range(256)) * 20
    (piece,) = proxy.faults["up"].damage(original, True, proxy.random)
    return original, piece[0]


def test_garble_damages_the_share_it_was_told_to_and_the_same_for_the_same_seed():
    original, garbled = damaged(rate=0.05, after_bytes=100)
    changed = [a ^ b for a, b in zip(original, garbled, strict=True)]
    assert not any(changed[:100])
    hit = [difference for difference in changed[100:] if difference]
    assert 150 < len(hit) < 350
    assert all(difference.bit_count() == 1 for difference in hit)
    assert damaged(rate=0.05, after_bytes=100)[1] == garbled
    original, replaced = damaged(rate=1.0, replace=True)
    assert all(a != b for a, b in zip(original, replaced, strict=True))


async def test_garbled_bytes_arrive(proxy, dial):
    client = await dial(proxy)
    proxy.garble(1.0, "down", replace=True, after_bytes=4)
    client.ask(1)
    await client.until(lambda: len(client.data) > 100)
    original = next(item.data for item in proxy.recorded if item.direction == "down")
    assert client.data[:4] == original[:4]
    assert all(a != b for a, b in zip(client.data[4:], original[4:], strict=True))


async def test_hold_keeps_and_release_forwards_in_order(server, proxy, dial):
    client = await dial(proxy)
    proxy.hold("up")
    client.ask(1, 2)
    await proxy.until(lambda stats: stats.frames_up == 2)
    async with FaultProxy(server.address) as aside:  # what comes later by another way is there first
        other = await dial(aside)
        other.ask(3)
        await other.answers(1)
    assert [command.opaque for command in server.received] == [3]
    proxy.release()
    assert [answer.opaque for answer in await client.answers(2)] == [1, 2]


async def test_chosen_frames_are_held_and_others_pass_them(server, proxy, dial):
    first, second = await dial(proxy), await dial(proxy)
    proxy.hold_frames(lambda direction, command: direction == "up" and command.opaque in (1, 4))
    first.ask(1, 2)
    second.ask(3, 4)
    await first.answers(1)
    await second.answers(1)
    await proxy.until(lambda stats: stats.frames_held == 2)
    assert sorted(command.opaque for command in server.received) == [2, 3]
    proxy.release_frames()
    assert proxy.stats.frames_held == 0
    assert [answer.opaque for answer in await first.answers(2)] == [2, 1]
    assert [answer.opaque for answer in await second.answers(2)] == [3, 4]
    first.ask(1)
    assert [answer.opaque for answer in await first.answers(3)] == [2, 1, 1], "nothing is chosen any more"


async def test_a_chosen_frame_whose_connection_is_gone_is_lost(server, proxy, dial):
    gone, there = await dial(proxy), await dial(proxy)
    proxy.hold_frames(lambda direction, command: command.opaque < 3)
    gone.ask(1)
    there.ask(2)
    await proxy.until(lambda stats: stats.frames_held == 2)
    gone.transport.abort()
    await proxy.until(lambda stats: stats.connections_open == 1)
    proxy.heal()
    assert [answer.opaque for answer in await there.answers(1)] == [2]
    assert [command.opaque for command in server.received] == [2]


async def test_what_is_held_outlives_its_sender(server, proxy, dial):
    client = await dial(proxy)
    proxy.hold("up")
    client.ask(1)
    await proxy.until(lambda stats: stats.frames_up == 1)
    client.transport.abort()
    await client.lost
    proxy.release()
    (received,) = await server.until_received(1)
    assert received.opaque == 1


async def test_drop_swallows(server, proxy, dial):
    client = await dial(proxy)
    proxy.drop(1.0, "up")
    client.ask(1)
    await proxy.until(lambda stats: stats.frames_up == 1)
    proxy.drop(0.0)
    client.ask(2)
    assert [answer.opaque for answer in await client.answers(1)] == [2]
    assert [command.opaque for command in server.received] == [2]


async def test_a_stalled_proxy_accepts_and_does_nothing_until_it_is_healed(server, proxy, dial):
    before = await dial(proxy)
    before.ask(1)
    await before.answers(1)
    proxy.stall()
    after = await dial(proxy)
    before.ask(2)
    after.ask(3)
    await proxy.until(lambda stats: stats.connections_made == 2)
    assert (server.connections_made, proxy.stats.frames_up) == (1, 1)
    assert " stalled, 2 connections" in repr(proxy)
    proxy.heal()
    assert [answer.opaque for answer in await before.answers(2)] == [1, 2]
    assert [answer.opaque for answer in await after.answers(1)] == [3]


async def test_heal_ends_every_fault(proxy, dial):
    proxy.delay(1000)
    proxy.split(1)
    proxy.duplicate(3)
    proxy.garble(1.0)
    proxy.drop()
    proxy.hold()
    proxy.cut(after_bytes=5)
    proxy.refuse()
    proxy.stall()
    proxy.heal()
    client = await dial(proxy)
    client.ask(1, 2)
    assert [answer.opaque for answer in await client.answers(2)] == [1, 2]
    assert "up: clear, down: clear" in repr(proxy)


async def test_on_frame_changes_replaces_adds_and_swallows_commands(server, proxy, dial):
    seen: list[tuple[str, int]] = []

    def hook(direction: str, command: Command) -> Command | list[Command | bytes] | None:
        seen.append((direction, command.opaque))
        if direction == "up":
            return None if command.opaque == 2 else command
        if command.opaque == 1:
            command.code = ResponseCode.SYSTEM_BUSY
            return command
        return [frame(77), command]

    proxy.on_frame = hook
    client = await dial(proxy)
    client.ask(1, 2, 3)
    answers = await client.answers(3)
    assert [(answer.opaque, answer.code) for answer in answers] == [(1, ResponseCode.SYSTEM_BUSY), (77, ASK), (3, 0)]
    assert [command.opaque for command in server.received] == [1, 3]
    assert seen == [("up", 1), ("up", 2), ("up", 3), ("down", 1), ("down", 3)]
    # What the hook left alone passed byte for byte.
    assert client.data.endswith(proxy.recorded[-1].data)


async def test_a_hook_that_raises_cuts_and_is_heard_of(server, dial, caplog):
    def hook(direction: str, command: Command) -> Command:
        raise RuntimeError("my mistake")

    async def use() -> None:
        async with FaultProxy(server.address, on_frame=hook) as proxy:
            client = await dial(proxy)
            client.ask(1)
            await client.lost

    with pytest.raises(RuntimeError, match="my mistake"):
        await use()
    assert "on_frame raised for <request GET_MAX_OFFSET" in caplog.text


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda proxy: proxy.delay(-1), "seconds=-1 must be a number from 0 on"),
        (lambda proxy: proxy.split(0), "size=0 must be a number from 1 on"),
        (lambda proxy: proxy.split((5, 2)), r"size=\(5, 2\)"),
        (lambda proxy: proxy.garble(2.0), "rate=2.0 must be between 0 and 1"),
        (lambda proxy: proxy.drop(direction="left"), "direction='left' must be"),
        (lambda proxy: proxy.cut(after_bytes=0), "after_bytes=0"),
        (lambda proxy: proxy.duplicate(-1), "times=-1"),
        (lambda proxy: ClusterProxy(" ; "), "names no address"),
    ],
)
def test_faults_that_make_no_sense_are_refused(call, says):
    with pytest.raises(ConfigurationError, match=says):
        call(FaultProxy("127.0.0.1:1"))
    with pytest.raises(ClientStateError, match="no address yet"):
        _ = FaultProxy("127.0.0.1:1").address


def test_frames_are_cut_out_of_any_chunking():
    stream = frame(1) + frame(2, size=300) + frame(3)
    for size in (1, 3, 50, len(stream)):
        cutter = FrameCutter()
        units = [unit for at in range(0, len(stream), size) for unit in cutter.feed(stream[at : at + size])]
        assert units == [(frame(1), True), (frame(2, size=300), True), (frame(3), True)]
        assert cutter.rest() == b""
    cutter = FrameCutter()
    assert cutter.feed(frame(1)[:10]) == []
    assert cutter.rest() == frame(1)[:10]
