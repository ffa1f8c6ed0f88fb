"""The message store: one log for all queues, an index of it in memory."""

from __future__ import annotations

import logging
import struct
from bisect import bisect_left, bisect_right
from collections.abc import Awaitable, Callable, Sequence
from itertools import islice
from typing import Final
from zlib import crc32

from rocketstream.broker.refusal import Refusal
from rocketstream.broker.settings import BrokerSettings
from rocketstream.broker.store.backing import Backing
from rocketstream.broker.store.index import LogIndex
from rocketstream.broker.store.indexed_properties import indexed_properties
from rocketstream.broker.store.log import Log
from rocketstream.broker.store.queue_index import QueueIndex
from rocketstream.broker.store.queue_reading import read_queue, refused_reading
from rocketstream.broker.store.segment import ENVELOPE, ENVELOPE_SIZE, Segment
from rocketstream.broker.store.values import Match, NewMessage, Reading, Stored
from rocketstream.clock import Clock
from rocketstream.wire.codes import ResponseCode
from rocketstream.wire.host import IPV6_SIZE, encode_host
from rocketstream.wire.properties import MAX_PROPERTIES_SIZE
from rocketstream.wire.record import BODY_AT, HOST_BITS, MAGIC_V1, MAGIC_V2
from rocketstream.wire.sysflag import BORN_HOST_V6, STORE_HOST_V6

log = logging.getLogger("rocketstream.broker")

_HEADS: Final = tuple(struct.Struct(f">IIIiiqqiq{hosts}iqI") for hosts in ("8sq8s", "20sq8s", "8sq20s", "20sq20s"))
_U16: Final = struct.Struct(">H")

#: Java: maxMsgsNumBatch.
MAX_FOUND_BY_KEY: Final = 64
_MAX_TOPIC_SIZE: Final = 32767


