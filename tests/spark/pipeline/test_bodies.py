"""JSON bodies: which rows come out, which become dead letters and why. No body fails the job."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest
from pyspark.sql import DataFrame, Row, SparkSession

from rocketstream.spark.pipeline.bodies import dead_letters, good_rows
from rocketstream.spark.pipeline.ddl import parse_columns
from rocketstream.spark.pipeline.model import Source

SCHEMA = """id STRING NOT NULL, n INT, price DECIMAL(5,2), at TIMESTAMP, x STRUCT<y: INT, zs: ARRAY<INT>>, ok BOOLEAN,
            `odd 'name` DOUBLE"""
SOURCE = Source("orders", 1, {}, parse_columns(SCHEMA), message_columns=("tags", "queue_offset"))

GOOD: list[tuple[bytes, dict[str, Any]]] = [
    (b'{"id":"a"}', {"id": "a"}),
    (b' \t\r\n{"id":"a"}\n ', {"id": "a"}),
    (b'{"id":"a","n":5,"ok":true,"other":[1]}', {"id": "a", "n": 5, "ok": True}),
    (b'{"id":7}', {"id": "7"}),
    (b'{"id":"a","n":null}', {"id": "a"}),
    (b'{"id":"a","price":1.25}', {"id": "a", "price": Decimal("1.25")}),
    (b'{"id":"a","at":"2026-01-02T03:04:05Z"}', {"id": "a", "at": datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)}),
    (b'{"id":"a","x":{"y":1,"zs":[1,2]}}', {"id": "a", "x": Row(y=1, zs=[1, 2])}),
    (b'{"id":"a","odd \'name":0.5}', {"id": "a", "odd 'name": 0.5}),
    ('{"id":"naïve 你好 🚀"}'.encode(), {"id": "naïve 你好 🚀"}),
]
BAD: list[tuple[bytes | None, str]] = [
    (None, "the body is empty"),
    (b"", "the body is empty"),
    (b" ", "the body is not JSON"),
    (b"nope", "the body is not JSON"),
    (b"{", "the body is not JSON"),
    (b'{"id":"a"} and more', "the body is not JSON"),
    (b'{"id":"a"}{"id":"b"}', "the body is not JSON"),
    (b'{"id":"a"},{"id":"b"}', "the body is not JSON"),
    (b"[" * 3000, "the body is not JSON"),
    (b"\xff\xfe{}", "the body is not UTF-8"),
    (b'{"id":"\xc3"}', "the body is not UTF-8"),
    (b"null", "the body is JSON, but no object"),
    (b"5", "the body is JSON, but no object"),
    (b'"{"', "the body is JSON, but no object"),
    (b'[{"id":"a"}]', "the body is JSON, but no object"),
    (b"{}", "column id is missing"),
    (b'{"id":null}', "column id is missing"),
    (b'{"ID":"a"}', "column id is missing"),
    (b'{"id":"a","n":"5"}', "column n is not INT: 5"),
    (b'{"id":"a","n":1.5}', "column n is not INT: 1.5"),
    (b'{"id":"a","n":99999999999}', "column n is not INT: 99999999999"),
    (b'{"n":"x"}', "column id is missing; column n is not INT: x"),
    (b'{"id":"a","price":1234567.5}', "column price is not DECIMAL(5,2): 1234567.5"),
    (b'{"id":"a","price":1e999}', 'column price is not DECIMAL(5,2): "Infinity"'),
    (b'{"id":"a","at":"yesterday"}', "column at is not TIMESTAMP: yesterday"),
    (b'{"id":"a","ok":"yes"}', "column ok is not BOOLEAN: yes"),
    (b'{"id":"a","x":{"y":"one"}}', 'column x is not STRUCT<`y`: INT, `zs`: ARRAY<INT>>: {"y":"one"}'),
    (b'{"id":"a","x":5}', "column x is not STRUCT<`y`: INT, `zs`: ARRAY<INT>>: 5"),
    (b'{"id":"a","odd \'name":"q"}', "column odd 'name is not DOUBLE: q"),
]


@pytest.fixture(scope="module")
def messages(spark: SparkSession) -> DataFrame:
    bodies = [body for body, _ in GOOD] + [body for body, _ in BAD]
    rows = [
        (
            None if body is None else bytearray(body),
            "orders",
            "broker-a",
            0,
            offset,
            f"m{offset}",
            "t",
            None,
            None,
            None,
            0,
        )
        for offset, body in enumerate(bodies)
    ]
    columns = """body BINARY, topic STRING, broker_name STRING, queue_id INT, queue_offset LONG, message_id STRING,
        tags STRING, keys STRING, born_timestamp TIMESTAMP, store_timestamp TIMESTAMP, reconsume_times INT"""
    return spark.createDataFrame(rows, columns).cache()


def test_bodies_that_fit(messages: DataFrame) -> None:
    rows = {row.queue_offset: row.asDict() for row in good_rows(messages, SOURCE).collect()}
    names = [column.name for column in SOURCE.schema]
    for offset, (_, expected) in enumerate(GOOD):
        found = rows.pop(offset)
        if found["at"] is not None:
            found["at"] = found["at"].astimezone(UTC)
        assert found == {**dict.fromkeys(names), **expected, "tags": "t", "queue_offset": offset}
    assert rows == {}


def test_bodies_that_do_not(messages: DataFrame) -> None:
    letters = {row.queue_offset: row for row in dead_letters(messages, SOURCE).collect()}
    told = {offset: letter.reason for offset, letter in letters.items()}
    assert told == {len(GOOD) + index: reason for index, (_, reason) in enumerate(BAD)}
    letter = letters[len(GOOD) + 3]
    assert (letter.source, letter.topic, letter.broker_name, letter.queue_id) == ("orders", "orders", "broker-a", 0)
    assert (letter.message_id, letter.tags, bytes(letter.body)) == (f"m{len(GOOD) + 3}", "t", b"nope")


def test_json_options_reach_the_parser(spark: SparkSession) -> None:
    options = {"timestampFormat": "dd.MM.yyyy HH:mm", "allowSingleQuotes": "false"}
    source = Source("orders", 1, {}, parse_columns("at TIMESTAMP"), json_options=options)
    frame = spark.createDataFrame(
        [(bytearray(b'{"at":"05.01.2026 10:00"}'),), (bytearray(b"{'at':null}"),)], "body BINARY"
    )
    (row,) = good_rows(frame, source).collect()
    assert row.at.astimezone(UTC) == datetime(2026, 1, 5, 10, tzinfo=UTC)


def test_a_body_is_parsed_once(messages: DataFrame) -> None:
    plan = good_rows(messages, SOURCE).where("n > 3").select("id")._jdf.queryExecution().optimizedPlan().toString()
    assert plan.count("from_json(") == 1
