"""How ranges are pulled: for whom, with which filter, how much at a time and how far ahead."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from rocketstream.consumer.expressions import Sql, Tag, subscription_to
from rocketstream.spark.link import OUTAGE, READERS_GROUP
from rocketstream.wire.bodies.subscription import SUBSCRIBE_ALL, SubscriptionData

EVERYTHING: Final = Tag()


@dataclass(frozen=True, slots=True)
class PullSettings:
    """What a task that pulls has to know; it travels to executors."""

    group: str = READERS_GROUP
    expression: Tag | Sql = EVERYTHING
    """Which messages are wanted of topics that `expressions` does not name."""
    expressions: Mapping[str, Tag | Sql] = field(default_factory=dict)
    """By topic, as brokers know it."""
    pull_batch_size: int = 4096
    """How many messages are asked for at a time; brokers at their defaults give 32."""
    max_answer_bytes: int = 4 * 1024 * 1024
    fail_on_data_loss: bool = True
    outage: float = OUTAGE
    prefetch_bytes: int = 32 * 1024 * 1024
    """How much is pulled ahead of who reads it."""
    pulls_at_once: int = 16
    stretch: int = 4096
    """How many offsets of a queue are pulled by one request after the other: an answer's worth of a broker that gives
    as much as it is asked for. Several stretches of a queue are pulled at a time."""
    rows_per_group: int = 8_000
    bytes_per_group: int = 8 * 1024 * 1024

    def subscription(self, topic: str) -> SubscriptionData:
        """What the broker is told of a topic."""
        return subscription_to(topic, self.expressions.get(topic, self.expression), 1)

    def filters(self, topic: str) -> bool:
        """Whether not every message of a topic is wanted."""
        expression = self.expressions.get(topic, self.expression)
        return isinstance(expression, Sql) or self.subscription(topic).sub_string != SUBSCRIBE_ALL
