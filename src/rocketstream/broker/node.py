"""An embedded broker put together: its name server, its store, its services, its doors.

Everything here runs on one event loop. A node is started once and stopped once.
"""

from __future__ import annotations

import contextlib
import logging
import socket
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from rocketstream.broker.access import Access
from rocketstream.broker.dispatch import Dispatcher, Service
from rocketstream.broker.faults import Faults
from rocketstream.broker.name_server import NameServer
from rocketstream.broker.periodic import Periodic
from rocketstream.broker.registration import Registration
from rocketstream.broker.server import Door, listen, listen_for_broker
from rocketstream.broker.services import Ground, build
from rocketstream.broker.settings import BrokerSettings
from rocketstream.broker.state import StateFiles
from rocketstream.broker.store import open_store
from rocketstream.broker.topics import Topics
from rocketstream.broker.users import User
from rocketstream.clock import Clock
from rocketstream.errors import ClientStateError

log = logging.getLogger("rocketstream.broker")

#: How often the store is asked to let go of what is too old or too much.
_EXPIRE_INTERVAL = 10.0
_STATE_DIRECTORY = "state"


class NameServerNode:
    """A name server behind its door."""

    def __init__(
        self, settings: BrokerSettings, clock: Clock, faults: Faults, state: StateFiles, sock: socket.socket
    ) -> None:
        self.service = NameServer(settings=settings, clock=clock, state=state)
        dispatcher = Dispatcher()
        dispatcher.gates.append(faults.gate(dispatcher))
        self.access: Access | None = None
        if settings.access_is_controlled:
            self.access = Access(settings.credentials, settings.users, settings.cluster_name)
            dispatcher.gates.append(self.access.name_server_gate)
        dispatcher.add(self.service.handlers())
        dispatcher.when_closed.append(self.service.on_closed)
        self.address = f"{_told_host(sock)}:{sock.getsockname()[1]}"
        self.door = Door(sock, dispatcher, settings, clock)

    @classmethod
    async def started(cls, settings: BrokerSettings, clock: Clock, faults: Faults) -> NameServerNode:
        """A name server that answers, without a broker."""
        sock = listen(settings.host, settings.port, what="name server")
        node = cls(settings, clock, faults, StateFiles(_state_directory(settings)), sock)
        await node.start()
        return node

    async def start(self) -> None:
        """Begin to answer."""
        self.service.start()
        await self.door.open()

    async def stop(self) -> None:
        """End; what it knows by key is saved already, the rest brokers tell again."""
        self.service.stop()
        await self.door.close()


