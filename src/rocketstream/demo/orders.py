"""The order stream of the demo: an hour in a shop's life, made from a seed.

The rule of this file: the same seed, size and start give the same messages, byte for byte, and the shares of late,
repeated, broken and failing ones are exact. So what has to come out at the other end is known before anything is sent.

The hour has a wave in it, a flash sale, and some minutes in which too many orders are cancelled. A message is sent in
the simulated minute in which it happens, except for late ones, which come up to `MAX_LATE_MINUTES` after it.
"""

from __future__ import annotations

import json
import math
import random
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Final

MINUTES: Final = 60
"""How many simulated minutes the stream has."""
MAX_LATE_MINUTES: Final = 5
"""So many minutes after it happened a late message is sent at most."""
ALWAYS: Final = -1
"""The handling of such a message fails however often it is tried."""
TICK: Final = "tick"
"""The status of the first and the last message. They are no orders and say only what time it is: the first one wakes
everybody up, the last one closes the windows."""
STATUSES: Final = ("paid", "shipped", "cancelled")

LATE_SHARE: Final = 0.03
DUPLICATE_SHARE: Final = 0.02
POISON_SHARE: Final = 0.005
FLAKY_SHARE: Final = 0.03
HOPELESS_SHARE: Final = 0.004

_SALE_MINUTE = 38
_INCIDENT = range(45, 50)


@dataclass(frozen=True, slots=True)
class Region:
    """Where orders come from, with its share of them and what is paid with there."""

    name: str
    title: str
    weight: int
    currencies: tuple[tuple[str, int], ...]


REGIONS: Final = (
    Region("eu-west", "Western Europe", 30, (("EUR", 80), ("GBP", 20))),
    Region("eu-north", "Nordics", 12, (("SEK", 60), ("EUR", 40))),
    Region("us-east", "US East", 24, (("USD", 100),)),
    Region("us-west", "US West", 14, (("USD", 100),)),
    Region("asia-east", "East Asia", 15, (("JPY", 90), ("USD", 10))),
    Region("latam", "Latin America", 5, (("BRL", 70), ("USD", 30))),
)
#: What one unit is in euros, in millionths: whole numbers, so that sums are exact.
RATES: Final = {"EUR": 1_000_000, "GBP": 1_170_000, "USD": 920_000, "SEK": 87_000, "JPY": 6_100, "BRL": 168_000}


class Kind(StrEnum):
    """What a message of the stream is."""

    ORDER = "order"
    DUPLICATE = "duplicate"
    POISON = "poison"
    TICK = "tick"


@dataclass(frozen=True, slots=True)
class OrderEvent:
    """One thing that happened to an order."""

    event_id: str
    order_id: str
    customer: str
    status: str
    region: str
    currency: str
    cents: int
    """The amount in hundredths of the currency."""
    at: datetime

    @property
    def minute(self) -> datetime:
        """The start of the minute in which it happened."""
        return self.at.replace(second=0, microsecond=0)

    @property
    def euro_cents(self) -> int:
        """The amount in euro cents, half a cent rounded up, as the pipeline's SQL does."""
        return (self.cents * RATES[self.currency] + 500_000) // 1_000_000

    def to_json(self) -> bytes:
        """The body of its message."""
        document = {
            "event_id": self.event_id,
            "order_id": self.order_id,
            "customer": self.customer,
            "status": self.status,
            "region": self.region,
            "currency": self.currency,
            "amount": self.cents / 100,
            "ordered_at": self.at.strftime("%Y-%m-%dT%H:%M:%S.") + f"{self.at.microsecond // 1000:03d}Z",
        }
        return json.dumps(document, separators=(",", ":")).encode()


@dataclass(frozen=True, slots=True)
class Planned:
    """One message of the stream."""

    send_minute: int
    """In which simulated minute it is sent, from 0."""
    kind: Kind
    tag: str
    key: str
    """What it is known by in the broker: the event's id."""
    order_id: str
    body: bytes
    event: OrderEvent | None = None
    """None when the body is poison."""
    late_minutes: int = 0
    failures: int = 0
    """How many tries to handle it fail; ALWAYS: all of them."""


@dataclass(frozen=True, slots=True)
class OrderStream:
    """Everything that is sent, in this order, between two ticks."""

    start: datetime
    opening: Planned
    messages: tuple[Planned, ...]
    closing: Planned

    @property
    def end(self) -> datetime:
        """Before this moment all its orders happened."""
        return self.start + timedelta(minutes=MINUTES)

    def minutes(self) -> list[list[Planned]]:
        """The messages by the minute in which they are sent."""
        sent: list[list[Planned]] = [[] for _ in range(MINUTES)]
        for message in self.messages:
            sent[message.send_minute].append(message)
        return sent


