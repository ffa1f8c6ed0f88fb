"""RocketMQ's SQL92 filter: what its own tests say (ExpressionTest, ParserTest), and three-valued logic in full."""

from __future__ import annotations

import pytest

from rocketstream.broker.sql92 import SqlError, compile_expression
from rocketstream.broker.sql92.numbers import java_double, java_int, java_long, order_doubles
from rocketstream.broker.sql92.parser import parse

#: Conditions that are true, false and null for no properties at all.
VALUES = {"TRUE": True, "FALSE": False, "missing": None}


def matches(text: str, **properties: str) -> bool:
    """Whether those properties match."""
    return compile_expression(text)(properties)


# --- logic ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("left", VALUES)
@pytest.mark.parametrize("right", VALUES)
def test_and_is_false_when_either_is_else_null_when_either_is(left: str, right: str) -> None:
    values = (VALUES[left], VALUES[right])
    expected = False if False in values else None if None in values else True
    assert parse(f"{left} AND {right}")({}) is expected


@pytest.mark.parametrize("left", VALUES)
@pytest.mark.parametrize("right", VALUES)
def test_or_is_true_when_either_is_else_null_when_either_is(left: str, right: str) -> None:
    values = (VALUES[left], VALUES[right])
    expected = True if True in values else None if None in values else False
    assert parse(f"{left} OR {right}")({}) is expected


@pytest.mark.parametrize(("text", "expected"), [("NOT TRUE", False), ("NOT FALSE", True), ("NOT missing", None)])
def test_not_keeps_null(text: str, expected: bool | None) -> None:
    assert parse(text)({}) is expected


def test_null_does_not_match() -> None:
    assert not matches("missing")
    assert not matches("NOT missing")
    assert not matches("NULL")


def test_and_binds_tighter_than_or_and_parentheses_tighter_still() -> None:
    assert matches("TRUE OR FALSE AND FALSE")
    assert not matches("(TRUE OR FALSE) AND FALSE")


def test_a_property_as_a_condition_is_never_true() -> None:
    assert not matches("a", a="true")
    assert matches("NOT a", a="true")


def test_what_follows_the_decision_is_not_evaluated() -> None:
    assert matches("b = 5 OR a > 5", a="word", b="5")
    assert not matches("a > 5 OR b = 5", a="word", b="5")
    assert parse("b = 4 AND a > 5")({"a": "word", "b": "5"}) is False


def test_a_very_long_chain_is_evaluated() -> None:
    assert matches(" AND ".join(["a = 1"] * 5000), a="1")


def test_what_is_nested_beyond_reason_is_rejected() -> None:
    with pytest.raises(SqlError, match="nested too deeply"):
        compile_expression("(" * 20_000 + "a = 1" + ")" * 20_000)


# --- comparing --------------------------------------------------------------------------------------------------------


def test_javas_and_and_or_expressions() -> None:
    everything = "a=3 and b<>4 And c>5 AND d<=4"
    assert matches(everything, a="3", b="5", c="6", d="1")
    assert not matches(everything, a="4", b="5", c="6", d="1")
    anything = "a=3 or b<>4 Or c>5 OR d<=4"
    assert matches(anything, a="3")
    assert matches(anything, a="4", b="5")
    assert matches(anything, a="4", b="4", c="6")
    assert matches(anything, a="4", b="4", c="3", d="2")
    assert not matches(anything, a="4", b="4", c="3", d="10")


@pytest.mark.parametrize(("value", "inside"), [("1", False), ("2", True), ("3", True), ("10", True), ("11", False)])
def test_between_includes_its_bounds(value: str, inside: bool) -> None:
    assert matches("a between 2 and 10", a=value) is inside
    assert matches("a not between 2 and 10", a=value) is not inside


def test_in_compares_text_and_is_null_for_a_missing_property() -> None:
    assert matches("a in ('3', '4', '5')", a="4")
    assert not matches("a in ('3', '4', '5')", a="8")
    assert matches("a not in ('3', '4', '5')", a="8")
    assert not matches("a not in ('3', '4', '5')", a="3")
    assert parse("a in ('3')")({}) is None
    assert parse("a not in ('3')")({}) is None


def test_is_null_is_about_missing_properties() -> None:
    assert matches("a is null", b="2")
    assert not matches("a is null", a="2")
    assert matches("a is not null", a="2")
    assert not matches("a is not null", b="2")
    assert matches("a is null OR a='hello'")
    assert not matches("a is null OR a='hello'", a="abc")


def test_equality_with_missing_properties() -> None:
    assert parse("a = 3")({}) is None
    assert parse("3 = a")({}) is False
    assert parse("a = b")({}) is True
    assert parse("a <> b")({"a": "1"}) is True


def test_booleans_are_read_from_text_on_the_left_only() -> None:
    assert matches("a=TRUE OR b=FALSE", a="True", b="x")
    assert matches("a=TRUE OR b=FALSE", a="x", b="x")
    assert not matches("a=TRUE OR b=FALSE", a="false", b="true")
    assert not matches("TRUE = a", a="true")


