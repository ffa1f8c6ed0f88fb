"""Which messages of a topic a consumer wants: by tag, or by an SQL92 condition on properties.

Pure values. What brokers are told of them is in `wire/subscription.py`.
"""

from __future__ import annotations

from dataclasses import dataclass

from rocketstream.cluster.names import RETRY_PREFIX, check_topic
from rocketstream.errors import ConfigurationError
from rocketstream.wire.bodies.subscription import SUBSCRIBE_ALL, SubscriptionData
from rocketstream.wire.codes import ExpressionType
from rocketstream.wire.subscription import subscription


@dataclass(frozen=True, slots=True)
class Tag:
    """One of these tags: `Tag("paid || shipped")`; "*" is everything."""

    expression: str = SUBSCRIBE_ALL

    def __post_init__(self) -> None:
        expression: object = self.expression
        if not isinstance(expression, str):
            raise ConfigurationError(f"expression={expression!r} must be a text like 'paid || shipped', or '*'")


@dataclass(frozen=True, slots=True)
class Sql:
    """A condition on the properties: `Sql("amount > 100 AND region = 'eu'")`; brokers need `enablePropertyFilter`."""

    expression: str

    def __post_init__(self) -> None:
        expression: object = self.expression
        if not isinstance(expression, str) or not expression.strip():
            raise ConfigurationError(f"expression={expression!r} must be an SQL92 condition like 'amount > 100'")


def subscription_to(topic: str, expression: str | Tag | Sql, version: int) -> SubscriptionData:
    """What brokers are told of a subscription; a plain text is a `Tag`, and `version` grows with every change."""
    if not (isinstance(topic, str) and topic.startswith(RETRY_PREFIX)):  # brokers name those, and not as users may
        check_topic(topic)
    if isinstance(expression, str):
        expression = Tag(expression)
    if isinstance(expression, Tag):
        return subscription(topic, expression.expression, ExpressionType.TAG, version)
    if isinstance(expression, Sql):
        return subscription(topic, expression.expression, ExpressionType.SQL92, version)
    raise ConfigurationError(f"expression={expression!r} for topic {topic!r} must be a text, Tag(...) or Sql(...)")
