"""Routes: fetched from the name servers, cached, refreshed by timer and on demand, one request in flight per topic."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from typing import TypeAlias

from rocketstream.cluster.brokers import BrokerAddress, BrokerTable
from rocketstream.cluster.name_servers import NameServers
from rocketstream.cluster.names import RETRY_PREFIX
from rocketstream.cluster.route import TopicRoute, topic_route
from rocketstream.errors import BrokerNotFoundError, RocketStreamError, TopicRouteNotFoundError
from rocketstream.remoting.replies import expect_success
from rocketstream.wire.bodies.route import TopicRouteData
from rocketstream.wire.codes import RequestCode, ResponseCode
from rocketstream.wire.command import request
from rocketstream.wire.headers.topic import GetRouteInfoRequestHeader

log = logging.getLogger("rocketstream.cluster")

RouteListener: TypeAlias = Callable[[TopicRoute], None]


class RouteTable:
    """topic → route, with the brokers that the routes name."""

    def __init__(self, name_servers: NameServers, brokers: BrokerTable, timeout: float = 3.0) -> None:
        self._name_servers = name_servers
        self._brokers = brokers
        self._timeout = timeout
        self._routes: dict[str, TopicRoute] = {}
        self._in_flight: dict[str, asyncio.Task[TopicRoute]] = {}
        self._listeners: list[RouteListener] = []

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
        fetch = self._in_flight.get(topic)
        if fetch is None:
            fetch = asyncio.ensure_future(self._fetch(topic))
            self._in_flight[topic] = fetch
            fetch.add_done_callback(lambda done: self._landed(topic, done))
        # Shielded: one caller that gives up must not take the answer from the others.
        return await asyncio.shield(fetch)

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

    async def close(self) -> None:
        """End what is in flight."""
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

    def _tell(self, route: TopicRoute) -> None:
        for listener in self._listeners:
            try:
                listener(route)
            except Exception:
                log.exception("a listener to the route of topic %r raised", route.topic)

    def _landed(self, topic: str, fetch: asyncio.Task[TopicRoute]) -> None:
        self._in_flight.pop(topic, None)
        if not fetch.cancelled():
            fetch.exception()  # seen: its callers have it, or have all gone away
