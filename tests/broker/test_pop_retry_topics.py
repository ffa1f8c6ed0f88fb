"""Where popped messages wait for another try: the older and the newer name."""

from __future__ import annotations

import pytest

from rocketstream.broker.pop.retry_topics import kind_of, normal_topic, real_topic, retry_topics
from rocketstream.broker.settings import BrokerSettings

OLD, NEWER = "%RETRY%g_t", "%RETRY%g+t"


@pytest.mark.parametrize(
    ("v2", "read_v1", "names"),
    [(False, True, (OLD,)), (False, False, (OLD,)), (True, True, (NEWER, OLD)), (True, False, (NEWER,))],
)
def test_the_first_is_where_they_are_put(v2, read_v1, names):
    settings = BrokerSettings(pop_retry_topic_v2=v2, read_pop_retry_topic_v1=read_v1)
    assert retry_topics("t", "g", settings) == names


@pytest.mark.parametrize(("kind", "name"), [("0", "t"), ("1", OLD), ("2", NEWER)])
def test_a_name_and_its_kind(kind, name):
    assert real_topic("t", "g", kind) == name
    assert kind_of(name) == kind
    assert normal_topic(name, "g") == "t"
