"""What the operators mean: operands in, an operand that evaluates out.

Properties are text or missing, so the type of every operand is known when the expression is compiled, except whether
it is null. Null is None. A comparison that Java can't do (text that is not a number beside a number) raises ValueError
when it is evaluated, and that ends the whole evaluation, as an exception does there.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, TypeAlias

from rocketstream.broker.sql92.numbers import java_boolean, java_double, java_int, java_long, order_doubles

Value: TypeAlias = "str | int | float | bool | None"
Evaluate: TypeAlias = Callable[[Mapping[str, str]], Value]


class Type(Enum):
    """What an operand is when it is not null."""

    TEXT = "text"
    INT = "int"
    LONG = "long"
    DOUBLE = "double"
    BOOLEAN = "boolean"
    NULL = "null"


NUMBERS = frozenset((Type.INT, Type.LONG, Type.DOUBLE))


@dataclass(slots=True, frozen=True)
class Operand:
    """A part of an expression."""

    type: Type
    evaluate: Evaluate
    shown: str
    constant: bool = False
    """Whether it stands as a literal in the expression (a negated number does not, for RocketMQ)."""
    value: Value = None
    """The value of a literal or a negated number."""
    property_name: str | None = None
    terms: tuple[Evaluate, ...] = ()
    """Of a chain of ANDs or ORs, so that a long one does not nest."""
    joined_by: str = ""


class OperandError(Exception):
    """These operands can't be used like that."""


# --- leaves ---------------------------------------------------------------------------------------------------------


def literal(kind: Type, value: Value, shown: str) -> Operand:
    """A constant."""
    return Operand(kind, lambda _: value, shown, constant=True, value=value)


def named(name: str) -> Operand:
    """A property."""
    return Operand(Type.TEXT, lambda properties: properties.get(name), name, property_name=name)


# --- logic ----------------------------------------------------------------------------------------------------------


def condition(operand: Operand) -> Operand:
    """An operand where a truth value is expected: a property there is never true, and null when it is missing."""
    if operand.type is Type.BOOLEAN:
        return operand
    name = operand.property_name
    if name is None:
        raise OperandError(f"expected a condition, but {operand.shown} is not true or false")
    return _boolean(lambda properties: None if properties.get(name) is None else False, operand.shown)


def negation(operand: Operand) -> Operand:
    """NOT."""
    evaluate = condition(operand).evaluate

    def opposite(properties: Mapping[str, str]) -> Value:
        value = evaluate(properties)
        return None if value is None else not value

    return _boolean(opposite, f"NOT {operand.shown}")


def both(left: Operand, right: Operand) -> Operand:
    """AND of three values: false wins, then null; what follows a false is not evaluated."""
    return _joined("AND", False, left, right)


def either(left: Operand, right: Operand) -> Operand:
    """OR of three values: true wins, then null; what follows a true is not evaluated."""
    return _joined("OR", True, left, right)


def _joined(word: str, winner: bool, left: Operand, right: Operand) -> Operand:
    left, right = condition(left), condition(right)
    terms = (*(left.terms if left.joined_by == word else (left.evaluate,)), right.evaluate)

    def join(properties: Mapping[str, str]) -> Value:
        result: Value = not winner
        for term in terms:
            value = term(properties)
            if value is winner:
                return winner
            if value is None:
                result = None
        return result

    shown = f"{left.shown} {word} {right.shown}" if len(left.shown) < 80 else left.shown
    return Operand(Type.BOOLEAN, join, shown, terms=terms, joined_by=word)


def _boolean(evaluate: Evaluate, shown: str) -> Operand:
    return Operand(Type.BOOLEAN, evaluate, shown)


# --- numbers --------------------------------------------------------------------------------------------------------


def minus(operand: Operand) -> Operand:
    """A negated number; anything else negated is null."""
    shown = f"-{operand.shown}"
    if operand.type in NUMBERS:
        value = -operand.value  # type: ignore[operator]
        return Operand(operand.type, lambda _: value, shown, value=value)
    evaluate = operand.evaluate

    def nothing(properties: Mapping[str, str]) -> Value:
        evaluate(properties)  # it may be a comparison that can't be made
        return None

    return Operand(Type.NULL, nothing, shown)


# --- comparing ------------------------------------------------------------------------------------------------------

_ORDER: dict[str, Callable[[Any, Any], bool]] = {
    ">": operator.gt,
    ">=": operator.ge,
    "<": operator.lt,
    "<=": operator.le,
    "=": operator.eq,
}
_FROM_TEXT: dict[Type, Callable[[str], Value]] = {
    Type.INT: java_int,
    Type.LONG: java_long,
    Type.DOUBLE: java_double,
    Type.BOOLEAN: java_boolean,
}


