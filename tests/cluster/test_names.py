"""Names of topics and groups: what is legal, what is RocketMQ's own, and namespaces around them (START-13)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketstream.cluster.names import (
    DEFAULT_GROUPS,
    UNSENDABLE_TOPICS,
    check_group,
    check_namespace,
    check_sendable,
    check_topic,
    check_wrapped_topic,
    dlq_topic,
    is_system_group,
    is_system_topic,
    retry_topic,
    with_namespace,
    without_namespace,
)
from rocketstream.errors import ConfigurationError

LEGAL = st.text("abcXYZ0123456789_-|%", min_size=1, max_size=127)


@given(LEGAL)
def test_legal_names_are_taken(name):
    check_topic(name)
    if name not in DEFAULT_GROUPS:
        check_group(name)


@given(st.text(min_size=1).filter(lambda text: not all(c.isascii() and (c.isalnum() or c in "_-|%") for c in text)))
def test_others_are_not(name):
    for check in (check_topic, check_group):
        with pytest.raises(ConfigurationError, match=r"needs a name|has illegal characters"):
            check(name)


@pytest.mark.parametrize(
    ("topic", "limit"), [("t", 127), ("%RETRY%", 255), ("%DLQ%", 255)], ids=["plain", "retry", "dlq"]
)
def test_how_long_a_topic_may_be(topic, limit):
    check_topic(topic.ljust(limit, "x"))
    with pytest.raises(ConfigurationError, match=f"has {limit + 1} characters: at most {limit} are allowed"):
        check_topic(topic.ljust(limit + 1, "x"))


def test_how_long_a_group_may_be():
    check_group("g" * 255)
    with pytest.raises(ConfigurationError, match="has 256 characters: at most 255 are allowed"):
        check_group("g" * 256)


def test_a_namespace_counts():
    check_wrapped_topic("ns", "t" * 124)
    with pytest.raises(ConfigurationError, match="has 128 characters with its namespace"):
        check_wrapped_topic("ns", "t" * 125)
    check_wrapped_topic("ns", "%RETRY%" + "g" * 245)
    with pytest.raises(ConfigurationError, match="has 256 characters with its namespace"):
        check_wrapped_topic("ns", "%RETRY%" + "g" * 246)


def test_what_cannot_be_sent_to():
    for topic in UNSENDABLE_TOPICS:
        assert is_system_topic(topic)
        with pytest.raises(ConfigurationError, match="is reserved for brokers"):
            check_sendable(topic)
    check_sendable("orders")
    check_sendable("%RETRY%g")


@pytest.mark.parametrize("topic", ["TBW102", "RMQ_SYS_TRACE_TOPIC", "rmq_sys_anything", "SELF_TEST_TOPIC"])
def test_topics_of_rocketmq(topic):
    assert is_system_topic(topic)
    assert with_namespace("ns", topic) == topic


@pytest.mark.parametrize("group", ["CID_RMQ_SYS_x", "TOOLS_CONSUMER", "CLIENT_INNER_PRODUCER"])
def test_groups_of_rocketmq(group):
    assert is_system_group(group)
    assert with_namespace("ns", group) == group


@pytest.mark.parametrize(
    ("plain", "wrapped"),
    [
        ("orders", "ns%orders"),
        ("%RETRY%g", "%RETRY%ns%g"),
        ("%DLQ%g", "%DLQ%ns%g"),
        ("nsx", "ns%nsx"),
        ("a%b", "ns%a%b"),
        ("", ""),
        ("TBW102", "TBW102"),
    ],
)
def test_a_namespace_wraps_and_is_stripped(plain, wrapped):
    assert with_namespace("ns", plain) == wrapped
    assert with_namespace("ns", wrapped) == wrapped, "once is enough"
    assert without_namespace("ns", wrapped) == plain
    assert without_namespace("ns", plain) == plain
    assert without_namespace("other", wrapped) == wrapped
    for none in (None, ""):
        assert with_namespace(none, plain) == plain
        assert without_namespace(none, wrapped) == wrapped


@given(LEGAL, st.text("abc|_-", min_size=1, max_size=20))
def test_stripping_undoes_wrapping(name, namespace):
    check_namespace(namespace)
    assert without_namespace(namespace, with_namespace(namespace, name)) == without_namespace(namespace, name)


def test_retry_and_dead_letter_topics():
    assert retry_topic("g") == "%RETRY%g"
    assert dlq_topic("g") == "%DLQ%g"
    assert with_namespace("ns", retry_topic("g")) == retry_topic(with_namespace("ns", "g"))
