"""What has to come out of the demo, told from what goes in.

The rule of this file: arithmetic over the order stream and nothing else. What was seen is compared with it in
`checks.py`.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from datetime import datetime

from rocketstream.demo.orders import ALWAYS, Kind, OrderStream

MinuteKey = tuple[datetime, str, str]
"""A row of the pipeline's result: the minute, the region, the status."""


@dataclass(frozen=True, slots=True)
class MinuteRow:
    """How many orders there were in a minute of a region and a status, and what they were worth."""

    orders: int
    euro_cents: int


@dataclass(frozen=True, slots=True)
class Expectation:
    """The numbers that must add up."""

    messages: int
    """Messages on the topic, ticks not counted."""
    order_ids: frozenset[str]
    """The ids of all orders' events, each once: these must be in the table."""
    handled_ids: frozenset[str]
    """The same without those whose handling always fails: these must have been billed."""
    dead_keys: frozenset[str]
    """The keys of what must end among the dead letters of the push consumer."""
    poison_keys: frozenset[str]
    """The keys of what the pipeline can't parse."""
    duplicates: int
    late: int
    failing: int
    """Messages whose handling fails at first and succeeds in the end."""
    retries: int
    """How often messages have to be delivered once more."""
    minutes: dict[MinuteKey, MinuteRow]
    """What the pipeline must count."""

    @property
    def topic_messages(self) -> int:
        """Messages on the topic with the two ticks: as many rows the pipeline reads."""
        return self.messages + 2

    @property
    def euro_cents(self) -> int:
        """What all orders are worth."""
        return sum(row.euro_cents for row in self.minutes.values())


def expect(stream: OrderStream, max_retries: int) -> Expectation:
    """What must come of a stream when a message that fails is tried `max_retries` times more."""
    orders: Counter[MinuteKey] = Counter()
    cents: Counter[MinuteKey] = Counter()
    for message in stream.messages:
        if message.kind is Kind.ORDER and message.event is not None:
            key = (message.event.minute, message.event.region, message.event.status)
            orders[key] += 1
            cents[key] += message.event.euro_cents
    valid = [message for message in stream.messages if message.kind is Kind.ORDER]
    poison = frozenset(message.key for message in stream.messages if message.kind is Kind.POISON)
    hopeless = frozenset(message.key for message in valid if message.failures == ALWAYS)
    return Expectation(
        messages=len(stream.messages),
        order_ids=frozenset(message.key for message in valid),
        handled_ids=frozenset(message.key for message in valid) - hopeless,
        dead_keys=poison | hopeless,
        poison_keys=poison,
        duplicates=sum(message.kind is Kind.DUPLICATE for message in stream.messages),
        late=sum(message.late_minutes > 0 for message in stream.messages),
        failing=sum(message.failures > 0 for message in stream.messages),
        retries=sum(max_retries if m.failures == ALWAYS else min(m.failures, max_retries) for m in stream.messages),
        minutes={key: MinuteRow(orders[key], cents[key]) for key in orders},
    )
