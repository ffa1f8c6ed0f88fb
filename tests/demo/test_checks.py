"""Whether everything adds up: a perfect run does, and whatever is missing or too much is noticed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from rocketstream.demo.checks import check
from rocketstream.demo.expectation import Expectation, MinuteRow
from rocketstream.demo.outcome import Outcome, PipelineSeen, Sample, batch_rates, percentile, rates
from rocketstream.demo.summary import summarize
from tests.demo.runs import perfect_run


def failed(expected: Expectation, outcome: Outcome) -> list[str]:
    return [one.title for one in check(expected, outcome) if not one.holds]


@pytest.mark.parametrize("spark", [True, False])
def test_a_perfect_run_adds_up(spark: bool) -> None:
    expected, outcome = perfect_run(spark=spark)
    checks = check(expected, outcome)
    assert [one.title for one in checks if not one.holds] == []
    assert len(checks) == (12 if spark else 6)


def seen(outcome: Outcome) -> PipelineSeen:
    assert outcome.pipeline is not None
    return outcome.pipeline


def lose_a_sent_one(outcome: Outcome) -> None:
    outcome.sent -= 1


def lose_a_billed_one(outcome: Outcome) -> None:
    outcome.billing.handled.pop()


def bill_a_dead_one(outcome: Outcome) -> None:
    outcome.billing.handled.add(next(iter(outcome.dead_keys)))


def miss_a_duplicate(outcome: Outcome) -> None:
    outcome.billing.duplicates -= 1


def miss_a_retry(outcome: Outcome) -> None:
    outcome.billing.retries -= 1


def lose_a_dead_letter(outcome: Outcome) -> None:
    outcome.dead_keys.pop(next(iter(outcome.dead_keys)))


def leave_a_lag(outcome: Outcome) -> None:
    outcome.billing_lag = 1


def lose_a_row(outcome: Outcome) -> None:
    seen(outcome).table_ids.popitem()


def write_a_row_twice(outcome: Outcome) -> None:
    seen(outcome).table_ids[next(iter(seen(outcome).table_ids))] += 1


def count_one_too_few(outcome: Outcome) -> None:
    key, row = next(iter(seen(outcome).minutes.items()))
    seen(outcome).minutes[key] = MinuteRow(row.orders - 1, row.euro_cents)


def write_a_minute_twice(outcome: Outcome) -> None:
    seen(outcome).minute_rows += 1


def lose_a_cent(outcome: Outcome) -> None:
    key, row = next(iter(seen(outcome).minutes.items()))
    seen(outcome).minutes[key] = MinuteRow(row.orders, row.euro_cents - 1)


def lose_a_result(outcome: Outcome) -> None:
    seen(outcome).results.popitem()


def send_a_row_with_another_id(outcome: Outcome) -> None:
    seen(outcome).result_ids += 1


def lose_an_unreadable_one(outcome: Outcome) -> None:
    seen(outcome).unreadable_keys.popitem()


COUNTS = "The counts per minute are right, late orders included"


@pytest.mark.parametrize(
    ("damage", "noticed"),
    [
        (lose_a_sent_one, {"Every message of the stream was stored"}),
        (lose_a_billed_one, {"Every order that can be billed was billed"}),
        (bill_a_dead_one, {"Every order that can be billed was billed"}),
        (miss_a_duplicate, {"Orders that came twice were billed once"}),
        (miss_a_retry, {"What failed came again"}),
        (lose_a_dead_letter, {"What can't be billed is a dead letter"}),
        (leave_a_lag, {"The billing group has no lag"}),
        (lose_a_row, {"Every order is in the table"}),
        (write_a_row_twice, {"No order is in the table twice"}),
        (count_one_too_few, {COUNTS}),
        (write_a_minute_twice, {COUNTS}),
        (lose_a_cent, {COUNTS, "The revenue is right to the cent"}),
        (lose_a_result, {"The results on the topic are the table's"}),
        (send_a_row_with_another_id, {"The results on the topic are the table's"}),
        (lose_an_unreadable_one, {"What can't be parsed was set aside"}),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_what_does_not_add_up_is_noticed(damage: Callable[[Outcome], None], noticed: set[str]) -> None:
    expected, outcome = perfect_run()
    damage(outcome)
    assert set(failed(expected, outcome)) == noticed


def test_at_least_once_is_fine_where_somebody_drops_what_came_twice() -> None:
    expected, outcome = perfect_run()
    outcome.billing.duplicates += 5
    outcome.billing.retries += 5
    outcome.dead_keys[next(iter(outcome.dead_keys))] += 1
    seen(outcome).result_messages += 3  # with the same row ids
    assert failed(expected, outcome) == []


def test_a_check_tells_what_is_missing_and_what_is_too_much() -> None:
    expected, outcome = perfect_run()
    lost = outcome.billing.handled.pop()
    outcome.billing.handled.add("X1")
    (bad,) = [one for one in check(expected, outcome) if not one.holds]
    whole = len(expected.handled_ids)
    assert bad.detail == (
        f"{whole - 1:,} of {whole:,} orders; missing, for instance: {lost}; 1 that should not be there, for instance X1"
    )


# --- the numbers ----------------------------------------------------------------------------------------------------


def test_the_summary_counts() -> None:
    expected, outcome = perfect_run(1_000)
    summary = summarize(outcome)
    assert (summary.produced, summary.delivered, summary.billed) == (1_000, 1_000, len(expected.handled_ids))
    assert summary.retries == expected.retries
    assert summary.dead_letters == len(expected.dead_keys)
    assert (summary.latency_p50, summary.latency_p99) == (8, 2_500)
    assert summary.pipeline is not None
    assert summary.pipeline["duplicates_dropped"] == expected.duplicates == 20
    document = summary.to_dict(check(expected, outcome), None, "report.html")
    assert document["ok"] is True
    assert document["pipeline"]["orders"] == len(expected.order_ids)


@pytest.mark.parametrize(("ended_early", "lag"), [("it was interrupted", 0), (None, 1)])
def test_what_is_not_whole_is_not_ok(ended_early: str | None, lag: int) -> None:
    expected, outcome = perfect_run()
    outcome.billing_lag = lag
    document = summarize(outcome).to_dict(check(expected, outcome), ended_early, "report.html")
    assert document["ok"] is False
    assert document["complete"] is (ended_early is None)


def test_a_run_that_ended_at_once_has_a_summary() -> None:
    _, outcome = perfect_run(spark=False)
    outcome.samples.clear()
    outcome.billing.latencies.clear()
    outcome.sent = 0
    outcome.dead_keys.clear()
    summary = summarize(outcome)
    assert (summary.produced, summary.peak_sent, summary.latency_p99, summary.pipeline) == (0, 0.0, 0, None)
    assert summary.dead_letters == outcome.billing.given_up  # not yet read back


def sample(seconds: float, sent: int = 0, rows: int = 0) -> Sample:
    return replace(Sample(seconds, sent, 0, 0, 0, 0, 0), pipeline_rows=rows)


def test_rates_are_over_the_last_second() -> None:
    samples = [sample(0, 0), sample(0.5, 10), sample(1, 30), sample(1.5, 60), sample(2.5, 60), sample(3.5, 60)]
    assert rates(samples, "sent") == [(0.5, 20), (1, 30), (1.5, 50), (2.5, 0), (3.5, 0)]
    assert rates([], "sent") == rates(samples[:1], "sent") == []


def test_a_batch_is_read_in_the_time_since_the_one_before() -> None:
    samples = [sample(0), sample(1), sample(2, rows=100), sample(3, rows=100), sample(4, rows=120), sample(5, rows=120)]
    assert batch_rates(samples) == [(0, 50), (1, 50), (2, 50), (3, 10), (4, 10), (5, 0)]
    assert batch_rates([]) == []


@pytest.mark.parametrize(
    ("values", "share", "answer"),
    [([], 0.5, 0), ([7], 0.99, 7), ([1, 2, 3, 4], 0.5, 2), ([4, 3, 2, 1], 0.75, 3), (list(range(1, 101)), 0.99, 99)],
)
def test_percentiles(values: list[int], share: float, answer: int) -> None:
    assert percentile(values, share) == answer
