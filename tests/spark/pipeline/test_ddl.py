"""Types in DDL, read without Spark."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketstream.spark.pipeline.ddl import Column, DdlError, parse_column, parse_columns


def test_columns() -> None:
    assert parse_columns("id STRING NOT NULL COMMENT 'the key', `a b`: long, n decimal (10, 2)") == (
        Column("id", "STRING", True),
        Column("a b", "BIGINT"),
        Column("n", "DECIMAL(10,2)"),
    )


@pytest.mark.parametrize(
    ("written", "normal"),
    [
        ("integer", "INT"),
        ("timestamp_ltz", "TIMESTAMP"),
        ("numeric", "DECIMAL(10,0)"),
        ("map<string, array<double>>", "MAP<STRING,ARRAY<DOUBLE>>"),
        ("struct<a: int, `b c` string not null>", "STRUCT<`a`: INT, `b c`: STRING>"),
        ("variant", "VARIANT"),
    ],
)
def test_types(written: str, normal: str) -> None:
    assert parse_column("x", written).type == normal


@pytest.mark.parametrize(
    ("written", "said"),
    [
        ("", "a type is missing"),
        ("INTT", "'INTT' is no type: did you mean 'INT'?"),
        ("ARRAY", "after ARRAY there must be '<', not 'the end'"),
        ("ARRAY<INT", "after what ARRAY is made of there must be '>'"),
        ("MAP<INT, INT>", "the keys of a MAP must be STRING"),
        ("MAP<STRING>", "after a MAP's key there must be ','"),
        ("DECIMAL(x)", "DECIMAL needs its digits"),
        ("DECIMAL(5,9)", "DECIMAL(5,9) can't be"),
        ("STRUCT<>", "there must be a column's name, not '>'"),
        ("INT INT", "'INT' is too much"),
        ("INT NOT", "after NOT there must be 'NULL'"),
        ("ARRAY<" * 60 + "INT", "types are nested more than 50 deep"),
    ],
)
def test_what_is_no_type(written: str, said: str) -> None:
    with pytest.raises(DdlError) as raised:
        parse_column("x", written)
    assert said in str(raised.value)


def test_a_column_twice() -> None:
    with pytest.raises(DdlError, match="column 'A' is there twice"):
        parse_columns("a INT, A INT")


@given(st.text(alphabet="aINT<>(),:` '\n5", max_size=30))
def test_any_text_is_columns_or_an_error(text: str) -> None:
    try:
        columns, position = parse_columns(text), 0
    except DdlError as error:
        columns, position = (), error.position
    assert 0 <= position <= len(text)
    assert all(column.type for column in columns)
