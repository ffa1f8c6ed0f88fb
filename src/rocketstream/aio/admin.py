"""The operator's client for an event loop: what `rocketstream.AdminClient` does, awaited."""

from __future__ import annotations

from collections.abc import AsyncIterator, Coroutine, Sequence
from types import TracebackType
from typing import Any, Self, TypeVar

from rocketstream.admin import client as plain
from rocketstream.admin.moments import EARLIEST, LATEST, Moment
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
from rocketstream.message import ReceivedMessage

T = TypeVar("T")


class AdminClient:
    """`async with AdminClient("127.0.0.1:9876") as admin: await admin.topics()`. Settings as of the plain one."""

    def __init__(self, name_servers: str | Sequence[str] | None = None, **settings: Any) -> None:
        self._core = plain.AdminClient(name_servers, **settings).core

    def __repr__(self) -> str:
        return f"<aio {self._core!r}>"

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def start(self) -> None:
        """Come to life now instead of with the first question; raises if it is not new."""
        await self._core.io.bridge(self._core.start(), self._core.what)

    async def close(self) -> None:
        """Give the connections back; harmless when nothing was ever asked, and the second time."""
        await self._core.io.bridge(self._core.shutdown(), self._core.what)

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
        broker_name: str | None = None,
        queue_id: int | None = None,
        dry_run: bool = False,
    ) -> OffsetReset:
        """Let a group go on at "earliest", "latest", a `datetime`, milliseconds since the epoch, or `offset=`."""
        return await self._run(
            self._core.reset_offset(
                group, topic, to, offset=offset, broker_name=broker_name, queue_id=queue_id, dry_run=dry_run
            )
        )

    # --- messages ---------------------------------------------------------------------------------------------------

    async def messages_by_key(
        self, topic: str, key: str, *, limit: int = 64, start: Moment = EARLIEST, until: Moment = LATEST
    ) -> list[ReceivedMessage]:
        """The messages of a topic that have a key, oldest first; at most `limit` of each broker."""
        return await self._run(self._core.messages_by_key(topic, key, limit=limit, start=start, until=until))

    async def message(self, message_id: str, topic: str | None = None) -> ReceivedMessage:
        """The message with a unique id (give its topic too) or an offset id; `NotFoundError` if there is none."""
        return await self._run(self._core.message(message_id, topic))

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

    async def broker_config(self, address: str) -> dict[str, str]:
        """A broker's settings by name, as it has them now."""
        return await self._run(self._core.broker_config(address))
