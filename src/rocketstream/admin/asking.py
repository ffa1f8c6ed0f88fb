"""How operators' questions reach the cluster: which brokers there are now, and asking them one by one or all.

Nothing is taken from the route cache: an operator wants to know how it is, not how it was.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from rocketstream.cluster.brokers import MASTER_ID
from rocketstream.cluster.client import ClientCore, ClientState
from rocketstream.cluster.names import check_group, check_namespace, check_topic, with_namespace, without_namespace
from rocketstream.cluster.settings import ClientSettings
from rocketstream.errors import BrokerError, BrokerNotFoundError, TopicRouteNotFoundError
from rocketstream.remoting.io_thread import IoThread
from rocketstream.remoting.replies import expect_success
from rocketstream.wire.bodies.route import BrokerData, ClusterInfo, TopicRouteData
from rocketstream.wire.codes import Permission, RequestCode, ResponseCode
from rocketstream.wire.command import Command, Header, request
from rocketstream.wire.headers.topic import GetRouteInfoRequestHeader

T = TypeVar("T")
ItemT = TypeVar("ItemT")

# A cluster with thousands of groups must not get thousands of questions at once from one operator.
_AT_ONCE: Final = 16


@dataclass(frozen=True, slots=True)
class Node:
    """One broker process as the name servers know it."""

    cluster: str | None
    name: str
    broker_id: int
    address: str


class AdminAsking(ClientCore):
    """The base of every concern: life cycle, names with namespaces, brokers, questions."""

    def __init__(self, settings: ClientSettings, *, namespace: str | None = None, io: IoThread | None = None) -> None:
        check_namespace(namespace)
        super().__init__("AdminClient", settings, io=io)
        self.namespace = namespace
        self._starting = asyncio.Lock()

    def started(self, work: Coroutine[Any, Any, T]) -> Coroutine[Any, Any, T]:
        """Do something once the client runs; the first who asks starts it."""
        try:
            self.io.check(self.what)
        except BaseException:
            work.close()  # a coroutine that was never awaited warns
            raise
        return self._started(work)

    async def _started(self, work: Coroutine[Any, Any, T]) -> T:
        try:
            async with self._starting:
                if self.state is ClientState.CREATE_JUST:
                    await self.start()
            self.check_running()
        except BaseException:
            work.close()
            raise
        return await work

    # --- names ------------------------------------------------------------------------------------------------------

    def full_topic(self, topic: str) -> str:
        """A topic as brokers know it."""
        check_topic(topic)
        return with_namespace(self.namespace, topic)

    def full_group(self, group: str) -> str:
        """A group as brokers know it."""
        check_group(group)
        return with_namespace(self.namespace, group)

    def short(self, name: str) -> str:
        """A topic or group as its user knows it."""
        return without_namespace(self.namespace, name)

    # --- the name servers -------------------------------------------------------------------------------------------

    async def ask_name_server(self, code: int, header: Header | None = None) -> Command:
        """The successful answer of any name server."""
        address, answer = await self.instance.name_servers.ask(request(code, header), self.settings.api_timeout)
        return expect_success(address, code, answer)

    async def fetch_route(self, full_topic: str) -> TopicRouteData:
        """A topic's route as it is now, or `TopicRouteNotFoundError`."""
        code = RequestCode.GET_ROUTEINFO_BY_TOPIC
        header = GetRouteInfoRequestHeader(topic=full_topic, accept_standard_json_only=True)
        try:
            answer = await self.ask_name_server(code, header)
        except BrokerError as error:
            if error.code == ResponseCode.TOPIC_NOT_EXIST:
                raise TopicRouteNotFoundError(self.short(full_topic), str(self.instance.name_servers)) from None
            raise
        return TopicRouteData.decode(answer.body)

    async def nodes(self) -> list[Node]:
        """Every broker process that is registered, sorted."""
        answer = await self.ask_name_server(RequestCode.GET_BROKER_CLUSTER_INFO)
        return _nodes_of(ClusterInfo.decode(answer.body).broker_addr_table.values())

    async def masters(self) -> list[Node]:
        """The brokers to change something at; a broker whose master is gone is an error: it would be left out."""
        return self._with_masters(await self.nodes())

    async def readable(self) -> list[Node]:
        """One broker process of each name to ask something of: the master, or a slave if that is gone."""
        return self._checked(_first_of_each(await self.nodes()))

    async def masters_of(self, full_topic: str) -> list[Node]:
        """The brokers that have a topic, to change something at."""
        return self._with_masters(_nodes_of((await self.fetch_route(full_topic)).broker_datas))

    async def readable_of(self, full_topic: str) -> list[Node]:
        """One broker process of each name that has a topic."""
        return self._checked(_first_of_each(_nodes_of((await self.fetch_route(full_topic)).broker_datas)))

    def _with_masters(self, nodes: list[Node]) -> list[Node]:
        chosen = self._checked(_first_of_each(nodes))
        for node in chosen:
            if node.broker_id != MASTER_ID:
                raise BrokerNotFoundError(
                    f"broker {node.name!r} has no master at {self.instance.name_servers}, only {node.address} (id"
                    f" {node.broker_id}): nothing can be changed there until it is back"
                )
        return chosen

    def _checked(self, nodes: list[Node]) -> list[Node]:
        if not nodes:
            raise BrokerNotFoundError(f"no broker is registered at {self.instance.name_servers}")
        return nodes

    # --- the brokers ------------------------------------------------------------------------------------------------

    async def ask(self, node: Node, code: int, header: Header | None = None, body: bytes = b"") -> Command:
        """The successful answer of one broker."""
        return await self.instance.ask(node.address, code, header, body)

    async def for_all(self, items: Iterable[ItemT], work: Callable[[ItemT], Awaitable[T]]) -> list[T]:
        """The same work for many things, some at a time; the first error ends the rest."""
        slots = asyncio.Semaphore(_AT_ONCE)

        async def one(item: ItemT) -> T:
            async with slots:
                return await work(item)

        tasks = [asyncio.ensure_future(one(item)) for item in items]
        try:
            return list(await asyncio.gather(*tasks))
        finally:
            for task in tasks:
                task.cancel()


def _nodes_of(brokers: Iterable[BrokerData]) -> list[Node]:
    nodes = [
        Node(broker.cluster, broker.broker_name, broker_id, address)
        for broker in brokers
        for broker_id, address in broker.broker_addrs.items()
    ]
    return sorted(nodes, key=lambda node: (node.cluster or "", node.name, node.broker_id))


def _first_of_each(nodes: list[Node]) -> list[Node]:
    first: dict[str, Node] = {}
    for node in nodes:
        first.setdefault(node.name, node)
    return list(first.values())


def permission_text(perm: int) -> str:
    """RocketMQ's permission bits as people write them."""
    return ("R" if perm & Permission.READ else "") + ("W" if perm & Permission.WRITE else "")
