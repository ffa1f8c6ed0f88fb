"""Rows as requests: each gets its id and its place in a batch, without Python code for each row but its hash.

The rule of this file: rows with one sharding key go to one queue, in their order, whatever they are packed with. A row
that cannot share a request (delayed, or large enough to be compressed) leaves by itself, behind what its queue has
before it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from rocketstream.message import Message, MessageQueue
from rocketstream.producer.outgoing import Outgoing, Preparation, process_ids
from rocketstream.property_names import PropertyName
from rocketstream.spark.row_ids import ROW_ID, RowIds, TaskId
from rocketstream.spark.write_columns import RowChecker, Rows, bad_row
from rocketstream.spark.write_options import WriteOptions, check_target
from rocketstream.wire.batch import MIN_ITEM_SIZE
from rocketstream.wire.java import java_string_hash
from rocketstream.wire.properties import BARE_END, BARE_START, MAX_PROPERTIES_SIZE, decode_properties

Positions: TypeAlias = npt.NDArray[np.int64]
UniqueIdParts: TypeAlias = tuple[bytes, list[bytes]]

_MOST_ROWS: Final = 10_000
"""So many rows are worked on at a time: fewer than there are unique ids in a millisecond."""
_MOST_BYTES: Final = 16 * 1024 * 1024
"""And about so many bytes."""
_MOST_KEYS: Final = 100_000

_ITEM_HEAD: Final = np.dtype([("total", ">i4"), ("magic", ">i4"), ("crc", ">i4"), ("flag", ">i4"), ("body", ">u4")])
_ITEM_MIDDLE: Final = np.dtype(">u2")
_START: Final = f"{ROW_ID}\x01".encode()


@dataclass(slots=True)
class Request:
    """Rows that leave together."""

    out: Outgoing
    rows: Positions
    """Where they stand in their partition."""
    first_id: str
    """The row id of the first."""
    queue: MessageQueue | None
    """Where they have to go, behind all that went there before; None: to any queue."""

    @property
    def size(self) -> int:
        """What it holds in memory, for bounds."""
        return len(self.out.body)


@dataclass(slots=True)
class Lane:
    """What waits for company on its way to one queue of a topic, or to any of them."""

    topic: str
    queue: MessageQueue | None
    parts: list[bytes] = field(default_factory=list)
    rows: list[Positions] = field(default_factory=list)
    size: int = 0
    count: int = 0
    first_id: str = ""
    message_id: str = ""


class RequestMaker:
    """Makes the requests of one task. `queues` gives the queues of a topic, the same for the whole task.

    Not for several threads.
    """

    def __init__(
        self,
        options: WriteOptions,
        task: TaskId,
        preparation: Preparation,
        queues: Callable[[str], Sequence[MessageQueue]],
        wall_ms: Callable[[], int],
    ) -> None:
        self._options = options
        self._preparation = preparation
        self._queues = queues
        self._wall_ms = wall_ms
        namespace = options.link.namespace
        self._checker = RowChecker(
            options.topic,
            options.max_message_size,
            lambda topic: check_target(topic, namespace),
            drop_reserved=options.drop_reserved,
        )
        self._row_ids = RowIds(task)
        self._lanes: dict[tuple[str, MessageQueue | None], Lane] = {}
        self._waiting = 0
        self._hashes: dict[str, int] = {}
        self.taken = 0
        """How many rows have come."""

    def take(self, batch: pa.RecordBatch) -> Iterator[Request]:
        """The requests that are full with these rows; what is left waits for more."""
        steps = max(-(-batch.num_rows // _MOST_ROWS), -(-batch.nbytes // _MOST_BYTES), 1)
        length = max(-(-batch.num_rows // steps), 1)
        for start in range(0, batch.num_rows, length):
            part = batch.slice(start, length)
            rows = self._checker.check(part, self.taken)
            self.taken += part.num_rows
            yield from self._pack(rows)
            if self._waiting > self._options.max_in_flight_bytes:
                yield from self.rest()

    def rest(self) -> Iterator[Request]:
        """Whatever waits for company."""
        for lane in self._lanes.values():
            if lane.count:
                yield self._full(lane)

    # --- packing ----------------------------------------------------------------------------------------------------

    def _pack(self, rows: Rows) -> Iterator[Request]:
        ids = self._row_ids.next(rows.contents())
        alone = rows.sizes >= self._options.single_from
        if rows.delay_levels is not None:
            alone |= rows.delay_levels > 0
        items, unique_ids = self._items(rows, ids, alone)
        lanes, codes = self._lanes_of(rows)
        order = np.arange(len(rows))
        if len(lanes) > 1:
            order = np.argsort(codes, kind="stable")
            items, ids = items.take(pa.array(order)), ids.take(pa.array(order))
        table = _Items(items, ids, order, unique_ids)
        alone = alone[order]
        bounds = np.searchsorted(codes[order], np.arange(len(lanes) + 1)) if len(lanes) > 1 else [0, len(rows)]
        for lane, start, end in zip(lanes, bounds[:-1], bounds[1:], strict=True):
            at = int(start)
            for single in [*(np.flatnonzero(alone[start:end]) + start).tolist(), int(end)]:
                yield from self._run(lane, table, at, single, rows.first_row)
                if single < end:
                    yield from self._single(lane, rows, int(order[single]), table.row_id(single))
                at = single + 1

    def _run(self, lane: Lane, table: _Items, start: int, end: int, first_row: int) -> Iterator[Request]:
        """Put a run of rows into a lane, and give out what becomes full."""
        options = self._options
        while start < end:
            most = min(start + options.batch_size - lane.count, end)
            fits = table.fitting(start, options.batch_bytes - lane.size)
            stop = min(most, fits)
            if stop <= start:
                if lane.count:
                    yield self._full(lane)
                    continue
                stop = start + 1  # more than a batch by itself
            if not lane.count:
                lane.first_id, lane.message_id = table.row_id(start), table.message_id(start)
            part = table.encoded(start, stop)
            lane.parts.append(part)
            lane.rows.append(table.order[start:stop] + first_row)
            lane.size += len(part)
            lane.count += stop - start
            self._waiting += len(part)
            if lane.count >= options.batch_size or lane.size >= options.batch_bytes:
                yield self._full(lane)
            start = stop

    def _full(self, lane: Lane) -> Request:
        """What a lane has, as a request; the lane is empty then."""
        out = self._preparation.encoded_batch(lane.topic, b"".join(lane.parts), lane.message_id, lane.count)
        request = Request(out, np.concatenate(lane.rows), lane.first_id, lane.queue)
        self._waiting -= lane.size
        lane.parts, lane.rows, lane.size, lane.count = [], [], 0, 0
        return request

    def _single(self, lane: Lane, rows: Rows, at: int, row_id: str) -> Iterator[Request]:
        if lane.queue is not None and lane.count:
            yield self._full(lane)
        text = b"" if rows.properties is None else rows.properties[at].as_py()
        properties = decode_properties(text.decode())
        message = Message(
            lane.topic,
            rows.bodies[at].as_py(),
            tags=properties.pop(PropertyName.TAGS, None),
            keys=properties.pop(PropertyName.KEYS, None),
            sharding_key=properties.pop(PropertyName.SHARDING_KEY, None),
            properties={**properties, ROW_ID: row_id},
            delay_level=0 if rows.delay_levels is None else int(rows.delay_levels[at]),
        )
        position = np.array([rows.first_row + at])
        yield Request(self._preparation.single(message), position, row_id, lane.queue)

    # --- queues -----------------------------------------------------------------------------------------------------

    def _lanes_of(self, rows: Rows) -> tuple[list[Lane], Positions]:
        """The lanes of some rows, and for each row the number of its lane."""
        if rows.topics is None:
            assert self._options.topic is not None
            topics, codes = [self._options.topic], np.zeros(len(rows), np.int64)
        else:
            topics = rows.topics.dictionary.to_pylist()
            codes = rows.topics.indices.to_numpy().astype(np.int64)
        if rows.sharding_keys is None:
            return [self._lane(topic, None) for topic in topics], codes
        # Each topic has a lane for rows without a key, and one for each of its queues.
        queues = [self._queues(topic) for topic in topics]
        firsts = np.cumsum([0, *(len(of_topic) + 1 for of_topic in queues)])
        counts = np.array([len(of_topic) for of_topic in queues])
        hashes = np.array([self._hash(key) for key in rows.sharding_keys.dictionary.to_pylist()], np.int64)
        keys = rows.sharding_keys.indices.fill_null(-1).to_numpy(zero_copy_only=False)
        chosen = np.where(keys >= 0, hashes[keys] % counts[codes] + 1, 0) + firsts[codes]
        used, found = np.unique(chosen, return_inverse=True)
        lanes: list[Lane] = []
        for number in used.tolist():
            of = int(np.searchsorted(firsts, number, "right")) - 1
            at = number - int(firsts[of])
            lanes.append(self._lane(topics[of], queues[of][at - 1] if at else None))
        return lanes, found.astype(np.int64)

    def _lane(self, topic: str, queue: MessageQueue | None) -> Lane:
        lane = self._lanes.get((topic, queue))
        if lane is None:
            lane = self._lanes[topic, queue] = Lane(topic, queue)
        return lane

    def _hash(self, key: str) -> int:
        found = self._hashes.get(key)
        if found is None:
            if len(self._hashes) >= _MOST_KEYS:
                self._hashes.clear()
            # As `queue_for_key`: the remainder is taken of the hash code made positive.
            found = self._hashes[key] = abs(java_string_hash(key))
        return found

    # --- bytes ------------------------------------------------------------------------------------------------------

    def _items(self, rows: Rows, ids: pa.Array, alone: npt.NDArray[np.bool_]) -> tuple[pa.Array, UniqueIdParts]:
        """Each row as a part of a batch (see `wire.batch`), and the unique ids; of those alone the body is left out."""
        start, ends = process_ids.several(self._wall_ms(), len(rows))
        own = [] if rows.properties is None else [rows.properties]
        unique = BARE_START + start
        parts = [*own, _START, ids, b"\x02" + unique, pa.array(ends, pa.binary()), BARE_END]
        properties = pc.binary_join_element_wise(*parts, b"")
        lengths = pc.binary_length(properties).to_numpy(zero_copy_only=False)
        if len(lengths) and int(lengths.max()) > MAX_PROPERTIES_SIZE:
            at = int(np.argmax(lengths > MAX_PROPERTIES_SIZE))
            raise bad_row(
                rows.first_row + at,
                f"tags, keys and properties take {lengths[at]} bytes with the sink's own:"
                f" RocketMQ carries at most {MAX_PROPERTIES_SIZE}",
            )
        bodies, sizes = rows.bodies, rows.sizes
        if alone.any():
            bodies = pc.if_else(pa.array(alone), pa.scalar(b"", pa.binary()), bodies)
            sizes = np.where(alone, 0, sizes)
        heads = np.zeros(len(rows), _ITEM_HEAD)
        heads["total"] = MIN_ITEM_SIZE + sizes + lengths
        heads["body"] = sizes
        middles = _fixed(lengths.astype(_ITEM_MIDDLE))
        return pc.binary_join_element_wise(_fixed(heads), bodies, middles, properties, b""), (start, ends)


class _Items:
    """The parts of batches of some rows, lane by lane."""

    __slots__ = ("_bytes", "_ids", "_offsets", "_unique_ids", "order")

    def __init__(self, items: pa.Array, ids: pa.Array, order: Positions, unique_ids: UniqueIdParts) -> None:
        _, offsets, data = items.buffers()
        begin = items.offset
        self._offsets = np.frombuffer(offsets, np.int32)[begin : begin + len(items) + 1].astype(np.int64)
        self._bytes = memoryview(data) if data is not None else memoryview(b"")
        self._ids = ids
        self._unique_ids = unique_ids
        self.order = order
        """Which row each of them is."""

    def row_id(self, at: int) -> str:
        """The sink's id of a row."""
        found: bytes = self._ids[at].as_py()
        return found.decode()

    def message_id(self, at: int) -> str:
        """The producer's id of a row's message."""
        start, ends = self._unique_ids
        return (start + ends[int(self.order[at])]).decode()

    def fitting(self, start: int, room: int) -> int:
        """Up to which row those from `start` on take no more than some room."""
        return int(np.searchsorted(self._offsets, self._offsets[start] + room, "right")) - 1

    def encoded(self, start: int, stop: int) -> bytes:
        """Rows that follow one another."""
        return bytes(self._bytes[int(self._offsets[start]) : int(self._offsets[stop])])


def _fixed(values: npt.NDArray[np.generic]) -> pa.Array:
    """Numbers of a fixed size, each as its bytes."""
    kind = pa.binary(values.dtype.itemsize)
    return pa.Array.from_buffers(kind, len(values), [None, pa.py_buffer(values.tobytes())]).cast(pa.binary())
