"""The billing service: what it does with an order, a repeated one, one that fails, and poison."""

from __future__ import annotations

import pytest

from rocketstream.clock import ManualClock
from rocketstream.consumer.results import ConsumeContext, ConsumeResult
from rocketstream.demo.billing import FAILURES, Billing
from rocketstream.demo.orders import ALWAYS, TICK, OrderEvent
from rocketstream.message import MessageHeader, MessageQueue, ReceivedMessage
from tests.demo.runs import START

QUEUE = MessageQueue("demo-orders", "broker-a", 1)


def message(event_id: str = "E1", *, tried: int = 0, failures: int = 0, body: bytes | None = None) -> ReceivedMessage:
    event = OrderEvent(event_id, "O1", "C1", "paid", "eu-west", "EUR", 1234, START)
    return ReceivedMessage(
        QUEUE.topic,
        event.to_json() if body is None else body,
        keys=event_id,
        properties={FAILURES: str(failures)} if failures else None,
        broker_name=QUEUE.broker_name,
        queue_id=QUEUE.queue_id,
        header=MessageHeader(reconsume_times=tried, born_timestamp=1_700_000_000_000),
    )


@pytest.fixture
def billing() -> Billing:
    return Billing(ManualClock(wall=1_700_000_000.020))


def deliver(billing: Billing, one: ReceivedMessage) -> tuple[ConsumeResult, int]:
    context = ConsumeContext(QUEUE)
    return billing([one], context), context.delay_level_when_next_consume


def test_an_order_is_billed_once(billing: Billing) -> None:
    assert deliver(billing, message())[0] is ConsumeResult.SUCCESS
    assert deliver(billing, message())[0] is ConsumeResult.SUCCESS
    notes = billing.notes()
    assert (notes.handled, notes.duplicates, notes.deliveries, notes.retries) == ({"E1"}, 1, 2, 0)
    assert notes.latencies == [20, 20]
    assert notes.by_queue == {("broker-a", 1): 2}


def test_one_that_fails_comes_again_until_it_succeeds(billing: Billing) -> None:
    assert deliver(billing, message(failures=2)) == (ConsumeResult.RECONSUME_LATER, 1)
    assert deliver(billing, message(failures=2, tried=1)) == (ConsumeResult.RECONSUME_LATER, 1)
    assert billing.finished == 0
    assert deliver(billing, message(failures=2, tried=2))[0] is ConsumeResult.SUCCESS
    notes = billing.notes()
    assert (notes.handled, notes.retries, notes.given_up) == ({"E1"}, 2, 0)
    assert [tried for _, tried in notes.failures] == [0, 1]
    assert len(notes.latencies) == 1
    assert billing.finished == 1


@pytest.mark.parametrize("body", [None, b"not JSON", b"\x9f\x00", b'{"event_id": "E1"'])
def test_what_always_fails_is_given_up_after_the_last_try(billing: Billing, body: bytes | None) -> None:
    levels = [deliver(billing, message(failures=ALWAYS, tried=tried, body=body)) for tried in range(4)]
    assert levels == [(ConsumeResult.RECONSUME_LATER, level) for level in (1, 1, 2, 2)]
    notes = billing.notes()
    assert (notes.handled, notes.retries, notes.given_up) == (set(), 3, 1)
    assert billing.finished == 1
    assert billing.counts() == (1, 0, 3, 1)


def test_what_only_tells_the_time_counts_nowhere_else(billing: Billing) -> None:
    tick = ReceivedMessage(QUEUE.topic, b"{}", tags=TICK, broker_name="broker-a", queue_id=1)
    assert deliver(billing, tick)[0] is ConsumeResult.SUCCESS
    assert (billing.ticks, billing.finished, billing.counts()) == (1, 0, (0, 0, 0, 0))


def test_its_books_are_a_copy(billing: Billing) -> None:
    before = billing.notes()
    deliver(billing, message())
    assert (before.handled, before.deliveries) == (set(), 0)
