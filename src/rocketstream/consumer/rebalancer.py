"""One consumer's share of the queues: which are its own, and what winning or losing one takes (REB).

The rule of this file: it fails closed. Members that could not be asked for, a strategy that raises, an offset that is
not known change nothing; a queue is pulled only from an offset that is certain, and, for orderly consumers, only with
the broker's lock.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Collection, Mapping
from typing import TYPE_CHECKING, TypeVar

from rocketstream.cluster.names import RETRY_PREFIX
from rocketstream.consumer.assignment import Assignment, client_side, members_of_group
from rocketstream.consumer.hooks import tell_queues
from rocketstream.consumer.pop_request import PopProcessQueue, PopRequest, Request, init_mode_of
from rocketstream.consumer.process_queue import ProcessQueue
from rocketstream.consumer.pull_request import PullRequest
from rocketstream.consumer.start_offset import start_offset
from rocketstream.errors import (
    AccessDeniedError,
    ClientStateError,
    OffsetUnknownError,
    RocketStreamError,
    TopicRouteNotFoundError,
    denial_behind,
)
from rocketstream.message import MessageQueue
from rocketstream.wire.codes import MessageModel, MessageRequestMode

if TYPE_CHECKING:
    from rocketstream.consumer.core import ConsumerCore

log = logging.getLogger("rocketstream.consumer")

T = TypeVar("T")

UNLOCK_WAIT = 1.0  # ORD-03
# So long the members of a group have to let go of queues before others take them, all having been told of a change at
# the same time: else the new owner would begin before the last one has stored where it was. More than a second, because
# a member that has just rebalanced waits that long (REB-01); one on a busy machine was seen to be 0.43 s late.
HAND_OVER = 1.2
# How long who loses a queue makes sure that no pull of its own will lower the offset that it stores last: so much less
# than HAND_OVER that the new owner still begins after that, though this member's pass may begin after the owner's.
LAST_COMMIT = 0.5
# How many start offsets are asked for at a time.
_MAX_LOOK_UPS = 64


class Rebalancer:
    """The queues of one consumer. All of it runs on the I/O thread, one pass at a time."""

    def __init__(self, core: ConsumerCore) -> None:
        self._core = core
        self._settings = core.consumer
        self.requests: dict[MessageQueue, Request] = {}
        """The queues that we have, and those that we are giving away."""
        self._has_company = False
        self._hand_over_until = float("-inf")
        self._lock = asyncio.Lock()
        self._ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._told: dict[str, tuple[frozenset[MessageQueue], frozenset[MessageQueue]]] = {}
        self.problems: dict[str, str] = {}
        """Why a topic has no queues, for whoever asks."""
        self.denied: dict[str, AccessDeniedError] = {}
        """Topics that a broker's access control keeps from us."""

    def __repr__(self) -> str:
        return f"<Rebalancer of group {self._core.group}, {len(self.requests)} queues>"

    @property
    def assigned(self) -> tuple[MessageQueue, ...]:
        """The queues that are ours now, in order."""
        return tuple(sorted(q for q, request in self.requests.items() if not request.process_queue.dropped))

    @property
    def pulled(self) -> tuple[MessageQueue, ...]:
        """Those of them that have offsets."""
        return tuple(queue for queue in self.assigned if isinstance(self.requests[queue], PullRequest))

    def members_changed(self) -> None:
        """A broker says that members came or went; it says so to all of them."""
        self._hand_over_until = self._core.clock.monotonic() + HAND_OVER

    # --- one pass ---------------------------------------------------------------------------------------------------

    async def rebalance(self) -> bool:
        """Share out the queues of every subscribed topic; False if something has to be done again soon (REB-02)."""
        async with self._lock:
            balanced = True
            self.denied.clear()
            for topic in self.problems.keys() - self._core.subscriptions.keys():
                del self.problems[topic]
            for topic in tuple(self._core.subscriptions):
                try:
                    balanced = await self._topic(topic) and balanced
                    self.problems.pop(topic, None)
                except TopicRouteNotFoundError as error:
                    if not topic.startswith(RETRY_PREFIX):  # that one exists once something had to be retried
                        self._failed(topic, error)
                        balanced = False
                except Exception as error:
                    self._failed(topic, error)
                    balanced = False
            balanced = await self._drop_unsubscribed() and balanced
            self._core.stats.of_group.rebalances["balanced" if balanced else "again"] += 1
            return balanced

    def _failed(self, topic: str, error: Exception) -> None:
        self.problems[topic] = str(error) or type(error).__name__
        if isinstance(error, AccessDeniedError):
            self.denied[topic] = error
        if not topic.startswith(RETRY_PREFIX) or topic in self.denied:
            known = isinstance(error, RocketStreamError)
            log.warning(
                "group %s: the queues of topic %r stay as they are: %s",
                self._core.group,
                topic,
                error,
                exc_info=None if known else error,
            )

    async def _topic(self, topic: str) -> bool:
        core = self._core
        queues = (await core.instance.routes.get(topic)).read_queues
        assignment = await self._share(topic, queues)
        await core.modes.follow(topic, assignment.queues.values())
        balanced = await self._update(topic, assignment.queues)
        mine = frozenset(queue for queue in self.assigned if queue.topic == topic)
        if self._told.get(topic) != (frozenset(queues), mine):
            self._told[topic] = (frozenset(queues), mine)
            await self._changed(topic, frozenset(queues), mine)
        if topic in self.denied:  # it is no queue's own trouble that will pass
            raise self.denied[topic]
        return balanced

    async def _share(self, topic: str, queues: Collection[MessageQueue]) -> Assignment:
        """Our share of a topic's queues."""
        if self._settings.model is MessageModel.BROADCASTING:
            return Assignment(dict.fromkeys(queues, MessageRequestMode.PULL), queues)
        return await self._assign(topic, queues)

    async def _assign(self, topic: str, queues: Collection[MessageQueue]) -> Assignment:
        core = self._core
        by_broker = await core.broker_assignment(topic)
        if by_broker is not None:
            return by_broker
        members = await members_of_group(core.instance, topic, core.group)
        if core.client_id not in members:
            # The broker has restarted, or lost us. To drop everything would be wrong: tell it, and look again.
            core.heartbeat_soon()
            raise NotAMemberError(f"the broker does not list this client among the members of group {core.group}")
        self._has_company = len(members) > 1
        strategy = self._settings.allocate_strategy
        return await self._unless_ended(
            client_side(strategy, core.group, core.client_id, queues, members, core.hook_threads)
        )

    async def _unless_ended(self, work: Awaitable[T]) -> T:
        """A user's code may take for ever; the end of the consumer does not wait for it, nor for a pause."""
        result = asyncio.ensure_future(work)
        try:
            await asyncio.wait((result, self._ended), return_when=asyncio.FIRST_COMPLETED)
            if not result.done():
                raise ClientStateError(f"{self._core.what} ended before its queues were shared out")
            return result.result()
        finally:
            result.cancel()

    async def _changed(self, topic: str, queues: frozenset[MessageQueue], mine: frozenset[MessageQueue]) -> None:
        """REB-09."""
        core = self._core
        await core.queues_changed(topic, len(mine))
        if self._settings.queue_listener is not None:
            shown = core.names.shown_queue
            await self._tell(core.names.shown_topic(topic), frozenset(map(shown, queues)), frozenset(map(shown, mine)))

    async def _tell(self, topic: str, queues: frozenset[MessageQueue], mine: frozenset[MessageQueue]) -> None:
        """Tell the user's listener, on another thread."""
        work = asyncio.get_running_loop().run_in_executor(
            self._core.hook_threads, tell_queues, self._settings.queue_listener, topic, queues, mine
        )
        await self._unless_ended(work)

    # --- losing -----------------------------------------------------------------------------------------------------

    async def _update(self, topic: str, wanted: Mapping[MessageQueue, MessageRequestMode]) -> bool:
        lost: list[Request] = []
        now = self._core.clock.monotonic()
        for queue, request in self.requests.items():
            if queue.topic != topic:
                continue
            pq = request.process_queue
            if wanted.get(queue) is not request.mode:
                log.info("group %s loses %s", self._core.group, queue)
                lost.append(request)
            elif pq.dropped:
                # On its way out (an illegal offset, a reset), or left over from a listener that did not end.
                if request not in self._core.leaving:
                    lost.append(request)
            elif pq.pull_expired(now):  # PULL-03
                log.error("%s was not pulled for %.0f s: it is dropped and taken anew", queue, now - pq.last_pull_at)
                lost.append(request)
        balanced = await self._lose_some(lost)
        new = [queue for queue in wanted if queue not in self.requests]
        return await self._win_all({queue: wanted[queue] for queue in new}) and balanced

    async def _lose_some(self, lost: Collection[Request]) -> bool:
        """All of them are dropped before anything is waited for: their new owners may begin at any moment."""
        if lost:
            self._core.consumption.settle()  # what was finished before the loss counts
        for request in lost:
            request.process_queue.drop()
            self._core.stats.of(request.queue.topic).lost += 1
        return all(await asyncio.gather(*map(self._lose, lost)))

    async def _lose(self, request: Request) -> bool:
        """Give a queue away: dropped at once, unlocked and forgotten when nobody works on it any more (REB-05)."""
        if isinstance(request, PopRequest):
            request.process_queue.drop()  # its messages are leased one by one: no offset, no lock
            del self.requests[request.queue]
            return True
        core, queue, pq = self._core, request.queue, request.process_queue
        core.consumption.settle()  # what was finished before the loss counts
        pq.drop()
        if request in core.leaving:  # its offset was about to be corrected (RES-10, OFF-05)
            core.leaving.discard(request)
            core.offsets.update(queue, request.next_offset, increase_only=False)
        await self._persist(queue)  # at once: the timer forgets the offsets of queues that are not ours
        if core.needs_locks and not await core.consumption.listener_ended(pq, UNLOCK_WAIT):
            log.warning("%s was lost, but a listener still runs on it: it is unlocked later", queue)
            return False
        core.offsets.remove(queue)
        core.puller.forget(queue)
        if core.needs_locks:
            await core.locks.unlock([queue])
        del self.requests[queue]
        pq.clear()
        return True

    async def _persist(self, queue: MessageQueue) -> None:
        core = self._core
        try:
            make_sure = await core.offsets.persist_last(queue, LAST_COMMIT)
        except Exception as error:  # a user's own store may raise anything
            log.warning("the offset of %s could not be stored: %s", queue, error)
            return
        if make_sure is not None:
            core.spawn_last(make_sure())  # the new owner does not wait for it, nor does the pass; an end does

    async def _drop_unsubscribed(self) -> bool:
        """REB-08."""
        self._core.modes.forget_unsubscribed()
        lost = [request for queue, request in self.requests.items() if queue.topic not in self._core.subscriptions]
        for request in lost:
            queue = request.queue
            log.info("group %s has no subscription to %r any more: %s is dropped", self._core.group, queue.topic, queue)
            self._told.pop(queue.topic, None)
        return await self._lose_some(lost)

    async def correct_offset(self, request: PullRequest) -> None:
        """RES-10, once the pause is over: the offset may go down, and the queue is taken anew."""
        core, queue = self._core, request.queue
        async with self._lock:
            core.leaving.discard(request)
            if self.requests.get(queue) is not request:
                return
            core.offsets.update(queue, request.next_offset, increase_only=False)
            await self._persist(queue)
            core.offsets.remove(queue)
            if core.needs_locks:
                if not await core.consumption.listener_ended(request.process_queue, UNLOCK_WAIT):  # ORD-03
                    log.warning("%s: a listener still runs on it: it is unlocked and taken anew later", queue)
                    core.rebalance_soon()
                    return
                await core.locks.unlock([queue])
            del self.requests[queue]
            request.process_queue.clear()
        log.warning("%s is taken anew from offset %d", queue, request.next_offset)
        core.rebalance_soon()

    async def lose_all(self) -> None:
        """At the end of a consumer: every queue is dropped and unlocked."""
        if not self._ended.done():
            self._ended.set_result(None)
        async with self._lock:
            requests = list(self.requests.values())
            for request in requests:
                request.process_queue.drop()
            self.requests.clear()
            if self._core.needs_locks:
                # A queue on which a listener still runs keeps its lock until the broker lets it expire (ORD-03).
                ended = self._core.consumption.listener_ended
                pulled = [r for r in requests if isinstance(r, PullRequest)]
                await self._core.locks.unlock([r.queue for r in pulled if await ended(r.process_queue, 0.0)])

    # --- winning ----------------------------------------------------------------------------------------------------

    async def _win_all(self, wanted: Mapping[MessageQueue, MessageRequestMode]) -> bool:
        core = self._core
        if not wanted:
            return True
        allowed = set(wanted)
        if core.needs_locks:  # REB-07
            pulled = {queue for queue, mode in wanted.items() if mode is MessageRequestMode.PULL}
            allowed = (allowed - pulled) | (set(await core.locks.lock(pulled)) if pulled else set())
            for queue in wanted.keys() - allowed:
                log.info("%s is not ours yet: its lock was refused, another member still has it", queue)
        elif self._has_company and core.clock.monotonic() < self._hand_over_until:
            await self._unless_ended(core.clock.sleep(self._hand_over_until - core.clock.monotonic()))
        gate = asyncio.Semaphore(_MAX_LOOK_UPS)
        tried = sorted(allowed)
        won = await asyncio.gather(*(self._win(queue, wanted[queue], gate) for queue in tried))
        left = [queue for queue, ours in zip(tried, won, strict=True) if not ours]
        if core.needs_locks and left:  # else whoever gets them next would wait until our locks expire
            await core.locks.unlock(left)
        return all(won) and len(allowed) == len(wanted)

    async def _win(self, queue: MessageQueue, mode: MessageRequestMode, gate: asyncio.Semaphore) -> bool:
        core = self._core
        if mode is MessageRequestMode.POP:
            return self._win_pop(queue)
        core.offsets.remove(queue)  # what we knew when we last had it is not what its last owner left
        try:
            async with gate:
                offset = await self.start_offset(queue)
        except OffsetUnknownError as error:
            refusal = denial_behind(error)
            if refusal is None:
                log.warning("group %s: %s; the queue is left alone for now", core.group, error)
            else:
                self.denied[queue.topic] = refusal
            return False
        if not core.is_alive:
            return False
        now = core.clock.monotonic()
        pq = self.new_process_queue(queue, now)
        if core.needs_locks:
            pq.set_locked(now)
        request = PullRequest(core.group, queue, pq, offset, mode)
        request.committed = core.offsets.known_at_broker(queue)
        self.requests[queue] = request
        core.stats.of(queue.topic).won += 1
        log.info("group %s wins %s and begins at offset %d", core.group, queue, offset)
        core.begin_pulling(request)
        return True

    def new_process_queue(self, queue: MessageQueue, now: float) -> ProcessQueue:
        """Where the messages of a queue that was won are cached."""
        return ProcessQueue(queue, now=now)

    def _win_pop(self, queue: MessageQueue) -> bool:
        core = self._core
        if not core.is_alive:
            return False
        pq = PopProcessQueue(queue, now=core.clock.monotonic())
        request = PopRequest(core.group, queue, pq, init_mode_of(self._settings.start_from))
        self.requests[queue] = request
        core.stats.of(queue.topic).won += 1
        log.info("group %s pops %s from now on", core.group, queue)
        core.begin_pulling(request)
        return True

    async def start_offset(self, queue: MessageQueue) -> int:
        """Where to begin with a queue, or `OffsetUnknownError` (REB-06)."""
        core = self._core
        return await start_offset(queue, core.offsets, self._settings.start_from, core.queue_offsets)


class NotAMemberError(RocketStreamError):
    """A broker does not list us: nothing may change now; it is looked at again in a moment."""
