"""The columns of a write: which there may be, and what each of their values must be.

The rule of this file: pure. Columns are checked before the first task, values where they are met, all rows of a column
at a time; an error names the row and says what is wrong with it. What comes out is what a message carries: binary
bodies and properties as they stand on the wire.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.types import (
    BinaryType,
    ByteType,
    DataType,
    IntegerType,
    LongType,
    MapType,
    ShortType,
    StringType,
    StructType,
)

from rocketstream.errors import ConfigurationError, RocketStreamError
from rocketstream.property_names import RESERVED_PROPERTIES, PropertyName
from rocketstream.spark.option_values import shorten
from rocketstream.spark.row_ids import ROW_ID

COLUMNS: Final[dict[str, tuple[str, tuple[type[DataType], ...]]]] = {
    "body": ("binary or string", (BinaryType, StringType)),
    "topic": ("string", (StringType,)),
    "tags": ("string", (StringType,)),
    "keys": ("string", (StringType,)),
    "sharding_key": ("string", (StringType,)),
    "delay_level": ("int", (IntegerType, LongType, ShortType, ByteType)),
    "properties": ("map<string,string>", (MapType,)),
}
MAX_DELAY_LEVEL: Final = 18
# What a text of a message may not contain: they separate properties on the wire.
_SEPARATORS: Final = "[\x01\x02]"
# RocketMQ's own, and ours; the sharding key has a column.
_RESERVED: Final = pa.array(sorted({*RESERVED_PROPERTIES, ROW_ID, PropertyName.SHARDING_KEY}), pa.string())
_EMPTY: Final = pa.scalar(b"", pa.binary())


class BadRowError(RocketStreamError, ValueError):
    """A row that cannot be sent as it is; the text says which one, and why."""


def check_columns(schema: StructType, topic: str | None) -> None:
    """Refuse columns that there are not, of another type, twice, or too few; `topic` is the option."""
    names = [field.name for field in schema.fields]
    for field in schema.fields:
        known = COLUMNS.get(field.name)
        if known is None:
            raise ConfigurationError(_unknown(field.name))
        if not isinstance(field.dataType, known[1]) or _wrong_map(field.dataType):
            raise ConfigurationError(
                f"column {field.name} is {shorten(field.dataType.simpleString())}: the rocketmq sink takes it as"
                f" {known[0]} (cast it in the query)"
            )
        if names.count(field.name) > 1:
            raise ConfigurationError(f"column {field.name} is there {names.count(field.name)} times: select it once")
    if "body" not in names:
        raise ConfigurationError(
            "there is no column body, which is what is sent: select one, for example to_json(struct(*)) AS body"
        )
    if topic is None and "topic" not in names:
        raise ConfigurationError("neither option topic nor a column topic says where the rows go: give one")


def _unknown(name: str) -> str:
    close = difflib.get_close_matches(name.lower(), COLUMNS, n=1, cutoff=0.75)
    meant = f"did you mean {close[0]!r}?" if close else f"it takes {', '.join(COLUMNS)} (select what is to be sent)"
    return f"the rocketmq sink has no column {shorten(name)!r}: {meant}"


def _wrong_map(kind: DataType) -> bool:
    return isinstance(kind, MapType) and not (
        isinstance(kind.keyType, StringType) and isinstance(kind.valueType, StringType)
    )


@dataclass(frozen=True, slots=True)
class Rows:
    """Rows whose values are checked, column by column."""

    first_row: int
    bodies: pa.Array
    """Binary, none of them null or empty."""
    sizes: npt.NDArray[np.int64]
    """How many bytes each body has."""
    properties: pa.Array | None
    """Binary, as on the wire, without what the sink adds; None where no row has any."""
    topics: pa.Array | None
    """Dictionary of names; None where all rows go to the topic of the option."""
    sharding_keys: pa.Array | None
    """Dictionary of keys, null where a row has none; None where no row has one."""
    delay_levels: npt.NDArray[np.int64] | None
    """None where no row is delayed."""
    columns: frozenset[str]
    """Which columns there are, with a value or without."""
    default_topic: str | None
    """The topic of the option."""

    def __len__(self) -> int:
        return len(self.bodies)

    def contents(self) -> list[bytes]:
        """Each row as bytes, such that no two rows that differ are the same: what its id is made of.

        A row has the same bytes whatever rows it comes with: its neighbours may be others when a task is tried again.
        """
        parts: list[pa.Array | bytes] = []
        if "topic" in self.columns:
            topics = (self.default_topic or "").encode() if self.topics is None else _binary(self.topics)
            parts += [topics, b"\x02"]
        if "delay_level" in self.columns:
            parts += [b"0" if self.delay_levels is None else _binary(pa.array(self.delay_levels)), b"\x02"]
        if self.columns & {"tags", "keys", "sharding_key", "properties"}:
            # Each ends in one \x02, so the two that follow end them all, whatever the body begins with.
            parts += [b"" if self.properties is None else self.properties, b"\x02\x02"]
        values = pc.binary_join_element_wise(*parts, self.bodies, b"") if parts else self.bodies
        found: list[bytes] = values.to_pylist()
        return found


def _binary(column: pa.Array) -> pa.Array:
    return column.cast(pa.string()).cast(pa.binary())


class RowChecker:
    """Checks the rows of one task as they come. `check_topic` refuses a topic's name."""

    def __init__(
        self,
        topic: str | None,
        max_message_size: int,
        check_topic: Callable[[str], None],
        *,
        drop_reserved: bool = False,
    ) -> None:
        self._topic = topic
        self._max_message_size = max_message_size
        self._check_topic = check_topic
        self._drop_reserved = drop_reserved
        self._good_topics: set[str] = set()

    def check(self, batch: pa.RecordBatch, first_row: int) -> Rows:
        """The rows of a batch, of which the first is the `first_row`-th of its partition."""
        columns = dict(zip(batch.schema.names, map(_usual, batch.columns), strict=True))
        bodies, sizes = self._bodies(columns["body"], first_row)
        keys = _text(columns.get("sharding_key"), "sharding_key", first_row)
        if keys is not None:
            _refuse(
                keys, pc.equal(pc.binary_length(keys), 0), "sharding_key is empty: it must be a text or null", first_row
            )
        levels = _delay_levels(columns.get("delay_level"), first_row)
        return Rows(
            first_row,
            bodies,
            sizes,
            self._properties(columns, keys, first_row),
            self._topics(columns.get("topic"), first_row),
            None if keys is None else keys.dictionary_encode(),
            levels,
            frozenset(columns),
            self._topic,
        )

    def _bodies(self, column: pa.Array, first_row: int) -> tuple[pa.Array, npt.NDArray[np.int64]]:
        if column.null_count:
            _refuse(column, column.is_null(), "body is null: a message needs a body", first_row)
        bodies = column.cast(pa.binary())
        sizes = pc.binary_length(bodies).to_numpy(zero_copy_only=False).astype(np.int64)
        empty = np.flatnonzero(sizes == 0)
        if len(empty):
            raise bad_row(first_row + int(empty[0]), "body is empty: brokers refuse those")
        large = np.flatnonzero(sizes > self._max_message_size)
        if len(large):
            raise bad_row(
                first_row + int(large[0]),
                f"body has {sizes[large[0]]} bytes, more than maxMessageSize={self._max_message_size}"
                " (brokers refuse more than their own maxMessageSize too, 4 MiB by default)",
            )
        return bodies, sizes

    def _properties(self, columns: dict[str, pa.Array], keys: pa.Array | None, first_row: int) -> pa.Array | None:
        tags = _text(columns.get("tags"), "tags", first_row)
        if tags is not None:
            why = "tags={}: a message has one tag; '||' joins them in subscriptions only"
            _refuse(tags, pc.match_substring(tags, "||"), why, first_row, show=True)
        parts = [
            _named(PropertyName.TAGS, tags),
            _named(PropertyName.KEYS, _text(columns.get("keys"), "keys", first_row)),
            _named(PropertyName.SHARDING_KEY, keys),
            _own_properties(columns.get("properties"), first_row, drop_reserved=self._drop_reserved),
        ]
        there = [part for part in parts if part is not None]
        if not there:
            return None
        return there[0] if len(there) == 1 else pc.binary_join_element_wise(*there, b"")

    def _topics(self, column: pa.Array | None, first_row: int) -> pa.Array | None:
        if column is None or column.null_count == len(column):
            if column is not None and self._topic is None and len(column):
                raise bad_row(first_row, "topic is null and there is no option topic")
            return None
        if column.null_count:
            if self._topic is None:
                _refuse(column, column.is_null(), "topic is null and there is no option topic", first_row)
            column = column.fill_null(self._topic)
        encoded = column.dictionary_encode()
        for code, topic in enumerate(encoded.dictionary.to_pylist()):
            if topic in self._good_topics:
                continue
            try:
                self._check_topic(topic)
            except ConfigurationError as error:
                at = int(np.argmax(encoded.indices.to_numpy() == code))
                raise bad_row(first_row + at, str(error)) from None
            self._good_topics.add(topic)
        return encoded