def make_stream(count: int, seed: int, start: datetime) -> OrderStream:
    """The stream of `count` messages (ticks not counted) that begins at `start`, rounded down to the minute."""
    chance = random.Random(seed)
    start = start.astimezone(UTC).replace(second=0, microsecond=0)
    duplicates, poison = round(count * DUPLICATE_SHARE), round(count * POISON_SHARE)
    events = _events(count - duplicates - poison, chance, start)
    # Late, repeated and failing are different messages, so that each of their numbers can be read off by itself.
    choosable = [i for i, event in enumerate(events) if _minute(event, start) < MINUTES - MAX_LATE_MINUTES]
    chance.shuffle(choosable)
    late = {choosable.pop(): chance.randint(1, MAX_LATE_MINUTES) for _ in range(round(count * LATE_SHARE))}
    failing = {choosable.pop(): chance.choice((1, 1, 2)) for _ in range(round(count * FLAKY_SHARE))}
    failing |= {choosable.pop(): ALWAYS for _ in range(round(count * HOPELESS_SHARE))}
    repeated = {choosable.pop(): chance.randint(0, 2) for _ in range(duplicates)}
    # By the moment at which each is sent, in seconds of the simulation.
    sent: list[tuple[float, Planned]] = []
    for i, event in enumerate(events):
        moment = (event.at - start).total_seconds()
        wait = late.get(i, 0)
        sent.append((moment + 60 * wait, _order(event, moment, Kind.ORDER, wait, failing.get(i, 0))))
        if i in repeated:
            again = min(moment + 60 * repeated[i] + chance.uniform(1, 20), 60 * MINUTES - 0.001)
            sent.append((again, _order(event, again, Kind.DUPLICATE, 0, 0)))
    for i in range(poison):
        moment = chance.random() * 60 * MINUTES
        sent.append((moment, _poison(i, chance.choice(events), moment, chance)))
    sent.sort(key=lambda pair: pair[0])
    opening, closing = _tick(0, start - timedelta(minutes=1)), _tick(1, start + timedelta(minutes=2 * MINUTES))
    return OrderStream(start, opening, tuple(message for _, message in sent), closing)


def _minute(event: OrderEvent, start: datetime) -> int:
    return int((event.at - start).total_seconds() // 60)


def _events(count: int, chance: random.Random, start: datetime) -> list[OrderEvent]:
    """Orders are paid, and most of them shipped or cancelled some minutes later, until there are enough events."""
    busyness = [_busyness(minute) for minute in range(MINUTES)]
    weights = [region.weight for region in REGIONS]
    made: list[tuple[float, str, int, Region, str, int]] = []
    number = 0
    while len(made) < count:
        number += 1
        region = chance.choices(REGIONS, weights)[0]
        currency = chance.choices([c for c, _ in region.currencies], [w for _, w in region.currencies])[0]
        euros = min(chance.lognormvariate(3.7, 0.8), 5_000.0)
        cents = max(1, round(euros * 1_000_000 / RATES[currency])) * 100
        if currency != "JPY":  # the only one without hundredths
            cents += chance.randrange(100)
        minute = chance.choices(range(MINUTES), busyness)[0]
        paid_at = 60 * minute + chance.uniform(0, 60)
        made.append((paid_at, "paid", number, region, currency, cents))
        status = "cancelled" if chance.random() < (0.55 if minute + 4 in _INCIDENT else 0.12) else "shipped"
        next_at = paid_at + (chance.uniform(180, 300) if status == "cancelled" else chance.uniform(240, 1_200))
        if next_at < 60 * MINUTES and len(made) < count:
            made.append((next_at, status, number, region, currency, cents))
    made.sort(key=lambda one: (one[0], one[2]))
    return [
        OrderEvent(
            event_id=f"E{i:07d}",
            order_id=f"O{number:07d}",
            customer=f"C{number * 7919 % 9973:04d}",
            status=status,
            region=region.name,
            currency=currency,
            cents=cents,
            at=start + timedelta(milliseconds=int(seconds * 1000)),
        )
        for i, (seconds, status, number, region, currency, cents) in enumerate(made)
    ]


def _busyness(minute: int) -> float:
    """How many orders come in a minute, beside others: a wave, and a flash sale on top."""
    wave = 1.0 + 0.35 * math.sin(2 * math.pi * minute / 42)
    return wave + 1.9 * math.exp(-(((minute - _SALE_MINUTE) / 2.4) ** 2))


def _order(event: OrderEvent, moment: float, kind: Kind, late: int, failures: int) -> Planned:
    return Planned(
        send_minute=min(int(moment // 60) + late, MINUTES - 1),
        kind=kind,
        tag=event.status,
        key=event.event_id,
        order_id=event.order_id,
        body=event.to_json(),
        event=event,
        late_minutes=late,
        failures=failures,
    )


def _poison(number: int, like: OrderEvent, moment: float, chance: random.Random) -> Planned:
    """A body that is no JSON, as they come in real life: cut off, a text, a page, other bytes."""
    whole = like.to_json()
    body = (
        whole[: chance.randint(len(whole) // 3, len(whole) - 2)],
        f"order {like.order_id} {like.status} by {like.customer}".encode(),
        b"<html><body><h1>502 Bad Gateway</h1></body></html>",
        b"\x00\x9f" + chance.randbytes(24),
    )[number % 4]
    return Planned(
        send_minute=int(moment // 60),
        kind=Kind.POISON,
        tag=like.status,
        key=f"P{number:05d}",
        order_id=f"P{number:05d}",
        body=body,
        failures=ALWAYS,
    )


def _tick(number: int, at: datetime) -> Planned:
    event = OrderEvent(f"T{number}", f"T{number}", "", TICK, REGIONS[0].name, "EUR", 0, at)
    return Planned(0, Kind.TICK, TICK, event.event_id, event.order_id, event.to_json(), event)
