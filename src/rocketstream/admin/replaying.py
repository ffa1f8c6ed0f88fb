"""Sending dead letters again: one after the other, in their order, and never one twice unless told to.

Whether a dead letter was replayed is not kept in a file or a topic of our own: its copy says where it was taken from,
has the unique id that the message always had, and lives longer than the letter; so the brokers' index finds it, for
whoever asks from wherever. The place among the dead letters counts, not the message: one that died again after its
replay lies at a new place, and can be replayed again.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Unpack

from rocketstream.admin.asking import Node
from rocketstream.admin.dead_letters import DeadLetterOperations
from rocketstream.admin.errors import NotFoundError, ReplayStoppedError
from rocketstream.admin.finding import FindingOperations
from rocketstream.admin.letters import (
    REPLAYED_FROM,
    DeadLetter,
    LetterFilter,
    Wanted,
    copy_properties,
    ids_of,
    place_of,
    unique_id,
)
from rocketstream.admin.reading import TopicReader
from rocketstream.admin.replays import LetterFate, ReplayedLetter, ReplayOrder, ReplayReport
from rocketstream.admin.running import RunningOperations
from rocketstream.cluster.names import dlq_topic, is_system_group, retry_topic
from rocketstream.errors import (
    ConfigurationError,
    CorruptMessageError,
    MissingCodecError,
    RocketStreamError,
    SendFailedError,
    TopicRouteNotFoundError,
    UnsupportedByBrokerError,
)
from rocketstream.message import Message
from rocketstream.property_names import PropertyName
from rocketstream.wire.bodies.group import GroupList
from rocketstream.wire.codes import RequestCode
from rocketstream.wire.headers.group import QueryTopicConsumeByWhoRequestHeader
from rocketstream.wire.properties import encode_properties

if TYPE_CHECKING:
    from rocketstream.producer.core import ProducerCore
    from rocketstream.producer.receipt import SendReceipt

#: The producer group of copies, as operators see it.
REPLAY_GROUP: Final = "rocketstream-dlq-replay"
# Brokers' clocks may differ; a copy is looked for from so much before the letter was stored.
_CLOCK_SLACK_MS: Final = 3_600_000
# A copy in a retry topic has not failed yet, whatever the group's own limit is.
_MAX_RETRIES_OF_A_COPY: Final = "16"


@dataclass(frozen=True, slots=True)
class _Target:
    """A topic that copies go to, looked at once."""

    full: str
    nodes: list[Node]


class Replay:
    """A replay under way; `step` deals with the next letter that matches. Belongs to the I/O thread."""

    def __init__(
        self,
        core: ReplayOperations,
        full_group: str,
        meant: LetterFilter,
        order: ReplayOrder,
        reader: TopicReader | None,
    ) -> None:
        self._core = core
        self._group = full_group
        self._meant = meant
        self._order = order
        self._reader = reader
        self._queue = 0
        self._waiting: deque[DeadLetter] = deque()
        self._targets: dict[str, _Target] = {}
        self._others: dict[str, tuple[str, ...]] = {}
        self._done: list[ReplayedLetter] = []
        self._count = 0
        self._seen_ids: set[str] = set()
        self._next_at = 0.0

    def __repr__(self) -> str:
        return f"<Replay of group {self._group}: {self._count} replayed, {len(self._done)} looked at>"

    def report(self) -> ReplayReport:
        """What was done so far."""
        core = self._core
        return ReplayReport(core.short(self._group), self._order.dry_run, tuple(self._done), dict(self._others))

    async def step(self) -> ReplayedLetter | None:
        """Deal with the next letter that matches; None when there is none left, or enough were replayed.

        A send that fails is a `ReplayStoppedError`; a second call goes on behind that letter.
        """
        if self._order.limit is not None and self._count >= self._order.limit:
            return None
        letter = await self._next()
        if letter is None:
            self._check_all_found()
            return None
        self._seen_ids |= ids_of(letter)
        done = await self._deal_with(letter)
        self._done.append(done)
        return done

    async def _next(self) -> DeadLetter | None:
        """The next letter that matches, queue by queue."""
        if self._reader is None:
            return None
        while not self._waiting:
            if self._queue >= len(self._reader.queues):
                return None
            one = self._reader.queues[self._queue]
            if one.finished:
                self._queue += 1
                continue
            letters = await self._core.read_dead_letters(self._reader, one, self._group, self._meant)
            self._waiting.extend(filter(self._meant.wants, letters))
        return self._waiting.popleft()

    def _check_all_found(self) -> None:
        missing = sorted(self._meant.ids - self._seen_ids)
        if missing:
            group = self._core.short(self._group)
            raise NotFoundError(
                f"no dead letter of group {group!r} that matches has the id {', '.join(missing)}"
                f" ({self._count} others {'would be' if self._order.dry_run else 'were'} replayed)"
            )

    async def _deal_with(self, letter: DeadLetter) -> ReplayedLetter:
        name = self._target_name(letter)
        if name is None:
            return self._noted(
                letter, LetterFate.SKIPPED, None, why="nothing says which topic it was sent to: give one"
            )
        target = self._targets.get(name) or await self._target(name)
        try:
            body = letter.message.body
        except (CorruptMessageError, MissingCodecError) as error:
            return self._noted(letter, LetterFate.SKIPPED, name, why=str(error))
        place = place_of(letter, dlq_topic(self._group))
        if not self._order.again and await self._is_replayed(letter, place, target):
            return self._noted(letter, LetterFate.ALREADY_REPLAYED, name)
        if self._order.dry_run:
            self._count += 1
            return self._noted(letter, LetterFate.WOULD_BE_REPLAYED, name)
        await self._pace()
        try:
            receipt = await self._core.send_copy(letter, body, target.full, self._properties(letter, place))
        except RocketStreamError as error:
            raise self._stopped(letter, name, error) from error
        self._count += 1
        return self._noted(letter, LetterFate.REPLAYED, name, stored_as=receipt.offset_message_id)

    def _target_name(self, letter: DeadLetter) -> str | None:
        if self._order.to_retry:
            return retry_topic(self._core.short(self._group)) if letter.origin_topic is not None else None
        return self._order.to or letter.origin_topic

    async def _target(self, name: str) -> _Target:
        found = _Target(self._core.full_topic(name), await self._core.replay_target(name, self._order, self._group))
        self._targets[name] = found
        if not self._order.to_retry:
            others = await self._core.groups_of_topic(found.full, found.nodes)
            others.discard(self._group)
            if others:
                self._others[name] = tuple(sorted(map(self._core.short, others)))
        return found

    async def _is_replayed(self, letter: DeadLetter, place: str, target: _Target) -> bool:
        since = max(letter.store_timestamp - _CLOCK_SLACK_MS, 0)
        copies = await self._core.copies(target.full, unique_id(letter), since, target.nodes)
        return any(copy.properties.get(REPLAYED_FROM) == place for copy in copies)

    def _properties(self, letter: DeadLetter, place: str) -> dict[str, str]:
        retried = None
        if self._order.to_retry and letter.origin_topic is not None:
            retried = self._core.full_topic(letter.origin_topic)
        return copy_properties(letter, place, retried)

    async def _pace(self) -> None:
        if self._order.rate is None:
            return
        clock = self._core.clock
        wait = self._next_at - clock.monotonic()
        if wait > 0:
            await clock.sleep(wait)
        self._next_at = max(self._next_at, clock.monotonic()) + 1 / self._order.rate

    def _noted(
        self,
        letter: DeadLetter,
        fate: LetterFate,
        target: str | None,
        *,
        why: str | None = None,
        stored_as: str | None = None,
    ) -> ReplayedLetter:
        return ReplayedLetter(
            letter.message_id,
            letter.origin_topic,
            letter.broker_name,
            letter.queue_id,
            letter.queue_offset,
            fate,
            target,
            why,
            stored_as,
        )

    def _stopped(self, letter: DeadLetter, target: str, error: RocketStreamError) -> ReplayStoppedError:
        unclear = isinstance(error, SendFailedError) and error.maybe_stored
        that = "that one may have been stored all the same" if unclear else "that one was not stored"
        return ReplayStoppedError(
            f"the replay of group {self._core.short(self._group)!r} stopped at message {letter.message_id}"
            f" ({letter.broker_name}:{letter.queue_id}:{letter.queue_offset}) for topic {target!r}: {self._count}"
            f" replayed before it, {that}, the rest was not tried; the same command goes on from there. {error}",
            self.report(),
        )


class ReplayOperations(DeadLetterOperations, FindingOperations, RunningOperations):
    """What an operator does with dead letters."""

    _sender: ProducerCore | None = None

    async def open_replay(
        self,
        group: str,
        *,
        to: str | None = None,
        to_retry: bool = False,
        limit: int | None = None,
        rate: float | None = None,
        again: bool = False,
        dry_run: bool = False,
        **wanted: Unpack[Wanted],
    ) -> Replay:
        """A replay of the dead letters that a group has now; nothing is sent before its first `step`."""
        order = ReplayOrder(to, to_retry, limit, rate, again, dry_run)
        meant = LetterFilter.make(**wanted)
        full = self.full_group(group)
        if to is not None and self.full_topic(to) == dlq_topic(full):
            raise ConfigurationError(f"to={to!r} is where the dead letters of group {group!r} are already")
        return Replay(self, full, meant, order, await self.dead_letter_reader(full, meant))

    async def replay_target(self, topic: str, order: ReplayOrder, full_group: str) -> list[Node]:
        """The brokers of a topic that copies are to go to, after what speaks against it was looked for."""
        full = self.full_topic(topic)
        try:
            nodes = await self.masters_of(full)
        except TopicRouteNotFoundError:
            # A broker might create it, and nobody would consume what was sent there.
            raise NotFoundError(
                f"topic {topic!r}, where dead letters of group {self.short(full_group)!r} are to go, does not exist:"
                " create it, or name another topic"
            ) from None
        if not order.again:
            for node in nodes:
                if (await self.broker_config(node.address)).get("messageIndexEnable") == "false":
                    raise UnsupportedByBrokerError(
                        f"broker {node.name!r} ({node.address}) has no index (messageIndexEnable=false), so nobody can"
                        " tell what was replayed already: again=True (--again) replays without looking"
                    )
        if order.to_retry and await self.is_orderly(full_group):
            raise UnsupportedByBrokerError(
                f"group {self.short(full_group)!r} consumes in order, and brokers put what is sent to the retry topic"
                " of such a group straight back among its dead letters: replay to the original topic"
            )
        return nodes

    async def is_orderly(self, full_group: str) -> bool:
        """Whether a member of a group says that it consumes in order."""
        infos = await self.running_infos(full_group)
        return any(info.orderly for info in infos if info is not None)

    async def groups_of_topic(self, full_topic: str, nodes: list[Node]) -> set[str]:
        """The groups that consume a topic, RocketMQ's own left out."""
        header = QueryTopicConsumeByWhoRequestHeader(topic=full_topic)
        groups: set[str] = set()
        for answer in await self.for_all(
            nodes, lambda node: self.ask(node, RequestCode.QUERY_TOPIC_CONSUME_BY_WHO, header)
        ):
            groups |= GroupList.decode(answer.body).group_list
        return {group for group in groups if not is_system_group(group)}

    async def send_copy(
        self, letter: DeadLetter, body: bytes, full_topic: str, properties: dict[str, str]
    ) -> SendReceipt:
        """Send a copy of a dead letter, as what it was when it was sent first."""
        sender = self._sender or self._new_sender()
        out = sender.preparation.single(Message(full_topic, body, flag=letter.message.flag))
        out.fields["i"] = encode_properties(properties)
        if PropertyName.RETRY_TOPIC in properties:
            out.fields["l"] = _MAX_RETRIES_OF_A_COPY
            return await sender.send(out)
        return await sender.send(out, sharding_key=properties.get(PropertyName.SHARDING_KEY))

    def _new_sender(self) -> ProducerCore:
        """A producer on this client's connections; its routes are kept fresh while a long replay runs."""
        # Here, because operators who only look need not wait until a producer is loaded.
        from rocketstream.producer.core import ProducerCore
        from rocketstream.producer.settings import ProducerSettings

        self._sender = sender = ProducerCore(self.settings, ProducerSettings(group=REPLAY_GROUP), io=self.io)
        sender.attach(self.instance)
        self.instance.register_producer(sender)
        return sender

    async def on_shutdown(self, timeout: float | None) -> None:
        """Say good-bye at the brokers, if copies were sent."""
        if self._sender is not None:
            await self.instance.unregister_producer(self._sender.group)
        await super().on_shutdown(timeout)
