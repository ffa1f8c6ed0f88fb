"""Reading a group's dead letters by plain pulls: they stay where they are, and no group is touched."""

from __future__ import annotations

from collections import Counter, deque
from typing import Unpack

from rocketstream.admin.letters import DeadLetter, DeadLetters, LetterFilter, Wanted, origin_topic, replays_of
from rocketstream.admin.moments import EARLIEST, Moment
from rocketstream.admin.reading import QueueReader, TopicReader, sorted_messages
from rocketstream.admin.resetting import ResetOperations
from rocketstream.cluster.names import dlq_topic
from rocketstream.errors import ConfigurationError, TopicRouteNotFoundError, UnsupportedByBrokerError
from rocketstream.message import ReceivedMessage
from rocketstream.property_names import PropertyName
from rocketstream.wire.codes import Permission

_MAX_WANTED = 100_000


class DeadLetterOperations(ResetOperations):
    """What an operator asks of dead letters."""

    async def dead_letters(
        self, group: str, n: int = 20, *, scan: int = 100_000, **wanted: Unpack[Wanted]
    ) -> DeadLetters:
        """The dead letters of a group that match: the newest `n`, and how many there are of each original topic.

        At most the newest `scan` of each queue are looked at. A group without any has none; one that no broker knows
        is a `NotFoundError`.
        """
        for name, value in (("n", n), ("scan", scan)):
            if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= _MAX_WANTED:
                raise ConfigurationError(f"{name}={value!r} must be from 1 to {_MAX_WANTED}")
        meant = LetterFilter.make(**wanted)
        full = self.full_group(group)
        topic = dlq_topic(self.short(full))
        reader = await self.dead_letter_reader(full, meant)
        if reader is None:
            return DeadLetters(self.short(full), topic, (), {}, 0, True)
        newest: list[ReceivedMessage] = []
        counts: Counter[str] = Counter()
        scanned, complete = 0, True
        for one in reader.queues:
            first = (one.end or 0) - scan
            if first > one.offset:
                one.offset, complete = first, False
            kept: deque[ReceivedMessage] = deque(maxlen=n)
            while not one.finished:
                looked_at = await self.read_dead_letters(reader, one, full, meant)
                scanned += len(looked_at)
                for letter in filter(meant.wants, looked_at):
                    counts[letter.origin_topic or ""] += 1
                    kept.append(letter.message)
            newest += kept
        letters = [self.dead_letter(message, full) for message in sorted_messages(newest)[-n:]]
        return DeadLetters(self.short(full), topic, tuple(letters), dict(sorted(counts.items())), scanned, complete)

    async def dead_letter_reader(self, full_group: str, meant: LetterFilter) -> TopicReader | None:
        """A place in every queue of a group's dead letters, which ends where they end now; None where there are none.

        What dies later is not read: a replay that fails again would otherwise go round for ever.
        """
        topic = dlq_topic(full_group)
        try:
            route = await self.fetch_route(topic)
        except TopicRouteNotFoundError:
            await self.check_group_known(full_group)
            return None
        for queues in route.queue_datas:
            if not queues.perm & Permission.READ:
                short = self.short(topic)
                raise UnsupportedByBrokerError(
                    f"the dead letters of group {self.short(full_group)!r} cannot be read: topic {short!r} on broker"
                    f" {queues.broker_name!r} is for writing only. `rocketstream topic create {short!r} --queues"
                    f" {queues.write_queue_nums} --permission RW --update` makes it readable"
                )
        start: Moment = EARLIEST if meant.since is None else meant.since
        reader = await self.reader(self.short(topic), start)
        ends = await self._ranges(topic, {one.node for one in reader.queues})
        for one in reader.queues:
            one.end = ends[one.queue][1]
            if one.offset >= one.end:
                one.finished = True
        return reader

    async def read_dead_letters(
        self, reader: TopicReader, one: QueueReader, full_group: str, meant: LetterFilter
    ) -> list[DeadLetter]:
        """The next dead letters of a queue, whether they match or not; `one.finished` when there can be no more."""
        messages = await self._read(reader, one)
        if meant.until is not None and messages and messages[-1].store_timestamp > meant.until:
            one.finished = True
        return [self.dead_letter(message, full_group) for message in messages]

    def dead_letter(self, message: ReceivedMessage, full_group: str) -> DeadLetter:
        """A stored message as the dead letter that it is."""
        properties = message.properties
        origin = origin_topic(properties, full_group)
        return DeadLetter(
            origin_topic=None if origin is None else self.short(origin),
            message_id=message.message_id,
            origin_message_id=properties.get(PropertyName.DLQ_ORIGIN_MESSAGE_ID)
            or properties.get(PropertyName.ORIGIN_MESSAGE_ID),
            broker_name=message.broker_name,
            queue_id=message.queue_id,
            queue_offset=message.queue_offset,
            tags=message.tags,
            keys=message.keys,
            failures=message.reconsume_times,
            born_timestamp=message.born_timestamp,
            store_timestamp=message.store_timestamp,
            size=message.body_size,
            replays=replays_of(properties),
            message=message,
        )
