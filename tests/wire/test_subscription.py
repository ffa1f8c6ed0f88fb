"""Subscriptions from expressions, with Java's hash codes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketstream.errors import ConfigurationError
from rocketstream.wire.bodies import SubscriptionData
from rocketstream.wire.codes import ExpressionType
from rocketstream.wire.subscription import java_string_hash, parse_tags, subscription

# Printed by Java's String.hashCode().
JAVA_HASHES = [
    ("", 0),
    ("a", 97),
    ("TagA", 2598919),
    ("TagB", 2598920),
    ("Aa", 2112),
    ("BB", 2112),
    ("polygenelubricants", -2147483648),
    ("中文标签", 622041809),
    ("🚀", 1773027),
    ("tag🚀é", -826371700),
    ("\ud83d", 55357),
    ("order-12345678901234567890", 234325141),
]


@pytest.mark.parametrize(("text", "value"), JAVA_HASHES)
def test_java_string_hash(text: str, value: int) -> None:
    assert java_string_hash(text) == value


@given(st.text(st.characters()))
def test_hash_is_over_utf_16_units(text: str) -> None:
    units = text.encode("utf-16-be", "surrogatepass")
    value = 0
    for high, low in zip(units[::2], units[1::2], strict=True):
        value = value * 31 + (high << 8 | low)
    assert java_string_hash(text) % 2**32 == value % 2**32
    assert -(2**31) <= java_string_hash(text) < 2**31


@pytest.mark.parametrize("expression", ["*", "", None, " * "])
def test_everything(expression: str | None) -> None:
    assert subscription("t", expression, version=5) == SubscriptionData(
        topic="t", sub_string="*", tags_set=frozenset(), code_set=frozenset(), sub_version=5, expression_type="TAG"
    )


@pytest.mark.parametrize(
    ("expression", "tags"),
    [
        ("TagA", {"TagA"}),
        ("TagA||TagB", {"TagA", "TagB"}),
        (" TagA  ||\tTagB || TagA ", {"TagA", "TagB"}),
        ("TagA || || TagB ||", {"TagA", "TagB"}),
        ("a|b", {"a|b"}),
        ("a|||b", {"a", "|b"}),
        ("\u00a0a", {"\u00a0a"}),  # Java's trim() leaves a no-break space
        ("\x01a", {"a"}),  # ... but takes control characters
    ],
)
def test_tags(expression: str, tags: set[str]) -> None:
    data = subscription("t", expression)
    assert data.tags_set == tags == parse_tags(expression)
    assert data.code_set == {java_string_hash(tag) for tag in tags}
    assert data.sub_string == expression
    assert data.expression_type == "TAG"


def test_colliding_tags_share_a_code_but_not_a_tag() -> None:
    data = subscription("t", "Aa || BB")
    assert data.tags_set == {"Aa", "BB"}
    assert data.code_set == {2112}


@pytest.mark.parametrize("expression", ["||", " || ", "   "])
def test_an_expression_without_a_tag_is_an_error(expression: str) -> None:
    with pytest.raises(ConfigurationError, match="topic 't' names no tag"):
        subscription("t", expression)


def test_sql_is_passed_on() -> None:
    data = subscription("t", "a > 5 || b", ExpressionType.SQL92, 7)
    assert data == SubscriptionData(topic="t", sub_string="a > 5 || b", sub_version=7, expression_type="SQL92")
    assert type(data.expression_type) is str


@pytest.mark.parametrize("expression", ["", None])
def test_sql_needs_an_expression(expression: str | None) -> None:
    with pytest.raises(ConfigurationError, match="SQL92 subscription to topic 't' has no expression"):
        subscription("t", expression, ExpressionType.SQL92)
