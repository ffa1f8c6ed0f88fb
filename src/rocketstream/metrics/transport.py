"""Samples on their way from one process to another, as JSON.

The rule of this file: a name that is not in the catalogue is passed over, since the other process may be of another
version.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from rocketstream.metrics.catalogue import METRICS
from rocketstream.metrics.values import HistogramValue, Sample


def encode_samples(samples: Iterable[Sample]) -> list[Any]:
    """What `json.dumps` takes."""
    return [
        [metric.name, list(labels), list(value) if isinstance(value, HistogramValue) else value]
        for metric, labels, value in samples
    ]


def decode_samples(told: Iterable[Any]) -> list[Sample]:
    """What `json.loads` gave."""
    return [
        Sample(METRICS[name], tuple(labels), HistogramValue(tuple(value[0]), value[1]) if _is_list(value) else value)
        for name, labels, value in told
        if name in METRICS
    ]


def _is_list(value: object) -> bool:
    return isinstance(value, list)
