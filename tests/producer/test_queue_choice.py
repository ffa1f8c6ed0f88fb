"""Which queue a message goes to: fair, away from what failed, and the same as Java's where a key decides."""

from __future__ import annotations

import itertools
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketstream.message import MessageQueue
from rocketstream.producer.queue_choice import FAILURE_LATENCY, LatencyTable, QueueChooser, penalty, queue_for_key
from rocketstream.wire.java import java_string_hash

ONE = tuple(MessageQueue("t", "a", n) for n in range(4))
TWO = tuple(MessageQueue("t", broker, n) for broker in "ab" for n in range(4))


# --- round robin ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("queues", [ONE[:1], ONE, TWO])
def test_round_robin_gives_every_queue_its_turn(queues):
    chooser = QueueChooser()
    chosen = [chooser.choose(queues, None, 0.0) for _ in range(5 * len(queues))]
    assert set(Counter(chosen).values()) == {5}
    for first, second in itertools.pairwise(chosen):
        assert queues.index(second) == (queues.index(first) + 1) % len(queues)


def test_many_producers_do_not_all_begin_with_the_same_queue():
    firsts = {QueueChooser().choose(TWO, None, 0.0) for _ in range(300)}
    assert firsts == set(TWO)


def test_each_topic_has_its_own_turn():
    chooser = QueueChooser()
    others = tuple(queue._replace(topic="u") for queue in ONE)
    for _ in range(7):
        chooser.choose(ONE, None, 0.0)
        chooser.choose(others, None, 0.0)
    chosen = Counter(chooser.choose(ONE, None, 0.0) for _ in range(4))
    assert set(chosen.values()) == {1}


def test_a_retry_goes_to_another_broker():
    chooser = QueueChooser()
    for _ in range(20):
        assert chooser.choose(TWO, "a", 0.0).broker_name == "b"
        assert chooser.choose(TWO, "b", 0.0).broker_name == "a"


def test_a_retry_with_one_broker_goes_on_to_its_next_queue():
    chooser = QueueChooser()
    chosen = Counter(chooser.choose(ONE, "a", 0.0) for _ in range(8))
    assert set(chosen.values()) == {2}


def test_a_topic_that_loses_queues_is_still_served():
    chooser = QueueChooser()
    for _ in range(7):
        chooser.choose(TWO, None, 0.0)
    chosen = Counter(chooser.choose(ONE[:3], None, 0.0) for _ in range(6))
    assert chosen == dict.fromkeys(ONE[:3], 2)


# --- by key ---------------------------------------------------------------------------------------------------------

# key, Java's "key".hashCode()
HASHES = [
    ("", 0),
    ("a", 97),
    ("42", 1662),
    ("order-1", -1207111310),
    ("polygenelubricants", -(1 << 31)),  # Integer.MIN_VALUE, of which Math.abs is negative
    ("中文", 646394),
    ("😀", 1772899),
]


def java_select(value: int, size: int) -> int:
    """SelectMessageQueueByHash.select: Java's remainder, which has the sign of the hash, made positive after."""
    remainder = value - int(value / size) * size
    return abs(remainder)


@pytest.mark.parametrize(("key", "value"), HASHES)
@pytest.mark.parametrize("size", [1, 2, 3, 4, 7, 8, 16])
def test_a_key_chooses_the_queue_that_java_chooses(key, value, size):
    assert java_string_hash(key) == value
    queues = tuple(MessageQueue("t", "a", n) for n in range(size))
    assert queue_for_key(queues, key).queue_id == java_select(value, size)


def test_the_smallest_int_as_a_hash():
    queues = tuple(MessageQueue("t", "a", n) for n in range(7))
    assert queue_for_key(queues, "polygenelubricants").queue_id == 2  # 2 ** 31 % 7


@given(st.text(), st.integers(1, 64))
def test_any_key_has_a_queue_and_stays_with_it(key, size):
    queues = tuple(MessageQueue("t", "a", n) for n in range(size))
    assert queue_for_key(queues, key) is queue_for_key(queues, key)
    assert queue_for_key(queues, key).queue_id == java_select(java_string_hash(key), size)


# --- by latency -----------------------------------------------------------------------------------------------------

# MQFaultStrategy of 5.x: latencyMax and notAvailableDuration.
STEPS = [
    (0.0, 0),
    (0.049, 0),
    (0.050, 0),
    (0.100, 0),
    (0.549, 0),
    (0.550, 2),
    (1.799, 2),
    (1.800, 5),
    (2.999, 5),
    (3.000, 6),
    (4.999, 6),
    (5.000, 10),
    (14.999, 10),
    (15.000, 30),
    (1000.0, 30),
    (FAILURE_LATENCY, 10),
]


@pytest.mark.parametrize(("latency", "seconds"), STEPS)
def test_a_slow_broker_is_left_alone_as_long_as_java_does(latency, seconds):
    assert penalty(latency) == seconds
    table = LatencyTable()
    table.record("a", latency, now=100.0)
    assert table.available("a", 100.0 + seconds)
    if seconds:
        assert not table.available("a", 100.0 + seconds - 0.001)
    assert table.available("never-heard-of", 100.0)


def test_a_slow_broker_is_avoided_until_its_time_is_over():
    chooser = QueueChooser(latency_fault_tolerance=True)
    chooser.latencies.record("a", 0.6, now=10.0)
    assert {chooser.choose(TWO, None, 11.9).broker_name for _ in range(20)} == {"b"}
    assert {chooser.choose(TWO, None, 12.0).broker_name for _ in range(20)} == {"a", "b"}


def test_a_quick_send_ends_the_penalty():
    chooser = QueueChooser(latency_fault_tolerance=True)
    chooser.latencies.record("a", FAILURE_LATENCY, now=10.0)
    chooser.latencies.record("a", 0.001, now=10.5)
    assert {chooser.choose(TWO, None, 10.5).broker_name for _ in range(20)} == {"a", "b"}


def test_where_all_are_slow_the_least_bad_is_taken():
    chooser = QueueChooser(latency_fault_tolerance=True)
    chooser.latencies.record("a", 20.0, now=0.0)
    chooser.latencies.record("b", 0.6, now=0.0)
    assert {chooser.choose(TWO, None, 1.0) for _ in range(20)} == set(TWO[4:]), "all queues of b, in turn"
    assert chooser.choose(TWO, "b", 1.0).broker_name == "a", "the one that just failed is worse"


def test_a_lone_broker_is_used_however_slow_it_is():
    chooser = QueueChooser(latency_fault_tolerance=True)
    chooser.latencies.record("a", 20.0, now=0.0)
    assert {chooser.choose(ONE, "a", 1.0) for _ in range(4)} == set(ONE)
    assert "a" in repr(chooser.latencies)


def test_without_the_setting_there_is_no_table():
    assert QueueChooser().latencies is None
