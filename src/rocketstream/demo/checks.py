"""Whether everything adds up: what was seen beside what had to come.

The rule of this file: a check compares whole sets and exact numbers, and says both when they differ. RocketMQ delivers
at least once, so "twice" is fine where the next one in line is the one to drop it, and nowhere else.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from rocketstream.demo.expectation import Expectation
from rocketstream.demo.outcome import Outcome, PipelineSeen


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that has to hold."""

    title: str
    holds: bool
    detail: str
    """The numbers behind it."""


def check(expected: Expectation, seen: Outcome) -> list[Check]:
    """Everything that has to hold of a whole run."""
    checks = [
        Check(
            "Every message of the stream was stored",
            seen.sent == expected.messages,
            f"{seen.sent:,} of {expected.messages:,}",
        ),
        _same("Every order that can be billed was billed", expected.handled_ids, seen.billing.handled, "orders"),
        Check(
            "Orders that came twice were billed once",
            seen.billing.duplicates >= expected.duplicates,
            f"{seen.billing.duplicates:,} dropped, {expected.duplicates:,} were sent twice",
        ),
        Check(
            "What failed came again",
            seen.billing.retries >= expected.retries,
            f"{seen.billing.retries:,} retries, {expected.retries:,} are due",
        ),
        _same("What can't be billed is a dead letter", expected.dead_keys, seen.dead_keys, "messages"),
        Check("The billing group has no lag", seen.billing_lag == 0, f"{seen.billing_lag:,} messages"),
    ]
    if seen.pipeline is not None:
        checks += _pipeline_checks(expected, seen.pipeline)
    return checks


def _pipeline_checks(expected: Expectation, seen: PipelineSeen) -> Iterable[Check]:
    twice = sum(times > 1 for times in seen.table_ids.values())
    yield _same("Every order is in the table", expected.order_ids, seen.table_ids, "orders")
    yield Check("No order is in the table twice", not twice, f"{twice:,} are")
    counted = sum(row.orders for row in seen.minutes.values())
    yield Check(
        "The counts per minute are right, late orders included",
        seen.minutes == expected.minutes and seen.minute_rows == len(expected.minutes),
        f"{seen.minute_rows:,} rows of {len(expected.minutes):,}; {counted:,} orders of {len(expected.order_ids):,}",
    )
    euros = sum(row.euro_cents for row in seen.minutes.values())
    yield Check(
        "The revenue is right to the cent",
        euros == expected.euro_cents,
        f"€ {euros / 100:,.2f} of € {expected.euro_cents / 100:,.2f}",
    )
    yield Check(
        "The results on the topic are the table's",
        seen.results == expected.minutes and seen.result_ids == len(expected.minutes),
        f"{seen.result_ids:,} rows of {len(expected.minutes):,}, in {seen.result_messages:,} messages",
    )
    yield _same("What can't be parsed was set aside", expected.poison_keys, seen.unreadable_keys, "messages")


def _same(title: str, expected: Collection[str], seen: Collection[str], what: str) -> Check:
    wanted, there = set(expected), set(seen)
    missing, strange = wanted - there, there - wanted
    detail = f"{len(wanted & there):,} of {len(wanted):,} {what}"
    if missing:
        detail += f"; missing, for instance: {min(missing)}"
    if strange:
        detail += f"; {len(strange):,} that should not be there, for instance {min(strange)}"
    return Check(title, not missing and not strange, detail)
