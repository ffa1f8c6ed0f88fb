"""A RocketMQ in this process: a name server and one broker, on free ports of the loopback interface.

with EmbeddedBroker() as broker:                         # in memory; a thread of its own
    Producer("group", name_servers=broker.address)

async with EmbeddedBroker(data="./data", port=9876):     # kept on disk; on the loop that runs
    ...
"""

from __future__ import annotations

import asyncio
import dataclasses
import difflib
import os
import threading
from collections.abc import Callable, Coroutine
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

from rocketstream.broker.faults import Faults
from rocketstream.broker.node import BrokerNode
from rocketstream.broker.settings import BrokerSettings
from rocketstream.broker.users import User
from rocketstream.clock import Clock, ManualClock, SystemClock
from rocketstream.errors import ClientStateError, ConfigurationError, ForkedClientError

_T = TypeVar("_T")
_NAMES = frozenset(one.name for one in dataclasses.fields(BrokerSettings)) - {"more"}


class EmbeddedBroker:
    """A name server and a broker. `with` runs it in a thread of its own, `async with` on the loop that runs.

    `data` is the directory in which everything is kept; without it everything is in memory. `port` is the name
    server's; 0 takes a free one. `clock` may be a `ManualClock`, which `advance` moves. All other settings are those of
    `BrokerSettings`. A broker that was stopped can be started again, with new ports unless they were given.
    """

    def __init__(
        self,
        data: str | os.PathLike[str] | None = None,
        port: int = 0,
        *,
        host: str = "127.0.0.1",
        clock: Clock | None = None,
        **settings: Any,
    ) -> None:
        for name in settings:
            if name not in _NAMES:
                raise _unknown(name)
        place = None if data is None else Path(data)
        self.settings = BrokerSettings(data=place, port=port, host=host, **settings)
        self.clock: Clock = clock if clock is not None else SystemClock()
        self.faults = Faults()
        """Faults on order: answers with a code, requests that are held, dropped, cut."""
        self._node: BrokerNode | None = None
        self._thread: LoopThread | None = None
        self._pid = os.getpid()

    def __repr__(self) -> str:
        place = "in memory" if self.settings.data is None else f"data={str(self.settings.data)!r}"
        if self._node is None:
            return f"<EmbeddedBroker {place}, not running>"
        return f"<EmbeddedBroker {self.name_server_address}, broker {self.broker_address}, {place}>"

    # --- where it is ---------------------------------------------------------------------------------------------

    @property
    def address(self) -> str:
        """What a client's `name_servers` takes."""
        return self.name_server_address

    @property
    def name_server_address(self) -> str:
        """The name server's host:port."""
        return self.node.name_server_address

    @property
    def broker_address(self) -> str:
        """The broker's own host:port."""
        return self.node.address

    @property
    def running(self) -> bool:
        """Whether it has been started and not stopped."""
        return self._node is not None

    @property
    def node(self) -> BrokerNode:
        """Its insides; they belong to the loop that it runs on."""
        if self._node is None:
            raise ClientStateError("the embedded broker is not running: use `with EmbeddedBroker() as broker:`")
        return self._node

    # --- life in a thread of its own -----------------------------------------------------------------------------

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None or os.getpid() == self._pid:  # what ends a forked child is not hidden
            self.stop()

    def start(self) -> None:
        """Start it in a thread of its own; it answers when this returns."""
        self._check_not_running()
        thread = LoopThread()
        try:
            self._node = thread.run(self._start_node)
        except BaseException:
            thread.close()
            raise
        self._thread = thread

    def stop(self) -> None:
        """Save everything, close the connections, and end the thread. Harmless when it does not run."""
        self._end(BrokerNode.stop)

    def kill(self) -> None:
        """End it as a crash of the process would: nothing is saved, nobody is told."""
        self._end(BrokerNode.kill)

    def _end(self, how: Callable[[BrokerNode], Coroutine[Any, Any, None]]) -> None:
        self._check_process()
        node, thread = self._node, self._thread
        if node is None:
            return
        if thread is None:
            raise ClientStateError(
                "this embedded broker runs on a loop of yours: leave its `async with`, or await aclose()"
            )
        try:
            thread.run(lambda: how(node))
        finally:
            self._node = self._thread = None
            self.faults.attach(None)
            thread.close()

    def advance(self, seconds: float) -> None:
        """Let time pass for a broker with a `ManualClock`: what falls due meanwhile happens before it returns."""
        self._check_process()
        clock = self._manual_clock()
        if self._thread is None:
            raise ClientStateError("this embedded broker runs on a loop of yours: await broker.clock.advance(seconds)")
        self._thread.run(lambda: clock.advance(seconds))

    def run(self, work: Callable[[BrokerNode], _T]) -> _T:
        """Call a function with the node on its loop: to look at, or change, what only that thread may touch."""
        self._check_process()
        node = self.node
        if self._thread is None:
            return work(node)

        async def call() -> _T:
            return work(node)

        return self._thread.run(call)

    def set_users(self, *users: User) -> None:
        """Change who may do what while it runs, as an operator would with `mqadmin updateAcl`."""
        self.run(lambda node: node.set_users(users))

    def _manual_clock(self) -> ManualClock:
        if not isinstance(self.clock, ManualClock):
            raise ClientStateError("time passes by itself: only EmbeddedBroker(clock=ManualClock()) can be advanced")
        return self.clock

    # --- life on the caller's loop -------------------------------------------------------------------------------

    async def __aenter__(self) -> Self:
        self._check_not_running()
        self._node = await self._start_node()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None or os.getpid() == self._pid:
            await self.aclose()

    async def aclose(self) -> None:
        """Stop a broker that runs on the caller's loop."""
        self._check_process()
        node, self._node = self._node, None
        if node is not None:
            await node.stop()
            self.faults.attach(None)

    def _check_process(self) -> None:
        # Its thread, its loop and its files stayed in the parent, whose broker goes on.
        if os.getpid() != self._pid:
            raise ForkedClientError("the embedded broker", self._pid, os.getpid())

    def _check_not_running(self) -> None:
        self._check_process()
        if self._node is not None:
            raise ClientStateError(f"{self!r} is already running")

    async def _start_node(self) -> BrokerNode:
        # A copy: what is changed in a running broker ends with it.
        settings = dataclasses.replace(self.settings, more=dict(self.settings.more))
        self.faults.attach(asyncio.get_running_loop())
        return await BrokerNode.started(settings, self.clock, self.faults)


class LoopThread:
    """An event loop in a thread of its own."""

    def __init__(self) -> None:
        self.loop = _new_loop()
        self._thread = threading.Thread(target=self.loop.run_forever, name="rocketstream-broker", daemon=True)
        self._thread.start()

    def run(self, make: Callable[[], Coroutine[Any, Any, _T]]) -> _T:
        """Run a coroutine there, and wait for it."""
        if threading.current_thread() is self._thread:
            raise ClientStateError("called on the broker's own thread, which would wait for itself")
        return asyncio.run_coroutine_threadsafe(make(), self.loop).result()

    def close(self) -> None:
        """End the loop and the thread."""
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join()
        self.loop.run_until_complete(self.loop.shutdown_default_executor())
        self.loop.close()


def _new_loop() -> asyncio.AbstractEventLoop:
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    loop: asyncio.AbstractEventLoop = uvloop.new_event_loop()
    return loop


def _unknown(name: str) -> ConfigurationError:
    close = difflib.get_close_matches(name, _NAMES)
    hint = f"did you mean {' or '.join(close)}?" if close else f"there are {', '.join(sorted(_NAMES))}"
    return ConfigurationError(f"an embedded broker has no setting {name!r}: {hint}")
