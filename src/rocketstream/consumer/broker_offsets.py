"""A group's offsets at the brokers (clustering), and what brokers say of their queues' own limits.

The rule of this file: only "not found" is -1. Every other answer, and no answer, is an error (OFF-01).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Collection
from functools import partial
from typing import Final

from rocketstream.cluster.brokers import MASTER_ID, BrokerAddress
from rocketstream.cluster.client_instance import ClientInstance
from rocketstream.cluster.versions import V5_0_0
from rocketstream.consumer.offset_store import UNKNOWN_OFFSET, MakeSure, RememberingOffsets
from rocketstream.consumer.pull_request import PullRequest
from rocketstream.errors import BrokerError, BrokerNotFoundError, OffsetStoreError, RocketStreamError
from rocketstream.message import MessageQueue
from rocketstream.wire.codes import RequestCode, ResponseCode
from rocketstream.wire.command import Command, Header
from rocketstream.wire.headers.offsets import (
    GetMaxOffsetRequestHeader,
    GetMinOffsetRequestHeader,
    OffsetResponseHeader,
    QueryConsumerOffsetRequestHeader,
    SearchOffsetRequestHeader,
    UpdateConsumerOffsetRequestHeader,
)

log = logging.getLogger("rocketstream.consumer")

_TIMEOUT: Final = 5.0
# Who only looks asks for less, so that a broker that hangs holds nobody up for longer than a write alone.
_LOOK_TIMEOUT: Final = 2.0
# A broker that crashes has forgotten what it was told since it last wrote its offsets to its disk: now and then
# everything is written, changed or not.
_FULL_WRITE_EVERY: Final = 12
# How many writes to a broker are under way at a time.
_AT_ONCE: Final = 64
# Between looks, whether a broker has handled a pull; the first one comes at once.
_FIRST_PAUSE: Final = 0.01
_LONGEST_PAUSE: Final = 0.2
# When to look again at what was written although that is not known.
_LOOK_AGAIN_AFTER: Final = (0.05, 0.1, 0.2, 0.4)


def _no_pull(queue: MessageQueue) -> PullRequest | None:
    return None


class OffsetTables:
    """Which brokers are known to have offsets of a group in a topic; the first offset is sent to a broker alone.

    A broker keeps a table for each group and topic, and makes it when the first offset comes. Two first ones at the
    same time make two tables, of which only the later one stays, and both are answered with success
    (`ConsumerOffsetManager.commitOffset`; on 5.5.0 seen for 1 of 300 new groups, which lost 6 of 8 offsets).
    """

    def __init__(self) -> None:
        self._known: set[tuple[str, str, str]] = set()
        self._first: dict[tuple[str, str, str], asyncio.Lock] = {}

    def has(self, group: str, topic: str, address: str) -> bool:
        """Whether the broker is known to have one."""
        return (group, topic, address) in self._known

    def found(self, group: str, topic: str, address: str) -> None:
        """The broker has one."""
        self._known.add((group, topic, address))

    def forget(self) -> None:
        """A broker may have lost its tables: first offsets go alone again."""
        self._known.clear()

    @contextlib.asynccontextmanager
    async def turn(self, group: str, topic: str, address: str) -> AsyncIterator[None]:
        """Where an offset is sent: at once, or after the first one was answered."""
        place = group, topic, address
        if place not in self._known:
            async with self._first.setdefault(place, asyncio.Lock()):
                if place not in self._known:
                    yield
                    self._known.add(place)
                    self._first.pop(place, None)
                    return
        yield


class BrokerOffsets(RememberingOffsets):
    """The offsets of a group, kept by the broker of each queue.

    Two ways lead to the broker: pulls that carry an offset (PULL-13), and writes. A broker handles them on different
    threads, and what it handles last wins, however old. So of a queue there is at most one write under way; pulls that
    are sent meanwhile carry nothing; and a write does not leave before the broker has handled the offset that the pull
    under way carries, unless that takes too long. The first offset of a topic is always written, and alone
    (`OffsetTables`). `pull_of` says who pulls a queue.
    """

    def __init__(
        self,
        instance: ClientInstance,
        group: str,
        pull_of: Callable[[MessageQueue], PullRequest | None] = _no_pull,
    ) -> None:
        super().__init__()
        self._instance = instance
        self._group = group
        self._pull_of = pull_of
        self._persisted: dict[MessageQueue, tuple[int, str]] = {}
        """What a broker has of a queue, and which one: a master that is back has not heard what its slave has."""
        self._writing: dict[MessageQueue, asyncio.Task[None]] = {}
        """The write of a queue that is under way."""
        self._leaving: set[MessageQueue] = set()
        """Queues that are just written for the last time."""
        self._put_off: set[MessageQueue] = set()
        """Queues that the last round has left out, because a pull brings their offsets."""
        self._rounds = 0
        self._tables = OffsetTables()
        self._begun: dict[tuple[str, str], asyncio.Task[None]] = {}
        """By topic and address: the write that a pull has asked for instead of carrying the first offset."""

    def __repr__(self) -> str:
        return f"<BrokerOffsets of group {self._group}, {len(self._offsets)} queues>"

    async def load(self) -> None:
        """Nothing: the offsets are read queue by queue."""

    def remove(self, queue: MessageQueue) -> None:
        """Forget a queue, also what was last written of it: others write it from now on."""
        super().remove(queue)
        self._persisted.pop(queue, None)
        self._put_off.discard(queue)

    def known_at_broker(self, queue: MessageQueue) -> int:
        """The offset that the queue's broker had when it was last asked or told."""
        return self._persisted.get(queue, (UNKNOWN_OFFSET, ""))[0]

    async def _read_stored(self, queue: MessageQueue) -> int:
        stored, address = await self._ask(queue, _TIMEOUT)
        if stored != UNKNOWN_OFFSET:
            self._persisted[queue] = stored, address
        if stored > 0:  # a broker also says 0 when it has none
            self._tables.found(self._group, queue.topic, address)
        return stored

    async def _ask(self, queue: MessageQueue, timeout: float) -> tuple[int, str]:
        """What the broker has, and its address."""
        # Like Java's client this does not say `setZeroIfNotFound=false`: a new group on a young queue, whose first
        # message the broker still has in memory, is told 0 and so misses nothing, wherever it wants to start.
        header = QueryConsumerOffsetRequestHeader(
            consumer_group=self._group, topic=queue.topic, queue_id=queue.queue_id, bname=queue.broker_name
        )
        broker: BrokerAddress | None = None
        try:
            broker = await self._broker(queue)
            answer = await self._instance.ask(
                broker.address, RequestCode.QUERY_CONSUMER_OFFSET, header, timeout=timeout
            )
            offset = OffsetResponseHeader.from_fields(answer.fields).offset
        except RocketStreamError as error:
            if broker and isinstance(error, BrokerError) and error.code == ResponseCode.QUERY_NOT_FOUND:
                return UNKNOWN_OFFSET, broker.address
            raise OffsetStoreError(
                f"the offset of group {self._group!r} in {_named(queue)} could not be read: {error}"
            ) from error
        if offset < 0:
            raise OffsetStoreError(
                f"{broker.address} says that the offset of group {self._group!r} in {_named(queue)} is {offset}"
            )
        return offset, broker.address

    # --- all, by the timer ------------------------------------------------------------------------------------------

    async def persist_all(self, queues: Collection[MessageQueue]) -> None:
        """Write what has changed; forget the queues that are not the consumer's any more (OFF-03).

        A broker that cannot be reached, or refuses, is logged; its offsets are written the next time.
        """
        owned = queues if isinstance(queues, set | frozenset | dict) else frozenset(queues)
        for queue in [queue for queue in self._offsets if queue not in owned and queue not in self._leaving]:
            self.remove(queue)
        everything = self._rounds % _FULL_WRITE_EVERY == 0
        self._rounds += 1
        if everything:
            self._tables.forget()
            self._begun = {place: task for place, task in self._begun.items() if not task.done()}
        by_broker: dict[str, list[MessageQueue]] = defaultdict(list)
        for queue, offset in self._offsets.items():
            name = self._instance.routes.broker_name_of(queue)
            changed = everything or self._persisted.get(queue) != (offset, self._known_address(name))
            if changed and queue not in self._writing and queue not in self._leaving:
                by_broker[name].append(queue)
        await asyncio.gather(*(self._write_to(name, changed) for name, changed in by_broker.items()))

    def _known_address(self, broker_name: str) -> str | None:
        found = self._instance.brokers.find(broker_name, MASTER_ID)
        return None if found is None else found.address

    async def _write_to(self, broker_name: str, queues: list[MessageQueue]) -> None:
        left = iter(queues)
        errors: list[RocketStreamError] = []

        async def write_some(broker: BrokerAddress) -> None:
            for queue in left:
                try:
                    await self._write_one(queue, broker)
                except RocketStreamError as error:
                    errors.append(error)
                    if not isinstance(error, BrokerError):  # a dead broker is not tried for each of its queues
                        for _ in left:
                            pass

        try:
            broker = await self._broker(queues[0])
            await asyncio.gather(*(write_some(broker) for _ in range(min(_AT_ONCE, len(queues)))))
        except RocketStreamError as error:
            errors.append(error)
        if errors:  # one warning for the broker, not one for each of its queues
            log.warning("offsets of group %s are not persisted at %s yet: %s", self._group, broker_name, errors[0])

    async def _write_one(self, queue: MessageQueue, broker: BrokerAddress) -> None:
        pull = self._pull_of(queue)
        if pull is not None and (carried := pull.carries):
            try:
                await self._look(queue, pull, carried)
            except OffsetStoreError as error:
                if not isinstance(error.__cause__, BrokerError):
                    raise
            if pull.carries and queue not in self._put_off:  # that one still, or the next one already
                self._put_off.add(queue)  # the pull brings an offset; the next round writes whatever is known by then
                return
        self._put_off.discard(queue)
        offset = self._offsets.get(queue)
        if offset is not None and queue not in self._leaving:  # not lost, nor about to be, since the round began
            await self._write(queue, offset, broker, _TIMEOUT)

    # --- one --------------------------------------------------------------------------------------------------------

    async def persist(self, queue: MessageQueue) -> None:
        """Write the offset of one queue and wait until the broker has it; `OffsetStoreError` if it has not."""
        offset = self._offsets.get(queue)
        if offset is not None:
            await self._be_sure(queue, offset, _TIMEOUT)

    async def persist_last(self, queue: MessageQueue, patience: float) -> MakeSure | None:
        """Write the offset of a queue that is given up, once no pull under way can lower it any more."""
        offset = self._offsets.get(queue)
        if offset is None:
            return None
        pull, carried, timeout = self._pull_of(queue), 0, _TIMEOUT
        self._leaving.add(queue)
        try:
            if pull is not None and pull.carries:
                try:
                    carried = await self._until_handled(queue, pull, offset, patience)
                except OffsetStoreError:  # who cannot say it will hardly take a write; if it does, that is looked after
                    timeout -= _LOOK_TIMEOUT
                    carried = pull.carries if pull.carries != offset else 0
            await self._be_sure(queue, offset, timeout)
        finally:
            self._leaving.discard(queue)
        return partial(self._look_after, queue, pull, carried, offset) if pull is not None and carried else None

    async def _be_sure(self, queue: MessageQueue, offset: int, timeout: float) -> None:
        try:
            await self._write(queue, offset, await self._broker(queue), timeout)
        except RocketStreamError as error:
            raise OffsetStoreError(
                f"offset {offset} of group {self._group!r} in {_named(queue)} could not be persisted: {error}"
            ) from error

    async def _write(self, queue: MessageQueue, offset: int, broker: BrokerAddress, timeout: float) -> None:
        """Write an offset and have the broker's answer, after that to an earlier write of the queue."""
        now = self._instance.clock.monotonic
        until = now() + timeout
        while earlier := self._writing.get(queue):
            await asyncio.wait((earlier,))
        # A task of its own: a round that is cancelled does not take back what has left.
        work = self._tell(queue, offset, broker, until)
        self._writing[queue] = task = asyncio.ensure_future(work)
        task.add_done_callback(partial(self._write_ended, queue))
        await asyncio.shield(task)

    async def _tell(self, queue: MessageQueue, offset: int, broker: BrokerAddress, until: float) -> None:
        code, header = RequestCode.UPDATE_CONSUMER_OFFSET, self._update_header(queue, offset)
        pull = self._pull_of(queue)
        if pull is not None:
            pull.may_carry = False
        try:
            async with self._tables.turn(self._group, queue.topic, broker.address):
                timeout = max(until - self._instance.clock.monotonic(), 0.001)
                await self._instance.ask(broker.address, code, header, timeout=timeout)
            if pull is not None:
                pull.committed = offset
        finally:
            if pull is not None:
                pull.may_carry = True
        if queue in self._offsets:
            self._persisted[queue] = offset, broker.address

    def _write_ended(self, queue: MessageQueue, task: asyncio.Task[None]) -> None:
        del self._writing[queue]
        if not task.cancelled():
            task.exception()  # whoever waits has it; who was cancelled does not want it

    # --- pulls that carry an offset ---------------------------------------------------------------------------------

    def may_travel(self, queue: MessageQueue, broker: BrokerAddress) -> bool:
        """Whether a pull may carry the offset: not the first one of a topic. That one is written now."""
        if self._tables.has(self._group, queue.topic, broker.address):
            return True
        place = queue.topic, broker.address
        if place not in self._begun:  # once: if it fails, the next round writes it
            self._begun[place] = asyncio.ensure_future(self._begin(queue, broker))
        return False

    async def _begin(self, queue: MessageQueue, broker: BrokerAddress) -> None:
        with contextlib.suppress(RocketStreamError):
            await self._write_one(queue, broker)

    async def _look(self, queue: MessageQueue, pull: PullRequest, carried: int) -> None:
        """Look whether the broker has handled a pull that carries an offset: then it has this, or a later one.

        Nothing of ours was written since the pull left. A pull may also carry an offset that is lower than what the
        broker had, after a reset; then only that very offset says so.
        """
        stored, _ = await self._ask(queue, _LOOK_TIMEOUT)
        if pull.carries == carried and (stored == carried or stored > carried > pull.committed):
            pull.carries, pull.committed = 0, stored

    async def _until_handled(self, queue: MessageQueue, pull: PullRequest, offset: int, patience: float) -> int:
        """Wait until no pull under way can put another offset in the place of this one.

        Returns 0, or that other offset if it takes longer than `patience` seconds. A pull that waits at the broker for
        messages was handled, but is answered only after up to 15 s: so the broker is asked. Mostly one look is enough.
        """
        clock, pause = self._instance.clock, _FIRST_PAUSE
        until = clock.monotonic() + patience
        while earlier := self._writing.get(queue):  # else what it wrote would look like what the pull carries
            await asyncio.wait((earlier,))
        while pull.carries not in (0, offset):
            await self._look(queue, pull, pull.carries)
            if pull.carries not in (0, offset):
                left = until - clock.monotonic()
                if left <= 0:
                    return pull.carries
                await clock.sleep(min(pause, left))
                pause = min(pause * 2, _LONGEST_PAUSE)
        return 0

    async def _look_after(self, queue: MessageQueue, pull: PullRequest, carried: int, offset: int) -> None:
        """Write an offset again should a pull that was under way put the one that it carries in its place after all."""
        reason = "the broker has still not handled it"
        try:
            for pause in _LOOK_AGAIN_AFTER:
                await self._instance.clock.sleep(pause)
                if self._pull_of(queue) not in (pull, None):
                    return  # the queue is ours again
                answered = pull.carries != carried
                stored, _ = await self._ask(queue, _LOOK_TIMEOUT)
                if stored == carried:
                    log.info("%s: a pull has lowered offset %d to %d: it is written again", queue, offset, stored)
                    await self._be_sure(queue, offset, _TIMEOUT)
                    return
                if answered or stored > offset:
                    return
        except OffsetStoreError as error:
            reason = str(error)
        log.warning(
            "%s: offset %d of group %s is stored, but a pull that carries offset %d may still lower it: %s."
            " Then messages between the two come again",
            queue,
            offset,
            self._group,
            carried,
            reason,
        )

    def _update_header(self, queue: MessageQueue, offset: int) -> UpdateConsumerOffsetRequestHeader:
        return UpdateConsumerOffsetRequestHeader(
            consumer_group=self._group,
            topic=queue.topic,
            queue_id=queue.queue_id,
            commit_offset=offset,
            bname=queue.broker_name,
        )

    async def _broker(self, queue: MessageQueue) -> BrokerAddress:
        """The master; while there is none, any other broker of that name."""
        brokers, routes, topic = self._instance.brokers, self._instance.routes, queue.topic
        found = brokers.master(routes.broker_name_of(queue))
        if found is None:
            name = routes.broker_name_of(queue)
            try:
                await routes.refresh(topic)
            except RocketStreamError as error:
                log.info("broker %s has no master, and the route of %s is not to be had: %s", name, topic, error)
            name = routes.broker_name_of(queue)
            found = brokers.find(name, MASTER_ID)
            if found is None:
                raise BrokerNotFoundError(f"no address is known for broker {name!r} of topic {topic!r}")
        return found


