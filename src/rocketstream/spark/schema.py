"""The columns of a read as Spark knows them, and what a user's `.schema()` asks for.

The rule of this file: pure. A schema of a user's is a choice of columns, in any order; it changes no types.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql.types import (
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from rocketstream.errors import ConfigurationError
from rocketstream.spark.option_values import shorten
from rocketstream.wire.columns import COLUMNS

_TYPES: Final[dict[str, DataType]] = {
    "topic": StringType(),
    "broker_name": StringType(),
    "queue_id": IntegerType(),
    "queue_offset": LongType(),
    "message_id": StringType(),
    "tags": StringType(),
    "keys": StringType(),
    "body": BinaryType(),
    "born_timestamp": TimestampType(),
    "store_timestamp": TimestampType(),
    "reconsume_times": IntegerType(),
    "properties": MapType(StringType(), StringType()),
}


def full_schema() -> StructType:
    """All columns of a message."""
    return StructType([StructField(name, _TYPES[name]) for name in COLUMNS])


def columns_of(schema: StructType) -> tuple[str, ...]:
    """The columns that a schema asks for, in its order; a wrong name or type is refused."""
    if not schema.fields:
        raise ConfigurationError(f"the schema asks for no column: a message has {', '.join(COLUMNS)}")
    for field in schema.fields:
        expected = _TYPES.get(field.name)
        if expected is None:
            raise ConfigurationError(
                f"the schema asks for column {shorten(field.name)!r}, which a message does not have: it has"
                f" {', '.join(COLUMNS)}"
            )
        if _comparable(field.dataType) != _comparable(expected):
            raise ConfigurationError(
                f"the schema asks for column {field.name} as {field.dataType.simpleString()}: it is"
                f" {expected.simpleString()} (cast it in the query)"
            )
    names = [field.name for field in schema.fields]
    if len(set(names)) != len(names):
        raise ConfigurationError(f"the schema asks for a column twice: {', '.join(names)}")
    return tuple(names)


def _comparable(kind: DataType) -> str:
    return kind.simpleString()
