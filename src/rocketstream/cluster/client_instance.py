"""The client instance: what all producers and consumers of one client id share (START-05).

It owns the connections, the name servers, the routes, the broker table and the timers, and lives on one event loop.
It is started in a fixed order (START-12) and stopped in the reverse one.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence
from enum import Enum
from typing import TypeVar

from rocketstream.clock import Clock, SystemClock
from rocketstream.cluster.address_server import AddressServer
from rocketstream.cluster.brokers import BrokerAddress, BrokerTable
from rocketstream.cluster.members import ConsumerMember, GroupMember, Service, ServiceOrder
from rocketstream.cluster.name_servers import NameServers
from rocketstream.cluster.namespace_v2 import NamespaceHook
from rocketstream.cluster.routes import RouteTable
from rocketstream.cluster.settings import ClientSettings
from rocketstream.cluster.timers import Timers
from rocketstream.cluster.vip import VIP_CODES, explained, vip_address
from rocketstream.errors import AccessDeniedError, ClientStateError, ConnectError, NameServerError, RocketStreamError
from rocketstream.metrics import catalogue
from rocketstream.metrics.registry import registry
from rocketstream.metrics.values import Sample
from rocketstream.remoting.acl import AclSigner
from rocketstream.remoting.client import RemotingClient
from rocketstream.remoting.hooks import RpcHook
from rocketstream.remoting.replies import expect_success
from rocketstream.wire.bodies.heartbeat import HeartbeatData, ProducerData
from rocketstream.wire.codes import RequestCode
from rocketstream.wire.command import Command, Header, request
from rocketstream.wire.headers.group import UnregisterClientRequestHeader

log = logging.getLogger("rocketstream.cluster")

MemberT = TypeVar("MemberT", bound="GroupMember")


class InstanceState(Enum):
    """Where a client instance is in its life."""

    CREATED = "created"
    START_FAILED = "start failed"
    RUNNING = "running"
    STOPPED = "stopped"


class ClientInstance:
    """Everything that the clients with one client id share. All methods belong to its event loop."""

    def __init__(self, client_id: str, settings: ClientSettings, *, clock: Clock | None = None) -> None:
        self.client_id = client_id
        self.settings = settings
        self.clock = clock or SystemClock()
        self.state = InstanceState.CREATED
        self.remoting = RemotingClient(settings.remoting, clock=self.clock, hooks=_hooks_of(settings))
        self.brokers = BrokerTable()
        self.name_servers = NameServers(self.remoting, settings.name_servers or ())
        self.routes = RouteTable(self.name_servers, self.brokers, settings.api_timeout)
        self.timers = Timers(self.clock)
        self._address_server: AddressServer | None = None
        if settings.name_servers is None:
            self._address_server = AddressServer(settings.address_server, settings.unit_name)
        self._producers: dict[str, GroupMember] = {}
        self._consumers: dict[str, ConsumerMember] = {}
        self._services: list[tuple[ServiceOrder, Service]] = []
        self._service_keys: set[str] = set()
        self._started: list[Service] = []
        self._starting: asyncio.Future[None] | None = None
        self._heartbeats: dict[str, int] = {}
        self.heartbeat_refusals: dict[str, AccessDeniedError] = {}
        """The brokers whose access control did not take our last heartbeat, by address."""

    def __repr__(self) -> str:
        return (
            f"<ClientInstance {self.client_id} {self.state.value}, producers {sorted(self._producers)},"
            f" consumers {sorted(self._consumers)}, {len(self.brokers)} brokers>"
        )

    # --- life -------------------------------------------------------------------------------------------------------

    def add_service(self, order: ServiceOrder, service: Service) -> None:
        """Have a service started and stopped with the instance; before `start` only."""
        if self.state is not InstanceState.CREATED:
            raise ClientStateError(f"client instance {self.client_id} is {self.state.value}: too late for a service")
        self._services.append((order, service))

    async def ensure_services(self, key: str, make: Callable[[], Sequence[tuple[ServiceOrder, Service]]]) -> None:
        """Have the services that belong together run from now on, made once; in their order (START-12).

        A consumer may join an instance that a producer has started long ago: then they start at once.
        """
        if key in self._service_keys:
            return
        self._service_keys.add(key)
        if self.state is InstanceState.CREATED:
            self._services += make()
            return
        await self.start()  # whoever is starting it finishes first
        for _, service in sorted(make(), key=lambda entry: entry[0]):
            await service.start()
            self._started.append(service)

    async def start(self) -> None:
        """Start everything in its order; whoever calls meanwhile waits for the same start.

        If a part fails, what was started is stopped again and the error raised; the instance is of no use then.
        """
        if self.state is InstanceState.RUNNING:
            return
        if self.state is InstanceState.STOPPED:
            raise ClientStateError(f"client instance {self.client_id} cannot start: it is stopped")
        if self._starting is None:
            self.state = InstanceState.START_FAILED
            self._starting = asyncio.ensure_future(self._start())
        await asyncio.shield(self._starting)

    async def _start(self) -> None:
        registry.add(self)
        try:
            if self._address_server is not None:
                self.name_servers.replace(await self._address_server.fetch())
            self.remoting.start()
            self._start_timers()
            for _, service in sorted(self._services, key=lambda entry: entry[0]):
                await service.start()
                self._started.append(service)
        except BaseException:
            await self._stop_parts()
            raise
        self.state = InstanceState.RUNNING

    async def stop(self) -> None:
        """Stop everything, in the reverse order; harmless when it is already stopped."""
        if self.state is InstanceState.STOPPED:
            return
        self.state = InstanceState.STOPPED
        if self._starting is not None and not self._starting.done():
            self._starting.cancel()
            await asyncio.wait([self._starting])
        await self._stop_parts()

    async def _stop_parts(self) -> None:
        for service in reversed(self._started):
            try:
                await service.stop()
            except Exception:
                log.exception("a service of client instance %s could not be stopped", self.client_id)
        self._started.clear()
        await self.timers.stop()
        await self.routes.close()
        await self.remoting.close()
        registry.remove(self)

    def _start_timers(self) -> None:
        every = self.timers.every
        if self._address_server is not None:
            every("fetch name servers", 10.0, 120.0, self._fetch_name_servers)
        # REM-13: as often as a connection may take to be made.
        every("scan name servers", 0.0, self.settings.remoting.connect_timeout, self.name_servers.scan)
        every("refresh routes", 0.010, self.settings.poll_name_server_interval, self.refresh_routes)
        every("clean brokers and heartbeat", 1.0, self.settings.heartbeat_interval, self._clean_and_heartbeat)
        every("persist offsets", 10.0, self.settings.persist_offset_interval, self._persist_offsets)
        every("adjust thread pools", 60.0, 60.0, self._adjust_threads)

    # --- members ----------------------------------------------------------------------------------------------------

    @property
    def consumers(self) -> tuple[ConsumerMember, ...]:
        """The consumers, one per group."""
        return tuple(self._consumers.values())

    @property
    def producers(self) -> tuple[GroupMember, ...]:
        """The producers, one per group."""
        return tuple(self._producers.values())

    def register_producer(self, member: GroupMember) -> None:
        """Take a producer in; a second one of the same group is refused."""
        self._register(self._producers, member, "producer")

    def register_consumer(self, member: ConsumerMember) -> None:
        """Take a consumer in; a second one of the same group is refused (START-08)."""
        self._register(self._consumers, member, "consumer")

    async def unregister_producer(self, group: str) -> None:
        """Let a producer go and tell the brokers."""
        if self._producers.pop(group, None) is not None:
            await self._unregister_at_brokers(producer_group=group)

    async def unregister_consumer(self, group: str) -> None:
        """Let a consumer go and tell the brokers, so that the others of its group rebalance at once (REB-10)."""
        if self._consumers.pop(group, None) is not None:
            await self._unregister_at_brokers(consumer_group=group)

    def _register(self, table: dict[str, MemberT], member: MemberT, kind: str) -> None:
        if member.group in table:
            raise ClientStateError(
                f"client {self.client_id} already has a {kind} of group {member.group!r}: a group has one {kind} per"
                " client. Use that one, another group, or another instance_name"
            )
        table[member.group] = member

    async def _unregister_at_brokers(
        self, *, producer_group: str | None = None, consumer_group: str | None = None
    ) -> None:
        header = UnregisterClientRequestHeader(
            client_id=self.client_id, producer_group=producer_group, consumer_group=consumer_group
        )

        async def unregister(broker: BrokerAddress) -> None:
            try:
                await self.ask(broker.address, RequestCode.UNREGISTER_CLIENT, header)
            except RocketStreamError as error:
                # It will notice by itself when the connection closes or heartbeats stay out.
                log.info("group %s was not unregistered: %s", producer_group or consumer_group, error)

        await asyncio.gather(*map(unregister, self.brokers))

    # --- asking -----------------------------------------------------------------------------------------------------

    async def ask(
        self, address: str, code: int, header: Header | None = None, body: bytes = b"", timeout: float | None = None
    ) -> Command:
        """A request's successful response; an error code is a `BrokerError`, no answer a `RemotingError`."""
        limit = self.settings.api_timeout if timeout is None else timeout
        asked = self.address_for(code, address)
        try:
            answer = await self.remoting.invoke(asked, request(code, header, body), limit)
        except ConnectError as error:
            self.routes.suspect(address, self.clock.monotonic())
            if asked == address:
                raise
            raise explained(error, address) from error
        return expect_success(asked, code, answer)

    def address_for(self, code: int, address: str) -> str:
        """Where a request to the broker at an address goes: there, or to its VIP channel if that is wanted."""
        return vip_address(address) if self.settings.vip_channel and code in VIP_CODES else address

    def collect_metrics(self) -> Iterable[Sample]:
        """What is measured of what its members share."""
        yield from self.remoting.collect_metrics()
        for result, count in self.routes.fetched.items():
            yield Sample(catalogue.ROUTE_FETCHES, (result,), count)
        for result, count in self._heartbeats.items():
            yield Sample(catalogue.HEARTBEATS, (result,), count)

    # --- heartbeats -------------------------------------------------------------------------------------------------

    def heartbeat_data(self) -> HeartbeatData:
        """What the brokers are told of this client (START-15)."""
        return HeartbeatData(
            client_id=self.client_id,
            producer_data_set=tuple(ProducerData(group_name=group) for group in sorted(self._producers)),
            consumer_data_set=tuple(self._consumers[group].heartbeat() for group in sorted(self._consumers)),
        )

    async def heartbeat(self) -> int:
        """Tell all brokers who is here; return how many took it. Slaves matter to consumers only."""
        data = self.heartbeat_data()
        if not data.producer_data_set and not data.consumer_data_set:
            return 0
        body = data.encode()
        targets = [broker for broker in self.brokers if data.consumer_data_set or not broker.is_slave]
        return sum(await asyncio.gather(*(self._heartbeat_to(broker, body) for broker in targets)))

    async def _heartbeat_to(self, broker: BrokerAddress, body: bytes) -> bool:
        try:
            answer = await self.ask(broker.address, RequestCode.HEART_BEAT, body=body)
        except RocketStreamError as error:
            if isinstance(error, AccessDeniedError):
                self.heartbeat_refusals[broker.address] = error
            log.warning("broker %s took no heartbeat: %s", broker.broker_name, error)
            self._heartbeats["failed"] = self._heartbeats.get("failed", 0) + 1
            return False
        self._heartbeats["ok"] = self._heartbeats.get("ok", 0) + 1
        self.heartbeat_refusals.pop(broker.address, None)
        self.brokers.set_version(broker.broker_name, broker.address, answer.version)
        return True

    def refusal(self, topics: Iterable[str]) -> AccessDeniedError | None:
        """What the access control of a broker of these topics said to our last heartbeat, if it did not take it."""
        for topic in topics:
            route = self.routes.cached(topic)
            for by_id in route.brokers.values() if route is not None else ():
                for address in by_id.values():
                    if address in self.heartbeat_refusals:
                        return self.heartbeat_refusals[address]
        return None

    # --- what the timers do -----------------------------------------------------------------------------------------

    async def refresh_routes(self) -> None:
        """Fetch the routes of every topic that a member needs."""
        topics: set[str] = set()
        for member in (*self._producers.values(), *self._consumers.values()):
            topics.update(member.topics())
        await self.routes.refresh_all(topics)

    async def _clean_and_heartbeat(self) -> None:
        for address in self.routes.forget_offline_brokers():
            self.remoting.disconnect(address, "the broker is in no route any more")
            if self.settings.vip_channel:
                self.remoting.disconnect(vip_address(address), "the broker is in no route any more")
        await self.heartbeat()

    async def _fetch_name_servers(self) -> None:
        assert self._address_server is not None
        try:
            self.name_servers.replace(await self._address_server.fetch())
        except NameServerError as error:
            log.warning("the list of name servers stays as it is: %s", error)

    async def _persist_offsets(self) -> None:
        await self._each_consumer("persist its offsets", lambda consumer: consumer.persist_offsets())

    async def _adjust_threads(self) -> None:
        await self._each_consumer("adjust its threads", lambda consumer: consumer.adjust_threads())

    async def _each_consumer(self, what: str, work: Callable[[ConsumerMember], Awaitable[None]]) -> None:
        async def one(consumer: ConsumerMember) -> None:
            try:
                await work(consumer)
            except Exception:
                log.exception("consumer group %s could not %s; it tries again next time", consumer.group, what)

        await asyncio.gather(*map(one, self.consumers))


def _hooks_of(settings: ClientSettings) -> list[RpcHook]:
    """The namespace first, as in Java; then the user's hooks; the signer last, so that it signs what they add."""
    namespace = [NamespaceHook(settings.namespace_v2)] if settings.namespace_v2 else []
    return [*namespace, *settings.rpc_hooks, *([AclSigner(settings.credentials)] if settings.credentials else [])]
