"""Reading what a pop may have: from the queues of a topic and of its retry topic, each from where the group is.

A group's offset moves as soon as the lease of what was read survives a crash; until then it is remembered here, so
that the next pop does not read the same again. (RocketMQ locks the queue instead; everything here is one thread.)
"""

from __future__ import annotations

import random
from collections.abc import Awaitable
from dataclasses import dataclass, field
from typing import Final

from rocketstream.broker.names import RETRY_PREFIX
from rocketstream.broker.offsets import Offsets
from rocketstream.broker.pop.lease import Lease
from rocketstream.broker.pop.leases import Leases
from rocketstream.broker.pop.ordering import Ordering, OrderKey
from rocketstream.broker.pop.retry_topics import kind_of, retry_topics
from rocketstream.broker.records import encoded, read_record
from rocketstream.broker.settings import BrokerSettings
from rocketstream.broker.store.values import Match, MessageStore, Reading, ReadStatus
from rocketstream.broker.topics import REVIVE_QUEUES, Topics
from rocketstream.property_names import PropertyName
from rocketstream.wire.bodies.topic import TopicConfig
from rocketstream.wire.check_point import ORDER_REVIVE_QUEUE, CheckPoint
from rocketstream.wire.codes import ConsumeInitMode
from rocketstream.wire.headers.pop import PopMessageRequestHeader
from rocketstream.wire.properties import decode_properties
from rocketstream.wire.record import encode_record

#: RocketMQ's popFromRetryProbability: how many pops of a hundred look into the retry topic first.
RETRY_FIRST: Final = 20

_MOVED: Final = frozenset({ReadStatus.OFFSET_TOO_SMALL, ReadStatus.OFFSET_OVERFLOW_BADLY, ReadStatus.OFFSET_FOUND_NULL})
_NOTHING_WANTED: Final = frozenset(
    {
        ReadStatus.NO_MATCHED_MESSAGE,
        ReadStatus.OFFSET_FOUND_NULL,
        ReadStatus.MESSAGE_WAS_REMOVING,
        ReadStatus.NO_MATCHED_LOGIC_QUEUE,
    }
)


@dataclass(slots=True, kw_only=True)
class Taken:
    """What a pop got."""

    pop_time: int
    revive_queue_id: int
    pieces: list[bytes | memoryview] = field(default_factory=list)
    count: int = 0
    rest: int = 0
    """How many messages are left behind, as RocketMQ counts them."""
    starts: list[str] = field(default_factory=list)
    offsets: list[str] = field(default_factory=list)
    order_counts: list[str] = field(default_factory=list)
    moved: dict[OrderKey, int] = field(default_factory=dict)
    """Where the group is to be once the leases are safe."""


