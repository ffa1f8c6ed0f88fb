"""From what a user subscribes to, to what a broker is told (`FilterAPI.java`).

A tag expression is told as the set of its tags and the set of their hash codes: the broker compares only hash codes,
so two tags with the same one ("Aa", "BB") both arrive, and the client compares the tags themselves.
"""

from __future__ import annotations

from rocketstream.errors import ConfigurationError
from rocketstream.wire.bodies.subscription import SUBSCRIBE_ALL, SubscriptionData
from rocketstream.wire.codes import ExpressionType
from rocketstream.wire.java import java_string_hash

__all__ = ["SUBSCRIBE_ALL", "SubscriptionData", "java_string_hash", "parse_tags", "subscription"]

# Java's String.trim() takes every character up to the space.
_JAVA_BLANKS = "".join(map(chr, range(0x21)))


def parse_tags(expression: str) -> frozenset[str]:
    """The tags of "a || b"; empty parts count for nothing."""
    return frozenset(tag for part in expression.split("||") if (tag := part.strip(_JAVA_BLANKS)))


def subscription(
    topic: str,
    expression: str | None = SUBSCRIBE_ALL,
    expression_type: str = ExpressionType.TAG,
    version: int = 0,
) -> SubscriptionData:
    """The subscription to a topic; no expression, or "*", is everything.

    `version` grows when the subscription changes; Java uses milliseconds since the epoch.
    """
    if expression_type != ExpressionType.TAG:
        if not expression:
            raise ConfigurationError(f"the {expression_type} subscription to topic {topic!r} has no expression")
        return SubscriptionData(
            topic=topic, sub_string=expression, sub_version=version, expression_type=str(expression_type)
        )
    if not expression or expression.strip(_JAVA_BLANKS) == SUBSCRIBE_ALL:
        return SubscriptionData(topic=topic, sub_version=version)
    tags = parse_tags(expression)
    if not tags:
        raise ConfigurationError(
            f"the subscription {expression!r} to topic {topic!r} names no tag; '*' subscribes to everything"
        )
    return SubscriptionData(
        topic=topic,
        sub_string=expression,
        tags_set=tags,
        code_set=frozenset(map(java_string_hash, tags)),
        sub_version=version,
    )
