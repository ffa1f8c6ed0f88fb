"""The page: a verdict, the numbers, how it flows, the plots, what was checked.

The rule of this file: the page needs nothing but itself (no script, no font, no picture from elsewhere), and is
well-formed XML, so that anything can read it.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from importlib.metadata import version
from importlib.resources import files

from rocketstream.demo.checks import Check
from rocketstream.demo.expectation import Expectation
from rocketstream.demo.outcome import Outcome
from rocketstream.demo.report.flow import flow
from rocketstream.demo.report.frame import FULL, HALF, NARROW
from rocketstream.demo.report.plots import Plot, plots
from rocketstream.demo.report.svg import Markup, joined, tag
from rocketstream.demo.summary import Summary


def page(expected: Expectation, seen: Outcome, summary: Summary, checks: Sequence[Check], made_at: float) -> str:
    """The whole report as text."""
    style = files("rocketstream.demo.report").joinpath("page.css").read_text("utf-8")
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("title", "rocketstream demo"),
        tag("style", Markup(style)),
    )
    body = tag(
        "body",
        tag(
            "main",
            _header(seen, summary),
            _verdict(seen, checks),
            _cards(summary),
            tag("h2", "How it flowed"),
            flow(seen, summary),
            tag("h2", "What it looked like"),
            tag("div", *(_figure(plot) for plot in plots(expected, seen)), class_="plots"),
            *_checks(checks),
            tag("h2", "What was sent"),
            _ingredients(expected, seen),
            _footer(made_at),
        ),
    )
    return "<!DOCTYPE html>\n" + tag("html", head, body, lang="en") + "\n"


def _header(seen: Outcome, summary: Summary) -> Markup:
    start, end = seen.stream.start, seen.stream.end
    what = "a push consumer" if seen.pipeline is None else "a push consumer and a Spark pipeline"
    return tag(
        "header",
        tag("p", "rocketstream demo", class_="kicker"),
        tag("h1", f"An hour of orders in {summary.seconds:.0f} seconds"),
        tag(
            "p",
            f"{summary.produced:,} messages of a simulated hour ({start:%H:%M} to {end:%H:%M} UTC on {start:%d %B %Y})"
            f" went through {seen.broker} to {what}.",
            class_="lead",
        ),
    )


def _verdict(seen: Outcome, checks: Sequence[Check]) -> Markup:
    failed = sum(not check.holds for check in checks)
    if seen.ended_early is not None:
        return tag("p", f"This run is not complete: {seen.ended_early}.", class_="verdict bad")
    if failed:
        return tag("p", f"{failed} of {len(checks)} checks do not hold: see below.", class_="verdict bad")
    return tag("p", f"Everything adds up: all {len(checks)} checks hold.", class_="verdict good")


def _cards(summary: Summary) -> Markup:
    cards = [
        tag(
            "div", tag("dt", fact.name), tag("dd", fact.value, class_="figure"), tag("dd", fact.detail, class_="detail")
        )
        for fact in summary.facts
    ]
    return tag("dl", *cards, class_="cards")


def _figure(plot: Plot) -> Markup:
    legend = joined(
        tag("span", tag("i", class_=f"swatch {colour}"), name, class_="key") for name, colour in plot.legend
    )
    return tag(
        "figure",
        tag("figcaption", tag("h3", plot.title), tag("p", plot.text), tag("div", legend, class_="legend")),
        tag("div", plot.draw(FULL if plot.full else HALF), class_="wide"),
        tag("div", plot.draw(NARROW), class_="narrow"),
        class_="plot full" if plot.full else "plot",
    )


def _checks(checks: Sequence[Check]) -> list[Markup]:
    if not checks:
        return []
    rows = [
        tag(
            "tr",
            tag("td", "✓" if check.holds else "✗", class_="good" if check.holds else "bad"),
            tag("td", check.title),
            tag("td", check.detail, class_="detail"),
        )
        for check in checks
    ]
    return [tag("h2", "What was checked"), tag("div", tag("table", tag("tbody", *rows)), class_="table")]


def _ingredients(expected: Expectation, seen: Outcome) -> Markup:
    whole = len(seen.stream.messages)
    hopeless = len(expected.dead_keys) - len(expected.poison_keys)
    rows = (
        ("Orders' events, each once", len(expected.order_ids), "paid, shipped, cancelled; six regions, six currencies"),
        ("of them late", expected.late, "sent 1 to 5 minutes after they happened: within the watermark of 10"),
        ("of them that fail at first", expected.failing, "billed at the second or third try"),
        ("of them that always fail", hopeless, "dead letters after three retries"),
        ("Repeated", expected.duplicates, "the same event once more: billed once, once in the table"),
        ("Poison", len(expected.poison_keys), "bodies that are no JSON: dead letters here, set aside in the pipeline"),
    )
    cells = [
        tag(
            "tr",
            tag("td", name),
            tag("td", f"{count:,}", class_="number"),
            tag("td", f"{count / whole:.1%}", class_="number"),
            tag("td", why, class_="detail"),
        )
        for name, count, why in rows
    ]
    return tag("div", tag("table", tag("tbody", *cells)), class_="table")


def _footer(made_at: float) -> Markup:
    when = datetime.fromtimestamp(made_at, UTC)
    return tag("footer", f"rocketstream {version('rocketstream')}, {when:%Y-%m-%d %H:%M} UTC")
