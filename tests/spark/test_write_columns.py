"""The columns of a write, and its rows: what is refused, with the row and the reason."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import types
from pyspark.sql.types import StructType

from rocketstream.errors import ConfigurationError
from rocketstream.property_names import RESERVED_PROPERTIES
from rocketstream.spark.write_columns import BadRowError, RowChecker, Rows, check_columns
from rocketstream.spark.write_options import check_target

TYPES = {
    "body": pa.string(),
    "topic": pa.string(),
    "tags": pa.string(),
    "keys": pa.string(),
    "sharding_key": pa.string(),
    "delay_level": pa.int32(),
    "properties": pa.map_(pa.string(), pa.string()),
}


def batch(**columns: list[Any]) -> pa.RecordBatch:
    """Rows as Spark hands them over; without bodies there are some."""
    count = len(next(iter(columns.values())))
    columns.setdefault("body", [f"body {number}" for number in range(count)])
    return pa.record_batch({name: pa.array(values, TYPES[name]) for name, values in columns.items()})


def check(rows: pa.RecordBatch, first_row: int = 100, topic: str | None = "t", **options: Any) -> Rows:
    checker = RowChecker(topic, options.pop("most", 1000), lambda name: check_target(name, None), **options)
    return checker.check(rows, first_row)


@pytest.mark.parametrize(
    "columns",
    [
        "body binary",
        "body string",
        "properties map<string,string>, body string, delay_level bigint",
        "topic string, body binary, tags string, keys string, sharding_key string, delay_level int,"
        " properties map<string,string>",
    ],
)
def test_columns_that_are_taken(columns):
    check_columns(parse_ddl(columns), "t")


def parse_ddl(columns: str) -> StructType:
    """A schema without a session: Spark's own parser of them runs in the JVM."""
    names = {
        "binary": types.BinaryType(),
        "string": types.StringType(),
        "int": types.IntegerType(),
        "bigint": types.LongType(),
        "double": types.DoubleType(),
        "boolean": types.BooleanType(),
        "map<string,string>": types.MapType(types.StringType(), types.StringType()),
        "map<string,int>": types.MapType(types.StringType(), types.IntegerType()),
        "array<string>": types.ArrayType(types.StringType()),
    }
    found = StructType()
    for column in columns.split(", "):
        name, kind = column.strip().rsplit(" ", 1)
        found.add(name, names[kind])
    return found


@pytest.mark.parametrize(
    ("columns", "words"),
    [
        ("value string", "no column 'value': it takes body, topic"),
        ("body string, tag string", "no column 'tag': did you mean 'tags'?"),
        ("Body string", "did you mean 'body'?"),
        ("body string, queue_offset bigint", "no column 'queue_offset'"),
        ("tags string", "there is no column body"),
        ("body int", "column body is int: the rocketmq sink takes it as binary or string"),
        ("body string, tags binary", "column tags is binary"),
        ("body string, delay_level double", "column delay_level is double"),
        ("body string, properties map<string,int>", "column properties is map<string,int>"),
        ("body string, keys array<string>", "column keys is array<string>"),
        ("body string, body string", "column body is there 2 times"),
    ],
)
def test_columns_that_are_refused(columns, words):
    with pytest.raises(ConfigurationError) as refused:
        check_columns(parse_ddl(columns), "t")
    assert words in str(refused.value)


def test_rows_need_a_topic():
    check_columns(parse_ddl("body string, topic string"), None)
    with pytest.raises(ConfigurationError, match="neither option topic nor a column topic"):
        check_columns(parse_ddl("body string"), None)


@pytest.mark.parametrize(
    ("columns", "row", "words"),
    [
        ({"body": ["a", None, None]}, 101, "body is null"),
        ({"body": ["a", "b", ""]}, 102, "body is empty"),
        ({"body": ["a" * 1000, "b" * 1001]}, 101, "body has 1001 bytes, more than maxMessageSize=1000"),
        ({"topic": ["a", "a", "b", "b c"]}, 103, "topic='b c' has illegal characters"),
        ({"topic": ["a", "OFFSET_MOVED_EVENT"]}, 101, "reserved for brokers"),
        ({"tags": [None, "a\x01b"]}, 101, r"tags='a\x01b' contains"),
        ({"tags": ["a", "a || b"]}, 101, "a message has one tag"),
        ({"keys": ["a", "b", "\x02"]}, 102, "which separate properties on the wire"),
        ({"sharding_key": ["a", ""]}, 101, "sharding_key is empty"),
        ({"sharding_key": ["a\x02"]}, 100, "sharding_key="),
        ({"delay_level": [None, 0, 18, 19]}, 103, "delay_level=19 must be from 0 (none) to 18"),
        ({"delay_level": [-1]}, 100, "delay_level=-1"),
        ({"properties": [None, [("a", "1")], [("a", "1"), ("b", None)]]}, 102, "property 'b'=None is null"),
        ({"properties": [[], [("", "x")]]}, 101, "empty name or value"),
        ({"properties": [[], [("x", "")]]}, 101, "empty name or value"),
        ({"properties": [[("a", "1"), ("b", "2")], None, [("c", "a\x01")]]}, 102, "property 'c'="),
        ({"properties": [[("a\x02", "1")]]}, 100, "separate properties"),
        ({"properties": [[("a", "1")], [("UNIQ_KEY", "1")]]}, 101, "dropReservedProperties=true leaves such out"),
        ({"properties": [[("TAGS", "1")]]}, 100, "there is a column tags"),
        ({"properties": [[("__SHARDINGKEY", "1")]]}, 100, "there is a column sharding_key"),
        ({"properties": [[("SPARK_ROW_ID", "1")]]}, 100, "or this sink's"),
    ],
)
def test_a_row_that_cannot_be_sent_is_named(columns, row, words):
    with pytest.raises(BadRowError) as refused:
        check(batch(**columns))
    assert f"row {row} of the partition cannot be sent: " in str(refused.value)
    assert words in str(refused.value)


