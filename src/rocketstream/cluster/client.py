"""What producers, consumers and operators' clients have in common: a life, and a place on a client instance.

A `ClientCore` lives on the I/O thread; its coroutines are what the plain faces run and the `aio` faces await. The life
is RocketMQ's (START-01): CREATE_JUST → RUNNING → SHUTDOWN_ALREADY, with START_FAILED in between while it starts. A
start that fails gives everything back and leaves CREATE_JUST, so that it can be tried again (START-08).
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import logging
from collections.abc import Iterable
from enum import Enum
from typing import Any, NoReturn

from rocketstream.clock import Clock
from rocketstream.cluster.client_id import DEFAULT_INSTANCE_NAME, client_id, unique_instance_name
from rocketstream.cluster.client_instance import ClientInstance
from rocketstream.cluster.client_instances import ClientInstances, instances_of
from rocketstream.cluster.settings import ClientSettings
from rocketstream.errors import ClientStateError, ConfigurationError, NotPicklableError
from rocketstream.metrics.registry import registry
from rocketstream.metrics.values import Sample
from rocketstream.remoting.io_thread import IoThread

log = logging.getLogger("rocketstream.cluster")

_LONGEST_WAIT = 0.5


class ClientState(Enum):
    """Where a client is in its life."""

    CREATE_JUST = "CREATE_JUST"
    START_FAILED = "START_FAILED"
    RUNNING = "RUNNING"
    SHUTDOWN_ALREADY = "SHUTDOWN_ALREADY"


class BoundToProcess:
    """What users' clients have in common: each belongs to the process that made it, and cannot be sent to another."""

    def __reduce_ex__(self, protocol: object) -> NoReturn:
        raise NotPicklableError(repr(self))


class ClientCore(BoundToProcess):
    """The life cycle. Subclasses say what starting and stopping mean; all methods belong to the I/O thread."""

    def __init__(
        self,
        what: str,
        settings: ClientSettings,
        *,
        instance_name: str | None = None,
        unique: bool = True,
        io: IoThread | None = None,
        instances: ClientInstances | None = None,
    ) -> None:
        self.what = what
        self.settings = settings
        self.io = io or IoThread.shared()
        self.state = ClientState.CREATE_JUST
        if instance_name is not None and (not isinstance(instance_name, str) or not instance_name.strip()):
            raise ConfigurationError(f"instance_name={instance_name!r} must be a text that is not empty, or None")
        # START-04: a name left at its default must not make two clients of a host one member. Only who keeps something
        # under its client id (a broadcasting consumer its offsets) has to find it again after a restart.
        name = instance_name or DEFAULT_INSTANCE_NAME
        if unique and name == DEFAULT_INSTANCE_NAME:
            name = unique_instance_name()
        self.client_id = client_id(name, settings.unit_name)
        self._instances = instances or instances_of(self.io)
        self._instance: ClientInstance | None = None

    def __repr__(self) -> str:
        return f"<{self.what} {self.state.value}, client id {self.client_id}>"

    @property
    def instance(self) -> ClientInstance:
        """The client instance it lives on; an error that names the state where it has none."""
        if self._instance is None:
            raise self._not_running()
        return self._instance

    @property
    def has_instance(self) -> bool:
        """Whether it lives on an instance now."""
        return self._instance is not None

    @property
    def clock(self) -> Clock:
        """The instance's clock."""
        return self.instance.clock

    @property
    def is_running(self) -> bool:
        """Whether it has started and not ended."""
        return self.state is ClientState.RUNNING

    def check_process(self) -> None:
        """Raise `ForkedClientError` in a forked child of the process that made it."""
        self.io.check_process(self.what)

    def check_running(self) -> None:
        """Raise unless it is RUNNING, and here."""
        self.check_process()
        if self.state is not ClientState.RUNNING:
            raise self._not_running()

    def _not_running(self) -> ClientStateError:
        advice = "it has been shut down" if self.state is ClientState.SHUTDOWN_ALREADY else "call start() first"
        return ClientStateError(f"{self.what} is {self.state.value}: {advice}")

    async def start(self) -> None:
        """Come to life, or raise and leave nothing behind."""
        if self.state is not ClientState.CREATE_JUST:
            raise ClientStateError(f"{self.what} cannot start: it is {self.state.value}")
        self._instance = self._instances.acquire(self.client_id, self.settings)
        self.state = ClientState.START_FAILED
        try:
            await self.on_start()
        except BaseException:
            instance, self._instance = self._instance, None
            try:
                await self._instances.release(instance)
            finally:
                self.state = ClientState.CREATE_JUST
            raise
        self.state = ClientState.RUNNING
        registry.add(self)
        log.info("%s has started with client id %s", self.what, self.client_id)

    def attach(self, instance: ClientInstance) -> None:
        """Live on an instance as a part of it, which nobody starts or stops but the instance itself."""
        self._instance = instance
        self.client_id = instance.client_id
        self.state = ClientState.RUNNING

    async def shutdown(self, timeout: float | None = None) -> None:
        """End; a no-op before the start and after the end."""
        if self.state is not ClientState.RUNNING:
            return
        self.state = ClientState.SHUTDOWN_ALREADY
        try:
            await self.on_shutdown(timeout)
        finally:
            registry.remove(self)
            instance, self._instance = self.instance, None
            await self._instances.release(instance)
            log.info("%s has been shut down", self.what)

    def collect_metrics(self) -> Iterable[Sample]:
        """What it has measured so far, and what it has now; overridden by those that measure."""
        return ()

    async def on_start(self) -> None:
        """Register at the instance and start it; overridden by what needs more than a running instance."""
        await self.instance.start()

    async def on_shutdown(self, timeout: float | None) -> None:
        """Give back what `on_start` took; the instance is released after it."""


class Start:
    """A start on the I/O thread that can be taken back, however far it has come."""

    def __init__(self, core: ClientCore) -> None:
        self._core = core
        self._task: asyncio.Task[Any] | None = None

    async def run(self) -> None:
        """Start the client."""
        self._task = asyncio.current_task()
        await self._core.start()

    async def take_back(self) -> None:
        """Break the start off, and have given back what it took; end the client if it has started already."""
        task = self._task
        if task is None:
            return
        task.cancel()
        await asyncio.wait({task})
        if not task.cancelled() and task.exception() is None:  # it was through before it could be cancelled
            await self._core.shutdown()


def start_and_wait(core: ClientCore) -> None:
    """Start a client, from any other thread than the I/O thread; Ctrl-C meanwhile leaves nothing that runs.

    A consumer may have called its listener before its caller wakes up, so Ctrl-C ends it as `shutdown` does.
    """
    core.io.check_may_wait(core.what)
    start = Start(core)
    begun: concurrent.futures.Future[None] | None = None
    try:
        begun = core.io.submit(start.run(), core.what)
        # Not for long at a time: a signal that comes just before the wait begins does not end it.
        while not concurrent.futures.wait((begun,), _LONGEST_WAIT).done:
            pass
        begun.result()
    except BaseException as error:
        if begun is None:
            has_begun = not isinstance(error, Exception)  # Ctrl-C came while it was handed over
        else:
            has_begun = not begun.done() or (not begun.cancelled() and begun.exception() is None)
        if has_begun:
            core.io.run(start.take_back(), core.what)
        raise
