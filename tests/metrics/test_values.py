"""Histograms: which bucket a value is in, and that many are counted as if one by one."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketstream.metrics.catalogue import METRICS
from rocketstream.metrics.transport import decode_samples, encode_samples
from rocketstream.metrics.values import SECONDS, Histogram, HistogramValue, Kind, Sample


def test_a_bucket_has_what_is_at_most_its_bound():
    histogram = Histogram((1.0, 2.0))
    for value in (0.0, 1.0, 1.001, 2.0, 2.5, 1000.0):
        histogram.observe(value)
    assert histogram.value == HistogramValue((2, 2, 2), pytest.approx(1006.501))
    assert repr(histogram) == "<Histogram of 6 values, 1006.5 together>"


@given(st.lists(st.floats(min_value=0.0, max_value=100.0) | st.sampled_from(SECONDS)))
def test_many_are_counted_as_one_by_one(values):
    together, one_by_one = Histogram(), Histogram()
    together.observe_all(values)
    for value in values:
        one_by_one.observe(value)
    assert together.value.counts == one_by_one.value.counts
    assert together.value.total == pytest.approx(one_by_one.value.total)
    assert sum(together.value.counts) == len(values)


def test_histograms_are_added_bucket_by_bucket():
    assert HistogramValue((1, 2), 3.0).plus(HistogramValue((10, 0), 0.5)) == HistogramValue((11, 2), 3.5)


@pytest.mark.parametrize("metric", METRICS.values(), ids=lambda metric: metric.name)
def test_names_are_prometheus_own(metric):
    assert metric.name.startswith("rocketstream_")
    assert metric.name.endswith("_total") == (metric.kind is Kind.COUNTER)
    assert bool(metric.bounds) == (metric.kind is Kind.HISTOGRAM)
    assert not {"le", "process"} & set(metric.labels), "these are Prometheus's and the supervisor's"
    assert metric.help.endswith(".")


@pytest.mark.parametrize("metric", METRICS.values(), ids=lambda metric: metric.name)
def test_samples_come_back_from_another_process(metric):
    value = HistogramValue((1, 2, 3), 4.5) if metric.kind is Kind.HISTOGRAM else 7
    sample = Sample(metric, tuple(f"a {label}" for label in metric.labels), value)
    assert decode_samples([*encode_samples([sample]), ["rocketstream_of_tomorrow", [], 1]]) == [sample]
