"""From what a group wants of a topic to a `Match` that a store asks for each message (RocketMQ's message filters)."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import TypeAlias

from rocketstream.broker.records import record_properties
from rocketstream.broker.sql92 import SqlError, compile_expression
from rocketstream.broker.store.values import Match
from rocketstream.wire.bodies.subscription import SUBSCRIBE_ALL, SubscriptionData
from rocketstream.wire.codes import ExpressionType
from rocketstream.wire.java import java_string_hash

log = logging.getLogger("rocketstream.broker")

Predicate: TypeAlias = Callable[[Mapping[str, str]], bool]

# Java's String.trim() takes every character up to the space.
_JAVA_BLANKS = "".join(map(chr, range(0x21)))


class ExpressionError(Exception):
    """An expression that cannot be read: a bad SQL92 text, or tags without a tag."""


def is_tag_type(expression_type: str | None) -> bool:
    """Whether a subscription is by tags; that is also what no type means."""
    return not expression_type or expression_type == ExpressionType.TAG


def subscription_match(subscription: SubscriptionData) -> Match | None:
    """The filter of a subscription that came by heartbeat; None wants everything. `ExpressionError` if it is wrong."""
    if subscription.class_filter_mode:
        return None
    if not is_tag_type(subscription.expression_type):
        return _by_expression(subscription.sub_string, subscription.expression_type)
    if subscription.sub_string == SUBSCRIBE_ALL:
        return None
    return by_tags(subscription.code_set)


def expression_match(expression: str | None, expression_type: str | None) -> Match | None:
    """The filter of an expression; None wants everything. `ExpressionError` if it is wrong."""
    if is_tag_type(expression_type):
        return _by_tag_text(expression)
    return _by_expression(expression or "", expression_type or "")


@lru_cache(maxsize=1024)
def request_match(expression: str | None, expression_type: str | None) -> Match | None:
    """The filter that came with a pull; None wants everything. `ExpressionError` if there is none to speak of.

    An expression that cannot be read lets everything pass: that is what RocketMQ 5.5.0 does with a pull's own.
    """
    if expression_type is None or expression_type == ExpressionType.TAG:
        return _by_tag_text(expression)
    if not expression:
        raise ExpressionError(f"a subscription of type {expression_type!r} needs an expression")
    if not expression_type:
        # Tags that nobody has taken apart: their set of codes is empty.
        return None if expression == SUBSCRIBE_ALL else by_tags(frozenset())
    try:
        return _by_expression(expression, expression_type)
    except ExpressionError as error:
        log.warning("a pull's filter is wrong, so everything passes: %s", error)
        return None


def _by_tag_text(expression: str | None) -> Match | None:
    if not expression or expression == SUBSCRIBE_ALL:
        return None
    if not expression.replace("||", ""):
        raise ExpressionError(f"{expression!r} has no tag")
    tags = (part.strip(_JAVA_BLANKS) for part in expression.split("||"))
    return by_tags(frozenset(java_string_hash(tag) for tag in tags if tag))


def _by_expression(expression: str, expression_type: str) -> Match:
    if expression_type != ExpressionType.SQL92:
        raise ExpressionError(f"expressions of type {expression_type!r} are not known")
    try:
        return by_properties(compile_expression(expression))
    except SqlError as error:
        raise ExpressionError(str(error)) from error


def by_tags(codes: frozenset[int]) -> Match:
    """Messages whose tag has one of these hash codes; those without a tag have 0."""

    def match(tags_code: int, read: Callable[[], bytes]) -> bool:
        return tags_code in codes

    return match


def by_properties(predicate: Predicate) -> Match:
    """Messages whose properties satisfy a predicate."""

    def match(tags_code: int, read: Callable[[], bytes]) -> bool:
        try:
            return predicate(record_properties(read()))
        except Exception:
            # As in RocketMQ: what cannot be evaluated does not match, and one odd message stops nobody.
            log.exception("a filter failed on a message; it counts as not matching")
            return False

    return match
