"""How a broker makes itself known to name servers: the one of its own process, or others over the wire."""

from __future__ import annotations

import asyncio
import dataclasses
import logging
import ssl
from collections.abc import Awaitable, Coroutine, Iterable
from typing import Any

from rocketstream.broker.connection import ClientConnection
from rocketstream.broker.name_server import NameServer
from rocketstream.broker.periodic import Periodic
from rocketstream.broker.settings import BrokerSettings
from rocketstream.broker.topics import READ_WRITE, Topics
from rocketstream.clock import Clock
from rocketstream.errors import ConfigurationError
from rocketstream.remoting.acl import AclSigner
from rocketstream.wire.bodies.route import TopicRouteData
from rocketstream.wire.bodies.topic import RegisterBrokerBody, TopicConfigSerializeWrapper
from rocketstream.wire.codes import RequestCode, ResponseCode
from rocketstream.wire.command import Command, request
from rocketstream.wire.headers.name_server import RegisterBrokerRequestHeader, UnRegisterBrokerRequestHeader
from rocketstream.wire.headers.topic import GetRouteInfoRequestHeader

log = logging.getLogger("rocketstream.broker")

_INTERVAL = 30.0
_TIMEOUT = 3.0


class Registration:
    """Tells name servers of the broker's topics: all of them every 30 s, what changes at once."""

    def __init__(
        self, *, settings: BrokerSettings, clock: Clock, topics: Topics, address: str, name_server: NameServer | None
    ) -> None:
        self._settings = settings
        self._topics = topics
        self._address = address
        self._name_server = name_server
        self._remote = [
            RemoteNameServer(one, settings, clock) for one in _addresses(settings.name_servers) if name_server is None
        ]
        self._again = Periodic(clock, _INTERVAL, self.register_all)
        self._running: set[asyncio.Task[None]] = set()

    def start(self) -> None:
        """Register everything, in this process at once; over the wire see `registered`."""
        self._topics.changed.append(self._on_changed)
        self._topics.announced = self.announced
        self.register_all()
        self._again.start()

    def stop(self) -> None:
        """Tell no more; `leave` says good-bye."""
        self._again.stop()
        if self._on_changed in self._topics.changed:
            self._topics.changed.remove(self._on_changed)

    def register_all(self) -> None:
        """Tell every name server of all topics."""
        self._tell(self._topics.wrapper())

    def _on_changed(self, topic: str) -> None:
        # Of what is deleted a broker says nothing: whoever deletes it tells the name server too.
        if self._topics.get(topic) is not None:
            self._tell(self._topics.wrapper([topic]))

    def _tell(self, wrapper: TopicConfigSerializeWrapper) -> None:
        header = self._header()
        if self._settings.permission & READ_WRITE != READ_WRITE:
            wrapper = _limited(wrapper, self._settings.permission)
        if self._name_server is not None:
            self._name_server.register(header, wrapper)
            return
        body = RegisterBrokerBody(topic_config_serialize_wrapper=wrapper).encode()
        for remote in self._remote:
            self._run(remote.tell(request(RequestCode.REGISTER_BROKER, header, body)))

    def _run(self, telling: Coroutine[Any, Any, None]) -> None:
        task = asyncio.ensure_future(telling)
        self._running.add(task)
        task.add_done_callback(self._running.discard)

    def announced(self) -> Awaitable[None] | None:
        """What to wait for until everybody knows; None in one process, where everybody knows at once."""
        return self.registered() if self._running else None

    async def registered(self) -> None:
        """Wait until everything that was to be told has been told, or could not be."""
        while self._running:
            await asyncio.gather(*self._running)

    async def route(self, topic: str) -> TopicRouteData | None:
        """A topic's queues on all brokers, by the first name server that answers; None if nobody knows."""
        if self._name_server is not None:
            return self._name_server.routes.route(topic)
        for remote in self._remote:
            header = GetRouteInfoRequestHeader(topic=topic)
            answer = await remote.ask(request(RequestCode.GET_ROUTEINFO_BY_TOPIC, header))
            if answer is not None:
                return TopicRouteData.decode(answer.body) if answer.code == ResponseCode.SUCCESS else None
        return None

    async def leave(self) -> None:
        """Say good-bye to every name server."""
        settings = self._settings
        if self._name_server is not None:
            self._name_server.unregister(settings.cluster_name, self._address, settings.broker_name)
            return
        header = UnRegisterBrokerRequestHeader(
            broker_name=settings.broker_name,
            broker_addr=self._address,
            cluster_name=settings.cluster_name,
            broker_id=0,
        )
        await self.registered()
        for remote in self._remote:
            await remote.tell(request(RequestCode.UNREGISTER_BROKER, header))
            remote.close()

    def abandon(self) -> None:
        """End without a word."""
        for task in self._running:
            task.cancel()
        for remote in self._remote:
            remote.close()

    def _header(self) -> RegisterBrokerRequestHeader:
        return RegisterBrokerRequestHeader(
            broker_name=self._settings.broker_name,
            broker_addr=self._address,
            cluster_name=self._settings.cluster_name,
            ha_server_addr="",
            broker_id=0,
            enable_acting_master=False,
        )


