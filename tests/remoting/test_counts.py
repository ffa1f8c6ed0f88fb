"""What the remoting client counts: how requests end, connections, bytes."""

from __future__ import annotations

import asyncio
import socket

import pytest

from rocketstream.errors import ConnectError, ConnectionLostError, RequestTimeoutError
from rocketstream.wire.codes import request_name
from rocketstream.wire.command import request
from rocketstream.wire.frame import encode_frame
from tests.remoting.requests import ASK, SILENT
from tests.scripted import eventually


def told(client) -> dict[tuple[str, ...], float]:
    return {
        (sample.metric.name.removeprefix("rocketstream_remoting_"), *sample.labels): sample.value
        for sample in client.collect_metrics()
    }


def ended(client, code: int, result: str) -> float | None:
    return told(client).get(("requests_total", request_name(code), result))


async def test_requests_are_counted_by_how_they_ended(server, make, clock):
    client = make()
    for _ in range(3):
        await client.invoke(server.address, request(ASK), 3)
    await client.invoke_one_way(server.address, request(ASK), 3)
    late = asyncio.ensure_future(client.invoke(server.address, request(SILENT), 3))
    gone = asyncio.ensure_future(client.invoke(server.address, request(SILENT), 30))
    await server.until_received(6)
    assert told(client)["pending_requests",] == 2
    gone.cancel()
    await clock.advance(3.0)
    with pytest.raises(RequestTimeoutError):
        await late
    assert (ended(client, ASK, "answered"), ended(client, ASK, "one_way")) == (3, 1)
    assert (ended(client, SILENT, "timeout"), ended(client, SILENT, "abandoned")) == (1, 1)
    assert (ended(client, SILENT, "answered"), ended(client, SILENT, "lost")) == (None, None)
    assert "3 answered" in repr(client._pending.counts)


async def test_requests_that_are_lost_with_their_connection(server, make):
    client = make()
    lost = asyncio.ensure_future(client.invoke(server.address, request(SILENT), 3))
    await server.until_received(1)
    server.peers[0].cut()
    with pytest.raises(ConnectionLostError):
        await lost
    assert ended(client, SILENT, "lost") == 1
    assert told(client)["connections",] == 0


async def test_every_way_to_send_is_counted(server, make, clock):
    client = make()
    await client.connect(server.address)
    answers: list[object] = []
    assert client.try_invoke(server.address, request(ASK), clock.monotonic() + 3, answers.append)
    await client.begin(server.address, request(ASK), 3)
    await eventually(lambda: len(answers) == 1)
    assert ended(client, ASK, "answered") == 2


async def test_connections_and_their_bytes(server, make):
    client = make()
    with socket.create_server(("127.0.0.1", 0)) as once:
        nobody = f"127.0.0.1:{once.getsockname()[1]}"
    with pytest.raises(ConnectError):
        await client.invoke(nobody, request(ASK), 3)
    await client.invoke(server.address, request(ASK, {"some": "field"}, b"a body"), 3)
    counts = told(client)
    assert (counts["connects_total", "ok"], counts["connects_total", "failed"]) == (1, 1)
    assert counts["connections",] == 1
    assert counts["bytes_total", "out"] == sum(map(len, encode_frame(server.received[0])))
    assert counts["bytes_total", "in"] > 20
    server.peers[0].cut()
    await eventually(lambda: told(client)["connections",] == 0)
    assert told(client)["bytes_total", "out"] == counts["bytes_total", "out"], "what has passed stays"
    await client.invoke(server.address, request(ASK, {"some": "field"}, b"a body"), 3)
    await client.close()
    sent = sum(len(piece) for command in server.received for piece in encode_frame(command))
    assert told(client)["bytes_total", "out"] == sent, "also of those that we closed, once"
    assert told(client)["connects_total", "ok"] == 2
