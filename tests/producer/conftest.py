"""A cluster of scripted peers, with time that the test moves."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from typing import Any

import pytest

from rocketstream.clock import ManualClock
from rocketstream.producer.core import ProducerCore
from tests.producer.peers import StoringBroker, make_core
from tests.scripted import ScriptedNameServer


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
async def name_server() -> AsyncIterator[ScriptedNameServer]:
    async with ScriptedNameServer() as server:
        yield server


@pytest.fixture
async def a(name_server: ScriptedNameServer) -> AsyncIterator[StoringBroker]:
    """Broker a."""
    async with StoringBroker() as server:
        yield server


@pytest.fixture
async def b(name_server: ScriptedNameServer) -> AsyncIterator[StoringBroker]:
    """Broker b."""
    async with StoringBroker() as server:
        yield server


@pytest.fixture
async def started(name_server: ScriptedNameServer, clock: ManualClock) -> AsyncIterator[Callable[..., Any]]:
    """Start producers on the test's loop and clock; they are shut down at the end."""
    async with AsyncExitStack() as ends:

        async def started(**settings: Any) -> ProducerCore:
            core = make_core(name_server.address, clock, **settings)
            await core.start()
            ends.push_async_callback(core.shutdown)
            return core

        yield started