class BrokerNode:
    """A broker, with the name server in the same process unless it is told of others."""

    def __init__(self, settings: BrokerSettings, clock: Clock, faults: Faults) -> None:
        self.settings = settings
        self.clock = clock
        with contextlib.ExitStack() as opened:
            names = None
            if settings.name_servers is None:
                names = opened.enter_context(listen(settings.host, settings.port, what="name server"))
                settings.port = names.getsockname()[1]
            sock = opened.enter_context(listen_for_broker(settings))
            settings.broker_port = sock.getsockname()[1]
            self.address = f"{_told_host(sock)}:{settings.broker_port}"
            """The broker's own host:port, as clients are told."""
            # The store first: it refuses a directory that somebody else has, before anything is read from it.
            self.store = open_store(settings, clock, self.address)
            opened.callback(self.store.close)
            self._build(faults, names, sock)
            opened.pop_all()

    def _build(self, faults: Faults, names: socket.socket | None, sock: socket.socket) -> None:
        settings, clock = self.settings, self.clock
        self.state = StateFiles(_state_directory(settings))
        self.dispatcher = Dispatcher()
        self.dispatcher.gates.append(faults.gate(self.dispatcher))
        self.access: Access | None = None
        if settings.access_is_controlled:
            self.access = Access(settings.credentials, settings.users, settings.cluster_name)
            self.dispatcher.gates.append(self.access.broker_gate)
        self.name_server: NameServerNode | None = None
        if names is not None:
            self.name_server = NameServerNode(settings, clock, faults, self.state, names)
        self.topics = Topics(settings=settings, clock=clock, state=self.state)
        self.registration = Registration(
            settings=settings,
            clock=clock,
            topics=self.topics,
            address=self.address,
            name_server=None if self.name_server is None else self.name_server.service,
        )
        ground = Ground(
            settings=settings,
            clock=clock,
            state=self.state,
            store=self.store,
            dispatcher=self.dispatcher,
            topics=self.topics,
            address=self.address,
            route=self.registration.route,
        )
        self.services: Sequence[Service] = build(ground)
        for service in self.services:
            self.dispatcher.add(service.handlers())
        self.door = Door(sock, self.dispatcher, settings, clock)
        self._expire = Periodic(clock, _EXPIRE_INTERVAL, self.store.expire)

    def __repr__(self) -> str:
        return f"<BrokerNode {self.settings.broker_name} {self.address}>"

    def set_users(self, users: Sequence[User]) -> None:
        """Let these users in from now on; only where access is controlled from the start."""
        if self.access is None:
            raise ClientStateError("this embedded broker was started without credentials and users: it lets anybody in")
        changed = replace(self.settings, users=tuple(users))  # for its checks
        self.settings.users = changed.users
        self.access.set_users(users)
        if self.name_server is not None and self.name_server.access is not None:
            self.name_server.access.set_users(users)

    @property
    def name_server_address(self) -> str:
        """What a client's `name_servers` takes."""
        return self.settings.name_servers or "" if self.name_server is None else self.name_server.address

    # --- life ----------------------------------------------------------------------------------------------------

    @classmethod
    async def started(cls, settings: BrokerSettings, clock: Clock, faults: Faults) -> BrokerNode:
        """A node that answers."""
        node = cls(settings, clock, faults)
        try:
            await node.start()
        except BaseException:
            await node.kill()
            raise
        return node

    async def start(self) -> None:
        """Begin to answer: the broker first, so that nobody is told of one that does not."""
        for service in self.services:
            service.start()
        self._expire.start()
        await self.door.open()
        if self.name_server is not None:
            await self.name_server.start()
        self.registration.start()
        await self.registration.registered()

    async def stop(self) -> None:
        """End in order: no new connections, good-bye to name servers, everything saved, then the store."""
        self.door.shut()
        self.registration.stop()
        await self.registration.leave()
        self._expire.stop()
        self._stop_services()
        await self._close_doors()
        self.store.close()

    def _stop_services(self) -> None:
        for service in reversed(self.services):
            try:
                service.stop()
            except Exception:
                log.exception("%r could not be stopped in order", service)

    async def kill(self) -> None:
        """End as a crash would: nothing is saved that was not, nobody is told."""
        self.registration.stop()
        self.registration.abandon()
        self._expire.stop()
        # Their timers have to end, for the clock may outlive this node; what they would save is not saved.
        self.state.freeze()
        self._stop_services()
        await self._close_doors()
        self.store.abandon()

    async def _close_doors(self) -> None:
        await self.door.close()
        if self.name_server is not None:
            await self.name_server.stop()


def _state_directory(settings: BrokerSettings) -> Path | None:
    if settings.data is None:
        return None
    directory = settings.data / _STATE_DIRECTORY
    directory.mkdir(parents=True, exist_ok=True)
    return directory


def _told_host(sock: socket.socket) -> str:
    """The host that clients are told: where we listen, or for "everywhere" the address of this machine."""
    host: str = sock.getsockname()[0]
    if host in ("0.0.0.0", "::"):
        host = _own_host(sock.family, host)
    return f"[{host}]" if ":" in host else host


def _own_host(family: int, fallback: str) -> str:
    somewhere = "192.0.2.1" if family == socket.AF_INET else "2001:db8::1"
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        try:
            # Nothing is sent: the operating system only says from which address it would.
            probe.connect((somewhere, 9))
        except OSError:
            return "127.0.0.1" if family == socket.AF_INET else "::1"
        return str(probe.getsockname()[0])
