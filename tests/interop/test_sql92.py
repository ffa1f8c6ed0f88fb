"""Our SQL92 filter beside RocketMQ's own classes: the same expressions are rejected, the rest evaluate alike."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from rocketstream.broker.sql92 import SqlError
from rocketstream.broker.sql92.parser import parse
from rocketstream.testing.jars import resolve_jars
from rocketstream.testing.java import find_java
from rocketstream.testing.plugin import require_real

PROGRAM = Path(__file__).with_name("java_filter") / "Sql92.java"

PROPERTIES: list[dict[str, str]] = [
    {},
    {"a": "3"},
    {"a": "3", "b": "5", "c": "6", "d": "1"},
    {"a": "3.0", "b": "3"},
    {"a": "hello", "b": "world", "c": "", "d": "x"},
    {"a": "true", "b": "FALSE", "c": "6"},
    {"a": "3000000000", "b": "-7", "c": "9223372036854775807"},
    {"a": " 4 ", "b": "4d", "c": "NaN", "d": "-0.0"},
    {"a": "+3", "b": "0x1p3", "c": "Infinity", "d": "0.0"},
    {"a": "axb", "b": "it's", "c": "1e400", "_x$1": "y", "now": "5", "A": "upper"},
    {"a": "0", "b": "10", "c": "2", "d": "4"},
    {"a": "٣", "b": "1_0", "c": "1.", "d": ".5"},
]

COMPARISONS = [f"a {symbol} {value}" for symbol in ("=", "<>", "<", "<=", ">", ">=") for value in (
    "3", "-3", "3.0", "3000000000", "2147483648", "-2147483648", "'3'", "b", "TRUE", "NULL", "-b", "(b = 3)",
)]  # fmt: skip
REVERSED = [f"{value} {symbol} a" for symbol in ("=", "<>", "<", ">=") for value in (
    "3", "-3.5", "3L", "9223372036854775807", "'3'", "TRUE", "FALSE", "-'x'", "(b <> 3)",
)]  # fmt: skip
OTHERS = [
    "a=3 and b<>4 And c>5 AND d<=4",
    "a=3 or b<>4 Or c>5 OR d<=4",
    "a in ('3', '4', 'axb')",
    "a not in ('3', '4', '5')",
    "(a) in ('3')",
    "'3' in ('3')",
    "a in (3)",
    "a in ()",
    "b in ('it''s')",
    "a in ('1', '2', '3', '4', '5', '6')",
    "a between 2 and 10",
    "a not between 2 and 10",
    "a between 10 and 0",
    "a not between 10 and 0",
    "a between 10 and -5",
    "a between 1.5 and 1",
    "a between 1 and 1",
    "a between b and c",
    "a between 'a' and 'b'",
    "a between NULL and 3",
    "a between TRUE and 3",
    "a between 1 or 3",
    "a and between 2 and 10",
    "a is null",
    "a is not null",
    "-a is null",
    "TRUE is null",
    "NULL is null",
    "a = 3 is null",
    "a is 3",
    "a is not 3",
    "a is null OR a='hello'",
    "a is not null and a='hello'",
    "a=TRUE OR b=FALSE",
    "a > 5 OR b = 5",
    "b = 5 OR a > 5",
    "a > 5 AND b = 5",
    "a < b",
    "c > d",
    "c >= d",
    "c < d",
    "d <= c",
    "c > 1.5",
    "c < 1.5",
    "c = 1.5",
    "1.5 < c",
    "d < 0.5",
    "d = 0",
    "a contains 'x'",
    "a not contains 'x'",
    "a startswith 'a'",
    "a not startswith 'a'",
    "a endswith 'b'",
    "a not endswith 'b'",
    "a contains ''",
    "a not contains ''",
    "'axb' contains 'x'",
    "3 contains '3'",
    "3 not contains '3'",
    "(a > 5) contains 'x'",
    "a contains b",
    "a contains 3",
    "a startswith 'h' and a endswith 'o'",
    "a",
    "NOT a",
    "NOT NOT a",
    "a AND b",
    "a OR TRUE",
    "NOT (a = 3)",
    "NOT a = 3",
    "TRUE",
    "FALSE",
    "NULL",
    "NOT NULL",
    "TRUE AND NULL",
    "FALSE OR NULL",
    "TRUE = TRUE",
    "TRUE = 1",
    "1 = TRUE",
    "1 = 1",
    "1 = 1.0",
    "1 < 2",
    "2147483647 < 2147483648",
    "'a' = 'a'",
    "'x' = 5",
    "'true' = TRUE",
    "TRUE = 'true'",
    "TRUE = (a = 3)",
    "(a = 3) = (b = 5)",
    "(a = 3) > 1",
    "a > 1 > 2",
    "a = 1 = TRUE",
    "a > TRUE",
    "5",
    "'a'",
    "-a",
    "-(a = 3)",
    "+a = 3",
    "a = +3",
    "a = - -3",
    "a = --3\n 4",
    "a = --3",
    "a = 3 -- comment",
    "a = 3 -- comment\n and b = 5",
    "a /* c * c ** */ = /**/ 3",
    "a /* never closed = 3",
    "a = 007",
    "a = 0L",
    "a = 3L",
    "a = 3l",
    "a = 5E",
    "c = 5.E0",
    "a > .5",
    "a > .",
    "a > 0.0",
    "a > 0",
    "a > 1E400",
    "a > 1e-400",
    "a > 4.9e-324",
    "a > 100000000000000000000000",
    "a > 9223372036854775807",
    "a > 9223372036854775808",
    "a = -9223372036854775808",
    "a != 3",
    "a == 3",
    "a = 3 b",
    "a = 3 @",
    "a = 3 b @",
    "a = 3)",
    "(a = 3",
    "((a = 3))",
    "a like 'x'",
    "a.b = 3",
    "_x$1 = 'y'",
    "$ = 3",
    "now <= 5",
    "A = 'upper'",
    "CONTAINS = 3",
    "a = 'unclosed",
    "a = ''''",
    "b = 'it''s'",
    "c = ''",
    'a = "3"',
    "",
    "   ",
    "a =",
    "a not",
    "a not 3",
    "not",
    "ä = 3",
    "a = 'ä'",
    "a\t=\r\n3\f",
    "aBETWEEN 1 and 2",
    "a = 3 and",
    "a = 3 xor b = 5",
    "a<b",
    "a<>b",
    "a< >b",
    "a contains 'x' contains 'y'",
]  # fmt: skip


def _ours(text: str) -> Any:
    try:
        evaluate = parse(text)
    except SqlError:
        return "rejected"
    results: list[Any] = []
    for properties in PROPERTIES:
        try:
            results.append(evaluate(properties))
        except ValueError:
            results.append("error")
    return results


@pytest.mark.parametrize("version", ["5.5.0"])
@pytest.mark.feature("filters/sql92", "filters/sql92-check")
def test_every_expression_is_taken_and_evaluated_as_by_rocketmq(version: str) -> None:
    require_real(version)
    expressions = [*COMPARISONS, *REVERSED, *OTHERS]
    done = subprocess.run(
        [str(find_java().executable), "-Xmx128m", "-cp", resolve_jars(version).classpath, str(PROGRAM)],
        input=json.dumps({"expressions": expressions, "properties": PROPERTIES}) + "\n",
        capture_output=True,
        text=True,
        encoding="utf-8",
        check=True,
    )
    theirs = json.loads(done.stdout.splitlines()[-1])
    different = {
        text: {"java": java, "ours": ours}
        for text, java in zip(expressions, theirs, strict=True)
        if (ours := _ours(text)) != java
    }
    assert different == {}
