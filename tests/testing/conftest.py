"""Fixtures of the test bed's own tests."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from rocketstream.testing.fault_proxy import FaultProxy
from tests.testing.bare_peers import Client, connect_to


@pytest.fixture
async def dial() -> AsyncIterator[Callable[[FaultProxy], Awaitable[Client]]]:
    """Make bare connections to proxies; they are closed at the end."""
    clients: list[Client] = []

    async def dial(proxy: FaultProxy) -> Client:
        clients.append(await connect_to(proxy))
        return clients[-1]

    yield dial
    for client in clients:
        client.transport.abort()
        await client.lost
