"""Topics: list, create, delete, where they are and what they hold."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from itertools import chain
from typing import Final, TypeVar

from rocketstream.admin.asking import AdminAsking, Node, permission_text
from rocketstream.admin.values import QueueRange, RouteBroker, RouteInfo, TopicInfo, TopicKind, TopicQueues
from rocketstream.cluster.names import AUTO_CREATE_TOPIC, DLQ_PREFIX, RETRY_PREFIX, is_system_topic
from rocketstream.errors import ConfigurationError, NameServerError, TopicRouteNotFoundError
from rocketstream.remoting.replies import expect_success
from rocketstream.wire.bodies.route import QueueData, TopicRouteData
from rocketstream.wire.bodies.stats import TopicStatsTable
from rocketstream.wire.bodies.topic import TopicConfig, TopicConfigSerializeWrapper, TopicList
from rocketstream.wire.codes import Permission, RequestCode, ResponseCode
from rocketstream.wire.command import request
from rocketstream.wire.headers.topic import (
    CreateTopicRequestHeader,
    DeleteTopicFromNamesrvRequestHeader,
    DeleteTopicRequestHeader,
    GetTopicStatsInfoRequestHeader,
)

T = TypeVar("T")

_PERMISSIONS: Final = {"RW": Permission.READ | Permission.WRITE, "R": Permission.READ, "W": Permission.WRITE}
# More is a slip: each queue costs files on every broker.
_MAX_QUEUES: Final = 8192
# Brokers tell the name servers of a new topic at once, but in their own time.
_ROUTE_WAIT: Final = 30.0
_ROUTE_POLL: Final = 0.05


class TopicOperations(AdminAsking):
    """What an operator does with topics."""

    async def topics(self) -> list[TopicInfo]:
        """Every topic that the name servers list, with its settings on each broker, sorted by kind and name.

        In a namespace: those of the namespace only.
        """
        answer = await self.ask_name_server(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER)
        names = TopicList.decode(answer.body).topic_list
        nodes = await self.readable()
        tables = await self.for_all(nodes, self._topic_configs)
        # Brokers have topics with the names of their cluster and themselves; only they can tell those from a user's.
        own = frozenset[str]().union(*await self.for_all(nodes, self._system_topics))
        found: list[TopicInfo] = []
        for name in names:
            short = self.short(name)
            if self.namespace and short == name:
                continue
            brokers = tuple(_queues(node.name, configs[name]) for node, configs in tables if name in configs)
            found.append(TopicInfo(short, TopicKind.SYSTEM if name in own else kind_of(name), brokers))
        return sorted(found, key=lambda topic: (list(TopicKind).index(topic.kind), topic.name))

    async def create_topic(
        self,
        name: str,
        queues: int = 8,
        *,
        read_queues: int | None = None,
        write_queues: int | None = None,
        permission: str = "RW",
        update: bool = False,
        wait: float = _ROUTE_WAIT,
    ) -> RouteInfo:
        """Create a topic on every master and return its route once the name servers know all of it.

        One that exists with the same settings is left as it is; with others it is an error unless `update` says that
        they are to be changed (fewer queues hide the messages of the others).
        """
        full = self._changeable_topic(name)
        reads = queues if read_queues is None else read_queues
        writes = queues if write_queues is None else write_queues
        _check_settings(name, reads, writes, permission)
        masters = await self.masters()
        wanted = {node.name: TopicQueues(node.name, reads, writes, permission) for node in masters}
        if not update:
            await self._refuse_a_change(name, full, masters, wanted)
        header = CreateTopicRequestHeader(
            topic=full,
            default_topic=AUTO_CREATE_TOPIC,
            read_queue_nums=reads,
            write_queue_nums=writes,
            perm=int(_PERMISSIONS[permission]),
            topic_sys_flag=0,
        )
        await self.for_all(masters, lambda node: self.ask(node, RequestCode.UPDATE_AND_CREATE_TOPIC, header))
        return self._route_info(full, await self._routed(name, full, wanted, wait))

    async def delete_topic(self, name: str) -> None:
        """Delete a topic on every master and at every name server; one that does not exist is an error."""
        full = self._changeable_topic(name)
        await self.fetch_route(full)
        await self.for_all(
            await self.masters(),
            lambda node: self.ask(node, RequestCode.DELETE_TOPIC_IN_BROKER, DeleteTopicRequestHeader(topic=full)),
        )
        # Each name server has a list of its own.
        await self.for_all(self.instance.name_servers.addresses, lambda address: self._delete_route(address, full))

        async def gone() -> bool:
            try:
                await self.fetch_route(full)
            except TopicRouteNotFoundError:
                return True
            return False

        if not await self._eventually(gone, _ROUTE_WAIT):
            raise NameServerError(
                f"topic {name!r} was deleted, but {self.instance.name_servers} still tells a route of it: a broker"
                " that was not reached has registered it again"
            )

    async def route(self, topic: str) -> RouteInfo:
        """What the name servers say of a topic, just now."""
        full = self.full_topic(topic)
        return self._route_info(full, await self.fetch_route(full))

    async def queue_ranges(self, topic: str) -> list[QueueRange]:
        """What each queue of a topic holds, sorted."""
        full = self.full_topic(topic)
        header = GetTopicStatsInfoRequestHeader(topic=full)

        async def of(node: Node) -> list[QueueRange]:
            answer = await self.ask(node, RequestCode.GET_TOPIC_STATS_INFO, header)
            return [
                QueueRange(
                    self.short(queue.topic),
                    queue.broker_name,
                    queue.queue_id,
                    known.min_offset,
                    known.max_offset,
                    known.last_update_timestamp or None,
                )
                for queue, known in TopicStatsTable.decode(answer.body).offset_table.items()
            ]

        ranges = await self.for_all(await self.readable_of(full), of)
        return sorted(chain.from_iterable(ranges), key=lambda one: (one.broker_name, one.queue_id))

    # --- parts ------------------------------------------------------------------------------------------------------

    def _changeable_topic(self, name: str) -> str:
        full = self.full_topic(name)
        if is_system_topic(full):
            raise ConfigurationError(f"topic={name!r} is RocketMQ's own: it cannot be created, changed or deleted")
        return full

    async def _refuse_a_change(self, name: str, full: str, masters: list[Node], wanted: dict[str, TopicQueues]) -> None:
        for node, configs in await self.for_all(masters, self._topic_configs):
            there = _queues(node.name, configs[full]) if full in configs else None
            if there is not None and there != wanted[node.name]:
                raise ConfigurationError(
                    f"topic {name!r} exists on {node.name} with {there.read_queues} read and {there.write_queues} write"
                    f" queues, permission {there.permission!r}: update=True changes it"
                )

    async def _routed(self, name: str, full: str, wanted: dict[str, TopicQueues], wait: float) -> TopicRouteData:
        """The route of a topic, once the name servers tell of each broker what was wanted of it."""

        async def route() -> TopicRouteData | None:
            try:
                data = await self.fetch_route(full)
            except TopicRouteNotFoundError:
                return None
            told = {queues.broker_name: _route_queues(queues) for queues in data.queue_datas}
            return data if all(told.get(broker) == queues for broker, queues in wanted.items()) else None

        found = await self._eventually(route, wait)
        if found is None:
            raise NameServerError(
                f"topic {name!r} was created on {', '.join(wanted)}, but {self.instance.name_servers} did not tell its"
                f" route within {wait:g} s"
            )
        return found

    async def _topic_configs(self, node: Node) -> tuple[Node, dict[str, TopicConfig]]:
        answer = await self.ask(node, RequestCode.GET_ALL_TOPIC_CONFIG)
        return node, dict(TopicConfigSerializeWrapper.decode(answer.body).topic_config_table)

    async def _system_topics(self, node: Node) -> frozenset[str]:
        answer = await self.ask(node, RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER)
        return TopicList.decode(answer.body).topic_list

    async def _delete_route(self, address: str, full: str) -> None:
        code = RequestCode.DELETE_TOPIC_IN_NAMESRV
        command = request(code, DeleteTopicFromNamesrvRequestHeader(topic=full))
        answer = await self.instance.remoting.invoke(address, command, self.settings.api_timeout)
        if answer.code != ResponseCode.TOPIC_NOT_EXIST:
            expect_success(address, code, answer)

    async def _eventually(self, ask: Callable[[], Awaitable[T]], wait: float) -> T:
        deadline = self.clock.monotonic() + wait
        while True:
            found = await ask()
            if found or self.clock.monotonic() >= deadline:
                return found
            await self.clock.sleep(_ROUTE_POLL)

    def _route_info(self, full: str, data: TopicRouteData) -> RouteInfo:
        by_name = {queues.broker_name: queues for queues in data.queue_datas}
        brokers = [
            RouteBroker(
                broker.cluster,
                broker.broker_name,
                {broker_id: broker.broker_addrs[broker_id] for broker_id in sorted(broker.broker_addrs)},
                queues.read_queue_nums if (queues := by_name.get(broker.broker_name)) else 0,
                queues.write_queue_nums if queues else 0,
                permission_text(queues.perm) if queues else "",
            )
            for broker in sorted(data.broker_datas, key=lambda broker: broker.broker_name)
        ]
        return RouteInfo(self.short(full), tuple(brokers), data.order_topic_conf or None)


def kind_of(topic: str) -> TopicKind:
    """Whose topic it is, by its full name."""
    if topic.startswith(RETRY_PREFIX):
        return TopicKind.RETRY
    if topic.startswith(DLQ_PREFIX):
        return TopicKind.DLQ
    return TopicKind.SYSTEM if is_system_topic(topic) else TopicKind.NORMAL


def _check_settings(name: str, reads: int, writes: int, permission: str) -> None:
    for setting, value in (("read_queues", reads), ("write_queues", writes)):
        if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= _MAX_QUEUES:
            raise ConfigurationError(f"{setting}={value!r} of topic {name!r} must be from 1 to {_MAX_QUEUES}")
    if permission not in _PERMISSIONS:
        raise ConfigurationError(f"permission={permission!r} must be one of {', '.join(_PERMISSIONS)}")


def _queues(broker_name: str, config: TopicConfig) -> TopicQueues:
    return TopicQueues(broker_name, config.read_queue_nums, config.write_queue_nums, permission_text(config.perm))


def _route_queues(queues: QueueData) -> TopicQueues:
    return TopicQueues(
        queues.broker_name, queues.read_queue_nums, queues.write_queue_nums, permission_text(queues.perm)
    )
