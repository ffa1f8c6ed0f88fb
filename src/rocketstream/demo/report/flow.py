"""The way of the messages, as boxes that a narrow page puts below each other."""

from __future__ import annotations

from rocketstream.demo.outcome import Outcome
from rocketstream.demo.report.svg import Markup, tag
from rocketstream.demo.settings import BILLING_GROUP, DEAD_LETTER_TOPIC, QUEUES, RESULT_TOPIC, TOPIC
from rocketstream.demo.summary import Summary


def flow(seen: Outcome, summary: Summary) -> Markup:
    """From the shop to everything that is left at the end."""
    lanes = [
        _lane(
            ("Push consumer", BILLING_GROUP, f"{summary.retries:,} retries", "c2"),
            (
                ("billed", f"{summary.billed:,} orders", "c2"),
                ("dead letters", f"{summary.dead_letters:,} messages", "c4"),
            ),
        )
    ]
    if seen.pipeline is not None:
        left = seen.pipeline
        lanes.append(
            _lane(
                ("Spark pipeline", "parse, enrich, count per minute", f"{left.rows_read:,} rows read", "c3"),
                (
                    ("Parquet", f"{sum(left.table_ids.values()):,} orders, {left.minute_rows:,} rows of counts", "c3"),
                    (RESULT_TOPIC, f"{left.result_messages:,} messages", "c3"),
                    (DEAD_LETTER_TOPIC, f"{sum(left.unreadable_keys.values()):,} messages", "c4"),
                ),
            )
        )
    return tag(
        "div",
        _box("Shop", "sends the orders", f"{summary.produced:,} messages", "c1"),
        _arrow(),
        _box("Topic", TOPIC, f"{QUEUES} queues", "c1"),
        _arrow(),
        tag("div", *lanes, class_="lanes"),
        class_="flow",
    )


def _lane(worker: tuple[str, str, str, str], ends: tuple[tuple[str, str, str], ...]) -> Markup:
    return tag(
        "div",
        _box(*worker),
        _arrow(),
        tag("div", *(_box(name, count, None, colour) for name, count, colour in ends), class_="ends"),
        class_="lane",
    )


def _box(name: str, what: str, count: str | None, colour: str) -> Markup:
    inside = [tag("b", name), tag("span", what)]
    if count is not None:
        inside.append(tag("span", count, class_="count"))
    return tag("div", *inside, class_=f"box edge {colour}")


def _arrow() -> Markup:
    return tag("div", "→", class_="arrow", aria_hidden="true")
