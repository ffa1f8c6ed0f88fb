"""Routes: fetched from the name servers, cached, refreshed by timer and on demand, one request in flight per topic."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from typing import Final, TypeAlias

from rocketstream.cluster.brokers import BrokerAddress, BrokerTable
from rocketstream.cluster.name_servers import NameServers
from rocketstream.cluster.names import RETRY_PREFIX
from rocketstream.cluster.route import TopicRoute, is_logical, topic_route
from rocketstream.errors import BrokerNotFoundError, RocketStreamError, TopicRouteNotFoundError
from rocketstream.message import MessageQueue
from rocketstream.remoting.replies import expect_success
from rocketstream.wire.bodies.route import TopicRouteData
from rocketstream.wire.codes import RequestCode, ResponseCode
from rocketstream.wire.command import request
from rocketstream.wire.headers.topic import GetRouteInfoRequestHeader

log = logging.getLogger("rocketstream.cluster")

RouteListener: TypeAlias = Callable[[TopicRoute], None]

# How often the routes that name a broker which cannot be reached are fetched.
_LOOK_INTERVAL: Final = 3.0


class RouteTable:
    """topic → route, with the brokers that the routes name."""

    def __init__(self, name_servers: NameServers, brokers: BrokerTable, timeout: float = 3.0) -> None:
        self._name_servers = name_servers
        self._brokers = brokers
        self._timeout = timeout
        self._routes: dict[str, TopicRoute] = {}
        self._in_flight: dict[str, asyncio.Task[TopicRoute]] = {}
        self._listeners: list[RouteListener] = []
        self._next_look: dict[str, float] = {}
        self._closed = False
        self.fetched: dict[str, int] = {}
        """How often a route was asked for, by how that went: ok, unknown or failed."""

    def __repr__(self) -> str:
        return f"<RouteTable {sorted(self._routes)}, fetching {sorted(self._in_flight)}>"

    def on_change(self, listener: RouteListener) -> None:
        """Have every route that is new or changed told; listeners run on the I/O thread and must not block."""
        self._listeners.append(listener)

    def cached(self, topic: str) -> TopicRoute | None:
        """The route as it was last fetched, if it was."""
        return self._routes.get(topic)

    async def get(self, topic: str) -> TopicRoute:
        """The cached route, or a fetched one."""
        return self._routes.get(topic) or await self.refresh(topic)

    async def refresh(self, topic: str) -> TopicRoute:
        """Fetch a route; whoever asks while a request is in flight shares its answer.

        `TopicRouteNotFoundError` if no name server knows the topic; a route that was known before is kept, since a
        name server that has just started knows nothing for a while.
        """
        # Shielded: one caller that gives up must not take the answer from the others.
        return await asyncio.shield(self._begin(topic))

    def suspect(self, address: str, now: float) -> None:
        """A broker cannot be reached: begin to fetch the routes that name it. It may have left a slave, or moved.

        Java waits for its next regular look, up to 30 s, and meanwhile can neither share out queues nor store offsets.
        """
        if self._closed or now < self._next_look.get(address, now):
            return
        self._next_look[address] = now + _LOOK_INTERVAL
        for topic in [topic for topic, route in self._routes.items() if address in route.addresses]:
            self._begin(topic)

    async def refresh_all(self, topics: Iterable[str]) -> None:
        """Fetch many routes; what fails is logged and the others go on."""
        await asyncio.gather(*(self._refresh_logged(topic) for topic in sorted(set(topics))))

    def forget_offline_brokers(self) -> list[str]:
        """Forget the broker addresses that are in no route any more; return them."""
        return self._brokers.keep_only(address for route in self._routes.values() for address in route.addresses)

    async def broker(self, topic: str, broker_name: str, broker_id: int, *, only_this: bool = False) -> BrokerAddress:
        """Where a broker is; asks for the route once more before it gives up (PULL-16)."""
        found = self._brokers.find(broker_name, broker_id, only_this=only_this)
        if found is None:
            await self.refresh(topic)
            found = self._brokers.find(broker_name, broker_id, only_this=only_this)
        if found is None:
            raise BrokerNotFoundError(
                f"no address is known for broker {broker_name!r} (id {broker_id}) of topic {topic!r}, though its route"
                f" was just fetched from {self._name_servers}: it is down or was removed"
            )
        return found

    def broker_name_of(self, queue: MessageQueue) -> str:
        """The broker that has a queue: the one in its name, or of a static topic's queue the one that leads it now."""
        if not is_logical(queue.broker_name):
            return queue.broker_name
        route = self._routes.get(queue.topic)
        return queue.broker_name if route is None else route.leaders.get(queue, queue.broker_name)

    async def broker_of(self, queue: MessageQueue, broker_id: int, *, only_this: bool = False) -> BrokerAddress:
        """Where a broker of a queue is; asks for the route once more before it gives up."""
        found = self._brokers.find(self.broker_name_of(queue), broker_id, only_this=only_this)
        if found is None and is_logical(queue.broker_name):
            await self.refresh(queue.topic)  # who leads it may have changed
        return found or await self.broker(queue.topic, self.broker_name_of(queue), broker_id, only_this=only_this)

    async def close(self) -> None:
        """End what is in flight."""
        self._closed = True
        for fetch in list(self._in_flight.values()):
            fetch.cancel()
        if self._in_flight:
            await asyncio.wait(self._in_flight.values())

    async def _refresh_logged(self, topic: str) -> None:
        try:
            await self.refresh(topic)
        except TopicRouteNotFoundError as error:
            # A retry topic exists only once something had to be retried.
            level = logging.DEBUG if topic.startswith(RETRY_PREFIX) else logging.WARNING
            log.log(level, "%s", error)
        except RocketStreamError as error:
            log.warning("the route of topic %r could not be fetched: %s", topic, error)

    async def _fetch(self, topic: str) -> TopicRoute:
        code = RequestCode.GET_ROUTEINFO_BY_TOPIC
        asked = request(code, GetRouteInfoRequestHeader(topic=topic, accept_standard_json_only=True))
        address, answer = await self._name_servers.ask(asked, self._timeout)
        if answer.code == ResponseCode.TOPIC_NOT_EXIST:
            raise TopicRouteNotFoundError(topic, str(self._name_servers))
        expect_success(address, code, answer)
        route = topic_route(topic, TopicRouteData.decode(answer.body))
        old = self._routes.get(topic)
        if route != old:
            log.info("the route of topic %r is now %s", topic, route)
            self._routes[topic] = route
        # Even when unchanged: a broker that was forgotten as offline may be back.
        self._brokers.update(route.brokers)
        if route != old:
            self._tell(route)
        return route

    def _begin(self, topic: str) -> asyncio.Task[TopicRoute]:
        fetch = self._in_flight.get(topic)
        if fetch is None:
            fetch = asyncio.ensure_future(self._fetch(topic))
            self._in_flight[topic] = fetch
            fetch.add_done_callback(lambda done: self._landed(topic, done))
        return fetch

    def _tell(self, route: TopicRoute) -> None:
        for listener in self._listeners:
            try:
                listener(route)
            except Exception:
                log.exception("a listener to the route of topic %r raised", route.topic)

    def _landed(self, topic: str, fetch: asyncio.Task[TopicRoute]) -> None:
        self._in_flight.pop(topic, None)
        if not fetch.cancelled():
            error = fetch.exception()  # seen: its callers have it, or have all gone away
            unknown = isinstance(error, TopicRouteNotFoundError)
            result = "ok" if error is None else "unknown" if unknown else "failed"
            self.fetched[result] = self.fetched.get(result, 0) + 1