def test_numbers_are_read_as_the_constants_kind() -> None:
    assert matches("a > 3.14", a="3.1415")
    assert matches("a > 3.1E10", a="3.1415E10")
    assert not matches("a = 3", a="3.0")
    assert matches("a = 3.0", a="3")
    # 3000000000 is no int, so beside an int it can't be compared; beside a long it can.
    assert not matches("a > 5", a="3000000000")
    assert matches("a > 2147483648", a="3000000000")
    assert not matches("NOT (a > 5)", a="word")


def test_text_has_no_order_but_two_properties_are_compared_as_numbers() -> None:
    assert matches("a > b", a="20", b="10.5")
    assert not matches("a > b", a="b", b="a")
    assert not matches("a = b", a="3.0", b="3")


def test_searching_text() -> None:
    assert matches("value contains 'x'", value="axb")
    assert matches("value startswith 'ax'", value="axb")
    assert matches("value endswith 'xb'", value="axb")
    assert not matches("value not contains 'x'", value="axb")
    assert not matches("value not startswith 'ax'", value="axb")
    assert not matches("value not endswith 'xb'", value="axb")
    assert matches("value not contains 'y'", value="axb")
    assert matches("'axb' contains 'x'")


@pytest.mark.parametrize("word", ["contains", "startswith", "endswith"])
def test_empty_text_and_missing_properties_are_not_found_either_way(word: str) -> None:
    for text in (f"value {word} ''", f"value not {word} ''"):
        assert not matches(text, value="axb")
    for text in (f"value {word} 'x'", f"value not {word} 'x'"):
        assert parse(text)({}) is False


# --- reading ----------------------------------------------------------------------------------------------------------


def test_words_of_the_language() -> None:
    assert matches("TAGS is not null and TAGS='''''tag'''''", TAGS="''tag''")
    assert matches("_a$1 = 'x'", **{"_a$1": "x"})
    assert matches("a /* not b */ = -- nor c\n 3", a="3")
    assert matches("a = - -3", a="3")
    assert not matches("A = 3", a="3")


def test_what_follows_a_whole_expression_is_not_looked_at() -> None:
    assert matches("a = 3 whatever = @@@", a="3")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "position 0: expected a property, .* found the end"),
        ("a and between 2 and 10", "position 6: expected a property, .* found 'BETWEEN'"),
        ("a > 100000000000000000000000", "position 4: 100000000000000000000000 is greater than 9223372036854775807"),
        ("a > " + "1" * 5000, "is greater than 9223372036854775807"),
        ("a > " + "1" * 400 + ".5", r"position 4: 1+\.\.\. is greater than 1.79"),
        ("a > 0.0", "position 4: 0.0 is less than"),
        ("a between 10 and 0", "the wrong way round: 10 is above 0"),
        ("a between 1 or 2", "position 12: expected AND"),
        ("a contains x", "position 11: expected a quoted string, found 'x'"),
        ("a in (3)", "position 6: expected a quoted string, found '3'"),
        ("a in ('3' '4')", r"position 10: expected ',' or '\)'"),
        ("'a' in ('3')", "expected a property before IN"),
        ("a = null", "expected IS NULL"),
        ("a > 'x'", "'x' has no order"),
        ("(a = 3) > 1", "a = 3 has no order"),
        ("TRUE = 1", "TRUE can't be compared with 1"),
        ("a is 3", "position 5: expected NULL or NOT NULL"),
        ("a not 3", "position 6: expected CONTAINS"),
        ("(a = 3", r"position 6: expected '\)', found the end"),
        ("a != 3", "position 2: '!' is not part of the language"),
        ("a = 'x", "position 4: the quoted string that begins here is not closed"),
        ("5", "expected a condition, but 5"),
        ("-a", "expected a condition, but -a"),
        ("a between NULL and 3", "bounds of BETWEEN can't be NULL"),
    ],
)
def test_what_is_wrong_is_said(text: str, said: str) -> None:
    with pytest.raises(SqlError, match=said):
        compile_expression(text)


# --- numbers ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", ["", " 3", "3 ", "1_0", "3.0", "0x3", "2147483648", "-2147483649"])
def test_what_is_no_int_in_java(text: str) -> None:
    with pytest.raises(ValueError, match="is"):
        java_int(text)


def test_whole_numbers_of_java() -> None:
    assert java_int("+7") == 7
    assert java_int("-2147483648") == -(2**31)
    assert java_long("9223372036854775807") == 2**63 - 1


@pytest.mark.parametrize(
    ("text", "value"),
    [(" 4 ", 4.0), ("4d", 4.0), ("-.5F", -0.5), ("0x1p3", 8.0), ("-Infinity", float("-inf")), ("1e400", float("inf"))],
)
def test_doubles_of_java(text: str, value: float) -> None:
    assert java_double(text) == value


@pytest.mark.parametrize("text", ["", "inf", "nan", "1_0", "4x", "0x1", "٣"])
def test_what_is_no_double_in_java(text: str) -> None:
    with pytest.raises(ValueError, match="is not a number"):
        java_double(text)


def test_doubles_are_ordered_as_by_java() -> None:
    nan = float("nan")
    assert order_doubles(1.0, 2.0) < 0 < order_doubles(2.0, 1.0)
    assert order_doubles(nan, float("inf")) > 0 > order_doubles(1.0, nan)
    assert order_doubles(nan, nan) == order_doubles(1.0, 1.0) == 0
    assert order_doubles(-0.0, 0.0) < 0 < order_doubles(0.0, -0.0)
