from __future__ import annotations

import pytest
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import IntegerType, MapType, StringType, StructField, StructType

from rocketstream.errors import ConfigurationError
from rocketstream.spark.schema import columns_of, full_schema
from rocketstream.wire.columns import COLUMNS, arrow_schema


def schema(*fields: tuple[str, object]) -> StructType:
    return StructType([StructField(name, kind) for name, kind in fields])  # type: ignore[arg-type]


def test_the_columns_are_those_of_a_message_in_arrow_too() -> None:
    assert full_schema().fieldNames() == list(COLUMNS)
    assert to_arrow_schema(full_schema(), timezone="UTC") == arrow_schema()
    assert columns_of(full_schema()) == COLUMNS


def test_a_schema_chooses_columns_in_its_order() -> None:
    full = full_schema()
    for names in (["body"], ["queue_offset", "topic"], list(reversed(COLUMNS))):
        assert columns_of(StructType([full[name] for name in names])) == tuple(names)


@pytest.mark.parametrize(
    ("asked", "why"),
    [
        (schema(), "asks for no column"),
        (schema(("bodi", StringType())), "column 'bodi', which a message does not have"),
        (schema(("Body", StringType())), "column 'Body', which a message does not have"),
        (schema(("body", StringType())), "column body as string: it is binary"),
        (schema(("queue_offset", IntegerType())), "column queue_offset as int: it is bigint"),
        (schema(("properties", MapType(StringType(), IntegerType()))), "it is map<string,string>"),
        (schema(("tags", StringType()), ("tags", StringType())), "asks for a column twice"),
    ],
)
def test_a_wrong_schema_is_refused_in_one_sentence(asked: StructType, why: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        columns_of(asked)
    assert why in str(caught.value)
    assert "\n" not in str(caught.value)
