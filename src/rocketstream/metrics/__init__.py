"""What clients measure: `start_http_server(9100)` shows it to Prometheus.

Clients count always, it costs next to nothing; these functions show what they have counted. The names are in
`docs/howto-metrics.md`.
"""

from __future__ import annotations

from rocketstream.metrics.prometheus import MetricsServer, prometheus_collector, start_http_server
from rocketstream.metrics.registry import registry as _registry
from rocketstream.metrics.values import HistogramValue, Sample

__all__ = ["HistogramValue", "MetricsServer", "Sample", "collect", "prometheus_collector", "start_http_server"]


def collect() -> list[Sample]:
    """What all clients of this process have measured so far, for who shows it elsewhere than in Prometheus."""
    return _registry.collect()
