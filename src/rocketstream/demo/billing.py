"""The push consumer of the demo: a billing service that bills each order once, tries again, and gives up at last.

The rule of this file: whether handling an order fails is written in the message, so that what must become of each is
known; everything else (deliveries, retries, delays, dead letters) is the consumer's and the broker's doing.
"""

from __future__ import annotations

import json
import threading
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from rocketstream.clock import Clock
from rocketstream.consumer.results import ConsumeContext, ConsumeResult
from rocketstream.demo.orders import ALWAYS, TICK
from rocketstream.demo.settings import MAX_RETRIES, RETRY_LEVELS
from rocketstream.message import ReceivedMessage

FAILURES: Final = "demo_failures"
"""The property of a message that says how many tries fail."""


class NotBilled(Exception):
    """An order could not be billed now; the text says why."""


@dataclass(slots=True)
class BillingNotes:
    """What the service saw. It only grows; `Billing.notes` gives a copy."""

    deliveries: int = 0
    """Calls for a message: the first and all that came again."""
    handled: set[str] = field(default_factory=set)
    """The ids of the events that were billed."""
    duplicates: int = 0
    """Messages with an id that was billed before."""
    given_up: int = 0
    """Messages that failed for the last time."""
    latencies: list[int] = field(default_factory=list)
    """From a message's making to its first delivery, in milliseconds."""
    failures: list[tuple[float, int]] = field(default_factory=list)
    """Each failure: when, by the monotonic clock, and how often it had been tried before."""
    retries: int = 0
    """Deliveries that were not the first."""
    by_queue: Counter[tuple[str, int]] = field(default_factory=Counter)
    """First deliveries of each queue, by broker and queue id."""
    ticks: int = 0
    """Messages that only tell the time; they count nowhere else."""


class Billing:
    """The listener and its books."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._notes = BillingNotes()

    @property
    def finished(self) -> int:
        """How many messages need nothing more: billed, known already, or given up."""
        with self._lock:
            return len(self._notes.handled) + self._notes.duplicates + self._notes.given_up

    @property
    def ticks(self) -> int:
        """How often it was told the time."""
        with self._lock:
            return self._notes.ticks

    def counts(self) -> tuple[int, int, int, int]:
        """First deliveries, billed, retries, given up: for a display that asks often."""
        with self._lock:
            notes = self._notes
            return notes.deliveries - notes.retries, len(notes.handled), notes.retries, notes.given_up

    def notes(self) -> BillingNotes:
        """A copy of the books."""
        with self._lock:
            seen = self._notes
            return BillingNotes(
                deliveries=seen.deliveries,
                handled=set(seen.handled),
                duplicates=seen.duplicates,
                given_up=seen.given_up,
                latencies=list(seen.latencies),
                failures=list(seen.failures),
                retries=seen.retries,
                by_queue=Counter(seen.by_queue),
                ticks=seen.ticks,
            )

    def __call__(self, messages: Sequence[ReceivedMessage], context: ConsumeContext) -> ConsumeResult:
        """Bill an order; what can't be billed now comes again after a moment."""
        (message,) = messages
        tried = message.reconsume_times
        with self._lock:
            if message.tags == TICK:
                self._notes.ticks += 1
                return ConsumeResult.SUCCESS
            self._arrived(message, tried)
            try:
                self._bill(message, tried)
            except (NotBilled, ValueError):  # ValueError: what is no JSON
                self._notes.failures.append((self._clock.monotonic(), tried))
                if tried >= MAX_RETRIES:
                    self._notes.given_up += 1
                context.delay_level_when_next_consume = RETRY_LEVELS[min(tried, len(RETRY_LEVELS) - 1)]
                return ConsumeResult.RECONSUME_LATER
        return ConsumeResult.SUCCESS

    def _arrived(self, message: ReceivedMessage, tried: int) -> None:
        self._notes.deliveries += 1
        if tried:
            self._notes.retries += 1
        else:
            self._notes.latencies.append(max(0, self._clock.wall_ms() - message.born_timestamp))
            self._notes.by_queue[message.broker_name, message.queue_id] += 1

    def _bill(self, message: ReceivedMessage, tried: int) -> None:
        order = json.loads(message.body)
        failures = int(message.properties.get(FAILURES, "0"))
        if failures == ALWAYS or tried < failures:
            raise NotBilled(f"the payment provider did not answer for {order['order_id']}")
        event_id = order["event_id"]
        if event_id in self._notes.handled:
            self._notes.duplicates += 1
        else:
            self._notes.handled.add(event_id)
