"""The operator's client for plain code: `AdminClient` waits for what `AdminCore` does on the I/O thread."""

from __future__ import annotations

import ssl
from collections.abc import Coroutine, Iterator, Sequence
from types import TracebackType
from typing import Any, Self, TypeVar

from rocketstream.admin.core import AdminCore
from rocketstream.admin.moments import EARLIEST, LATEST, Moment
from rocketstream.admin.reading import TopicReader
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
from rocketstream.cluster.settings import ClientSettings
from rocketstream.message import ReceivedMessage
from rocketstream.remoting.acl import Credentials
from rocketstream.remoting.hooks import RpcHook
from rocketstream.remoting.settings import RemotingSettings

T = TypeVar("T")


class AdminClient:
    """What an operator asks of a cluster. Starts with the first question; use `with`, or `close()` at the end.

    `timeout` is for each request. Every method may raise `NameServerError` or `RemotingError` (no answer),
    `BrokerError` (an answer with an error, in the broker's words) and `ConfigurationError` (a wrong argument).
    """

    def __init__(
        self,
        name_servers: str | Sequence[str] | None = None,
        *,
        credentials: Credentials | None = None,
        tls: bool | ssl.SSLContext = False,
        namespace: str | None = None,
        timeout: float = 5.0,
        rpc_hooks: Sequence[RpcHook] = (),
    ) -> None:
        settings = ClientSettings.make(
            name_servers,
            credentials=credentials,
            rpc_hooks=tuple(rpc_hooks),
            remoting=RemotingSettings(tls=tls),
            api_timeout=timeout,
        )
        self._core = AdminCore(settings, namespace=namespace)

    def __repr__(self) -> str:
        return repr(self._core)

    @property
    def core(self) -> AdminCore:
        """What lives on the I/O thread (for the faces)."""
        return self._core

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def start(self) -> None:
        """Come to life now instead of with the first question; raises if it is not new."""
        self._core.io.run(self._core.start(), self._core.what)

    def close(self) -> None:
        """Give the connections back; harmless when nothing was ever asked, and the second time."""
        self._core.io.run(self._core.shutdown(), self._core.what)

    shutdown = close

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        return self._core.io.run(self._core.started(work), self._core.what)

    # --- topics -----------------------------------------------------------------------------------------------------

    def topics(self) -> list[TopicInfo]:
        """Every topic, with its settings on each broker, sorted by kind and name."""
        return self._run(self._core.topics())

    def create_topic(
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
        """Create a topic on every master; returns once the name servers tell its route.

        One that exists with these settings is left as it is; with others it is a `ConfigurationError` unless `update`.
        """
        return self._run(
            self._core.create_topic(
                name,
                queues,
                read_queues=read_queues,
                write_queues=write_queues,
                permission=permission,
                update=update,
                wait=wait,
            )
        )

    def delete_topic(self, name: str) -> None:
        """Delete a topic everywhere; `TopicRouteNotFoundError` when there is none."""
        self._run(self._core.delete_topic(name))

    def route(self, topic: str) -> RouteInfo:
        """What the name servers say of a topic, just now."""
        return self._run(self._core.route(topic))

    def queue_ranges(self, topic: str) -> list[QueueRange]:
        """What each queue of a topic holds."""
        return self._run(self._core.queue_ranges(topic))

    # --- groups -----------------------------------------------------------------------------------------------------

    def groups(self, *, lag: bool = True) -> list[GroupInfo]:
        """Every group: members, model, and how far behind it is unless `lag=False`."""
        return self._run(self._core.groups(lag=lag))

    def consumers(self, group: str) -> GroupMembers:
        """Who is in a group now and what it subscribes to."""
        return self._run(self._core.consumers(group))

    def consumer_progress(
        self, group: str, *, topic: str | None = None, owners: bool = True, retry: bool = True
    ) -> GroupProgress:
        """How far a group is in each queue: the broker's offset, its own, the lag, and who has the queue."""
        return self._run(self._core.consumer_progress(group, topic=topic, owners=owners, retry=retry))

    def reset_offset(
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
        """Let a group go on at "earliest", "latest", a `datetime`, milliseconds since the epoch, or `offset=`.

        Members may be online: on 5.x they jump with their next pull, which on a quiet topic may be 15 s away, on 4.9
        after some ten seconds. There they can be sent to a time only, in all queues.
        """
        return self._run(
            self._core.reset_offset(
                group,
                topic,
                to,
                offset=offset,
                broker_name=broker_name,
                queue_id=queue_id,
                dry_run=dry_run,
            )
        )

    # --- messages ---------------------------------------------------------------------------------------------------

    def messages_by_key(
        self, topic: str, key: str, *, limit: int = 64, start: Moment = EARLIEST, until: Moment = LATEST
    ) -> list[ReceivedMessage]:
        """The messages of a topic that have a key, oldest first; at most `limit` of each broker."""
        return self._run(self._core.messages_by_key(topic, key, limit=limit, start=start, until=until))

    def message(self, message_id: str, topic: str | None = None) -> ReceivedMessage:
        """The message with a unique id (give its topic too) or an offset id; `NotFoundError` if there is none."""
        return self._run(self._core.message(message_id, topic))

    def peek(
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
        """Up to `n` messages, oldest first, by plain pulls: the newest, or the first from `start` or `offset` on.

        Nothing is committed and nobody rebalances. A tag is looked for in up to `scan` messages of each queue.
        """
        return self._run(
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

    def read(
        self,
        topic: str,
        start: Moment = LATEST,
        *,
        after_group: str | None = None,
        tags: str = "*",
        idle: float | None = None,
        step: float = 1.0,
    ) -> Iterator[list[ReceivedMessage]]:
        """Messages in lists as they come, by plain pulls, until none came for `idle` seconds (None: never ends).

        `after_group` begins where a group is now, without joining it or committing. Yields an empty list at least
        every `step` seconds, so that the caller can look at something else.
        """
        # Not in the generator: a wrong topic is told by the call, not by the first look at what it returned.
        reader = self._run(self._core.open_reader(topic, start, after_group=after_group, tags=tags))
        return self._read(reader, idle, step)

    def _read(self, reader: TopicReader, idle: float | None, step: float) -> Iterator[list[ReceivedMessage]]:
        while (messages := self._run(self._core.poll_until_quiet(reader, idle, step))) is not None:
            yield messages

    # --- brokers ----------------------------------------------------------------------------------------------------

    def cluster(self) -> ClusterReport:
        """The brokers with their versions and rates; one that does not answer is listed with its `problem`."""
        return self._run(self._core.cluster())

    def broker_config(self, address: str) -> dict[str, str]:
        """A broker's settings by name, as it has them now."""
        return self._run(self._core.broker_config(address))
