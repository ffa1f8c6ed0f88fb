"""JSON bodies become columns; those that don't fit become dead letters with a reason. No body fails the query.

The rules of this file, each for something that Spark's `from_json` would let through or trip over:
- the text is put into `{"v":[...]}`, for by itself `from_json` takes the first of several documents and the first
  element of an array, and ignores what comes after a document;
- bytes that are not UTF-8 are NULL (`try_validate_utf8`), for `decode` would fail the query;
- NOT NULL is checked here, for `from_json` makes all columns nullable;
- good rows are picked after the rows are counted (`observe`): a filter can't be moved below the count, so that each
  body is parsed once and not once more for the filter.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rocketstream.spark.pipeline.ddl import Column, quoted
from rocketstream.spark.pipeline.model import Source

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

#: Names that nobody gives to a column.
_PARSED, _ROW, _GOOD, _BAD = "__rs_parsed", "__rs_row", "__rs_good", "__rs_corrupt"
_TEXT = "try_validate_utf8(CAST(body AS STRING))"
ROWS, BAD_ROWS = "rows", "bad_rows"

#: The columns of a dead letter, beside its reason and the name of its source.
COORDINATES = (
    "topic", "broker_name", "queue_id", "queue_offset", "message_id", "tags", "keys", "born_timestamp",
    "store_timestamp", "reconsume_times",
)  # fmt: skip


def good_rows(messages: DataFrame, source: Source) -> DataFrame:
    """The columns of the bodies that fit the schema, and the message's own columns that were asked for."""
    parsed = _parsed(messages, source)
    of_body = [f"{_ROW}.{quoted(column.name)} AS {quoted(column.name)}" for column in source.schema]
    return parsed.where(_GOOD).selectExpr(*of_body, *source.message_columns)


def dead_letters(messages: DataFrame, source: Source) -> DataFrame:
    """The messages whose bodies don't fit the schema, each with the reason."""
    from pyspark.sql import functions as sql

    reason = sql.expr(_reason(source))
    letters = _parsed(messages, source).where(f"NOT {_GOOD}")
    return letters.select(sql.lit(source.name).alias("source"), reason.alias("reason"), *COORDINATES, "body")


def counted(rows: DataFrame, name: str, good: str = "true") -> DataFrame:
    """The same rows, with how many they are, and how many are bad, in the progress of the query."""
    from pyspark.sql import functions as sql

    is_bad = sql.expr(f"count_if(NOT ({good}))")
    return rows.observe(name, sql.count(sql.lit(1)).alias(ROWS), is_bad.alias(BAD_ROWS))


def _parsed(messages: DataFrame, source: Source) -> DataFrame:
    fields = ", ".join(f"{quoted(column.name)}: {column.type}" for column in source.schema)
    wrapped = f"concat('{{\"v\":[', {_TEXT}, ']}}')"
    parse = f"from_json({wrapped}, {_literal(f'v ARRAY<STRUCT<{fields}>>, {_BAD} STRING')}, {_options(source)})"
    required = [f"{_ROW}.{quoted(column.name)} IS NOT NULL" for column in source.schema if column.required]
    conditions = [f"{_PARSED}.{_BAD} IS NULL", f"size({_PARSED}.v) = 1", f"{_ROW} IS NOT NULL", *required]
    rows = (
        messages.selectExpr("*", f"{parse} AS {_PARSED}")
        .selectExpr("*", f"get({_PARSED}.v, 0) AS {_ROW}")
        .selectExpr("*", f"coalesce({' AND '.join(conditions)}, false) AS {_GOOD}")
    )
    return counted(rows, source.name, _GOOD)


def _options(source: Source) -> str:
    options = {**source.json_options, "mode": "PERMISSIVE", "columnNameOfCorruptRecord": _BAD}
    return f"map({', '.join(f'{_literal(key)}, {_literal(value)}' for key, value in options.items())})"


def _literal(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def _reason(source: Source) -> str:
    """Why a body does not fit: an expression that is evaluated for dead letters only."""
    any_json = f"from_json(concat('{{\"v\":', {_TEXT}, '}}'), 'v STRING, {_BAD} STRING', {_options(source)})"
    columns = ", ".join(_column_reason(column, source) for column in source.schema)
    return f"""CASE
        WHEN body IS NULL OR length(body) = 0 THEN 'the body is empty'
        WHEN {_TEXT} IS NULL THEN 'the body is not UTF-8'
        WHEN {any_json}.{_BAD} IS NOT NULL THEN 'the body is not JSON'
        WHEN NOT ltrim(concat(' ', translate({_TEXT}, '\\t\\r\\n', '   '))) LIKE '{{%' THEN
            'the body is JSON, but no object'
        WHEN concat_ws('', {columns}) != '' THEN concat_ws('; ', {columns})
        ELSE 'the body does not fit the schema' END"""


def _column_reason(column: Column, source: Source) -> str:
    """What is wrong with one column, NULL if nothing is: its text in the body, or the lack of it, against its value."""
    name = _literal(column.name)
    raw = f"from_json({_TEXT}, 'MAP<STRING,STRING>')[{name}]"
    value = f"from_json({_TEXT}, {_literal(column.ddl)}, {_options(source)}).{quoted(column.name)}"
    wrong = f"{raw} IS NOT NULL AND {value} IS NULL"
    if column.is_nested:
        # Some of it may have been read, and some not.
        schema = _literal(f"v {column.type}, {_BAD} STRING")
        wrong = f"from_json(concat('{{\"v\":', {raw}, '}}'), {schema}, {_options(source)}).{_BAD} IS NOT NULL"
    sentence = f"concat({_literal(f'column {column.name} is not {column.type}: ')}, substr({raw}, 1, 100))"
    missing = f"WHEN {raw} IS NULL THEN {_literal(f'column {column.name} is missing')}" if column.required else ""
    return f"CASE {missing} WHEN {wrong} THEN {sentence} END"
