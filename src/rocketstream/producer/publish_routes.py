"""Which queues a topic has for writing, and the topics that a broker is still to create.

A topic that the name servers do not know is sent to all the same where brokers create topics by themselves: to the
queues that it will have then. Once the first message is stored its real route is fetched.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any, TypeVar

from rocketstream.cluster.brokers import MASTER_ID
from rocketstream.cluster.client import ClientCore
from rocketstream.cluster.names import AUTO_CREATE_TOPIC
from rocketstream.errors import BrokerNotFoundError, NameServerError, RocketStreamError, TopicRouteNotFoundError
from rocketstream.message import MessageQueue
from rocketstream.remoting.deadline import done_before

T = TypeVar("T")

log = logging.getLogger("rocketstream.producer")


class PublishRoutes:
    """The queues that can be written to, topic by topic; belongs to the I/O thread."""

    def __init__(self, client: ClientCore, queue_nums: int) -> None:
        self._client = client
        self._queue_nums = queue_nums
        self._topics: set[str] = set()
        self._guessed: dict[str, tuple[MessageQueue, ...]] = {}
        self._looking: set[str] = set()
        self._tasks: set[asyncio.Task[None]] = set()

    def topics(self) -> tuple[str, ...]:
        """The topics whose routes are to be kept fresh: those that exist."""
        return tuple(self._topics)

    def forget_guess(self, topic: str) -> None:
        """A broker did not create the topic after all."""
        self._guessed.pop(topic, None)

    def close(self) -> None:
        """End what is under way."""
        for task in self._tasks:
            task.cancel()

    async def queues(self, topic: str, deadline: float | None = None) -> tuple[MessageQueue, ...]:
        """The queues of a topic (with its namespace); a route is fetched where none is known, until the deadline."""
        route = self._client.instance.routes.cached(topic)
        if route is not None and route.write_queues:
            return route.write_queues
        guessed = self._guessed.get(topic)
        if guessed is not None:
            return guessed
        return await self.before(deadline, topic, self._fetch(topic))

    async def master(self, queue: MessageQueue, deadline: float | None = None) -> str:
        """Where the master of a queue is; asks for the route where it is not known, until the deadline."""
        routes = self._client.instance.routes
        found = self._client.instance.brokers.master(routes.broker_name_of(queue))
        if found is None:
            asking = routes.broker_of(queue, MASTER_ID, only_this=True)
            found = await self.before(deadline, queue.topic, asking)
        return found.address

    async def look_again(self, topic: str, deadline: float) -> None:
        """Fetch a route that is known to be old, until the deadline."""
        await self.before(deadline, topic, self._client.instance.routes.refresh(topic))

    async def before(self, deadline: float | None, topic: str, asking: Coroutine[Any, Any, T]) -> T:
        """The answer of the name servers, or an error when the deadline comes sooner than their own time-outs."""
        if deadline is None:
            return await asking
        clock = self._client.clock
        left = deadline - clock.monotonic()
        task = asyncio.ensure_future(asking)
        try:
            if await done_before(clock, task, deadline):
                return task.result()
        finally:
            task.cancel()  # the request itself goes on: others may wait for the same route
        raise NameServerError(
            f"no name server told the route of topic {topic!r} within the {max(left, 0.0):.3g} s that were left of the"
            f" send's time-out: {self._client.instance.name_servers}"
        )

    async def _fetch(self, topic: str) -> tuple[MessageQueue, ...]:
        try:
            route = await self._client.instance.routes.refresh(topic)
        except TopicRouteNotFoundError as error:
            return await self._queues_to_be_created(topic, error)
        if not route.write_queues:
            raise BrokerNotFoundError(
                f"topic {topic!r} has no queue that can be written to: its brokers have no master or forbid writing"
            )
        self._topics.add(topic)
        return route.write_queues

    def stored_in(self, topic: str) -> None:
        """A message was stored: if its topic was still to be created, it exists now; fetch its route."""
        if topic not in self._guessed or topic in self._looking:
            return
        self._looking.add(topic)

        async def look() -> None:
            try:
                await self._client.instance.routes.refresh(topic)
            except RocketStreamError:
                await self._client.clock.sleep(
                    1.0
                )  # the name servers have not heard of it yet; the next send looks again
            else:
                self._guessed.pop(topic, None)
                self._topics.add(topic)
            finally:
                self._looking.discard(topic)

        task = asyncio.ensure_future(look())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _queues_to_be_created(self, topic: str, error: TopicRouteNotFoundError) -> tuple[MessageQueue, ...]:
        """The queues that a topic will have once a broker has created it for us."""
        try:
            default = await self._client.instance.routes.get(AUTO_CREATE_TOPIC)
        except TopicRouteNotFoundError:
            raise error from None  # no broker creates topics
        limit = self._queue_nums
        queues = tuple(queue._replace(topic=topic) for queue in default.write_queues if queue.queue_id < limit)
        if not queues:
            raise error
        self._guessed[topic] = queues
        log.info("topic %r does not exist yet; a broker will create it", topic)
        return queues