@pytest.mark.parametrize("topics", [["a", None], [None, None]])
def test_a_row_without_a_topic_is_named_unless_there_is_the_option(topics):
    rows = batch(topic=topics)
    with pytest.raises(BadRowError, match="topic is null and there is no option topic"):
        check(rows, topic=None)
    found = check(rows).topics
    assert found is None if topics[0] is None else found.to_pylist() == ["a", "t"]


def test_what_a_message_carries_of_a_row():
    rows = check(
        batch(
            body=["ä", "b"],
            tags=["t", None],
            keys=["", "k1 k2"],
            sharding_key=[None, "s"],
            properties=[[("ü", "1"), ("b", "2")], None],
            delay_level=[0, 3],
        )
    )
    assert rows.bodies.to_pylist() == ["ä".encode(), b"b"]
    assert rows.properties.to_pylist() == [
        "TAGS\x01t\x02ü\x011\x02b\x012\x02".encode(),
        b"KEYS\x01k1 k2\x02__SHARDINGKEY\x01s\x02",
    ]
    assert rows.delay_levels.tolist() == [0, 3]
    assert rows.sharding_keys.to_pylist() == [None, "s"]


def test_columns_without_a_value_cost_nothing():
    rows = check(batch(tags=[None, None], properties=[None, []], delay_level=[0, None], sharding_key=[None, None]))
    assert (rows.properties, rows.delay_levels, rows.sharding_keys, rows.topics) == (None, None, None, None)
    assert check(batch(body=["a", "b"])).contents() == [b"a", b"b"]


def test_bodies_are_bytes_whether_they_come_as_text_or_not():
    texts = check(batch(body=["ä", "b"]))
    binaries = check(pa.record_batch({"body": pa.array(["ä".encode(), b"b"], pa.binary())}))
    assert texts.contents() == binaries.contents() == ["ä".encode(), b"b"]


def test_slices_of_batches_are_read_where_they_are():
    rows = batch(properties=[[("a", "1")], [("b", "2"), ("c", "3")], None, [("d", "4")]], tags=list("wxyz"))
    found = check(rows.slice(1, 3))
    assert found.properties.to_pylist() == [
        b"TAGS\x01x\x02b\x012\x02c\x013\x02",
        b"TAGS\x01y\x02",
        b"TAGS\x01z\x02d\x014\x02",
    ]


def test_reserved_properties_can_be_left_out():
    rows = batch(
        properties=[[("UNIQ_KEY", "1")], [("a", "1"), ("TAGS", "t"), ("b", "2")], None, [("WAIT", ""), ("c", "3")]]
    )
    found = check(rows, drop_reserved=True)
    assert found.properties.to_pylist() == [b"", b"a\x011\x02b\x012\x02", b"", b"c\x013\x02"]
    all_of_them = batch(properties=[[(name, "x") for name in sorted(RESERVED_PROPERTIES)]])
    assert check(all_of_them, drop_reserved=True).properties is None


def test_rows_that_differ_in_anything_differ_in_what_their_id_is_made_of():
    base = {
        "body": "b",
        "topic": "t",
        "tags": "t",
        "keys": "k",
        "sharding_key": "s",
        "delay_level": 1,
        "properties": [("p", "v")],
    }
    others = {
        "body": "c",
        "topic": "u",
        "tags": "u",
        "keys": None,
        "sharding_key": None,
        "delay_level": 2,
        "properties": None,
    }
    rows = [base, *({**base, name: value} for name, value in others.items())]
    # Bodies that look like properties, and like what ends them.
    bodies = ("p\x01v\x02b", "p\x01v\x02\x02\x02b", "\x02\x02b")
    rows += [{**base, "properties": None, "body": body} for body in bodies]
    columns = {name: [row[name] for row in rows] for name in base}
    assert len(set(check(batch(**columns)).contents())) == len(rows)


def test_columns_of_large_types_are_columns_too():
    rows = batch(body=["a"], tags=["t"], topic=["t"], sharding_key=["s"], properties=[[("p", "v"), ("TAGS", "x")]])
    large = {"body": pa.large_binary(), "properties": pa.map_(pa.large_string(), pa.large_string())}
    columns = {name: rows.column(name).cast(large.get(name, pa.large_string())) for name in rows.schema.names}
    expected, found = (check(one, drop_reserved=True) for one in (rows, pa.record_batch(columns)))
    assert found.contents() == expected.contents()


def test_what_lies_under_a_map_that_is_null_is_not_sent():
    # Arrow allows it; Spark does not do it today.
    maps = pa.MapArray.from_arrays([0, 1, 2], ["a", "b"], ["1", "2"], mask=pa.array([True, False]))
    rows = pa.record_batch({"body": ["x", "y"], "properties": maps})
    assert check(rows).properties.to_pylist() == [b"", b"b\x012\x02"]