def _usual(column: pa.Array) -> pa.Array:
    """A column in the usual types: `spark.sql.execution.arrow.useLargeVarTypes` makes Spark use large ones."""
    kind = column.type
    if pa.types.is_large_string(kind):
        return column.cast(pa.string())
    if pa.types.is_map(kind) and (pa.types.is_large_string(kind.key_type) or pa.types.is_large_string(kind.item_type)):
        return column.cast(pa.map_(pa.string(), pa.string()))
    return column


def bad_row(row: int, why: str) -> BadRowError:
    """The error of a row, counted from 0 in its partition."""
    return BadRowError(f"row {row} of the partition cannot be sent: {why}")


def _refuse(column: pa.Array, wrong: pa.Array, why: str, first_row: int, *, show: bool = False) -> None:
    """Raise for the first row that is wrong, if one is."""
    found = wrong.fill_null(False).to_numpy(zero_copy_only=False)
    if found.any():
        at = int(np.argmax(found))
        shown = shorten(repr(column[at].as_py()))
        raise bad_row(first_row + at, why.replace("{}", shown) if show else why)


def _text(column: pa.Array | None, name: str, first_row: int) -> pa.Array | None:
    """A column of texts if any row has one; texts that could not be carried are refused."""
    if column is None or column.null_count == len(column):
        return None
    wrong = pc.match_substring_regex(column, _SEPARATORS)
    why = f"{name}={{}} contains \\x01 or \\x02, which separate properties on the wire"
    _refuse(column, wrong, why, first_row, show=True)
    return column


