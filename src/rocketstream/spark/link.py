"""The link of a Spark process to a cluster: one per process and settings, kept between micro-batches.

Spark forks its Python workers, reuses them, and pickles readers from process to process, so nothing that holds a
connection is ever part of a reader. Readers carry `LinkSettings` and ask `link(settings)` where they run.

The rule of this file: every call may come from any thread, blocks, and rides out an outage of a broker or a name
server for as long as `outage` says; before anybody has answered for the first time, an unreachable name server is an
error at once.
"""

from __future__ import annotations

import itertools
import logging
import os
import threading
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeVar

from rocketstream.cluster.brokers import MASTER_ID
from rocketstream.cluster.client_id import client_id, unique_instance_name
from rocketstream.cluster.client_instance import ClientInstance
from rocketstream.cluster.names import with_namespace
from rocketstream.cluster.settings import ClientSettings
from rocketstream.consumer.broker_offsets import BrokerOffsets, OffsetTables
from rocketstream.consumer.checks import check_filters
from rocketstream.consumer.offset_store import UNKNOWN_OFFSET, ReadFrom
from rocketstream.errors import (
    AccessDeniedError,
    BrokerError,
    BrokerNotFoundError,
    ConfigurationError,
    NameServerError,
    OffsetStoreError,
    RemotingError,
    RocketStreamError,
    TopicRouteNotFoundError,
)
from rocketstream.message import MessageQueue
from rocketstream.remoting.acl import Credentials
from rocketstream.remoting.io_thread import IoThread
from rocketstream.remoting.settings import RemotingSettings
from rocketstream.remoting.tls import TlsFiles
from rocketstream.spark.asking import TIMEOUT, for_each, make_group, offset_at, queue_limits, topics_matching
from rocketstream.spark.errors import OutageError
from rocketstream.spark.offsets import Offsets
from rocketstream.wire.bodies.subscription import SubscriptionData
from rocketstream.wire.codes import RequestCode, ResponseCode
from rocketstream.wire.headers.offsets import UpdateConsumerOffsetRequestHeader

log = logging.getLogger("rocketstream.spark")

T = TypeVar("T")

OUTAGE: Final = 60.0
"""For how many seconds a broker may be away before what needs it fails."""

READERS_GROUP: Final = "TOOLS_CONSUMER"
"""A group that every broker has from the start, for readers that are of no group (MixAll.TOOLS_CONSUMER_GROUP)."""

_PAUSES: Final = (0.1, 0.2, 0.5, 1.0)
# How brokers refuse a filter: one that they can't read, or any that is not by tag (a system error in 4.x and 5.x).
_NO_FILTER: Final = frozenset({ResponseCode.SUBSCRIPTION_PARSE_FAILED, ResponseCode.SYSTEM_ERROR})
# What a broker says that will not say anything else in a minute.
_PERMANENT: Final = frozenset(
    {
        ResponseCode.NO_PERMISSION,
        ResponseCode.SUBSCRIPTION_PARSE_FAILED,
        ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
        ResponseCode.REQUEST_CODE_NOT_SUPPORTED,
        ResponseCode.VERSION_NOT_SUPPORTED,
        ResponseCode.INVALID_PARAMETER,
        ResponseCode.USER_NOT_EXIST,
    }
)


@dataclass(frozen=True, slots=True)
class LinkSettings:
    """How a cluster is reached; a value that can be pickled and shows no secret."""

    name_servers: tuple[str, ...] | None
    access_key: str | None = None
    secret_key: str | None = field(default=None, repr=False)
    tls: bool | TlsFiles = False
    namespace: str | None = None
    token: str | None = field(default=None, repr=False)

    def client_settings(self) -> ClientSettings:
        """The same for a client."""
        credentials = None
        if self.access_key is not None and self.secret_key is not None:
            credentials = Credentials(self.access_key, self.secret_key, self.token)
        return ClientSettings.make(self.name_servers, credentials=credentials, remoting=RemotingSettings(tls=self.tls))


