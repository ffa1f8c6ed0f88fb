"""What is measured, for Prometheus: a collector over the registry, and an endpoint of its own for those without one.

The rule of this file: `prometheus_client` is imported when it is asked for, and a package that is missing is one
sentence.
"""

from __future__ import annotations

import itertools
import logging
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from rocketstream.errors import ConfigurationError
from rocketstream.metrics.catalogue import METRICS
from rocketstream.metrics.registry import registry
from rocketstream.metrics.values import HistogramValue, Kind, Metric, Sample

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry
    from prometheus_client.core import Metric as Family
    from prometheus_client.registry import Collector

log = logging.getLogger("rocketstream.metrics")


def _client() -> Any:
    try:
        import prometheus_client
    except ImportError:
        raise ConfigurationError(
            "metrics for Prometheus need the package prometheus_client: pip install 'rocketstream[metrics]'"
        ) from None
    return prometheus_client


def families(samples: Iterable[Sample]) -> list[Family]:
    """Samples as Prometheus's own, in the order of the catalogue."""
    return families_of({"": samples}, None)


def families_of(parts: Mapping[str, Iterable[Sample]], label: str | None) -> list[Family]:
    """The same of several processes: what each has is told apart by one more label."""
    _client()
    made: dict[Metric, Family] = {}
    for value, samples in parts.items():
        for sample in samples:
            family = made.get(sample.metric)
            if family is None:
                family = made[sample.metric] = _family(sample.metric, label)
            _put(family, sample, (*sample.labels, value) if label is not None else sample.labels)
    return [made[metric] for metric in METRICS.values() if metric in made]


def _family(metric: Metric, label: str | None) -> Family:
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily

    labels = [*metric.labels, *([label] if label is not None else [])]
    if metric.kind is Kind.COUNTER:
        return CounterMetricFamily(metric.name.removesuffix("_total"), metric.help, labels=labels)
    if metric.kind is Kind.GAUGE:
        return GaugeMetricFamily(metric.name, metric.help, labels=labels)
    return HistogramMetricFamily(metric.name, metric.help, labels=labels)


def _put(family: Any, sample: Sample, labels: tuple[str, ...]) -> None:
    value = sample.value
    if isinstance(value, HistogramValue):
        ends = [*(f"{bound:g}" for bound in sample.metric.bounds), "+Inf"]
        family.add_metric(labels, list(zip(ends, itertools.accumulate(value.counts), strict=True)), value.total)
    else:
        family.add_metric(labels, value)


def prometheus_collector() -> Collector:
    """A collector of all clients of this process, for a registry of your own: `REGISTRY.register(...)`."""
    return _collector(lambda: families(registry.collect()))


def _collector(collect: Callable[[], Iterable[Family]]) -> Collector:
    _client()
    from prometheus_client.registry import Collector

    class Clients(Collector):
        """Asks when it is asked."""

        def collect(self) -> Iterator[Family]:
            """What Prometheus wants to know."""
            yield from collect()

        def describe(self) -> list[Family]:
            """Which names it has, so that a registry refuses to hold them twice, without asking anybody."""
            return [_family(metric, None) for metric in METRICS.values()]

    return Clients()


class MetricsServer:
    """An endpoint that Prometheus scrapes; `close()` ends it."""

    def __init__(self, server: Any, thread: threading.Thread, address: str) -> None:
        self._server = server
        self._thread = thread
        self._address = address

    def __repr__(self) -> str:
        return f"<MetricsServer {self.url}>"

    @property
    def port(self) -> int:
        """Where it listens."""
        port: int = self._server.server_port
        return port

    @property
    def url(self) -> str:
        """Where a person finds it."""
        host = "127.0.0.1" if self._address in ("", "0.0.0.0", "::") else self._address
        return f"http://{f'[{host}]' if ':' in host else host}:{self.port}/metrics"

    def close(self) -> None:
        """Stop listening; harmless when repeated."""
        if self._thread.is_alive():
            self._server.shutdown()
            self._thread.join()
        self._server.server_close()

    def __enter__(self) -> MetricsServer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def start_http_server(port: int, address: str = "0.0.0.0") -> MetricsServer:
    """Serve the metrics of all clients of this process, and of the process itself, at `http://address:port/metrics`.

    Port 0 takes a free one. "0.0.0.0" is every interface, "127.0.0.1" this machine alone.
    """
    return serve(port, address, lambda: families(registry.collect()))


def serve(port: int, address: str, collect: Callable[[], Iterable[Family]]) -> MetricsServer:
    """The same for what others collect."""
    client = _client()
    if isinstance(port, bool) or not isinstance(port, int) or not 0 <= port <= 65_535:
        raise ConfigurationError(f"port={port!r} must be a whole number from 0 to 65535")
    if not isinstance(address, str):
        raise ConfigurationError(f"address={address!r} must be the address of a network interface, as a text")
    served: CollectorRegistry = client.CollectorRegistry()
    served.register(_collector(collect))
    client.ProcessCollector(registry=served)
    try:
        server, thread = client.start_http_server(port, address, registry=served)
    except OSError as error:
        raise ConfigurationError(f"metrics cannot be served at {address or '*'}:{port}: {error}") from error
    made = MetricsServer(server, thread, address)
    log.info("metrics are served at %s", made.url)
    return made
