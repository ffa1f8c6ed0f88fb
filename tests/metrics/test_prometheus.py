"""What Prometheus gets: its own text, at an endpoint or through a user's registry; and what is refused."""

from __future__ import annotations

import socket
import sys
import urllib.request

import prometheus_client
import pytest
from prometheus_client.parser import text_string_to_metric_families

import rocketstream.metrics
from rocketstream.errors import ConfigurationError
from rocketstream.metrics import catalogue, prometheus_collector, start_http_server
from rocketstream.metrics.prometheus import families, families_of
from rocketstream.metrics.registry import registry
from rocketstream.metrics.values import HistogramValue, Kind, Sample


class Client:
    """Somebody who has one of each metric."""

    def collect_metrics(self) -> list[Sample]:
        return [
            Sample(
                metric,
                tuple(f"x-{label}" for label in metric.labels),
                HistogramValue((2,) * (len(metric.bounds) + 1), 4.5) if metric.kind is Kind.HISTOGRAM else 3,
            )
            for metric in catalogue.METRICS.values()
        ]


@pytest.fixture
async def client():
    """One that is registered, in the process's own registry."""
    client = Client()
    registry.add(client)
    yield client
    registry._sources.pop(id(client))


def parsed(text: str) -> dict[str, object]:
    return {family.name: family for family in text_string_to_metric_families(text)}


async def test_every_metric_is_exported_with_its_kind_and_labels(client):
    collector = prometheus_client.CollectorRegistry()
    collector.register(prometheus_collector())
    told = parsed(prometheus_client.generate_latest(collector).decode())
    for metric in catalogue.METRICS.values():
        family = told[metric.name.removesuffix("_total")]
        assert (family.type, family.documentation) == (metric.kind.value, metric.help)
        mine = [s for s in family.samples if all(s.labels.get(label) == f"x-{label}" for label in metric.labels)]
        if metric.kind is Kind.HISTOGRAM:
            (total,) = [s.value for s in mine if s.name.endswith("_sum")]
            (count,) = [s.value for s in mine if s.name.endswith("_count")]
            assert (total, count) == (4.5, 2 * (len(metric.bounds) + 1))
            bounds = {float(s.labels["le"]): s.value for s in mine if s.name.endswith("_bucket")}
            assert list(bounds) == [*metric.bounds, float("inf")]
            assert list(bounds.values()) == [2.0 * (n + 1) for n in range(len(bounds))], "buckets are cumulative"
        elif metric.labels:
            assert [(s.name, s.value) for s in mine] == [(metric.name, 3.0)]
        else:  # other tests' clients have these too
            assert [s.name for s in mine] == [metric.name]


async def test_a_registry_refuses_to_hold_them_twice():
    collector = prometheus_client.CollectorRegistry()
    collector.register(prometheus_collector())
    with pytest.raises(ValueError, match="Duplicated timeseries"):
        collector.register(prometheus_collector())


def test_the_endpoint_serves_clients_and_the_process():
    with start_http_server(0, "127.0.0.1") as server:
        assert server.url == f"http://127.0.0.1:{server.port}/metrics"
        assert repr(server) == f"<MetricsServer {server.url}>"
        with urllib.request.urlopen(server.url, timeout=10) as answer:
            told = parsed(answer.read().decode())
    assert "process_resident_memory_bytes" in told or not sys.platform.startswith("linux")
    server.close()
    with pytest.raises(OSError, match="refused"):
        urllib.request.urlopen(server.url, timeout=10)


def test_a_port_that_is_taken_is_one_sentence():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(ConfigurationError, match=f"metrics cannot be served at 127.0.0.1:{port}: .*in use"):
            start_http_server(port, "127.0.0.1")


@pytest.mark.parametrize("port", [-1, 65_536, "9404", True, 1.5, None])
def test_a_port_that_is_none(port):
    with pytest.raises(ConfigurationError, match=r"^port=.* must be a whole number from 0 to 65535"):
        start_http_server(port)


def test_an_address_that_is_none():
    with pytest.raises(ConfigurationError, match=r"^address=7 must be"):
        start_http_server(0, 7)
    with pytest.raises(ConfigurationError, match=r"metrics cannot be served at 203\.0\.113\.1:0: "):
        start_http_server(0, "203.0.113.1")  # nobody's


@pytest.mark.parametrize("use", [lambda: start_http_server(0), prometheus_collector, lambda: families([])])
def test_a_missing_package_is_one_sentence(monkeypatch, use):
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    with pytest.raises(ConfigurationError) as refused:
        use()
    assert str(refused.value) == (
        "metrics for Prometheus need the package prometheus_client: pip install 'rocketstream[metrics]'"
    )


def test_processes_are_told_apart():
    sample = Sample(catalogue.CONSUMER_LAG, ("g", "t"), 5)
    (family,) = families_of({"1": [sample], "2": [sample._replace(value=6)]}, "process")
    assert [(s.labels, s.value) for s in family.samples] == [
        ({"group": "g", "topic": "t", "process": "1"}, 5),
        ({"group": "g", "topic": "t", "process": "2"}, 6),
    ]


async def test_samples_without_prometheus(client):
    told = {(sample.metric.name, sample.labels): sample.value for sample in rocketstream.metrics.collect()}
    assert told["rocketstream_consumer_lag_messages", ("x-group", "x-topic")] == 3
