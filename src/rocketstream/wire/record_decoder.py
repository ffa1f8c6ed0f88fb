"""All messages of a response's body: where each record begins and ends, and what to do when one is damaged.

The rule of this file: a damaged record costs itself and no other. Between two records there is nothing to hold on
to but the records themselves, so a boundary is believed when two witnesses agree: the record's own size, the sum of
its fields' lengths, and a sound record that begins there. Where no two agree, the next sound record is looked for.
Each byte is looked at a bounded number of times, whatever the bytes are.
"""

from __future__ import annotations

import struct
from typing import Final, NamedTuple

from rocketstream.errors import CorruptMessageError, MissingCodecError
from rocketstream.message import MessageQueue, MessageSource, ReceivedMessage
from rocketstream.wire.batch import decode_batch
from rocketstream.wire.compression import DEFAULT_MAX_BODY_SIZE
from rocketstream.wire.properties import decode_properties
from rocketstream.wire.record import (
    BODY_AT,
    HOST_BITS,
    MAGIC_BLANK,
    MIN_RECORD_SIZE,
    TOPIC_SIZE_BYTES,
    RecordSource,
)
from rocketstream.wire.sysflag import INNER_BATCH, NEED_UNWRAP, is_inner_batch

# What the walk needs of a record: total size, magic, queue offset, system flag, body size. The system flag lies
# before the hosts, so any of the four reads it right.
_HEADS: Final = tuple(struct.Struct(f">II12xq8xi{body_at - 44}xI") for body_at in BODY_AT)
_START: Final = struct.Struct(">II12xq8xi")
_SIZE_AND_MAGIC: Final = struct.Struct(">II")
_U32: Final = struct.Struct(">I")
_U16: Final = struct.Struct(">H")
_MAGIC_AT: Final = 4
_MAGIC_PREFIX: Final = b"\xda\xa3\x20"
# The flags that make a record other than its neighbours, or more than one message.
_SHAPE_BITS: Final = HOST_BITS | INNER_BATCH | NEED_UNWRAP


class CorruptRecord(NamedTuple):
    """Bytes of a response that are no message: where, how many, and why."""

    position: int
    size: int
    reason: str


class DecodedRecords(NamedTuple):
    """What was in a response's body."""

    messages: list[ReceivedMessage]
    corrupt: list[CorruptRecord]


def decode_records(
    buffer: bytes,
    *,
    broker_name: str = "",
    queue: MessageQueue | None = None,
    min_offset: int | None = None,
    max_offset: int | None = None,
    max_body_size: int = DEFAULT_MAX_BODY_SIZE,
) -> DecodedRecords:
    """The messages of a pull response's body, in its order, and the places where it is damaged; never raises.

    `queue` is the queue that was asked (its messages then show it as theirs); `broker_name` is enough where a
    response has messages of several queues. The offsets become properties of every message (RES-05).
    """
    source = RecordSource(
        buffer,
        broker_name=broker_name,
        queue=queue,
        min_offset=min_offset,
        max_offset=max_offset,
        max_body_size=max_body_size,
    )
    walk = _Walk(buffer, source)
    walk.run()
    return DecodedRecords(walk.messages, walk.corrupt)


def decode_record(
    buffer: bytes, *, broker_name: str = "", max_body_size: int = DEFAULT_MAX_BODY_SIZE
) -> ReceivedMessage:
    """The one message of an answer (VIEW_MESSAGE_BY_ID) or a request (CHECK_TRANSACTION_STATE, ...) with one.

    A batch stored as one record stays one message, whose body is the batch: its id names the record.
    """
    source = RecordSource(buffer, broker_name=broker_name, max_body_size=max_body_size, unwrap=False)
    walk = _Walk(buffer, source)
    if buffer:
        walk.step(0)
    if walk.corrupt:
        raise CorruptMessageError(walk.corrupt[0].reason, position=0)
    if not walk.messages:
        raise CorruptMessageError("there is no message in the answer", position=0)
    return walk.messages[0]


class _Shape(NamedTuple):
    """A record as its own fields describe it."""

    total: int
    magic: int
    queue_offset: int
    sys_flag: int
    body_size: int
    topic_at: int
    properties_at: int
    end: int


