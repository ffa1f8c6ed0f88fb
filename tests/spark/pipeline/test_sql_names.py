"""The tables that a query names."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketstream.spark.pipeline.sql_names import has_parts, has_words, tables_of


@pytest.mark.parametrize(
    ("sql", "tables"),
    [
        ("SELECT * FROM a", "a"),
        ("select x from A b where b.y = 'from z'", "A"),
        ("SELECT * FROM a JOIN b ON a.x = b.x LEFT OUTER JOIN `c d` USING (x)", "a b c d"),
        ("SELECT * FROM a, b c, d WHERE x IN (1, 2)", "a b d"),
        ("SELECT * FROM (SELECT * FROM a) x, b", "a b"),
        ("WITH t AS (SELECT * FROM a), u(x) AS (SELECT 1) SELECT * FROM t JOIN u JOIN b", "a b"),
        ("SELECT EXTRACT(year FROM t), TRIM(BOTH 'x' FROM y), SUBSTRING(z FROM 2) FROM a", "a"),
        ("SELECT * FROM a WHERE x IS NOT DISTINCT FROM y AND z IS DISTINCT FROM w", "a"),
        ("SELECT DISTINCT x FROM a", "a"),
        ("SELECT * FROM catalog.schema.t JOIN delta.`/x` JOIN a", "a"),
        ("SELECT * FROM range(5) r JOIN a LATERAL VIEW explode(xs) e AS x", "a"),
        ("SELECT a.from, 1 -- FROM z\n/* FROM y */ FROM a", "a"),
        ("SELECT \"FROM z\", r'FROM y' FROM a UNION ALL SELECT * FROM b", "a b"),
        ("SELECT (SELECT max(x) FROM b), window(t, '1 minute') FROM a GROUP BY window(t, '1 minute'), y", "b a"),
        ("SELECT * FROM a WHERE x IN (SELECT y FROM b), c", "a b"),
        ("FROM a SELECT x, y", "a"),
        ("SELECT 1", ""),
        ("", ""),
    ],
)
def test_tables(sql: str, tables: str) -> None:
    expected = ["a", "b", "c d"] if "`c d`" in sql else tables.split()
    assert [table.name for table in tables_of(sql)] == expected


def test_lines() -> None:
    assert [table.line for table in tables_of("SELECT *\nFROM a\n\nJOIN\n b")] == [1, 4]


def test_words() -> None:
    assert has_words("select x from a group  by x", "GROUP", "BY")
    assert not has_words("select 'group by' from a", "GROUP", "BY")
    assert has_parts("SELECT * FROM a JOIN (SELECT x FROM b GROUP BY x)")
    assert not has_parts("SELECT x FROM a GROUP BY x")


WORDS = ["FROM", "JOIN", "a", ",", "(", ")", "WITH", "AS", "'", '"', "`", "--", "/*", "\n", ".", "IS", "DISTINCT", "\\"]


@given(st.lists(st.sampled_from(WORDS), max_size=15))
def test_any_words_do_no_harm(words: list[str]) -> None:
    tables_of(" ".join(words))
    has_parts(" ".join(words))
