"""What the docs say of metrics is what is exported, and the dashboard asks for nothing else."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from rocketstream.consumer.stats import ConsumeStats
from rocketstream.message import Message
from rocketstream.metrics.catalogue import METRICS
from rocketstream.metrics.values import Kind
from rocketstream.producer.meters import ProducerMeters
from rocketstream.producer.outgoing import Outgoing

DOCS = Path(__file__).parents[2] / "docs"
PAGE = (DOCS / "howto-metrics.md").read_text()
DASHBOARD: dict[str, Any] = json.loads((DOCS / "grafana" / "rocketstream.json").read_text())
PANELS = [panel for panel in DASHBOARD["panels"] if panel["type"] != "row"]

_SUFFIXES = {Kind.HISTOGRAM: ("_bucket", "_sum", "_count"), Kind.COUNTER: ("",), Kind.GAUGE: ("",)}
EXPORTED = {metric.name + suffix: metric for metric in METRICS.values() for suffix in _SUFFIXES[metric.kind]}


@pytest.mark.feature("metrics/names")
def test_the_table_is_the_catalogue():
    rows = re.findall(r"^\| `(rocketstream_\w+)` \| (\w+) \| (.*?) \| (.*) \|$", PAGE, re.MULTILINE)
    assert [(name, kind, tuple(re.findall(r"`(\w+)`", labels)), text) for name, kind, labels, text in rows] == [
        (metric.name, metric.kind.value, metric.labels, metric.help) for metric in METRICS.values()
    ]


def test_the_names_of_the_mappings_are_told():
    stats, meters = ConsumeStats("g"), ProducerMeters()
    stats.add_ok("t", 1)
    meters.failed(Outgoing(Message("t", b""), "t", 0, {}, b"", "id"))
    for name in [*stats.metrics()["t"], *meters.metrics()["t"]]:
        assert f"`{name}`" in PAGE


def queries() -> list[str]:
    targets = [target["expr"] for panel in PANELS for target in panel["targets"]]
    alerts = re.findall(r"^ +expr: (.*)$", PAGE, re.MULTILINE)
    assert len(alerts) == 4
    return [*targets, *alerts]


@pytest.mark.feature("metrics/grafana")
@pytest.mark.parametrize("query", queries())
def test_a_query_asks_for_what_is_exported(query):
    names = set(re.findall(r"rocketstream_\w+", query))
    assert names
    assert names <= set(EXPORTED)
    assert query.count("(") == query.count(")")
    known = {label for name in names for label in EXPORTED[name].labels} | {"le"}
    asked = re.findall(r'(\w+)(?:=~|!~|!=|=)"', query)
    grouped = [label.strip() for group in re.findall(r"by \(([^)]*)\)", query) for label in group.split(",")]
    assert set(asked) | set(grouped) <= known
    if any(EXPORTED[name].kind is not Kind.GAUGE for name in names):
        assert re.search(r"\b(rate|increase)\(", query), "a counter is looked at by its growth"


def test_the_dashboard_shows_every_metric():
    shown = {name for panel in PANELS for t in panel["targets"] for name in re.findall(r"rocketstream_\w+", t["expr"])}
    missing = set(METRICS) - {EXPORTED[name].name for name in shown}
    assert missing == {"rocketstream_consumer_rebalances_total"}, "the queues won and lost say what they came to"


@pytest.mark.feature("metrics/grafana")
def test_the_dashboard_is_one_that_grafana_takes():
    assert {"title", "uid", "schemaVersion", "panels", "templating", "time", "version"} <= set(DASHBOARD)
    assert DASHBOARD["schemaVersion"] >= 36
    assert "id" not in DASHBOARD, "Grafana gives it one"
    titles = [panel["title"] for panel in DASHBOARD["panels"] if panel["type"] == "row"]
    assert titles == ["Throughput", "Lag", "Latency", "Failures, retries, dead letters", "Connections"]
    ids = [panel["id"] for panel in DASHBOARD["panels"]]
    assert len(set(ids)) == len(ids)
    assert [variable["name"] for variable in DASHBOARD["templating"]["list"]] == ["datasource", "group", "topic"]
    for panel in PANELS:
        assert panel["datasource"] == {"type": "prometheus", "uid": "${datasource}"}
        assert panel["fieldConfig"]["defaults"]["unit"]
        assert [target["refId"] for target in panel["targets"]] == ["A", "B", "C"][: len(panel["targets"])]
        used = set(re.findall(r"\$(\w+)", json.dumps([target["expr"] for target in panel["targets"]])))
        assert used <= {"group", "topic", "__rate_interval"}


def test_panels_do_not_cover_each_other():
    taken: set[tuple[int, int]] = set()
    for panel in DASHBOARD["panels"]:
        place = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not cells & taken, panel["title"]
        assert place["x"] + place["w"] <= 24
        taken |= cells
