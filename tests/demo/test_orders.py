"""The order stream: the same for the same seed, with exactly the shares of trouble that it promises."""

from __future__ import annotations

import json
from collections import Counter
from datetime import UTC, datetime, timedelta
from decimal import ROUND_HALF_UP, Decimal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rocketstream.demo.expectation import expect
from rocketstream.demo.orders import (
    ALWAYS,
    MAX_LATE_MINUTES,
    MINUTES,
    RATES,
    STATUSES,
    Kind,
    OrderStream,
    make_stream,
)
from tests.demo.runs import START

COUNT = 4_000


@pytest.fixture(scope="module")
def stream() -> OrderStream:
    return make_stream(COUNT, seed=7, start=START)


def test_the_same_seed_gives_the_same_messages_and_another_one_others(stream: OrderStream) -> None:
    assert make_stream(COUNT, seed=7, start=START) == stream
    assert make_stream(COUNT, seed=8, start=START).messages != stream.messages


def test_shares_are_as_promised(stream: OrderStream) -> None:
    kinds = Counter(message.kind for message in stream.messages)
    assert kinds == {Kind.ORDER: 3_900, Kind.DUPLICATE: 80, Kind.POISON: 20}
    orders = [message for message in stream.messages if message.kind is Kind.ORDER]
    assert sum(message.late_minutes > 0 for message in orders) == 120
    assert sum(message.failures > 0 for message in orders) == 120
    assert sum(message.failures == ALWAYS for message in orders) == 16
    # Different messages: each of these numbers can be read off by itself.
    assert not any(message.late_minutes and message.failures for message in orders)


def test_there_is_some_of_everything(stream: OrderStream) -> None:
    events = [message.event for message in stream.messages if message.event is not None]
    assert {event.status for event in events} == set(STATUSES)
    assert {event.currency for event in events} == set(RATES)
    assert len({event.region for event in events}) == 6
    minutes = Counter(event.minute for event in events)
    assert len(minutes) == MINUTES
    assert minutes[START + timedelta(minutes=38)] > 1.4 * minutes[START + timedelta(minutes=33)]  # the flash sale


def test_messages_are_sent_in_the_order_of_time_and_late_ones_after_their_minute(stream: OrderStream) -> None:
    minutes = [message.send_minute for message in stream.messages]
    assert minutes == sorted(minutes)
    assert [message for minute in stream.minutes() for message in minute] == list(stream.messages)
    for message in stream.messages:
        if message.event is not None and message.kind is Kind.ORDER:
            after = message.send_minute - (message.event.minute - START) // timedelta(minutes=1)
            assert after == message.late_minutes <= MAX_LATE_MINUTES


def test_a_repeated_event_comes_after_the_first_and_is_the_same(stream: OrderStream) -> None:
    bodies: dict[str, bytes] = {}
    for message in stream.messages:
        if message.kind is Kind.DUPLICATE:
            assert bodies[message.key] == message.body
        elif message.kind is Kind.ORDER:
            assert message.key not in bodies
            bodies[message.key] = message.body


def test_what_happens_to_an_order_happens_in_order(stream: OrderStream) -> None:
    by_order: dict[str, list[str]] = {}
    for event in sorted((m.event for m in stream.messages if m.event and m.kind is Kind.ORDER), key=lambda e: e.at):
        by_order.setdefault(event.order_id, []).append(event.status)
    assert set(map(tuple, by_order.values())) == {("paid",), ("paid", "shipped"), ("paid", "cancelled")}


def test_poison_is_no_json_and_all_else_is(stream: OrderStream) -> None:
    for message in (*stream.messages, stream.opening, stream.closing):
        if message.kind is Kind.POISON:
            with pytest.raises(ValueError, match=r".*"):
                json.loads(message.body)
        else:
            body = json.loads(message.body)
            assert datetime.fromisoformat(body["ordered_at"]) == message.event.at if message.event else False
            assert body["event_id"] == message.key
            assert body["status"] == message.tag


def test_ticks_are_before_and_long_after_the_orders(stream: OrderStream) -> None:
    assert stream.opening.event is not None
    assert stream.closing.event is not None
    assert stream.opening.event.at < stream.start
    # More than the watermark's ten minutes after the last order.
    assert stream.closing.event.at >= stream.end + timedelta(minutes=11)
    assert all(stream.start <= m.event.at < stream.end for m in stream.messages if m.event)


def test_the_start_is_a_whole_minute_of_universal_time() -> None:
    stream = make_stream(100, seed=1, start=datetime.fromisoformat("2026-03-01T10:00:31.5+02:00"))
    assert stream.start == START
    assert stream.start.tzinfo is UTC


@settings(max_examples=20)
@given(st.integers(100, 600), st.integers(0, 2**31), st.integers(0, 4))
def test_what_must_come_adds_up(count: int, seed: int, retries: int) -> None:
    stream = make_stream(count, seed, START)
    expected = expect(stream, retries)
    assert expected.messages == len(stream.messages) == count
    assert len(expected.order_ids) + expected.duplicates + len(expected.poison_keys) == count
    assert sum(row.orders for row in expected.minutes.values()) == len(expected.order_ids)
    assert expected.handled_ids | (expected.dead_keys - expected.poison_keys) == expected.order_ids
    assert not expected.handled_ids & expected.dead_keys
    euros = [(m.event.cents, RATES[m.event.currency]) for m in stream.messages if m.kind is Kind.ORDER and m.event]
    # As Spark's decimals are rounded: each amount by itself, half a cent up.
    rounded = [(Decimal(cents) * rate / 1_000_000).quantize(Decimal(1), ROUND_HALF_UP) for cents, rate in euros]
    assert expected.euro_cents == sum(rounded)


def test_retries_are_bounded_by_what_is_allowed() -> None:
    stream = make_stream(COUNT, seed=7, start=START)
    once, always = expect(stream, 1), expect(stream, 3)
    failing = sum(message.failures != 0 for message in stream.messages)
    assert once.retries == failing
    twice = sum(message.failures == 2 for message in stream.messages)
    assert always.retries == once.retries + twice + 2 * len(always.dead_keys)