class QueueOffsets:
    """What the master of a queue says of it: its ends, and where a time is. The `OffsetAsker` of real brokers."""

    def __init__(self, instance: ClientInstance) -> None:
        self._instance = instance

    async def max_offset(self, queue: MessageQueue) -> int:
        """The offset that the next message will get."""
        header = GetMaxOffsetRequestHeader(topic=queue.topic, queue_id=queue.queue_id, bname=queue.broker_name)
        return await self._offset(queue, RequestCode.GET_MAX_OFFSET, header)

    async def min_offset(self, queue: MessageQueue) -> int:
        """The offset of the oldest message that is still there."""
        header = GetMinOffsetRequestHeader(topic=queue.topic, queue_id=queue.queue_id, bname=queue.broker_name)
        return await self._offset(queue, RequestCode.GET_MIN_OFFSET, header)

    async def search(self, queue: MessageQueue, timestamp_ms: int) -> int:
        """The first message that was stored at a time or later; from 4.x at most one message before that."""
        master = await self._master(queue)
        if master.version is not None and master.version < V5_0_0:
            # Of several messages with the very time that was asked for, 4.x gives any: the earlier ones would be lost.
            timestamp_ms -= 1
        header = SearchOffsetRequestHeader(
            topic=queue.topic, queue_id=queue.queue_id, timestamp=timestamp_ms, bname=queue.broker_name
        )
        return await self._offset(queue, RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, header)

    async def _offset(self, queue: MessageQueue, code: int, header: Header) -> int:
        master = await self._master(queue)
        answer: Command = await self._instance.ask(master.address, code, header, timeout=_TIMEOUT)
        return OffsetResponseHeader.from_fields(answer.fields).offset

    async def _master(self, queue: MessageQueue) -> BrokerAddress:
        return await self._instance.routes.broker_of(queue, MASTER_ID, only_this=True)


def _named(queue: MessageQueue) -> str:
    return f"queue {queue.queue_id} of topic {queue.topic!r} on broker {queue.broker_name!r}"