def _shape_at(buffer: bytes, position: int, topic_size_bytes: int) -> _Shape | None:
    """None when the fields run out of the buffer."""
    try:
        total, magic, queue_offset, sys_flag = _START.unpack_from(buffer, position)
        body_at = position + BODY_AT[(sys_flag & HOST_BITS) >> 4]
        (body_size,) = _U32.unpack_from(buffer, body_at - _U32.size)
        topic_size_at = body_at + body_size
        topic_at = topic_size_at + topic_size_bytes
        if topic_size_bytes == 1:
            topic_size = buffer[topic_size_at]
        else:
            (topic_size,) = _U16.unpack_from(buffer, topic_size_at)
        properties_at = topic_at + topic_size + _U16.size
        (properties_size,) = _U16.unpack_from(buffer, properties_at - _U16.size)
    except (struct.error, IndexError):
        return None
    end = properties_at + properties_size
    if end > len(buffer):
        return None
    return _Shape(total, magic, queue_offset, sys_flag, body_size, topic_at, properties_at, end)


def _sound_at(buffer: bytes, position: int) -> bool:
    """True when a record begins here whose magic is known and whose size is the sum of its fields."""
    if len(buffer) - position < MIN_RECORD_SIZE:
        return False
    (magic,) = _U32.unpack_from(buffer, position + _MAGIC_AT)
    size_bytes = TOPIC_SIZE_BYTES.get(magic)
    if size_bytes is None:
        return False
    shape = _shape_at(buffer, position, size_bytes)
    return shape is not None and shape.end == position + shape.total


