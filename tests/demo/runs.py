"""Runs of the demo that never were: what must come of a stream, as if it had been seen."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime

from rocketstream.demo.billing import BillingNotes
from rocketstream.demo.expectation import Expectation, expect
from rocketstream.demo.orders import make_stream
from rocketstream.demo.outcome import Outcome, PipelineSeen, Sample
from rocketstream.demo.settings import MAX_RETRIES

START = datetime(2026, 3, 1, 8, 0, tzinfo=UTC)


def perfect_run(count: int = 1_000, *, spark: bool = True) -> tuple[Expectation, Outcome]:
    """A stream, and an outcome in which all of it arrived."""
    stream = make_stream(count, seed=3, start=START)
    expected = expect(stream, MAX_RETRIES)
    notes = BillingNotes(
        deliveries=expected.messages + expected.retries,
        handled=set(expected.handled_ids),
        duplicates=expected.duplicates,
        given_up=len(expected.dead_keys),
        latencies=[3, 5, 8, 120, 2_500] * (count // 5),
        failures=[(100.0 + i / 10, i % 4) for i in range(40)],
        retries=expected.retries,
        by_queue=Counter({("broker-a", i): count // 4 for i in range(4)}),
    )
    samples = [
        Sample(
            seconds=i / 2,
            sent=count * i // 20,
            delivered=count * i // 25,
            billed=count * i // 25,
            retries=i,
            given_up=i,
            billing_lag=count * i // 20 - count * i // 25,
            pipeline_rows=count * (i // 5) // 4 if spark else 0,
        )
        for i in range(21)
    ]
    outcome = Outcome(
        broker="the embedded broker",
        stream=stream,
        seed=3,
        samples=samples,
        billing=notes,
        sent=count,
        sent_by_queue=Counter({("broker-a", i): count // 4 for i in range(4)}),
        seconds=31.0,
        sending_seconds=10.0,
        opened_at=100.0,
        dead_keys=Counter(expected.dead_keys),
        pauses=[(2.0, 4.0)],
    )
    if spark:
        outcome.pipeline = PipelineSeen(
            rows_read=expected.topic_messages,
            table_ids=Counter(expected.order_ids),
            minutes=dict(expected.minutes),
            minute_rows=len(expected.minutes),
            results=dict(expected.minutes),
            result_messages=len(expected.minutes),
            result_ids=len(expected.minutes),
            unreadable_keys=Counter(expected.poison_keys),
            files=12,
            file_bytes=123_456,
            batches=9,
        )
    return expected, outcome
