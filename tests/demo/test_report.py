"""The report: well-formed, complete in itself, and right in its numbers."""

from __future__ import annotations

import re
from itertools import pairwise
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketstream.demo.checks import Check, check
from rocketstream.demo.outcome import Outcome
from rocketstream.demo.report.charts import Series, Span, bars, heat_map, histogram, lines, stacked, strip
from rocketstream.demo.report.frame import HALF, NARROW
from rocketstream.demo.report.page import page
from rocketstream.demo.report.scales import Scale, ceiling, milliseconds, short, ticks
from rocketstream.demo.report.svg import Markup, path, tag
from rocketstream.demo.summary import summarize
from tests.demo.runs import perfect_run


def written(*, spark: bool = True, change: object = None) -> str:
    expected, outcome = perfect_run(spark=spark)
    if callable(change):
        change(outcome)
    checks = check(expected, outcome) if outcome.ended_early is None else []
    return page(expected, outcome, summarize(outcome), checks, 1_772_353_000.0)


def tree(text: str) -> ElementTree.Element:
    assert text.startswith("<!DOCTYPE html>\n")
    return ElementTree.fromstring(text.removeprefix("<!DOCTYPE html>\n"))


def texts(root: ElementTree.Element) -> str:
    return " ".join(" ".join(root.itertext()).split())


def interrupted(outcome: Outcome) -> None:
    outcome.ended_early = "it was interrupted"
    outcome.samples.clear()
    outcome.billing.latencies.clear()
    outcome.billing.failures.clear()
    outcome.billing.by_queue.clear()
    outcome.sent_by_queue.clear()


@pytest.mark.parametrize("spark", [True, False])
@pytest.mark.parametrize("change", [None, interrupted])
def test_the_page_is_well_formed_and_needs_nothing_else(spark: bool, change: object) -> None:
    text = written(spark=spark, change=change)
    root = tree(text)
    assert root.tag == "html"
    for element in root.iter():
        assert element.tag not in ("script", "link", "img", "iframe", "object", "embed")
        for name in ("src", "href", "srcset", "data", "action", "style"):
            assert name not in element.attrib
    assert not re.search(r"https?:|//[a-z]|url\(|@import|@font-face", text)


def test_it_has_all_plots_in_two_sizes() -> None:
    root = tree(written())
    titles = [figure.findtext("figcaption/h3") for figure in root.iter("figure")]
    assert titles == [
        "Throughput",
        "Lag",
        "Orders per minute by status",
        "Latency",
        "Retries",
        "Orders per minute by region",
        "Balance of the queues",
        "Turnover by region",
    ]
    for figure in root.iter("figure"):
        assert [drawing.get("class") for drawing in figure.findall("div")] == ["wide", "narrow"]
        assert len(figure.findall("div/svg")) == 2


def test_without_spark_it_says_nothing_of_spark() -> None:
    root = tree(written(spark=False))
    assert len(list(root.iter("figure"))) == 6
    assert "Spark" not in texts(root)
    assert "as they were sent" in texts(root)


def test_it_tells_whether_everything_adds_up() -> None:
    def lose(outcome: Outcome) -> None:
        outcome.sent -= 1

    assert "Everything adds up: all 12 checks hold." in texts(tree(written()))
    assert "1 of 12 checks do not hold" in texts(tree(written(change=lose)))
    assert "not complete: it was interrupted" in texts(tree(written(change=interrupted)))


def test_what_is_written_on_it_is_text() -> None:
    expected, outcome = perfect_run()
    outcome.broker = "<script>&\"'"
    text = page(expected, outcome, summarize(outcome), [Check("<b>", False, "</td>&")], 0.0)
    assert "<script>&\"'" in "".join(tree(text).itertext())


# --- the small code under it ---------------------------------------------------------------------------------------


def test_elements_are_escaped() -> None:
    assert tag("p", "a < b & c", class_="x", data_n=1.25) == '<p class="x" data-n="1.2">a &lt; b &amp; c</p>'
    assert tag("p", Markup("<b>x</b>"), title='"&') == '<p title="&quot;&amp;"><b>x</b></p>'
    assert tag("rect", x=1, y=None) == '<rect x="1"/>'
    assert tag("p") == "<p></p>"
    assert path([(1.0, 2.0), (3.25, 4)], close=True) == "M1 2L3.2 4Z"
    assert path([]) == ""


@given(st.floats(-1e3, 1e3), st.floats(0.1, 1e6), st.integers(1, 12))
def test_ticks_are_round_and_within(low: float, span: float, about: int) -> None:
    found = ticks(low, low + span, about)
    assert len(found) <= about + 1
    assert all(low - span * 1e-6 <= value <= low + span * (1 + 1e-6) for value in found)
    steps = [b - a for a, b in pairwise(found)]
    assert all(step == pytest.approx(steps[0], rel=1e-6) for step in steps)


@given(st.lists(st.floats(0, 1e9), min_size=1))
def test_everything_fits_under_the_ceiling(values: list[float]) -> None:
    top = ceiling(values)
    assert top > 0
    assert top >= max(values) * (1 - 1e-9)


def test_numbers_on_axes_are_short() -> None:
    assert [short(value) for value in (0, 950, 1_500, 20_000, 3_000_000, 0.25)] == [
        "0",
        "950",
        "1.5k",
        "20k",
        "3M",
        "0.25",
    ]
    assert [milliseconds(value) for value in (0, 250, 1_000, 1_500)] == ["0 ms", "250 ms", "1 s", "1.5 s"]
    assert ticks(0, 100, 4) == [0, 50, 100]
    assert ticks(5, 5) == [5]
    assert Scale(0, 10, 100, 200)(5) == 150
    assert Scale(3, 3, 100, 200)(3) == 100


@pytest.mark.parametrize("paper", [HALF, NARROW], ids=["half", "narrow"])
def test_drawings_of_nothing_and_of_one_thing_are_well_formed(paper: object) -> None:
    assert paper in (HALF, NARROW)
    at = HALF if paper is HALF else NARROW
    one = Series("a", "c1", [(1.0, 5.0)], filled=True)
    for drawing in (
        lines("l", [], at, until=1.0),
        lines("l", [Series("a", "c1", [])], at, until=1.0),
        lines("l", [one], at, until=2.0, spans=[Span(0, 1, "x")]),
        stacked("s", ["08:00"], [Series("a", "c1", [(0, 3.0)])], at),
        histogram("h", [], at),
        histogram("h", [0, 1, 99_999], at),
        strip("t", [("a", "c1")], [], at, until=1.0),
        bars("b", [], at),
        bars("b", [("a", [("c1", 0.0, "none")])], at),
        heat_map("m", ["a"], ["08:00"], [[0.0]], at),
    ):
        root = ElementTree.fromstring(drawing)
        assert root.tag == "svg"
        assert not re.search(r"nan|inf", drawing)


def test_a_histogram_counts_everything_once() -> None:
    values = [0, 1, 1, 2, 40, 49, 50, 7_000]
    drawing = histogram("h", values, HALF)
    counts = [int(found.replace(",", "")) for found in re.findall(r">([\d,]+) \(\d", drawing)]
    assert sum(counts) == len(values)
