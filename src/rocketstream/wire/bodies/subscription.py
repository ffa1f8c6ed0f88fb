"""A subscription as heartbeats carry it and brokers report it; `wire.subscription` builds it."""

from __future__ import annotations

from rocketstream.wire.bodies.base import Body, body
from rocketstream.wire.java import Int32, Int64

SUBSCRIBE_ALL = "*"


@body
class SubscriptionData(Body):
    """What a group wants of a topic. Brokers filter by `code_set`; clients filter again by `tags_set`."""

    topic: str
    sub_string: str = SUBSCRIBE_ALL
    tags_set: frozenset[str] = frozenset()
    code_set: frozenset[Int32] = frozenset()
    sub_version: Int64 = 0
    expression_type: str = "TAG"
    class_filter_mode: bool = False


@body
class QuerySubscriptionResponseBody(Body):
    """QUERY_SUBSCRIPTION_BY_CONSUMER: what a group asked of a topic, if it did."""

    group: str
    topic: str | None = None
    subscription_data: SubscriptionData | None = None


@body
class CheckClientRequestBody(Body):
    """CHECK_CLIENT_CONFIG: would the broker take this subscription (START-09)?"""

    client_id: str
    group: str
    subscription_data: SubscriptionData
    namespace: str | None = None