class Link:
    """A client instance with blocking calls; make it with `link`."""

    def __init__(self, settings: LinkSettings, *, io: IoThread | None = None, outage: float = OUTAGE) -> None:
        self.settings = settings
        self.outage = outage
        self.io = io or IoThread.shared()
        self.instance = ClientInstance(client_id(unique_instance_name()), settings.client_settings())
        self._reached = False
        self._offset_tables = OffsetTables()
        self.io.run(self.instance.start(), repr(self))

    def __repr__(self) -> str:
        return f"<Link to {self.instance.name_servers}, {'reached' if self._reached else 'not reached yet'}>"

    def close(self) -> None:
        """End its connections; a no-op where it was made in another process."""
        if _links.get((os.getpid(), self.settings)) is self:
            del _links[os.getpid(), self.settings]
        self.io.run(self.instance.stop(), repr(self))

    def topic(self, name: str) -> str:
        """A topic as brokers know it."""
        return with_namespace(self.settings.namespace, name)

    def group(self, name: str) -> str:
        """A group as brokers know it."""
        return with_namespace(self.settings.namespace, name)

    # --- what brokers and name servers know -------------------------------------------------------------------------

    def topics(self, pattern: str) -> list[str]:
        """The topics, as their users know them, that a regular expression describes."""
        return self._run(
            lambda: topics_matching(self.instance, pattern, self.settings.namespace), "the list of all topics"
        )

    def queues(self, topics: Sequence[str], *, all_must_exist: bool = True) -> list[MessageQueue]:
        """The queues of some topics that can be read, on all brokers, as the name servers know them now."""

        async def of(topic: str) -> tuple[MessageQueue, ...]:
            try:
                return await self._route_queues(topic)
            except TopicRouteNotFoundError:
                if all_must_exist:
                    raise
                return ()

        async def ask() -> list[MessageQueue]:
            found = await for_each(map(self.topic, topics), of)
            return sorted({queue for queues in found.values() for queue in queues})

        return self._run(ask, f"the queues of {', '.join(topics)}")

    async def _route_queues(self, topic: str) -> tuple[MessageQueue, ...]:
        routes = self.instance.routes
        try:
            route = await routes.refresh(topic)
        except TopicRouteNotFoundError:
            # A broker that restarts is in no route for a moment; its queues are where they were.
            known = routes.cached(topic)
            if known is None:
                raise
            route = known
        if route.leaders:
            raise ConfigurationError(
                f"topic {topic!r} is a static topic, whose logical queues this source cannot read: read it with"
                " PushConsumer or LitePullConsumer"
            )
        return route.read_queues

    def limits(self, queues: Iterable[MessageQueue]) -> tuple[Offsets, Offsets]:
        """For each queue its first offset, and the one that its next message will get."""
        wanted = sorted(set(queues))
        found = self._run(
            lambda: queue_limits(self.instance, wanted), "the limits of queues", {queue.topic for queue in wanted}
        )
        return {queue: found[queue][0] for queue in wanted}, {queue: found[queue][1] for queue in wanted}

    def min_offsets(self, queues: Iterable[MessageQueue]) -> Offsets:
        """For each queue the offset of the oldest message that is still there."""
        return self.limits(queues)[0]

    def max_offsets(self, queues: Iterable[MessageQueue]) -> Offsets:
        """For each queue the offset that its next message will get."""
        return self.limits(queues)[1]

    def offsets_at(self, queues: Iterable[MessageQueue], millis: int, group: str = READERS_GROUP) -> Offsets:
        """For each queue the offset of the first message that was stored at that time or later."""
        name = self.group(group)
        return self._each(
            queues, f"the offset at {millis}", lambda queue: offset_at(self.instance, queue, millis, name)
        )

    def committed(self, group: str, queues: Iterable[MessageQueue]) -> dict[MessageQueue, int | None]:
        """For each queue the offset that its broker has of a group, or None."""
        store = BrokerOffsets(self.instance, self.group(group))

        async def read(queue: MessageQueue) -> int | None:
            offset = await store.read(queue, ReadFrom.STORE)
            return None if offset == UNKNOWN_OFFSET else offset

        return self._each(queues, f"the offset of group {group}", read)

    def commit(self, group: str, offsets: Mapping[MessageQueue, int]) -> None:
        """Write offsets of a group, and return when the brokers have them."""
        self.io.run(self.commit_async(group, offsets), repr(self))

    async def commit_async(self, group: str, offsets: Mapping[MessageQueue, int]) -> None:
        """The same as a coroutine of the I/O thread."""
        name = self.group(group)

        async def write(queue: MessageQueue) -> None:
            header = UpdateConsumerOffsetRequestHeader(
                consumer_group=name,
                topic=queue.topic,
                queue_id=queue.queue_id,
                commit_offset=offsets[queue],
                bname=queue.broker_name,
            )
            code = RequestCode.UPDATE_CONSUMER_OFFSET
            broker = await self.instance.routes.broker(queue.topic, queue.broker_name, MASTER_ID)
            async with self._offset_tables.turn(name, queue.topic, broker.address):
                try:
                    await self.instance.ask(broker.address, code, header, timeout=TIMEOUT)
                except BrokerError as error:
                    if error.code != ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST:
                        raise
                    # 5.x makes a group for who pulls or joins, not for who only writes an offset.
                    await make_group(self.instance, queue, name)
                    await self.instance.ask(broker.address, code, header, timeout=TIMEOUT)

        async def persistently(queue: MessageQueue) -> None:
            await self.ride_out(lambda: write(queue), f"group {group} at {queue}: its offset", {queue.topic})

        await for_each(offsets, persistently)

    def check_filter(self, wanted: SubscriptionData, group: str) -> None:
        """Refuse a filter that a broker of its topic does not take, in the broker's own words.

        A pull with a condition that can't be read would bring every message, without a word.
        """
        name, namespace = self.group(group), self.settings.namespace

        async def ask() -> None:
            try:
                await check_filters(self.instance, self.instance.client_id, name, namespace, [wanted])
            except BrokerError as error:
                if error.code not in _NO_FILTER or isinstance(error, AccessDeniedError):
                    raise
                why = " ".join((error.remark or str(error)).split())
                raise ConfigurationError(f"brokers do not take sql={wanted.sub_string!r}: {why}") from error

        self._run(ask, "a filter's check", {wanted.topic})

    # --- asking, and asking again -----------------------------------------------------------------------------------

    def _each(
        self, queues: Iterable[MessageQueue], what: str, ask: Callable[[MessageQueue], Awaitable[T]]
    ) -> dict[MessageQueue, T]:
        async def persistently(queue: MessageQueue) -> T:
            return await self.ride_out(lambda: ask(queue), f"{what} of {queue}", {queue.topic})

        return self.io.run(for_each(sorted(set(queues)), persistently), repr(self))

    def _run(self, ask: Callable[[], Awaitable[T]], what: str, topics: Collection[str] = ()) -> T:
        return self.io.run(self.ride_out(ask, what, topics), repr(self))

    async def ride_out(self, ask: Callable[[], Awaitable[T]], what: str, topics: Collection[str] = ()) -> T:
        """Ask until there is an answer, for as long as an outage may last; on the I/O thread."""
        clock = self.instance.clock
        begun = clock.monotonic()
        for tries in itertools.count():
            try:
                answer = await ask()
            except RocketStreamError as error:
                if not (self._reached and is_outage(error)):
                    raise
                waited = clock.monotonic() - begun
                if waited >= self.outage:
                    raise OutageError(what, waited, error) from error
                log.info("%s: %s; asking again", what, error)
            else:
                self._reached = True
                return answer
            await clock.sleep(_PAUSES[min(tries, len(_PAUSES) - 1)])
            await self.instance.routes.refresh_all(topics)  # a broker may have another address now
        raise AssertionError("unreachable")


def is_outage(error: BaseException) -> bool:
    """Whether an error may be gone in a moment, when a broker or a name server is back."""
    if isinstance(error, OffsetStoreError) and error.__cause__ is not None:
        return is_outage(error.__cause__)
    if isinstance(error, BrokerError):
        return error.code not in _PERMANENT and not isinstance(error, AccessDeniedError)
    return isinstance(error, RemotingError | NameServerError | BrokerNotFoundError)


_links: dict[tuple[int, LinkSettings], Link] = {}
_lock = threading.Lock()


def _new_lock() -> None:
    global _lock
    _lock = threading.Lock()  # a thread that does not exist in the child may have held it


os.register_at_fork(after_in_child=_new_lock)


def link(settings: LinkSettings) -> Link:
    """This process's link with these settings, made when it is first asked for."""
    key = os.getpid(), settings
    with _lock:
        found = _links.get(key)
        if found is None:
            for old in [other for other in _links if other[0] != key[0]]:
                del _links[old]  # a parent's: its threads and connections stayed there
            found = _links[key] = Link(settings)
    return found
