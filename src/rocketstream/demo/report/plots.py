"""Which plots there are, and what is in each."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta

from rocketstream.demo.expectation import Expectation, MinuteKey, MinuteRow
from rocketstream.demo.orders import MINUTES, REGIONS, STATUSES
from rocketstream.demo.outcome import Outcome, batch_rates, rates
from rocketstream.demo.report.charts import Series, Span, bars, heat_map, histogram, lines, stacked, strip
from rocketstream.demo.report.frame import Paper
from rocketstream.demo.report.scales import short
from rocketstream.demo.report.svg import Markup

_STATUS_COLOURS = {"paid": "c1", "shipped": "c2", "cancelled": "c4"}


@dataclass(frozen=True, slots=True)
class Plot:
    """A drawing with its words."""

    title: str
    text: str
    legend: tuple[tuple[str, str], ...]
    draw: Callable[[Paper], Markup]
    full: bool = False
    """Whether it takes the whole width of a wide page."""


def plots(expected: Expectation, seen: Outcome) -> list[Plot]:
    """All plots of a run."""
    made = [_throughput(seen), _lag(seen), _per_minute(expected, seen), _latency(seen), _retries(seen)]
    if seen.pipeline is not None and seen.minutes:
        made += [_regions(seen)]
    made += [_queues(seen)]
    if seen.pipeline is not None and seen.minutes:
        made += [_revenue(seen)]
    return made


def _until(seen: Outcome) -> float:
    return max((sample.seconds for sample in seen.samples), default=1.0)


def _pauses(seen: Outcome) -> list[Span]:
    return [Span(begin, end or _until(seen), "suspended") for begin, end in seen.pauses]


def _throughput(seen: Outcome) -> Plot:
    series = [
        Series("sent", "c1", rates(seen.samples, "sent"), filled=True),
        Series("delivered to billing", "c2", rates(seen.samples, "delivered")),
    ]
    follows = "."
    if seen.pipeline is not None:
        follows = "; Spark follows in micro-batches, which it reads at this speed."
        series.append(Series("read by Spark", "c3", batch_rates(seen.samples)))
    return Plot(
        "Throughput",
        "Messages per second. The shop sends at its own pace, with a flash sale in it; the push consumer follows at"
        f" once, except while it is suspended{follows}",
        tuple((one.name, one.colour) for one in series),
        lambda paper: lines("Throughput over time", series, paper, until=_until(seen), spans=_pauses(seen), unit="/s"),
    )


def _lag(seen: Outcome) -> Plot:
    series = [
        Series("billing", "c2", [(s.seconds, float(s.billing_lag)) for s in seen.samples], filled=True),
    ]
    if seen.pipeline is not None:
        lag = [(s.seconds, float(s.pipeline_lag)) for s in seen.samples]
        series.insert(0, Series("Spark", "c3", lag, filled=True))
    return Plot(
        "Lag",
        "Messages that are stored and not yet consumed. Billing builds up a backlog while it is suspended, and works it"
        " off; Spark reads in micro-batches, and has one between them."
        if seen.pipeline is not None
        else "Messages that are stored and not yet consumed: a backlog while billing is suspended, and its end.",
        tuple((one.name, one.colour) for one in series),
        lambda paper: lines("Lag over time", series, paper, until=_until(seen), spans=_pauses(seen)),
    )


def _per_minute(expected: Expectation, seen: Outcome) -> Plot:
    rows = seen.minutes or expected.minutes
    source = "as the pipeline counted them" if seen.minutes else "as they were sent"
    layers = [
        Series(status, _STATUS_COLOURS[status], list(enumerate(_by_minute(rows, seen, status=status))))
        for status in STATUSES
    ]
    labels = _minute_labels(seen)
    spans = (Span(36, 41, "flash sale"), Span(45, 50, "cancellations"))
    title = "Orders per minute by status"
    return Plot(
        title,
        f"Windows of one simulated minute, {source}: late orders are in the minute in which they happened, repeated"
        " ones are in it once.",
        tuple((layer.name, layer.colour) for layer in reversed(layers)),
        lambda paper: stacked(title, labels, layers, paper, spans=spans),
        full=True,
    )


def _by_minute(
    rows: dict[MinuteKey, MinuteRow], seen: Outcome, *, status: str | None = None, region: str | None = None
) -> list[float]:
    counts = [0.0] * MINUTES
    for (minute, row_region, row_status), row in rows.items():
        if status in (None, row_status) and region in (None, row_region):
            counts[int((minute - seen.stream.start) / timedelta(minutes=1))] += row.orders
    return counts


def _minute_labels(seen: Outcome) -> list[str]:
    return [f"{seen.stream.start + timedelta(minutes=i):%H:%M}" for i in range(MINUTES)]


def _latency(seen: Outcome) -> Plot:
    return Plot(
        "Latency",
        "From the making of a message to its first delivery to the push consumer. The hump on the right is what waited"
        " while billing was suspended.",
        (),
        lambda paper: histogram("Latency of first deliveries", seen.billing.latencies, paper),
    )


def _retries(seen: Outcome) -> Plot:
    rows = (("1st failure", "c3"), ("2nd failure", "c3"), ("3rd failure", "c3"), ("given up", "c4"))
    dots = [(at - seen.opened_at, min(tried, len(rows) - 1)) for at, tried in seen.billing.failures]
    return Plot(
        "Retries",
        "Each dot is a message that could not be handled. It comes again after 1 s, 1 s and 5 s; what fails the fourth"
        " time is a dead letter.",
        (),
        lambda paper: strip("Failures over time", rows, dots, paper, until=_until(seen)),
    )


def _regions(seen: Outcome) -> Plot:
    title = "Orders per minute by region"
    values = [_by_minute(seen.minutes, seen, region=region.name) for region in REGIONS]
    names = [region.title for region in REGIONS]
    labels = _minute_labels(seen)
    return Plot(
        title,
        "The same windows by region: the stronger the colour, the more orders.",
        (),
        lambda paper: heat_map(title, names, labels, values, paper),
        full=True,
    )


def _queues(seen: Outcome) -> Plot:
    sent, consumed = seen.sent_by_queue, seen.billing.by_queue
    rows = [
        (
            f"queue {queue}",
            (
                ("c1", float(sent[broker, queue]), f"{sent[broker, queue]:,} stored"),
                ("c2", float(consumed[broker, queue]), f"{consumed[broker, queue]:,} delivered"),
            ),
        )
        for broker, queue in sorted(set(sent) | set(consumed))
    ]
    return Plot(
        "Balance of the queues",
        "All events of an order go to one queue, chosen by a hash of the order's number.",
        (("stored", "c1"), ("delivered to billing", "c2")),
        lambda paper: bars("Messages per queue", rows, paper, form=lambda value: f"{value:,.0f}"),
    )


def _revenue(seen: Outcome) -> Plot:
    totals = {
        region.name: sum(row.euro_cents for (_, name, _), row in seen.minutes.items() if name == region.name) / 100
        for region in REGIONS
    }
    rows = [
        (region.title, (("c5", totals[region.name], f"€ {totals[region.name]:,.2f}"),))
        for region in sorted(REGIONS, key=lambda one: -totals[one.name])
    ]
    return Plot(
        "Turnover by region",
        "What all events are worth, in euros: the pipeline looked up the rate of each currency.",
        (),
        lambda paper: bars("Turnover by region", rows, paper, left=118, form=lambda value: f"€ {short(value)}"),
    )