class RemoteNameServer:
    """A name server elsewhere, on one connection that is made again when it is lost."""

    def __init__(self, address: str, settings: BrokerSettings, clock: Clock) -> None:
        self._address = address
        self._settings = settings
        self._clock = clock
        self._connection: ClientConnection | None = None
        self._turn = asyncio.Lock()

    async def tell(self, command: Command) -> None:
        """Send a request and take its answer; what goes wrong is logged, for it is told again soon."""
        answer = await self.ask(command)
        if answer is not None and answer.code != ResponseCode.SUCCESS:
            log.warning("name server %s answered %s: %s", self._address, answer.name, answer.remark)

    async def ask(self, command: Command) -> Command | None:
        """The answer to a request; None, and a word in the log, when there is none."""
        async with self._turn:
            try:
                connection = await self._connected()
                credentials = self._settings.own_credentials
                if credentials is not None:
                    AclSigner(credentials).before_request(self._address, command)
                return await connection.invoke(command, _TIMEOUT)
            except (OSError, TimeoutError) as error:
                log.warning("name server %s did not take %s: %s", self._address, command.name, error)
                return None

    async def _connected(self) -> ClientConnection:
        if self._connection is None or self._connection.closed:
            host, _, port = self._address.rpartition(":")
            context = self._settings.name_server_tls
            if context is None and self._settings.tls is not None:
                # As RocketMQ's brokers do unless told otherwise: encrypted, whoever it is.
                context = ssl.create_default_context()
                context.check_hostname = False
                context.verify_mode = ssl.CERT_NONE
            _, self._connection = await asyncio.get_running_loop().create_connection(
                lambda: ClientConnection(_Nobody(), self._clock, self._settings.max_frame_length),
                host.strip("[]"),
                int(port),
                ssl=context,
            )
        return self._connection

    def close(self) -> None:
        """End the connection."""
        if self._connection is not None:
            self._connection.cut()
            self._connection = None


class _Nobody:
    """A name server asks a broker nothing."""

    def on_connected(self, connection: ClientConnection) -> None:
        """Nothing is to be done."""

    def on_command(self, connection: ClientConnection, command: Command) -> None:
        """It tells when the smallest broker id changes, which concerns slaves only."""

    def on_closed(self, connection: ClientConnection) -> None:
        """Nothing is to be done."""


def _limited(wrapper: TopicConfigSerializeWrapper, permission: int) -> TopicConfigSerializeWrapper:
    """Topics of a broker that lets less be done than they do."""
    table = {
        topic: dataclasses.replace(config, perm=config.perm & permission)
        for topic, config in wrapper.topic_config_table.items()
    }
    return TopicConfigSerializeWrapper(topic_config_table=table, data_version=wrapper.data_version)


def _addresses(text: str | None) -> Iterable[str]:
    for one in (text or "").split(";"):
        address = one.strip()
        if not address:
            continue
        host, _, port = address.rpartition(":")
        if not host or not port.isdigit():
            raise ConfigurationError(f"name_servers={text!r}: {address!r} is not host:port")
        yield address