class LogStore:
    """A `MessageStore` of segments that a backing keeps."""

    def __init__(self, settings: BrokerSettings, clock: Clock, store_host: str, backing: Backing) -> None:
        self.appended: list[Callable[[Stored], None]] = []
        self._settings = settings
        self._clock = clock
        self._backing = backing
        self._raw_host = encode_host(store_host)
        self._host_text = self._raw_host.hex().upper()
        self._host_bits = STORE_HOST_V6 if len(self._raw_host) == IPV6_SIZE else 0
        self._index = LogIndex()
        self._log: Log

    def __repr__(self) -> str:
        return f"<LogStore {self.size} bytes in {len(self._log.segments)} segments, {self._index!r}>"

    def open(self) -> None:
        """Load or recover what is there; says in the log what it cut."""
        self._log = Log(self._backing.open(self._index))

    def close(self) -> None:
        """Write everything and let go of the files."""
        self._backing.close()

    def abandon(self) -> None:
        """Let go of the files as a crash would: what is not written yet is lost."""
        self._backing.abandon()

    # --- appending ----------------------------------------------------------------------------------------------

    def append(self, message: NewMessage) -> Stored:
        """Put a message at the end of its queue; it can be read at once. `Refusal` when it can't be taken."""
        properties = message.properties.encode("utf-8", "replace")
        queue = self._queue_for(message, properties)
        queue_id, body, raw_topic = message.queue_id, message.body, queue.raw_topic
        born_host = encode_host(message.born_host)
        sys_flag = message.sys_flag & ~HOST_BITS | self._host_bits
        if len(born_host) == IPV6_SIZE:
            sys_flag |= BORN_HOST_V6
        bits = (sys_flag & HOST_BITS) >> 4
        size = BODY_AT[bits] + len(body) + len(raw_topic) + _U16.size + len(properties)
        segment = self._log.last
        if segment.end + ENVELOPE_SIZE + size > segment.capacity:
            segment = self._roll(ENVELOPE_SIZE + size)
        at = segment.end + ENVELOPE_SIZE
        position = segment.base + at
        offset = queue.base + len(queue.positions)
        now = self._clock.wall_ms()
        # What `encode_record` writes, without asking again for every message what is the same for all of a queue.
        head = _HEADS[bits].pack(
            size,
            MAGIC_V1 if len(raw_topic) <= 128 else MAGIC_V2,
            crc32(body) & 0x7FFFFFFF,
            queue_id,
            message.flag,
            offset,
            position,
            sys_flag,
            message.born_timestamp,
            born_host,
            now,
            self._raw_host,
            message.reconsume_times,
            message.prepared_transaction_offset,
            len(body),
        )
        record = b"".join((head, body, raw_topic, _U16.pack(len(properties)), properties))
        ENVELOPE.pack_into(segment.view, at - ENVELOPE_SIZE, size, crc32(record))
        segment.view[at : at + size] = record
        tags_code = indexed_properties(properties, queue.key_seed, segment, at)
        queue.positions.append(position)
        queue.sizes.append(size)
        queue.tags.append(tags_code)
        segment.end = at + size
        segment.newest = now
        self._backing.appended()
        message_id = f"{self._host_text}{position:016X}"
        stored = Stored(message.topic, queue_id, offset, position, size, tags_code, now, message_id)
        for callback in self.appended:
            callback(stored)
        return stored

    def _queue_for(self, message: NewMessage, properties: bytes) -> QueueIndex:
        """The queue that a message goes to, if it can be taken."""
        refusal = self._backing.refusal
        if refusal is not None:
            raise Refusal(refusal.code, refusal.remark)
        limit = self._settings.max_message_size
        queues = self._index.topics.get(message.topic)
        queue = None if queues is None else queues.get(message.queue_id)
        if (
            len(message.body) > limit
            or len(properties) > MAX_PROPERTIES_SIZE
            or (queue is None and len(message.topic.encode()) > _MAX_TOPIC_SIZE)
        ):
            raise Refusal(
                ResponseCode.MESSAGE_ILLEGAL,
                "the message is illegal, maybe msg body or properties length not matched. msg body length limit"
                f" {limit}B, msg properties length limit 32KB.",
            )
        return queue or self._index.new_queue(message.topic, message.queue_id)

    def _roll(self, room: int) -> Segment:
        segment = self._backing.new_segment(self._log.last, room, self._index)
        self._log.add(segment)
        self._drop_surplus()
        return segment

    def durable(self, position: int) -> Awaitable[None] | None:
        """What to wait for until the record at that position survives a crash; None when nothing is to wait for."""
        return self._backing.durable(position)

    # --- reading ------------------------------------------------------------------------------------------------

    def read(
        self,
        topic: str,
        queue_id: int,
        offset: int,
        max_count: int,
        max_bytes: int,
        match: Match | None = None,
    ) -> Reading:
        """Records of a queue from an offset on, answered exactly as RocketMQ's `DefaultMessageStore.getMessage`.

        Whatever is asked for, the settings' limits of a pull hold.
        """
        queue = self._index.queue(topic, queue_id)
        refused = refused_reading(queue, offset)
        if queue is None or refused is not None:
            assert refused is not None
            return refused
        limit = min(max_count, self._settings.max_pull_messages)
        return read_queue(
            self._log, queue, offset, max_count, limit, min(max_bytes, self._settings.max_pull_bytes), match
        )

    def record(self, position: int) -> bytes | None:
        """The whole record that begins at a commit-log offset; None if none begins there."""
        return self._log.record(position)

    def record_at(self, topic: str, queue_id: int, offset: int) -> bytes | None:
        """The whole record at a queue's offset."""
        position = self._position(topic, queue_id, offset)
        return None if position is None else self._log.record(position)

    def _position(self, topic: str, queue_id: int, offset: int) -> int | None:
        queue = self._index.queue(topic, queue_id)
        if queue is None or not queue.base <= offset < queue.end or not queue.sizes[offset - queue.base]:
            return None
        return queue.positions[offset - queue.base]

    # --- offsets and times --------------------------------------------------------------------------------------

    def min_offset(self, topic: str, queue_id: int) -> int:
        """The first offset that is kept; 0 for a queue that is not there."""
        queue = self._index.queue(topic, queue_id)
        return 0 if queue is None else queue.base

    def max_offset(self, topic: str, queue_id: int) -> int:
        """The offset of the next message; 0 for a queue that is not there."""
        queue = self._index.queue(topic, queue_id)
        return 0 if queue is None else queue.end

    def timestamp_at(self, topic: str, queue_id: int, offset: int) -> int:
        """The store time of the message at an offset; -1 if there is none."""
        position = self._position(topic, queue_id, offset)
        return -1 if position is None else self._log.timestamp(position)

    def offset_by_time(self, topic: str, queue_id: int, timestamp: int, *, upper: bool = False) -> int:
        """RocketMQ's search by store time: the first offset not earlier (`upper`: the last not later).

        With none that late the first is the offset of the next message; with none that early the last is the first.
        """
        queue = self._index.queue(topic, queue_id)
        if queue is None:
            return 0
        if upper:
            return queue.base + max(bisect_right(queue.positions, timestamp, key=self._log.timestamp) - 1, 0)
        return queue.base + bisect_left(queue.positions, timestamp, key=self._log.timestamp)

    # --- keys and topics ----------------------------------------------------------------------------------------

    def find(self, topic: str, key: str, max_count: int, begin: int, end: int) -> list[bytes]:
        """Records of a topic with that key (or unique key) stored between two times: the newest, the oldest first.

        As in RocketMQ, keys go with the log, not with the topic: what was there before it was deleted is found, too.
        """
        having = self._log.with_key(topic, key)
        matching = (record for timestamp, record in having if begin <= timestamp <= end)
        return list(islice(matching, min(max_count, MAX_FOUND_BY_KEY)))[::-1]

    def queues(self, topic: str) -> Sequence[int]:
        """The ids of the topic's queues that have or had messages."""
        return sorted(self._index.topics.get(topic, ()))

    def topics(self) -> Sequence[str]:
        """The topics that have or had messages."""
        return list(self._index.topics)

    def delete_topic(self, topic: str) -> None:
        """Forget the topic's queues; their offsets start again at 0."""
        if topic in self._index.topics:
            self._index.delete(topic, self._log.end)
            self._backing.save(self._index)

    # --- what is kept -------------------------------------------------------------------------------------------

    @property
    def size(self) -> int:
        """How many bytes of records are kept."""
        return self._log.size

    def expire(self) -> None:
        """Let go of segments that are too old or too many; to be called now and then."""
        segments = self._log.segments
        old = 0
        if self._settings.retention_time is not None:
            oldest = self._clock.wall_ms() - round(self._settings.retention_time * 1000)
            while old < len(segments) - 1 and segments[old].newest < oldest:
                old += 1
        self._drop(old)
        self._drop_surplus()

    def _drop_surplus(self) -> None:
        limit, segments = self._backing.max_bytes, self._log.segments
        surplus, kept = 0, self._log.size
        while limit is not None and kept > limit and surplus < len(segments) - 1:
            kept -= segments[surplus].end
            surplus += 1
        self._drop(surplus)

    def _drop(self, count: int) -> None:
        """Let go of that many of the oldest segments, as far as they are no longer being written."""
        while count and not all(segment.settled for segment in self._log.segments[:count]):
            count -= 1
        if count:
            dropped = self._log.drop(count)
            self._index.drop_before(self._log.start)
            self._backing.drop(dropped, self._index)
            log.info("dropped the log before %d: %d segments", self._log.start, count)
