"""A scripted peer, and clients of it that leave nothing behind, with time that the test moves."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable

import pytest

from rocketstream.clock import ManualClock
from rocketstream.remoting.client import RemotingClient
from rocketstream.remoting.hooks import RpcHook
from rocketstream.remoting.settings import RemotingSettings
from rocketstream.testing.scripted_server import ScriptedServer
from tests.remoting.requests import ASK, SILENT, ok


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
async def server() -> AsyncIterator[ScriptedServer]:
    async with ScriptedServer() as server:
        server.on(ASK, ok)
        server.on(SILENT, lambda command: None)
        yield server


@pytest.fixture
async def make(clock: ManualClock) -> AsyncIterator[Callable[..., RemotingClient]]:
    clients: list[RemotingClient] = []

    def make(hooks: tuple[RpcHook, ...] = (), **settings: object) -> RemotingClient:
        client = RemotingClient(RemotingSettings(**settings), clock=clock, hooks=hooks)  # type: ignore[arg-type]
        client.start()
        clients.append(client)
        return client

    yield make
    for client in clients:
        await client.close()
        assert client.pending == 0
        assert client.permits_in_use == (0, 0)
