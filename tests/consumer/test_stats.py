"""Rates of the last minute and failures of the last hour, with time passed in; what is counted is by hand."""

from __future__ import annotations

import pytest

from rocketstream.consumer.stats import ConsumeStats
from rocketstream.wire.bodies.running_info import ConsumeStatus

NOTHING = ConsumeStatus()


@pytest.fixture
def stats() -> ConsumeStats:
    return ConsumeStats("group")


@pytest.mark.behaviour("RES-11")
def test_rates_and_latencies_of_one_sample(stats: ConsumeStats):
    stats.add_pull("orders", 30, 32)
    stats.add_pull("orders", 50, 8)
    stats.add_ok("orders", 20)
    stats.add_ok("orders", 10)
    stats.add_failed("orders", 5)
    stats.add_consume_rt("orders", 90, 30)
    stats.sample(1000.0)

    assert stats.status("orders", 1000.0) == ConsumeStatus(
        pull_rt=40.0,
        pull_tps=4.0,  # 40 messages in the 10 s that end with the first sample
        consume_rt=3.0,
        consume_ok_tps=3.0,
        consume_failed_tps=0.5,
        consume_failed_msgs=5,
    )


@pytest.mark.behaviour("RES-11")
def test_topics_are_counted_apart(stats: ConsumeStats):
    stats.add_ok("orders", 10)
    stats.add_failed("%RETRY%group", 20)
    stats.sample(10.0)
    assert stats.status("orders", 10.0) == ConsumeStatus(consume_ok_tps=1.0)
    assert stats.status("%RETRY%group", 10.0) == ConsumeStatus(consume_failed_tps=2.0, consume_failed_msgs=20)


def test_a_topic_nobody_counted_has_a_status(stats: ConsumeStats):
    stats.sample(0.0)
    assert stats.status("orders", 0.0) == NOTHING
    assert stats.snapshot() == {}


def test_before_the_first_sample_only_failures_are_known(stats: ConsumeStats):
    stats.add_pull("orders", 30, 32)
    stats.add_ok("orders", 20)
    stats.add_failed("orders", 5)
    stats.add_consume_rt("orders", 90, 30)
    assert stats.status("orders", 5.0) == ConsumeStatus(consume_failed_msgs=5)


@pytest.mark.behaviour("RES-11")
def test_a_rate_is_over_the_last_minute(stats: ConsumeStats):
    stats.add_ok("orders", 0)
    for tick in range(1, 31):
        stats.add_ok("orders", 100 if tick <= 20 else 40)
        stats.sample(tick * 10.0)
        if tick == 20:
            assert stats.status("orders", 200.0).consume_ok_tps == 10.0
        if tick == 23:
            assert stats.status("orders", 230.0).consume_ok_tps == pytest.approx(7.0)  # half a minute of each
    assert stats.status("orders", 300.0).consume_ok_tps == pytest.approx(4.0)


def test_what_was_counted_since_the_last_sample_counts(stats: ConsumeStats):
    for tick in range(1, 8):
        stats.add_ok("orders", 100)
        stats.sample(tick * 10.0)
    stats.add_ok("orders", 50)
    assert stats.status("orders", 75.0).consume_ok_tps == pytest.approx(650 / 65)


@pytest.mark.behaviour("RES-11")
def test_a_rate_falls_to_nothing_when_nothing_happens(stats: ConsumeStats):
    stats.add_pull("orders", 10, 32)
    stats.add_ok("orders", 1000)
    for tick in range(1, 9):
        stats.sample(tick * 10.0)
    status = stats.status("orders", 80.0)
    assert (status.pull_rt, status.pull_tps, status.consume_ok_tps) == (0.0, 0.0, 0.0)


def test_a_late_timer_does_not_shorten_the_minute(stats: ConsumeStats):
    stats.add_ok("orders", 0)
    for tick in range(1, 20):
        stats.add_ok("orders", 10)
        stats.sample(tick * 10.0 + 0.3 * tick)
    assert stats.status("orders", 19 * 10.3).consume_ok_tps == pytest.approx(60 / 61.8)


def test_an_hour_is_never_shorter_than_one(stats: ConsumeStats):
    for tick in range(1, 6 * 200):
        stats.add_failed("orders", 1)
        stats.sample(tick * 10.0)
        assert stats.status("orders", tick * 10.0).consume_failed_msgs in range(min(tick, 360), min(tick, 420) + 1)


def test_samples_that_nobody_took_do_not_stretch_the_rate(stats: ConsumeStats):
    for tick in range(1, 8):
        stats.add_ok("orders", 1000)
        stats.sample(tick * 10.0)
    stats.add_ok("orders", 300)
    assert stats.status("orders", 370.0).consume_ok_tps == 1.0  # since the newest sample


@pytest.mark.behaviour("RES-11")
def test_failures_are_those_of_the_last_hour(stats: ConsumeStats):
    stats.add_failed("orders", 7)
    ticks = 6 * 180  # three hours
    for tick in range(1, ticks + 1):
        if tick == 6 * 100:
            stats.add_failed("orders", 3)
        stats.sample(tick * 10.0)
        minutes = tick / 6
        if minutes <= 60:
            assert stats.status("orders", tick * 10.0).consume_failed_msgs == 7
        elif 70 < minutes < 100:
            assert stats.status("orders", tick * 10.0).consume_failed_msgs == 0
        elif 100 <= minutes < 160:
            assert stats.status("orders", tick * 10.0).consume_failed_msgs == 3
    assert stats.status("orders", ticks * 10.0).consume_failed_msgs == 0


def test_a_listener_that_was_not_called_for_a_minute_shows_its_last_hour(stats: ConsumeStats):
    stats.add_consume_rt("orders", 500, 10)
    for tick in range(1, 6 * 75 + 1):
        stats.sample(tick * 10.0)
        if tick == 60:
            assert stats.status("orders", 600.0).consume_rt == 50.0
    assert stats.status("orders", 4500.0).consume_rt == 0.0


def test_messages_may_be_counted_apart_from_their_pull(stats: ConsumeStats):
    stats.add_pull("orders", 12)
    stats.add_pulled("orders", 30)
    stats.sample(10.0)
    status = stats.status("orders", 10.0)
    assert (status.pull_rt, status.pull_tps) == (12.0, 3.0)


@pytest.mark.behaviour("RES-11")
def test_totals_only_grow(stats: ConsumeStats):
    for _ in range(2):
        stats.add_pull("orders", 30, 32)
        stats.add_ok("orders", 20)
        stats.add_failed("orders", 5)
        stats.add_consume_rt("orders", 90, 30)
        stats.sample(10.0)
    totals = {
        "pulls": 2,
        "pull_ms": 60,
        "pulled_messages": 64,
        "ok_messages": 40,
        "failed_messages": 10,
        "listener_calls": 60,
        "listener_ms": 180,
    }
    assert stats.snapshot() == {"orders": totals}
    assert repr(stats) == f"ConsumeStats('group', {{'orders': {totals!r}}})"


@pytest.mark.parametrize("add", ["add_pulled", "add_ok", "add_failed"])
def test_each_count_begins_a_topic(stats: ConsumeStats, add: str):
    getattr(stats, add)("orders", 3)
    assert sum(stats.snapshot()["orders"].values()) == 3
