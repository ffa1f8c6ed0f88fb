"""The lite pull consumer on the I/O thread: the push consumer, with a program that polls where its listener was.

The rule of this file: membership, heartbeats, routes, rebalance, pulls and offset stores are the push consumer's own.
What is here is what a program may do to its queues: choose them, move in them, pause them, commit.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from typing import Any

from rocketstream.cluster.client import ClientState
from rocketstream.cluster.names import with_namespace
from rocketstream.cluster.settings import ClientSettings
from rocketstream.consumer.core import ConsumerCore
from rocketstream.consumer.expressions import Sql, Tag, subscription_to
from rocketstream.consumer.listener import Listener
from rocketstream.consumer.lite.polling import PollService
from rocketstream.consumer.lite.puller import LitePuller
from rocketstream.consumer.lite.settings import LitePullSettings
from rocketstream.consumer.lite.sharing import LiteModes, LiteRebalancer
from rocketstream.consumer.lite.stock import LiteProcessQueue
from rocketstream.consumer.lite.telling import LiteAnswers, LiteOverview
from rocketstream.consumer.offset_store import ReadFrom
from rocketstream.consumer.pull_request import PullRequest
from rocketstream.errors import (
    ClientStateError,
    ConfigurationError,
    OffsetOutOfRangeError,
    OffsetStoreError,
    QueueNotAssignedError,
)
from rocketstream.message import MessageQueue
from rocketstream.wire.bodies.heartbeat import ConsumerData
from rocketstream.wire.codes import ConsumeType

log = logging.getLogger("rocketstream.consumer")


class LitePullCore(ConsumerCore):
    """A lite pull consumer; all of it belongs to the I/O thread. Queues are named here as users name them."""

    consume_type = ConsumeType.CONSUME_ACTIVELY
    puller: LitePuller

    def __init__(
        self, settings: ClientSettings, lite: LitePullSettings, *, instance_name: str | None = None, **others: Any
    ) -> None:
        super().__init__(settings, lite.for_consumer(), instance_name=instance_name, **others)
        self.what = f"lite pull consumer of group {lite.group!r}"
        self.lite = lite
        self.auto_commit = lite.auto_commit
        self.chosen: frozenset[MessageQueue] = frozenset()
        """The queues that the program has assigned by hand, as brokers name them; none: it subscribes."""
        self.ended_well = True
        """Whether an end means that the program has finished what it polled."""
        self.overview = LiteOverview(self)
        self.answers = LiteAnswers(self)

    @property
    def polls(self) -> PollService:
        """Where messages wait for polls."""
        assert isinstance(self.consumption, PollService)
        return self.consumption

    @property
    def retries(self) -> bool:
        """Nothing is sent back: what is not committed comes again."""
        return False

    # --- its parts --------------------------------------------------------------------------------------------------

    def make_puller(self) -> LitePuller:
        """Who pulls."""
        return LitePuller(self)

    def make_modes(self) -> LiteModes:
        """Every topic is pulled."""
        return LiteModes(self)

    def make_rebalancer(self) -> LiteRebalancer:
        """Who knows which queues are ours."""
        return LiteRebalancer(self)

    def make_consumption(self, listener: Listener | None) -> PollService:
        """Where messages wait for polls."""
        return PollService(self)

    # --- its life ---------------------------------------------------------------------------------------------------

    def check_ready(self) -> None:
        """A program may subscribe and assign after the start."""

    def heartbeat(self) -> ConsumerData:
        """What the brokers are told; as in Java nothing of queues that were assigned by hand."""
        data = super().heartbeat()
        return replace(data, subscription_data_set=()) if self.chosen else data

    async def _meet_the_brokers(self) -> None:
        self.ended_well = True
        if self.chosen:
            await self.instance.name_servers.check(self.settings.api_timeout)
            await self._check_exist(self.chosen)
        await super()._meet_the_brokers()

    def _start_timers(self) -> None:
        super()._start_timers()
        interval = self.lite.auto_commit_interval
        self._periodic.append(self.instance.timers.every("commit what was polled", interval, interval, self._commit))

    async def _commit(self) -> None:
        self.polls.settle()
        if self.auto_commit and self.is_running:
            await self.offsets.persist_all(self.rebalancer.pulled)

    async def persist_offsets(self) -> None:
        """What the program has committed and a broker has not taken; what is committed by itself has its own timer."""
        if not self.auto_commit:
            await super().persist_offsets()

    async def on_shutdown(self, timeout: float | None) -> None:
        """Commit what was polled, unless the program must not be trusted to have finished it."""
        if self.ended_well and self.auto_commit:
            self.polls.finish_all()
        await super().on_shutdown(timeout)

    def done(self, pq: LiteProcessQueue) -> None:
        """The program has finished more of a queue."""
        if self.auto_commit and pq.done >= 0:
            self.offsets.update(pq.queue, pq.done, increase_only=False)

    # --- which queues -----------------------------------------------------------------------------------------------

    async def subscribe(self, topic: str, expression: str | Tag | Sql) -> None:
        """Have a share of a topic's queues; a running consumer has it when this returns."""
        if self.chosen:
            raise ClientStateError(
                f"{self.what} has {len(self.chosen)} queues assigned by hand: subscribe({topic!r}) and assign() cannot"
                " be mixed; call assign([]) first, or use a second consumer"
            )
        await self.subscribing.subscribe(topic, expression)
        if self.is_running:
            await self.rebalance()

    async def unsubscribe(self, topic: str) -> None:
        """Give a topic's queues away; what was pulled of them is not given out any more."""
        if self.chosen:
            raise ClientStateError(f"{self.what} has queues assigned by hand: change them with assign()")
        await self.subscribing.unsubscribe(topic)
        if self.is_running:
            await self.rebalance()

    async def assign(self, queues: Collection[MessageQueue], expression: str | Tag | Sql) -> None:
        """Have exactly these queues, whatever other members of the group have; nothing ends an earlier choice."""
        if self.subscriptions and not self.chosen:
            topics = ", ".join(map(repr, map(self.names.shown_topic, sorted(self.subscriptions))))
            raise ClientStateError(
                f"{self.what} subscribes to {topics}: subscribe() and assign() cannot be mixed; unsubscribe first, or"
                " use a second consumer"
            )
        chosen = frozenset(map(self.real_queue, queues))
        topics_now = {queue.topic for queue in chosen}
        if self.is_running:
            await self._check_exist(chosen)
            await self.subscribing.check(subscription_to(topic, expression, 0) for topic in sorted(topics_now))
        self.chosen = chosen
        for topic in self.subscriptions.keys() - topics_now:
            del self.subscriptions[topic]
        for topic in sorted(topics_now):
            self.subscribing.put(topic, expression)
        if self.is_running:
            await self.instance.heartbeat()
            await self.rebalance()

    async def _check_exist(self, queues: Iterable[MessageQueue]) -> None:
        for queue in sorted(queues):
            known = (await self.instance.routes.get(queue.topic)).read_queues
            if queue not in known:
                known = (await self.instance.routes.refresh(queue.topic)).read_queues
            if queue not in known:
                shown = ", ".join(f"{one.broker_name}:{one.queue_id}" for one in sorted(known)[:8])
                raise ConfigurationError(
                    f"assign: topic {self.names.shown_topic(queue.topic)!r} has no queue {queue.queue_id} on broker"
                    f" {queue.broker_name!r} that can be read; it has {len(known)}: {shown}"
                )

    async def fetch_queues(self, topic: str) -> tuple[MessageQueue, ...]:
        """The queues of a topic that can be read."""
        self.check_running()
        route = await self.instance.routes.refresh(with_namespace(self.consumer.namespace, topic))
        return tuple(sorted(map(self.names.shown_queue, route.read_queues)))

    def real_queue(self, shown: MessageQueue) -> MessageQueue:
        """A queue as brokers name it."""
        return shown._replace(topic=self.names.real_topic(shown.topic))

    def _request(self, shown: MessageQueue) -> PullRequest:
        """The request of a queue that is ours, or an error."""
        self.check_running()
        request = self.rebalancer.requests.get(self.real_queue(shown))
        if not isinstance(request, PullRequest) or request.process_queue.dropped:
            why = (
                "assign() did not name it"
                if self.chosen
                else "it is another member's, or the queues are being shared out anew"
            )
            raise QueueNotAssignedError(f"{self.what} does not have {shown}: {why}")
        return request

    # --- where in them ----------------------------------------------------------------------------------------------

    async def seek(self, shown: MessageQueue, offset: int) -> None:
        """Go on with this offset, which the broker must have."""
        queue = self._request(shown).queue
        ask = self.queue_offsets
        lowest, highest = await asyncio.gather(ask.min_offset(queue), ask.max_offset(queue))
        if not lowest <= offset <= highest:
            raise OffsetOutOfRangeError(
                f"seek: {shown} has no offset {offset}: its messages are {lowest} to {highest}, the end"
            )
        self._move(shown, offset)

    async def seek_to_begin(self, shown: MessageQueue) -> None:
        """Go on with the oldest message there is."""
        self._move(shown, await self.queue_offsets.min_offset(self._request(shown).queue))

    async def seek_to_end(self, shown: MessageQueue) -> None:
        """Go on with what comes after this moment."""
        self._move(shown, await self.queue_offsets.max_offset(self._request(shown).queue))

    async def seek_to_timestamp(self, shown: MessageQueue, timestamp_ms: int) -> None:
        """Go on with the first message that was stored at a time or later."""
        self._move(shown, await self.queue_offsets.search(self._request(shown).queue, timestamp_ms))

    async def offset_for_timestamp(self, shown: MessageQueue, timestamp_ms: int) -> int:
        """The first message that was stored at a time or later, of any queue."""
        self.check_running()
        return await self.queue_offsets.search(self.real_queue(shown), timestamp_ms)

    def _move(self, shown: MessageQueue, offset: int) -> None:
        # Whatever was pulled, or is being pulled, belongs to the old process queue, and ends with it.
        old = self._request(shown)
        self.polls.settle()
        old.process_queue.drop()
        self.polls.stock.purge()
        pq = LiteProcessQueue(old.queue, now=self.clock.monotonic(), position=offset)
        request = PullRequest(self.group, old.queue, pq, offset, old.mode)
        self.rebalancer.requests[old.queue] = request
        self.done(pq)
        log.info("group %s goes on with %s at offset %d", self.group, old.queue, offset)
        self.begin_pulling(request)

    async def pause(self, queues: Iterable[MessageQueue] | None) -> None:
        """Pull nothing of these queues (None: all of now), and give out nothing of them."""
        self.polls.stock.pause(request.queue for request in self._requests(queues))

    async def resume(self, queues: Iterable[MessageQueue] | None) -> None:
        """Go on with these queues (None: all)."""
        requests = self._requests(queues)
        self.polls.stock.resume(request.queue for request in requests)
        for request in requests:
            self.puller.resumed(request)

    def _requests(self, queues: Iterable[MessageQueue] | None) -> list[PullRequest]:
        if queues is not None:
            return [self._request(queue) for queue in queues]
        self.check_running()
        requests = self.rebalancer.requests.values()
        return [one for one in requests if isinstance(one, PullRequest) and not one.process_queue.dropped]

    # --- committing -------------------------------------------------------------------------------------------------

    async def commit(self, what: Mapping[MessageQueue, int] | Iterable[MessageQueue] | None) -> None:
        """Store what was polled of all or of these queues, or these offsets; returns when the brokers have them."""
        wanted: dict[MessageQueue, int]
        if isinstance(what, Mapping):
            wanted = {self._request(queue).queue: offset for queue, offset in what.items()}
        else:
            requests = self._requests(what)
            self.polls.count_readings(current=True)
            self.polls.settle()
            wanted = {}
            for request in requests:
                pq = request.process_queue
                assert isinstance(pq, LiteProcessQueue)
                if pq.position >= 0:
                    wanted[request.queue] = pq.done = pq.position
        for queue, offset in wanted.items():
            self.offsets.update(queue, offset, increase_only=False)
        failed = await asyncio.gather(*map(self.offsets.persist, wanted), return_exceptions=True)
        for error in failed:
            if isinstance(error, OffsetStoreError):
                raise error
            if isinstance(error, Exception):  # a user's own store may raise anything
                raise OffsetStoreError(f"{self.what}: the offset store raised {error!r}") from error
            if error is not None:
                raise error

    async def committed(self, shown: MessageQueue) -> int | None:
        """Where the group would go on with a queue; None where it has no offset."""
        self.check_running()
        queue = self.real_queue(shown)
        offset = self.offsets.read_memory(queue)
        if offset < 0:
            offset = await self.offsets.read(queue, ReadFrom.STORE)
            self.offsets.remove(queue)  # to ask is not to commit
        return offset if offset >= 0 else None

    def set_auto_commit(self, auto_commit: bool) -> None:
        """Commit what was polled by itself from now on, or no more."""
        self.auto_commit = auto_commit
        if auto_commit and self.state is ClientState.RUNNING:
            for request in self._requests(None):
                assert isinstance(request.process_queue, LiteProcessQueue)
                self.done(request.process_queue)