def _delay_levels(column: pa.Array | None, first_row: int) -> npt.NDArray[np.int64] | None:
    if column is None or column.null_count == len(column):
        return None
    levels = column.cast(pa.int64()).fill_null(0)
    wrong = pc.or_(pc.less(levels, 0), pc.greater(levels, MAX_DELAY_LEVEL))
    _refuse(levels, wrong, f"delay_level={{}} must be from 0 (none) to {MAX_DELAY_LEVEL}", first_row, show=True)
    found: npt.NDArray[np.int64] = levels.to_numpy(zero_copy_only=False)
    return found if found.any() else None


def _named(name: str, column: pa.Array | None) -> pa.Array | None:
    """A property of every row that has a text which is not empty (an empty tag or key is none, as in Java)."""
    if column is None:
        return None
    values = column.cast(pa.binary())
    written = pc.binary_join_element_wise(f"{name}\x01".encode(), values, b"\x02", b"")
    return pc.if_else(pc.greater(pc.binary_length(values), 0).fill_null(False), written, _EMPTY)


def _own_properties(column: pa.Array | None, first_row: int, *, drop_reserved: bool) -> pa.Array | None:
    """The user's own properties of every row."""
    if column is None or column.null_count == len(column):
        return None
    if column.null_count:
        column = column.take(pa.array(np.arange(len(column))))  # a map that is null has no entries then
    offsets = column.offsets.to_numpy()
    start, end = int(offsets[0]), int(offsets[-1])
    names, values, offsets = column.keys[start:end], column.items[start:end], offsets - start
    if drop_reserved:
        kept = pc.invert(pc.is_in(names, _RESERVED))
        names, values = names.filter(kept), values.filter(kept)
        offsets = np.concatenate(([0], np.cumsum(kept.to_numpy(zero_copy_only=False))))[offsets]
    if not len(names):
        return None
    _check_entries(names, values, offsets, first_row)
    entries = pc.binary_join_element_wise(names.cast(pa.binary()), b"\x01", values.cast(pa.binary()), b"\x02", b"")
    return pc.binary_join(pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), entries), b"")


def _check_entries(names: pa.Array, values: pa.Array, offsets: npt.NDArray[np.int64], first_row: int) -> None:
    checks: tuple[tuple[pa.Array, str], ...] = (
        (values.is_null(), "is null: leave it out of the map"),
        (pc.is_in(names, _RESERVED), "is RocketMQ's own or this sink's: dropReservedProperties=true leaves such out"),
        (
            pc.or_(pc.equal(pc.binary_length(names), 0), pc.equal(pc.binary_length(values), 0)),
            "has an empty name or value, which RocketMQ drops",
        ),
        (
            pc.or_(pc.match_substring_regex(names, _SEPARATORS), pc.match_substring_regex(values, _SEPARATORS)),
            "contains \\x01 or \\x02, which separate properties on the wire",
        ),
    )
    for wrong, why in checks:
        found = wrong.fill_null(False).to_numpy(zero_copy_only=False)
        if found.any():
            at = int(np.argmax(found))
            row = int(np.searchsorted(offsets, at, "right")) - 1
            shown = f"property {shorten(names[at].as_py())!r}={shorten(repr(values[at].as_py()))}"
            raise bad_row(first_row + row, f"{shown} {why}{_instead(names[at].as_py())}")


def _instead(name: str) -> str:
    columns = {"TAGS": "tags", "KEYS": "keys", "DELAY": "delay_level", PropertyName.SHARDING_KEY: "sharding_key"}
    return f" (there is a column {columns[name]})" if name in columns else ""