class Taking:
    """Takes messages out of queues for groups."""

    def __init__(
        self,
        *,
        settings: BrokerSettings,
        store: MessageStore,
        topics: Topics,
        offsets: Offsets,
        leases: Leases,
        ordering: Ordering,
        chance: random.Random,
    ) -> None:
        self._settings = settings
        self._store = store
        self._topics = topics
        self._offsets = offsets
        self._leases = leases
        self._ordering = ordering
        self._chance = chance
        self._read_to: dict[OrderKey, int] = {}
        self._pops = 0

    def take(self, wanted: PopMessageRequestHeader, topic: TopicConfig, match: Match | None, now: int) -> Taken:
        """Messages for a pop: sometimes first those of the retry topic, otherwise these last."""
        dice = self._chance.randrange(100)
        if wanted.order:
            revive_queue_id = ORDER_REVIVE_QUEUE
        else:
            revive_queue_id, self._pops = self._pops % REVIVE_QUEUES, self._pops + 1
        taken = Taken(pop_time=now, revive_queue_id=revive_queue_id)
        # One kind of retry topic in one answer, whose short texts could not tell both apart.
        names = retry_topics(wanted.topic, wanted.consumer_group, self._settings)
        there = [] if wanted.order else [one for one in map(self._topics.get, names) if one is not None]
        retries = there[dice % len(there)] if there else None
        retry_first = dice < RETRY_FIRST
        if retries is not None and retry_first:
            self._from_topic(retries, dice, wanted, match, taken)
        if wanted.queue_id < 0:
            self._from_topic(topic, dice, wanted, match, taken)
        else:
            self._from_queue(topic.topic_name, wanted.queue_id, wanted, match, taken)
        if retries is not None and not retry_first and taken.count < wanted.max_msg_nums:
            self._from_topic(retries, dice, wanted, match, taken)
        return taken

    def settle(self, taken: Taken) -> Awaitable[None] | None:
        """Move the group's offsets, once the leases survive a crash: what to wait for, or None when it is done."""
        if not taken.moved:
            return None
        position = self._leases.last_position
        waiting = None if position is None else self._store.durable(position)
        if waiting is None:
            self._commit(taken)
            return None
        for key, offset in taken.moved.items():
            self._read_to[key] = max(offset, self._read_to.get(key, 0))
        return self._settled(waiting, taken)

    async def _settled(self, waiting: Awaitable[None], taken: Taken) -> None:
        await waiting
        self._commit(taken)

    def _commit(self, taken: Taken) -> None:
        for key, offset in taken.moved.items():
            self._offsets.commit(key.group, key.topic, key.queue_id, offset)
            if self._read_to.get(key, -1) <= offset:
                self._read_to.pop(key, None)

    # --- one queue -----------------------------------------------------------------------------------------------

    def _from_topic(
        self, topic: TopicConfig, dice: int, wanted: PopMessageRequestHeader, match: Match | None, taken: Taken
    ) -> None:
        queues = topic.read_queue_nums
        for number in range(queues):
            self._from_queue(topic.topic_name, (dice + number) % queues, wanted, match, taken)

    def _from_queue(
        self, topic: str, queue_id: int, wanted: PopMessageRequestHeader, match: Match | None, taken: Taken
    ) -> None:
        key = OrderKey(topic, wanted.consumer_group, queue_id)
        offset = self.place(key, wanted.init_mode)
        if wanted.order and self._ordering.is_blocked(key, wanted.attempt_id, wanted.invisible_time):
            return
        left = wanted.max_msg_nums - taken.count
        if left <= 0:
            taken.rest += self._store.max_offset(topic, queue_id) - offset
            return
        reading = self._store.read(topic, queue_id, offset, left, self._settings.max_pull_bytes, match)
        if reading.status in _MOVED:
            # What was to be read is gone, or never was: the group goes on where the queue is.
            offset = reading.next_offset
            self._offsets.commit(key.group, topic, queue_id, offset)
            self._read_to.pop(key, None)
            reading = self._store.read(topic, queue_id, offset, left, self._settings.max_pull_bytes, match)
        if reading.found:
            self._found(key, offset, reading, wanted, taken)
        elif reading.status in _NOTHING_WANTED and reading.next_offset > -1:
            if wanted.order:
                self._offsets.commit(key.group, topic, queue_id, reading.next_offset)
            elif reading.next_offset != offset:
                taken.moved[key] = reading.next_offset
        taken.rest += reading.max_offset - reading.next_offset

    def _found(
        self, key: OrderKey, offset: int, reading: Reading, wanted: PopMessageRequestHeader, taken: Taken
    ) -> None:
        offsets = tuple(reading.offsets)
        if wanted.order:
            taken.order_counts += self._ordering.popped(
                key, wanted.attempt_id, taken.pop_time, wanted.invisible_time, offsets
            )
            self._offsets.commit(key.group, key.topic, key.queue_id, offset)
        else:
            self._leases.add(
                Lease(
                    topic=key.topic,
                    group=key.group,
                    queue_id=key.queue_id,
                    start_offset=offset,
                    pop_time=taken.pop_time,
                    invisible_time=wanted.invisible_time,
                    revive_queue_id=taken.revive_queue_id,
                    offsets=offsets,
                    open=set(offsets),
                )
            )
            taken.moved[key] = reading.next_offset
        kind = kind_of(key.topic)
        taken.starts.append(f"{kind} {key.queue_id} {offset}")
        taken.offsets.append(f"{kind} {key.queue_id} {','.join(map(str, offsets))}")
        taken.count += reading.found
        if key.topic == wanted.topic:
            taken.pieces += reading.records
        else:
            taken.pieces += [self._retried(key, one, offset, wanted, taken) for one in offsets]

    def _retried(self, key: OrderKey, offset: int, start: int, wanted: PopMessageRequestHeader, taken: Taken) -> bytes:
        """A message of the retry topic as the client gets it: under its own topic, with its check point."""
        record = self._store.record_at(key.topic, key.queue_id, offset)
        assert record is not None, "it has just been read"
        message = read_record(record)
        point = CheckPoint(
            start,
            taken.pop_time,
            wanted.invisible_time,
            taken.revive_queue_id,
            kind_of(key.topic),
            self._settings.broker_name,
            key.queue_id,
            offset,
        )
        properties = decode_properties(message.properties)
        properties.setdefault(PropertyName.POP_CHECK_POINT, point.encode())
        return encode_record(
            topic=wanted.topic,
            body=message.body,
            properties=encoded(properties),
            queue_id=message.queue_id,
            queue_offset=offset,
            commit_log_offset=message.position,
            flag=message.flag,
            sys_flag=message.sys_flag,
            born_timestamp=message.born_timestamp,
            born_host=message.born_host,
            store_timestamp=message.store_timestamp,
            store_host=message.store_host,
            reconsume_times=message.reconsume_times,
            prepared_transaction_offset=message.prepared_transaction_offset,
        )

    # --- where a group is ----------------------------------------------------------------------------------------

    def place(self, key: OrderKey, init_mode: int) -> int:
        """Where a group reads on in a queue; a new group is placed there, one that was reset begins anew."""
        reset = self._offsets.take_reset(key.group, key.topic, key.queue_id)
        if reset is not None:
            self._ordering.clear(key)
            self._read_to.pop(key, None)
            self._offsets.commit(key.group, key.topic, key.queue_id, reset)
            return reset
        offset = self._offsets.get(key.group, key.topic, key.queue_id)
        if offset < 0:
            offset = self._first_place(key.topic, key.queue_id, init_mode)
            self._offsets.commit(key.group, key.topic, key.queue_id, offset)
        return max(offset, self._read_to.get(key, -1))

    def place_seen(self, key: OrderKey) -> int:
        """The same for who only looks: nobody is placed anywhere."""
        offset = self._offsets.get(key.group, key.topic, key.queue_id)
        if offset < 0:
            offset = self._store.min_offset(key.topic, key.queue_id)
        return max(offset, self._read_to.get(key, -1))

    def _first_place(self, topic: str, queue_id: int, init_mode: int) -> int:
        first = self._store.min_offset(topic, queue_id)
        if init_mode == ConsumeInitMode.MIN or topic.startswith(RETRY_PREFIX):
            return first
        # RocketMQ's initPopOffsetByCheckMsgInMem: a queue that is young is read from its beginning all the same.
        return 0 if first <= 0 else max(0, self._store.max_offset(topic, queue_id) - 1)
