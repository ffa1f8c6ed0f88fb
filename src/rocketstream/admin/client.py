"""The operator's client for plain code: `AdminClient` waits for what `AdminCore` does on the I/O thread."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from types import TracebackType
from typing import Any, Self, TypeVar, Unpack

from rocketstream.admin.connections import ConsumerConnections, ProducerConnections
from rocketstream.admin.core import AdminCore
from rocketstream.admin.directly import DirectResult
from rocketstream.admin.group_settings import GroupSettings
from rocketstream.admin.letters import DeadLetters, Wanted
from rocketstream.admin.moments import EARLIEST, LATEST, Moment
from rocketstream.admin.reading import TopicReader
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
from rocketstream.cluster.client import BoundToProcess, start_and_wait
from rocketstream.cluster.names import check_one_namespace
from rocketstream.cluster.settings import ClientSettings
from rocketstream.message import MessageQueue, ReceivedMessage
from rocketstream.remoting.acl import AnyCredentials
from rocketstream.remoting.hooks import RpcHook
from rocketstream.remoting.settings import RemotingSettings
from rocketstream.remoting.tls import Tls
from rocketstream.wire.trace import TRACE_TOPIC

T = TypeVar("T")


class AdminClient(BoundToProcess):
    """What an operator asks of a cluster. Starts with the first question; use `with`, or `close()` at the end.

    `timeout` is for each request. Every method may raise `NameServerError` or `RemotingError` (no answer),
    `BrokerError` (an answer with an error, in the broker's words) and `ConfigurationError` (a wrong argument).
    """

    def __init__(
        self,
        name_servers: str | Sequence[str] | None = None,
        *,
        credentials: AnyCredentials | None = None,
        tls: Tls = False,
        namespace: str | None = None,
        namespace_v2: str | None = None,
        vip_channel: bool = False,
        timeout: float = 5.0,
        rpc_hooks: Sequence[RpcHook] = (),
    ) -> None:
        check_one_namespace(namespace, namespace_v2)
        settings = ClientSettings.make(
            name_servers,
            namespace_v2=namespace_v2,
            vip_channel=vip_channel,
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
        self._core.check_process()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None or not self._core.io.is_elsewhere:  # what ends a forked child is not hidden
            self.close()

    def start(self) -> None:
        """Come to life now instead of with the first question; raises if it is not new."""
        start_and_wait(self._core)

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
        offsets: Mapping[MessageQueue | tuple[str, int], int] | None = None,
        like: str | None = None,
        broker_name: str | None = None,
        queue_id: int | None = None,
        dry_run: bool = False,
    ) -> OffsetReset:
        """Let a group go on at "earliest", "latest", a `datetime`, milliseconds since the epoch, or `offset=`.

        `offsets={("broker-a", 0): 17}` moves these queues only, `like="other-group"` goes where another group is.
        Members may be online: on 5.x they jump with their next pull, which on a quiet topic may be 15 s away, on 4.9
        after some ten seconds. There they can be sent to a time only, in all queues.
        """
        return self._run(
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

    def group_settings(self, group: str) -> list[GroupSettings]:
        """A group's settings on each broker that knows it; `NotFoundError` when none does."""
        return self._run(self._core.group_settings(group))

    def create_group(
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
        """Create a group on every master, before its first member comes; what is not given is RocketMQ's default.

        One that exists with other settings is a `ConfigurationError` unless `update`, which changes what is given.
        """
        return self._run(
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

    def set_request_mode(self, group: str, topic: str, mode: str, *, share_queues: int = 0) -> list[RequestMode]:
        """Have a group pop a topic ("POP"), or pull it again ("PULL"), on every master (5.x).

        A running group follows when it next shares out its queues. `share_queues` is with how many other members a
        member shares its queues when they pop; 0: all members pop all queues.
        """
        return self._run(self._core.set_request_mode(group, topic, mode, share_queues=share_queues))

    def request_modes(self, group: str | None = None) -> list[RequestMode]:
        """Which groups were set to pop or to pull which topics, per broker (5.x)."""
        return self._run(self._core.request_modes(group))

    def delete_group(self, group: str, *, offsets: bool = False) -> None:
        """Delete a group without members, with `offsets` where it is in all topics too; its dead letters stay."""
        self._run(self._core.delete_group(group, offsets=offsets))

    # --- clients ----------------------------------------------------------------------------------------------------

    def consumer_connections(self, group: str) -> ConsumerConnections:
        """Who is in a group, what each member subscribes to by its own words, and where they disagree."""
        return self._run(self._core.consumer_connections(group))

    def producer_connections(self, group: str, topic: str | None = None) -> ProducerConnections:
        """The clients of a producer group at every broker, or at those of a topic."""
        return self._run(self._core.producer_connections(group, topic))

    def running_info(self, group: str, client_id: str, *, stack: bool = False) -> RunningInfo:
        """What a member of a group says of itself: queues, speed, settings; with `stack` what its threads do."""
        return self._run(self._core.running_info(group, client_id, stack=stack))

    def consume_directly(
        self, group: str, message_id: str, topic: str | None = None, *, client_id: str | None = None
    ) -> DirectResult:
        """Give a stored message to a member's listener, and tell what it says; nothing is committed or sent back."""
        return self._run(self._core.consume_directly(group, message_id, topic, client_id=client_id))

    # --- dead letters -----------------------------------------------------------------------------------------------

    def dead_letters(self, group: str, n: int = 20, *, scan: int = 100_000, **wanted: Unpack[Wanted]) -> DeadLetters:
        """The newest `n` dead letters of a group, and how many there are of each original topic; none is consumed.

        `ids`, `key`, `tags`, `topic` (the original one), `since` and `until` say which; `scan` bounds how many of each
        queue are looked at.
        """
        return self._run(self._core.dead_letters(group, n, scan=scan, **wanted))

    def try_dead_letter(self, group: str, message_id: str, *, client_id: str | None = None) -> DirectResult:
        """Give a dead letter to a member's listener, and tell what it says; it stays where it is."""
        return self._run(self._core.try_dead_letter(group, message_id, client_id=client_id))

    def replay_dead_letters(
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
        """Send dead letters again, oldest first: to their original topic, `to` a topic, or `to_retry` to this group.

        One that was replayed to that topic before is left out unless `again`. `rate` is messages per second; `each` is
        called after every letter, here. A send that fails is a `ReplayStoppedError` with the report so far; the letters
        stay where they are in any case. `wanted` as of `dead_letters`.
        """
        replay = self._run(
            self._core.open_replay(
                group, to=to, to_retry=to_retry, limit=limit, rate=rate, again=again, dry_run=dry_run, **wanted
            )
        )
        while (letter := self._run(replay.step())) is not None:
            if each is not None:
                each(letter)
        return replay.report()

    # --- messages ---------------------------------------------------------------------------------------------------

    def messages_by_key(
        self, topic: str, key: str, *, limit: int = 64, start: Moment = EARLIEST, until: Moment = LATEST
    ) -> list[ReceivedMessage]:
        """The messages of a topic that have a key, oldest first; at most `limit` of each broker."""
        return self._run(self._core.messages_by_key(topic, key, limit=limit, start=start, until=until))

    def message(self, message_id: str, topic: str | None = None) -> ReceivedMessage:
        """The message with a unique id (give its topic too) or an offset id; `NotFoundError` if there is none."""
        return self._run(self._core.message(message_id, topic))

    def message_trace(self, message_id: str, topic: str = TRACE_TOPIC) -> MessageTrace:
        """Who sent a message and who consumed it, as clients with `trace=True` told; `NotFoundError` if none did."""
        return self._run(self._core.message_trace(message_id, topic))

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

    def broker_config(self, broker: str) -> dict[str, str]:
        """A broker's settings by name, as it has them now, secrets hidden; `broker` is its name or its address."""
        return self._run(self._core.broker_config(broker))

    def broker_runtime(self, broker: str) -> dict[str, str]:
        """Everything that a broker says of itself, in its own words; `broker` is its name or its address."""
        return self._run(self._core.broker_runtime(broker))

    def name_server_config(self, address: str | None = None) -> dict[str, str]:
        """A name server's settings by name, secrets hidden; of the first that answers unless an address is given."""
        return self._run(self._core.name_server_config(address))

    def node_config(self, node: str) -> dict[str, str]:
        """The settings of a broker (its name or address) or of a name server (its address), secrets hidden."""
        return self._run(self._core.node_config(node))
