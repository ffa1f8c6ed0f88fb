"""A cluster of scripted peers for consumers, with time that the test moves.

Topic t has one queue, on broker a, unless the test sets another route before it starts a consumer. Broker b is there
too: as a's slave, or as a second broker, if the test routes to it.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack
from typing import Any

import pytest

from rocketstream.clock import ManualClock
from rocketstream.consumer.core import ConsumerCore
from rocketstream.consumer.lite.core import LitePullCore
from tests.consumer.lite_peers import make_lite_core
from tests.consumer.peers import TOPIC, ConsumerBroker, HeldUp, make_core
from tests.scripted import ScriptedNameServer


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
async def a() -> AsyncIterator[ConsumerBroker]:
    """Broker a."""
    async with ConsumerBroker("a") as server:
        yield server


@pytest.fixture
async def b() -> AsyncIterator[ConsumerBroker]:
    """Broker b."""
    async with ConsumerBroker("b") as server:
        yield server


@pytest.fixture
async def name_server(a: ConsumerBroker, b: ConsumerBroker) -> AsyncIterator[ScriptedNameServer]:
    """Knows topic t: one queue, on broker a."""
    async with ScriptedNameServer() as server:
        server.set_route(TOPIC, {"a": {0: a.address}}, queues=1)
        yield server


@pytest.fixture
async def started(
    name_server: ScriptedNameServer, clock: ManualClock
) -> AsyncIterator[Callable[..., Awaitable[ConsumerCore]]]:
    """`await started(listener, **settings)`: a consumer that runs on the test's loop and clock (see `make_core`).

    It is shut down at the end; a listener that the test holds up must be let go by then.
    """
    async with AsyncExitStack() as ends:

        async def started(listener: Any = None, **settings: Any) -> ConsumerCore:
            core = make_core(name_server.address, clock, listener, **settings)
            await core.start()
            ends.push_async_callback(core.shutdown, 1.0)
            return core

        yield started


@pytest.fixture
def held_up(started: Callable[..., Any]) -> Iterator[HeldUp]:
    """A listener that holds what it gets until the test lets it go; all is let go before the consumers end."""
    listener = HeldUp()
    yield listener
    listener.let_go()


@pytest.fixture
async def puller(name_server: ScriptedNameServer, clock: Any) -> AsyncIterator[Callable[..., Awaitable[LitePullCore]]]:
    """`await puller(**settings)`: a started consumer of topic t, on the test's loop and clock."""
    async with AsyncExitStack() as ends:

        async def started(**settings: Any) -> LitePullCore:
            core = make_lite_core(name_server.address, clock, **settings)
            await core.start()
            ends.push_async_callback(core.shutdown, 1.0)
            return core

        yield started
