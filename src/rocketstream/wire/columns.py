"""Pull responses as Arrow columns, for Spark: many messages at once, with no Python work for each.

The rule of this file: its rows are the messages that `record_decoder` finds in the same bytes, with the same values
(properties as stored, without the queue's offsets of RES-05). Records that are like most go through numpy and Arrow
whole; the decoder itself reads the others: compressed or damaged bodies, inner batches, properties that need its
rules, and all of a response in which a record is damaged. What no column asks for is not read.

Some hundred calls into numpy and Arrow cost what a few hundred messages cost: give it several responses at a time.
numpy and pyarrow come with the `spark` extra; nothing else in `wire/` needs them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final, NamedTuple
from zlib import crc32

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from rocketstream.errors import ConfigurationError, CorruptMessageError, MissingCodecError, RocketStreamError
from rocketstream.message import MessageQueue, ReceivedMessage
from rocketstream.property_names import PropertyName
from rocketstream.wire.property_table import PropertyTable, cut, is_utf8
from rocketstream.wire.record_decoder import decode_records
from rocketstream.wire.record_table import Mask, RecordTable, response_starts
from rocketstream.wire.sysflag import COMPRESSED, INNER_BATCH, NEED_UNWRAP

_TYPES: Final = {
    "topic": pa.string(),
    "broker_name": pa.string(),
    "queue_id": pa.int32(),
    "queue_offset": pa.int64(),
    "message_id": pa.string(),
    "tags": pa.string(),
    "keys": pa.string(),
    "body": pa.binary(),
    "born_timestamp": pa.timestamp("us", tz="UTC"),
    "store_timestamp": pa.timestamp("us", tz="UTC"),
    "reconsume_times": pa.int32(),
    "properties": pa.map_(pa.string(), pa.string()),
}
COLUMNS: Final = tuple(_TYPES)

#: Those that are read out of a message's properties.
_FROM_PROPERTIES: Final = frozenset({"message_id", "tags", "keys", "properties"})
# Milliseconds beyond this are no microseconds of 64 bits.
_MAX_MILLIS: Final = (2**63 - 1) // 1000
# Arrow's strings and binaries count their bytes in 31 bits.
_MAX_BYTES: Final = 2**31 - 1
_LEAST: Final = -(2**63)
_MOST: Final = 2**63 - 1

# glibc gives memory of this size back to the system at once, until it has seen a larger piece come and go. Without
# that, a third of the time here goes into getting the same pages again for each batch. (Elsewhere it does nothing.)
np.empty(16 * 1024 * 1024, np.uint8)


class Pulled(NamedTuple):
    """The body of a pull response, the queue that was asked, and the offsets that are wanted of it.

    `start_offset` matters for inner batches, which come whole; messages at `end_offset` or beyond are left out.
    """

    queue: MessageQueue
    body: bytes
    start_offset: int | None = None
    end_offset: int | None = None


class Unreadable(NamedTuple):
    """What could not be read: the body of one message, which is null in its row; or, without an offset, bytes of a
    response that are no message and have no row.
    """

    queue: MessageQueue
    queue_offset: int | None
    error: RocketStreamError


class Columns(NamedTuple):
    """The messages of some pull responses, in their order, and what of them could not be read."""

    batch: pa.RecordBatch
    unreadable: list[Unreadable]


def arrow_schema(columns: Sequence[str] = COLUMNS) -> pa.Schema:
    """The Arrow schema of some columns: what PySpark makes of the same ones."""
    unknown = [name for name in columns if name not in _TYPES]
    if unknown or not columns:
        wrong = f"column {unknown[0]!r} does not exist" if unknown else "no column is asked for"
        raise ConfigurationError(f"{wrong}: a message has {', '.join(COLUMNS)}")
    return pa.schema([(name, _TYPES[name]) for name in columns])


def read_columns(pulled: Iterable[Pulled], columns: Sequence[str] = COLUMNS) -> Columns:
    """The messages of some pull responses as one Arrow batch; bytes that cannot be read are reported, not raised."""
    schema = arrow_schema(columns)
    parts = list(pulled)
    buffer = b"".join([part.body for part in parts])
    slow = _SlowRows(parts, columns, len(buffer))
    fast = _FastRows(parts, columns, buffer, slow)
    slow.read()
    batch = pa.RecordBatch.from_arrays(fast.arrays(), schema=schema)
    if slow.rows:
        both = pa.Table.from_batches([batch, pa.RecordBatch.from_pylist(slow.rows, schema=schema)]).combine_chunks()
        order = np.argsort(np.concatenate((fast.table.starts, slow.positions)), kind="stable")
        (batch,) = both.take(order).combine_chunks().to_batches()
    return Columns(batch, slow.unreadable)


class _SlowRows:
    """The rows that the record decoder reads, one by one."""

    __slots__ = ("_columns", "_ends", "_parts", "_size", "_stretches", "positions", "rows", "unreadable")

    def __init__(self, parts: Sequence[Pulled], columns: Sequence[str], size: int) -> None:
        self._parts = parts
        self._columns = columns
        self._size = size
        self._ends = np.cumsum([len(part.body) for part in parts], dtype=np.int64)
        self._stretches: list[tuple[int, int, int]] = []
        self.rows: list[dict[str, object]] = []
        #: Where the record of each row begins: the order of all rows.
        self.positions: list[int] = []
        self.unreadable: list[Unreadable] = []

    def add_response(self, part: int) -> None:
        """Have a whole response read."""
        end = int(self._ends[part])
        self._stretches.append((end - len(self._parts[part].body), end, part))

    def add_records(self, table: RecordTable) -> None:
        """Have some sound records read."""
        self._stretches += zip(table.starts.tolist(), table.ends.tolist(), table.part.tolist(), strict=True)

    def read(self) -> None:
        for start, end, part in sorted(self._stretches):
            queue, body, first, limit = self._parts[part]
            at = start - (int(self._ends[part]) - len(body))
            messages, corrupt = decode_records(body[at : at + end - start], queue=queue)
            # Only whole responses have damage: a record that comes alone has been found sound.
            for damage in corrupt:
                error = CorruptMessageError(damage.reason, position=damage.position)
                self.unreadable.append(Unreadable(queue, None, error))
            for message in messages:
                offset = message.queue_offset
                if (first is None or first <= offset) and (limit is None or offset < limit):
                    self.positions.append(start)
                    self.rows.append({name: self._value(message, name, at) for name in self._columns})

    def _value(self, message: ReceivedMessage, name: str, at: int) -> object:
        if name == "body":
            return self._body(message, at)
        value = getattr(message, name)
        if name == "properties":
            return list(value.items())
        if name in ("born_timestamp", "store_timestamp"):
            return value * 1000 if -_MAX_MILLIS <= value <= _MAX_MILLIS else None
        if name == "queue_offset":
            # A batch's later messages count on from its offset, which may be anything in bytes gone wrong.
            return value if value <= _MOST else None
        return value

    def _body(self, message: ReceivedMessage, at: int) -> bytes | None:
        try:
            body = message.body
        except (CorruptMessageError, MissingCodecError) as caught:
            error: RocketStreamError = caught
            if isinstance(error, CorruptMessageError):
                # The decoder was given this stretch only; a person looks into the response.
                error = CorruptMessageError(error.reason, position=at + message._position)
            self.unreadable.append(Unreadable(message.queue, message.queue_offset, error))
            return None
        self._size += len(body)
        _check_size(self._size)
        return body


class _FastRows:
    """The rows that are read together; whatever is not fit for that goes to the slow ones."""

    __slots__ = ("_buffer", "_columns", "_parts", "_properties", "table")

    def __init__(self, parts: Sequence[Pulled], columns: Sequence[str], buffer: bytes, slow: _SlowRows) -> None:
        _check_size(len(buffer))
        self._parts = parts
        self._columns = columns
        self._buffer = buffer
        self._properties: PropertyTable | None = None
        self.table = self._walk(slow)
        if len(self.table):
            self._leave_damaged(slow)
            self._leave_bodies(slow)
        if len(self.table):
            self._leave_properties(slow)

    def _walk(self, slow: _SlowRows) -> RecordTable:
        starts, parts, damaged = response_starts(self._buffer, [len(part.body) for part in self._parts])
        for part in damaged:
            slow.add_response(part)
        return RecordTable.read(self._buffer, starts, parts)

    def _leave_damaged(self, slow: _SlowRows) -> None:
        """A damaged record makes its neighbours' boundaries a question, which the decoder answers."""
        table = self.table
        damaged = ~table.sound
        sound = table.select(table.sound)
        topic = sound.topic(self._buffer)
        if topic is None or not is_utf8(topic):
            topics = cut(self._buffer, sound.topic_at, sound.topic_end, pa.binary())
            wrong = [topic for topic in topics.unique().to_pylist() if not is_utf8(topic)]
            damaged[table.sound] = pc.is_in(topics, pa.array(wrong, pa.binary())).to_numpy(zero_copy_only=False)
        if damaged.any():
            parts = np.unique(table.part[damaged])
            for part in parts.tolist():
                slow.add_response(part)
            self.table = table.select(~np.isin(table.part, parts))

    def _leave_bodies(self, slow: _SlowRows) -> None:
        """Keep the records whose body is stored as it was sent, and whose offset is wanted."""
        flags = self.table.head["sys_flag"]
        batch = INNER_BATCH | NEED_UNWRAP
        odd = flags & batch == batch
        if "body" in self._columns:
            odd |= flags & COMPRESSED != 0
        slow.add_records(self.table.select(odd))
        first = [_LEAST if part.start_offset is None else part.start_offset for part in self._parts]
        last = [_MOST if part.end_offset is None else part.end_offset - 1 for part in self._parts]
        offsets, parts = self.table.head["queue_offset"], self.table.part
        wanted = (offsets >= np.array(first, np.int64)[parts]) & (offsets <= np.array(last, np.int64)[parts])
        self.table = self.table.select(wanted & ~odd)
        if "body" in self._columns:
            self._leave(_changed_bodies(self._buffer, self.table), slow)

    def _leave_properties(self, slow: _SlowRows) -> None:
        if _FROM_PROPERTIES.isdisjoint(self._columns):
            return
        properties = PropertyTable.read(self._buffer, self.table)
        odd = properties.unreadable()
        if "properties" in self._columns:
            odd |= properties.repeating()
        if odd.any():
            self._leave(odd, slow)
            properties = PropertyTable.read(self._buffer, self.table)
        self._properties = properties

    def _leave(self, odd: Mask, slow: _SlowRows) -> None:
        if odd.any():
            slow.add_records(self.table.select(odd))
            self.table = self.table.select(~odd)

    def arrays(self) -> list[pa.Array]:
        if not len(self.table):
            return [pa.array([], _TYPES[name]) for name in self._columns]
        return [self._array(name) for name in self._columns]

    def _array(self, name: str) -> pa.Array:
        table = self.table
        match name:
            case "topic":
                topic = table.topic(self._buffer)
                if topic is not None:
                    return pa.repeat(pa.array([topic.decode()], pa.string())[0], len(table))
                return cut(self._buffer, table.topic_at, table.topic_end, pa.string())
            case "broker_name":
                names = pa.array([part.queue.broker_name for part in self._parts], pa.string())
                return names.take(pa.array(table.part))
            case "queue_id":
                # The queue asked, not the stored id: with static topics the two differ.
                return pa.array(np.array([part.queue.queue_id for part in self._parts], np.int32)[table.part])
            case "queue_offset":
                return pa.array(table.head["queue_offset"].astype(np.int64))
            case "body":
                return cut(self._buffer, table.body_at, table.body_end, pa.binary())
            case "born_timestamp":
                return _moments(table.head["born_timestamp"])
            case "store_timestamp":
                return _moments(table.store_timestamp)
            case "reconsume_times":
                return pa.array(table.tail["reconsume_times"].astype(np.int32))
        properties = self._properties
        assert properties is not None
        if name == "properties":
            return properties.maps()
        if name == "message_id":
            return self._message_ids(properties.values(PropertyName.UNIQUE_KEY))
        return properties.values(PropertyName.TAGS if name == "tags" else PropertyName.KEYS)

    def _message_ids(self, unique_ids: pa.Array) -> pa.Array:
        """The producer's unique ids, and offset ids where there is none."""
        if not unique_ids.null_count:
            return unique_ids
        missing = unique_ids.is_null()
        table = self.table.select(missing.to_numpy(zero_copy_only=False))
        rows, ids = [], []
        for which, digits in table.offset_ids(self._buffer):
            edges = np.arange(len(which) + 1) * (len(digits) // max(len(which), 1))
            rows.append(which)
            ids.append(cut(digits, edges[:-1], edges[1:], pa.string()))
        order = np.argsort(np.concatenate(rows))
        return pc.replace_with_mask(unique_ids, missing, pa.concat_arrays(ids).take(pa.array(order)))


def _changed_bodies(buffer: bytes, table: RecordTable) -> Mask:
    """Which records have a body that does not fit its checksum."""
    stored = table.head["body_crc"].astype(np.uint32)
    # Nobody has a quicker checksum than zlib, and it takes one body at a time: the one thing done for each message.
    bodies = zip(table.body_at.tolist(), table.body_end.tolist(), strict=True)
    computed = np.array([crc32(buffer[start:end]) for start, end in bodies], np.uint32)
    # 0 is what a broker that computes no checksum leaves there; an empty body has nothing to check.
    changed: Mask = ((computed ^ stored) & 0x7FFFFFFF != 0) & (stored != 0) & (table.body_end > table.body_at)
    return changed


def _moments(millis: npt.NDArray[Any]) -> pa.Array:
    """Spark's timestamps; null where a number of milliseconds is too large to be one."""
    numbers = millis.astype(np.int64)
    too_large = (numbers > _MAX_MILLIS) | (numbers < -_MAX_MILLIS)
    return pa.array(numbers * 1000, mask=too_large if too_large.any() else None).cast(_TYPES["born_timestamp"])


def _check_size(size: int) -> None:
    if size > _MAX_BYTES:
        raise ConfigurationError(
            f"these responses take {size} bytes, a batch of columns has room for {_MAX_BYTES}: read fewer at a time"
        )