def ordered(symbol: str, left: Operand, right: Operand) -> Operand:
    """<, <=, > and >=: null when either side is."""
    for operand in (left, right):
        if operand.type is Type.BOOLEAN or (operand.constant and operand.type not in NUMBERS):
            raise OperandError(f"{operand.shown} has no order: expected a property or a number beside '{symbol}'")
    first, second, compare = left.evaluate, right.evaluate, _comparison(symbol, left.type, right.type)

    def evaluate(properties: Mapping[str, str]) -> Value:
        one = first(properties)
        if one is None:
            return None
        other = second(properties)
        return None if other is None else compare(one, other)

    return _boolean(evaluate, f"{left.shown} {symbol} {right.shown}")


def equal(left: Operand, right: Operand) -> Operand:
    """=: null when only the left side is null, false when only the right side is, true when both are."""
    for operand in (left, right):
        if operand.constant and operand.value is None:
            raise OperandError("NULL can't be compared: expected IS NULL or IS NOT NULL")
    if left.constant and right.constant and left.type is Type.BOOLEAN and right.type is not Type.BOOLEAN:
        raise OperandError(f"{left.shown} can't be compared with {right.shown}: expected TRUE or FALSE")
    first, second, compare = left.evaluate, right.evaluate, _comparison("=", left.type, right.type)

    def evaluate(properties: Mapping[str, str]) -> Value:
        one, other = first(properties), second(properties)
        if one is None:
            return True if other is None else None
        return False if other is None else compare(one, other)

    return _boolean(evaluate, f"{left.shown} = {right.shown}")


def is_null(operand: Operand) -> Operand:
    """IS NULL."""
    evaluate = operand.evaluate
    return _boolean(lambda properties: evaluate(properties) is None, f"{operand.shown} IS NULL")


def between(operand: Operand, low: Operand, high: Operand) -> Operand:
    """BETWEEN; two literals must be in order."""
    if low.constant and high.constant:
        if low.value is None or high.value is None:
            raise OperandError("the bounds of BETWEEN can't be NULL")
        numbers = low.type in NUMBERS and high.type in NUMBERS
        if numbers and _comparison("<", high.type, low.type)(high.value, low.value):
            raise OperandError(f"the bounds of BETWEEN are the wrong way round: {low.shown} is above {high.shown}")
    return both(ordered(">=", operand, low), ordered("<=", operand, high))


def not_between(operand: Operand, low: Operand, high: Operand) -> Operand:
    """NOT BETWEEN."""
    return either(ordered("<", operand, low), ordered(">", operand, high))


def _comparison(symbol: str, left: Type, right: Type) -> Callable[[Any, Any], bool]:
    """Compares two values that are not null, converting as Java does."""
    test = _ORDER[symbol]
    if left is right is Type.TEXT:
        if symbol == "=":
            return test
        return lambda one, other: test(order_doubles(java_double(one), java_double(other)), 0)
    if left is Type.TEXT and right in _FROM_TEXT:
        read = _FROM_TEXT[right]
        if right is Type.DOUBLE:
            return lambda one, other: test(order_doubles(java_double(one), other), 0)
        return lambda one, other: test(read(one), other)
    if right is Type.TEXT and left in NUMBERS:
        convert = _FROM_TEXT[left]
        if left is Type.DOUBLE:
            return lambda one, other: test(order_doubles(one, java_double(other)), 0)
        return lambda one, other: test(one, convert(other))
    if right is Type.TEXT and left is Type.BOOLEAN:
        return _not_comparable
    if left in NUMBERS and right in NUMBERS:
        if Type.DOUBLE in (left, right):
            return lambda one, other: test(order_doubles(float(one), float(other)), 0)
        return test
    if left is right is Type.BOOLEAN:
        return test
    # RocketMQ calls what has nothing in common "less".
    return lambda one, other: test(-1, 0)


def _not_comparable(one: Any, other: Any) -> bool:
    raise ValueError(f"{one!r} can't be compared with {other!r}")


# --- text -----------------------------------------------------------------------------------------------------------

_SEARCH: dict[str, Callable[[str, str], bool]] = {
    "CONTAINS": operator.contains,
    "STARTSWITH": str.startswith,
    "ENDSWITH": str.endswith,
}


def searched(word: str, operand: Operand, text: str, negated: bool) -> Operand:
    """CONTAINS, STARTSWITH, ENDSWITH and their NOT forms: false for what is null or not text, and for empty text."""
    search, evaluate = _SEARCH[word], operand.evaluate

    def test(properties: Mapping[str, str]) -> Value:
        if not text:
            return False
        value = evaluate(properties)
        return isinstance(value, str) and search(value, text) is not negated

    return _boolean(test, f"{operand.shown} {'NOT ' if negated else ''}{word} '{text}'")


def one_of(operand: Operand, values: Collection[str], negated: bool) -> Operand:
    """IN and NOT IN: null when the property is missing."""
    name = operand.property_name
    if name is None:
        raise OperandError(f"expected a property before IN, found {operand.shown}")
    wanted = frozenset(values)

    def test(properties: Mapping[str, str]) -> Value:
        value = properties.get(name)
        return None if value is None else (value in wanted) is not negated

    return _boolean(test, f"{name} {'NOT ' if negated else ''}IN (...)")
