"""A cluster of scripted peers, with time that the test moves."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from rocketstream.clock import ManualClock
from tests.scripted import ScriptedBroker, ScriptedNameServer


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
async def name_server() -> AsyncIterator[ScriptedNameServer]:
    async with ScriptedNameServer() as server:
        yield server


@pytest.fixture
async def broker() -> AsyncIterator[ScriptedBroker]:
    async with ScriptedBroker() as server:
        yield server


@pytest.fixture
async def slave() -> AsyncIterator[ScriptedBroker]:
    async with ScriptedBroker() as server:
        yield server
