"""The operator's client for an event loop: what `rocketstream.AdminClient` does, awaited."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from types import TracebackType
from typing import Any, Self, TypeVar, Unpack

from rocketstream.admin import client as plain
from rocketstream.admin.connections import ConsumerConnections, ProducerConnections
from rocketstream.admin.directly import DirectResult
from rocketstream.admin.group_settings import GroupSettings
from rocketstream.admin.letters import DeadLetters, Wanted
from rocketstream.admin.moments import EARLIEST, LATEST, Moment
from rocketstream.admin.replays import ReplayedLetter, ReplayReport
from rocketstream.admin.request_modes import RequestMode
from rocketstream.admin.running import RunningInfo
from rocketstream.admin.tracing import MessageTrace
from rocketstream.admin.values import (
    ClusterReport,
    GroupInfo,
    GroupMembers,
    GroupProgress,
    OffsetReset,
    QueueRange,
    RouteInfo,
    TopicInfo,
)
from rocketstream.aio.life import Life
from rocketstream.cluster.client import BoundToProcess
from rocketstream.message import MessageQueue, ReceivedMessage
from rocketstream.wire.trace import TRACE_TOPIC

T = TypeVar("T")


class AdminClient(BoundToProcess):
    """`async with AdminClient("127.0.0.1:9876") as admin: await admin.topics()`. Settings as of the plain one."""

    def __init__(self, name_servers: str | Sequence[str] | None = None, **settings: Any) -> None:
        self._core = plain.AdminClient(name_servers, **settings).core
        self._life = Life(self._core)

    def __repr__(self) -> str:
        return f"<aio {self._core!r}>"

    async def __aenter__(self) -> Self:
        self._core.check_process()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None or not self._core.io.is_elsewhere:  # what ends a forked child is not hidden
            await self.close()

    async def start(self) -> None:
        """Come to life now instead of with the first question; raises if it is not new."""
        await self._life.start()

    async def close(self) -> None:
        """Give the connections back; harmless when nothing was ever asked, and the second time.

        Cancelling the wait does not stop it: it ends on the I/O thread.
        """
        await self._life.end(self._core.shutdown)

    shutdown = close

    async def _run(self, work: Coroutine[Any, Any, T]) -> T:
        return await self._core.io.bridge(self._core.started(work), self._core.what)

    # --- topics -----------------------------------------------------------------------------------------------------

    async def topics(self) -> list[TopicInfo]:
        """Every topic, with its settings on each broker, sorted by kind and name."""
        return await self._run(self._core.topics())

    async def create_topic(
        self,
        name: str,
        queues: int = 8,
        *,
        read_queues: int | None = None,
        write_queues: int | None = None,
        permission: str = "RW",
        update: bool = False,
        wait: float = 30.0,
    ) -> RouteInfo:
        """Create a topic on every master; returns once the name servers tell its route."""
        settings = {"read_queues": read_queues, "write_queues": write_queues}
        return await self._run(
            self._core.create_topic(name, queues, **settings, permission=permission, update=update, wait=wait)
        )

    async def delete_topic(self, name: str) -> None:
        """Delete a topic everywhere; `TopicRouteNotFoundError` when there is none."""
        await self._run(self._core.delete_topic(name))

    async def route(self, topic: str) -> RouteInfo:
        """What the name servers say of a topic, just now."""
        return await self._run(self._core.route(topic))

    async def queue_ranges(self, topic: str) -> list[QueueRange]:
        """What each queue of a topic holds."""
        return await self._run(self._core.queue_ranges(topic))

    # --- groups -----------------------------------------------------------------------------------------------------

    async def groups(self, *, lag: bool = True) -> list[GroupInfo]:
        """Every group: members, model, and how far behind it is unless `lag=False`."""
        return await self._run(self._core.groups(lag=lag))

    async def consumers(self, group: str) -> GroupMembers:
        """Who is in a group now and what it subscribes to."""
        return await self._run(self._core.consumers(group))

    async def consumer_progress(
        self, group: str, *, topic: str | None = None, owners: bool = True, retry: bool = True
    ) -> GroupProgress:
        """How far a group is in each queue: the broker's offset, its own, the lag, and who has the queue."""
        return await self._run(self._core.consumer_progress(group, topic=topic, owners=owners, retry=retry))

    async def reset_offset(
        self,
        group: str,
        topic: str,
        to: Moment | None = None,
        *,
        offset: int | None = None,
        offsets: Mapping[MessageQueue | tuple[str, int], int] | None = None,
        like: str | None = None,
        broker_name: str | None = None,
        queue_id: int | None = None,
        dry_run: bool = False,
    ) -> OffsetReset:
        """Let a group go on at "earliest", "latest", a time, `offset=`, `offsets=` by queue, or `like=` another one."""
        return await self._run(
            self._core.reset_offset(
                group,
                topic,
                to,
                offset=offset,
                offsets=offsets,
                like=like,
                broker_name=broker_name,
                queue_id=queue_id,
                dry_run=dry_run,
            )
        )

    async def group_settings(self, group: str) -> list[GroupSettings]:
        """A group's settings on each broker that knows it; `NotFoundError` when none does."""
        return await self._run(self._core.group_settings(group))

    async def create_group(
        self,
        group: str,
        *,
        max_retries: int | None = None,
        retry_queues: int | None = None,
        consume_enabled: bool | None = None,
        broadcast_enabled: bool | None = None,
        orderly: bool | None = None,
        update: bool = False,
    ) -> list[GroupSettings]:
        """Create a group on every master, before its first member comes; what is not given is RocketMQ's default."""
        return await self._run(
            self._core.create_group(
                group,
                max_retries=max_retries,
                retry_queues=retry_queues,
                consume_enabled=consume_enabled,
                broadcast_enabled=broadcast_enabled,
                orderly=orderly,
                update=update,
            )
        )

    async def set_request_mode(self, group: str, topic: str, mode: str, *, share_queues: int = 0) -> list[RequestMode]:
        """Have a group pop a topic ("POP"), or pull it again ("PULL"), on every master (5.x)."""
        return await self._run(self._core.set_request_mode(group, topic, mode, share_queues=share_queues))

    async def request_modes(self, group: str | None = None) -> list[RequestMode]:
        """Which groups were set to pop or to pull which topics, per broker (5.x)."""
        return await self._run(self._core.request_modes(group))

    async def delete_group(self, group: str, *, offsets: bool = False) -> None:
        """Delete a group without members, with `offsets` where it is in all topics too; its dead letters stay."""
        await self._run(self._core.delete_group(group, offsets=offsets))

    # --- clients ----------------------------------------------------------------------------------------------------

    async def consumer_connections(self, group: str) -> ConsumerConnections:
        """Who is in a group, what each member subscribes to by its own words, and where they disagree."""
        return await self._run(self._core.consumer_connections(group))

    async def producer_connections(self, group: str, topic: str | None = None) -> ProducerConnections:
        """The clients of a producer group at every broker, or at those of a topic."""
        return await self._run(self._core.producer_connections(group, topic))

    async def running_info(self, group: str, client_id: str, *, stack: bool = False) -> RunningInfo:
        """What a member of a group says of itself: queues, speed, settings; with `stack` what its threads do."""
        return await self._run(self._core.running_info(group, client_id, stack=stack))

    async def consume_directly(
        self, group: str, message_id: str, topic: str | None = None, *, client_id: str | None = None
    ) -> DirectResult:
        """Give a stored message to a member's listener, and tell what it says; nothing is committed or sent back."""
        return await self._run(self._core.consume_directly(group, message_id, topic, client_id=client_id))

    # --- dead letters -----------------------------------------------------------------------------------------------

    async def dead_letters(
        self, group: str, n: int = 20, *, scan: int = 100_000, **wanted: Unpack[Wanted]
    ) -> DeadLetters:
        """The newest `n` dead letters of a group, and how many there are of each original topic; none is consumed."""
        return await self._run(self._core.dead_letters(group, n, scan=scan, **wanted))

    async def try_dead_letter(self, group: str, message_id: str, *, client_id: str | None = None) -> DirectResult:
        """Give a dead letter to a member's listener, and tell what it says; it stays where it is."""
        return await self._run(self._core.try_dead_letter(group, message_id, client_id=client_id))

    async def replay_dead_letters(
        self,
        group: str,
        *,
        to: str | None = None,
        to_retry: bool = False,
        limit: int | None = None,
        rate: float | None = None,
        again: bool = False,
        dry_run: bool = False,
        each: Callable[[ReplayedLetter], object] | None = None,
        **wanted: Unpack[Wanted],
    ) -> ReplayReport:
        """Send dead letters again, oldest first; cancelling it ends it between two letters, or within one's send."""
        replay = await self._run(
            self._core.open_replay(
                group, to=to, to_retry=to_retry, limit=limit, rate=rate, again=again, dry_run=dry_run, **wanted
            )
        )
        while (letter := await self._run(replay.step())) is not None:
            if each is not None:
                each(letter)
        return replay.report()

    # --- messages ---------------------------------------------------------------------------------------------------

    async def messages_by_key(
        self, topic: str, key: str, *, limit: int = 64, start: Moment = EARLIEST, until: Moment = LATEST
    ) -> list[ReceivedMessage]:
        """The messages of a topic that have a key, oldest first; at most `limit` of each broker."""
        return await self._run(self._core.messages_by_key(topic, key, limit=limit, start=start, until=until))

    async def message(self, message_id: str, topic: str | None = None) -> ReceivedMessage:
        """The message with a unique id (give its topic too) or an offset id; `NotFoundError` if there is none."""
        return await self._run(self._core.message(message_id, topic))

    async def message_trace(self, message_id: str, topic: str = TRACE_TOPIC) -> MessageTrace:
        """Who sent a message and who consumed it, as clients with `trace=True` told; `NotFoundError` if none did."""
        return await self._run(self._core.message_trace(message_id, topic))

    async def peek(
        self,
        topic: str,
        n: int = 10,
        *,
        start: Moment | None = None,
        until: Moment | None = None,
        offset: int | None = None,
        tags: str = "*",
        broker_name: str | None = None,
        queue_id: int | None = None,
        scan: int = 10_000,
    ) -> list[ReceivedMessage]:
        """Up to `n` messages, oldest first, by plain pulls: the newest, or the first from `start` or `offset` on."""
        return await self._run(
            self._core.peek(
                topic,
                n,
                start=start,
                until=until,
                offset=offset,
                tags=tags,
                broker_name=broker_name,
                queue_id=queue_id,
                scan=scan,
            )
        )

    async def read(
        self,
        topic: str,
        start: Moment = LATEST,
        *,
        after_group: str | None = None,
        tags: str = "*",
        idle: float | None = None,
        step: float = 1.0,
    ) -> AsyncIterator[list[ReceivedMessage]]:
        """`async for messages in admin.read(topic)`: lists as they come, until none came for `idle` seconds."""
        reader = await self._run(self._core.open_reader(topic, start, after_group=after_group, tags=tags))
        while (messages := await self._run(self._core.poll_until_quiet(reader, idle, step))) is not None:
            yield messages

    # --- brokers ----------------------------------------------------------------------------------------------------

    async def cluster(self) -> ClusterReport:
        """The brokers with their versions and rates; one that does not answer is listed with its `problem`."""
        return await self._run(self._core.cluster())

    async def broker_config(self, broker: str) -> dict[str, str]:
        """A broker's settings by name, as it has them now, secrets hidden; `broker` is its name or its address."""
        return await self._run(self._core.broker_config(broker))

    async def broker_runtime(self, broker: str) -> dict[str, str]:
        """Everything that a broker says of itself, in its own words; `broker` is its name or its address."""
        return await self._run(self._core.broker_runtime(broker))

    async def name_server_config(self, address: str | None = None) -> dict[str, str]:
        """A name server's settings by name, secrets hidden; of the first that answers unless an address is given."""
        return await self._run(self._core.name_server_config(address))

    async def node_config(self, node: str) -> dict[str, str]:
        """The settings of a broker (its name or address) or of a name server (its address), secrets hidden."""
        return await self._run(self._core.node_config(node))