class _Walk:
    """One pass over a buffer: `run` takes the records that look like the one before, `step` any other."""

    __slots__ = ("buffer", "corrupt", "magic", "messages", "shape_bits", "source", "topic", "topic_field")

    def __init__(self, buffer: bytes, source: RecordSource) -> None:
        self.buffer = buffer
        self.source = source
        self.messages: list[ReceivedMessage] = []
        self.corrupt: list[CorruptRecord] = []
        # What the last sound record looked like; before the first, like none.
        self.magic = -1
        self.shape_bits = 0
        self.topic = ""
        self.topic_field = b""

    def run(self) -> None:
        # The hot loop of every consumer, hence: one unpack for the numbers, one comparison for the topic (shared by
        # all messages of a response, so it need not be decoded again), and slots filled without a constructor.
        buffer, source, append = self.buffer, self.source, self.messages.append
        new, message_type = ReceivedMessage.__new__, ReceivedMessage
        position, size = 0, len(buffer)
        while position < size:
            magic, shape_bits, topic, topic_field = self.magic, self.shape_bits, self.topic, self.topic_field
            topic_field_size = len(topic_field)
            body_at = BODY_AT[(shape_bits & HOST_BITS) >> 4]
            unpack = _HEADS[(shape_bits & HOST_BITS) >> 4].unpack_from
            has_topic = buffer.startswith
            try:
                while position < size:
                    total, record_magic, queue_offset, sys_flag, body_size = unpack(buffer, position)
                    topic_at = position + body_at + body_size
                    if (
                        record_magic != magic
                        or sys_flag & _SHAPE_BITS != shape_bits
                        or not has_topic(topic_field, topic_at)
                    ):
                        break
                    properties_at = topic_at + topic_field_size + 2
                    end = position + total
                    properties_size = buffer[properties_at - 2] << 8 | buffer[properties_at - 1]
                    if properties_at + properties_size != end or end > size:
                        break
                    message = new(message_type)
                    message.topic = topic
                    message.queue_offset = queue_offset
                    message.body_size = body_size
                    message.store_size = total
                    message._source = source
                    message._position = position
                    message._properties_at = properties_at
                    message._stored_sys_flag = sys_flag
                    message._body = None
                    message._header = None
                    message._properties = None
                    message.consume_started = None
                    append(message)
                    position = end
                else:
                    return
            except (struct.error, IndexError):
                pass
            position = self.step(position)

    def step(self, position: int) -> int:
        """Take the record at `position`, sound or not; the next one's position."""
        buffer = self.buffer
        left = len(buffer) - position
        if left < 8:
            return self._damaged(position, f"{left} bytes are too few for a record", ())
        total: int
        magic: int
        total, magic = _SIZE_AND_MAGIC.unpack_from(buffer, position)
        if magic == MAGIC_BLANK and total >= 8:
            return position + min(total, left)
        size_bytes = TOPIC_SIZE_BYTES.get(magic)
        if size_bytes is None:
            return self._damaged(position, f"its magic is {magic:#010x}, which no message has", (1, 2))
        shape = _shape_at(buffer, position, size_bytes)
        if shape is None or shape.end != position + total:
            reason = f"its size is {total} bytes, {left} are left"
            if total <= left:
                fields = "run past the end" if shape is None else f"take {shape.end - position}"
                reason = f"its size is {total} bytes, its fields {fields}"
            return self._damaged(position, reason, (size_bytes,))
        topic_field = buffer[shape.topic_at - size_bytes : shape.properties_at - _U16.size]
        try:
            topic = topic_field[size_bytes:].decode()
        except UnicodeDecodeError:
            return self._damaged(position, "its topic is not UTF-8", (size_bytes,))
        self._take(position, shape, topic)
        self.magic, self.topic, self.topic_field = magic, topic, topic_field
        # Inner batches are never taken by `run`, so they leave no shape for it.
        self.shape_bits = shape.sys_flag & (HOST_BITS if is_inner_batch(shape.sys_flag) else _SHAPE_BITS)
        return shape.end

    def _take(self, position: int, shape: _Shape, topic: str) -> None:
        message = ReceivedMessage.__new__(ReceivedMessage)
        message.topic = topic
        message.queue_offset = shape.queue_offset
        message.body_size = shape.body_size
        message.store_size = shape.total
        message._source = self.source
        message._position = position
        message._properties_at = shape.properties_at
        message._stored_sys_flag = shape.sys_flag
        message._body = message._header = message._properties = message.consume_started = None
        if self.source.unwrap and is_inner_batch(shape.sys_flag):
            try:
                self.messages += self._unwrapped(message)
                return
            except (CorruptMessageError, MissingCodecError):
                # Unlike a damaged record it is known by offset and id: it stays, and says at `.body` what is wrong.
                pass
        self.messages.append(message)

    def _unwrapped(self, batch: ReceivedMessage) -> list[ReceivedMessage]:
        """The messages of an inner batch: the batch's offset is its first message's, the rest follow (as Java)."""
        messages: list[ReceivedMessage] = []
        header = batch._head()
        source = MessageSource(broker_name=self.source.broker_name, queue=self.source.queue)
        for index, item in enumerate(decode_batch(self.source.stored_body(batch))):
            properties = decode_properties(item.properties)
            self.source.add_offsets(properties)
            message = ReceivedMessage(
                batch.topic,
                item.body,
                properties=properties,
                queue_offset=batch.queue_offset + index,
                sys_flag=batch.sys_flag,
                # The record's checksum is the whole batch's, and Java carries no more over than this.
                header=header._replace(flag=item.flag, body_crc=0, reconsume_times=0, prepared_transaction_offset=0),
            )
            message._source = source
            messages.append(message)
        return messages

    def _damaged(self, position: int, reason: str, topic_size_bytes: tuple[int, ...]) -> int:
        """Report the record at `position`, or the one before it if that is to blame; the next one's position."""
        inside = self._begun_inside_the_last(position)
        if inside is not None:
            last = self.messages.pop()
            reason = "another record begins inside its properties: its end is missing"
            self.corrupt.append(CorruptRecord(last._position, inside - last._position, reason))
            return inside
        end = self._next_boundary(position, topic_size_bytes)
        self.corrupt.append(CorruptRecord(position, end - position, reason))
        return end

    def _begun_inside_the_last(self, position: int) -> int | None:
        """Where the true record begins, if the one before lost its last bytes and took this one's for its own.

        Only properties can be completed so: a body or topic with bytes missing shifts a length that is checked.
        """
        if not self.messages:
            return None
        last = self.messages[-1]
        if last._position + last.store_size != position or last._source is not self.source:
            return None
        return self._find_sound(last._properties_at + _MAGIC_AT, position + _MAGIC_AT)

    def _next_boundary(self, position: int, topic_size_bytes: tuple[int, ...]) -> int:
        """Where the record after a damaged one begins."""
        buffer, size = self.buffer, len(self.buffer)
        if size - position < MIN_RECORD_SIZE:
            return size
        declared: int = position + _U32.unpack_from(buffer, position)[0]
        if not position + MIN_RECORD_SIZE <= declared <= size:
            declared = 0
        described = [
            shape.end for width in topic_size_bytes if (shape := _shape_at(buffer, position, width)) is not None
        ]
        if declared in described:
            return declared
        for end in sorted((declared, *described)):  # the nearest: a damaged size may be that of two records
            if end and (end == size or _sound_at(buffer, end)):
                return end
        found = self._find_sound(position + _MAGIC_AT + 1, size)
        return size if found is None else found

    def _find_sound(self, start: int, end: int) -> int | None:
        """The first sound record whose magic begins at `start` or later, and before `end`."""
        end += len(_MAGIC_PREFIX) - 1
        found = self.buffer.find(_MAGIC_PREFIX, start, end)
        while found >= 0 and not _sound_at(self.buffer, found - _MAGIC_AT):
            found = self.buffer.find(_MAGIC_PREFIX, found + 1, end)
        return None if found < 0 else found - _MAGIC_AT
