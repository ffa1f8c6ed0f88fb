"""The watchdog: which queues it complains of, when, in which words; and members of a group that disagree."""

from __future__ import annotations

from dataclasses import replace

import pytest

from rocketstream.consumer.expressions import Sql, subscription_to
from rocketstream.consumer.status import QueueStatus
from rocketstream.consumer.watchdog import Watchdog, differences
from rocketstream.message import MessageQueue

STUCK = QueueStatus(
    queue=MessageQueue("t", "a", 0),
    next_offset=15,
    stored_offset=10,
    cached_count=5,
    cached_bytes=500,
    cached_first=10,
    cached_last=14,
    lag=7,
    locked=False,
    dropped=False,
    last_pull_ago=1.0,
    waits_for="the consumer is suspended",
)


@pytest.fixture
def watchdog():
    return Watchdog("g")


def test_a_queue_that_stands_still_is_complained_of_after_30_seconds_and_then_seldom(watchdog):
    complained = [now for now in range(0, 4000, 10) if watchdog.look([STUCK], float(now))]
    assert complained == [30, 300, 3000]


def test_the_complaint_has_the_numbers_and_the_reason(watchdog):
    watchdog.look([STUCK], 0.0)
    (complaint,) = watchdog.look([STUCK], 31.0)
    assert complaint == (
        f"group g: {STUCK.queue} has not moved for 31 s though 7 messages wait (stored offset 10, 5 cached):"
        " the consumer is suspended"
    )
    (complaint,) = watchdog.look([replace(STUCK, waits_for=None)], 301.0)
    assert complaint.endswith(": its last pull has not been answered")


@pytest.mark.parametrize(
    "moved",
    [
        {"stored_offset": 11},
        {"cached_first": 11},
        {"cached_first": None},
        {"lag": 0},
    ],
    ids=repr,
)
def test_a_queue_that_moves_or_has_nothing_to_do_begins_anew(watchdog, moved):
    watchdog.look([STUCK], 0.0)
    there = replace(STUCK, **moved)
    assert watchdog.look([there], 30.0) == []
    there = replace(there, lag=7)
    assert watchdog.look([there], 59.9) == []
    assert len(watchdog.look([there], 60.0)) == 1


def test_a_queue_without_a_lag_may_stand_still_for_ever(watchdog):
    idle = replace(STUCK, lag=0)
    assert [watchdog.look([idle], float(now)) for now in range(0, 1000, 10)] == [[]] * 100


def test_queues_are_watched_each_for_itself_and_forgotten_when_they_go(watchdog):
    other = replace(STUCK, queue=MessageQueue("t", "a", 1))
    watchdog.look([STUCK], 0.0)
    watchdog.look([STUCK, other], 10.0)
    (complaint,) = watchdog.look([STUCK, other], 30.0)
    assert str(STUCK.queue) in complaint
    watchdog.look([STUCK], 35.0)
    assert watchdog.look([STUCK, other], 40.0) == [], "lost and won again: it begins anew"
    assert len(watchdog.look([STUCK, other], 70.0)) == 1


# --- subscriptions that differ ----------------------------------------------------------------------------------------


def subscribed(**expressions):
    return {topic: subscription_to(topic, expression, 1) for topic, expression in expressions.items()}


def test_members_that_agree_give_no_cause():
    mine = subscribed(t="a || b", u="*")
    others = {topic: replace(sub, sub_version=99) for topic, sub in mine.items()}
    assert differences(mine, others, "g") == [], "versions always differ"
    assert differences(mine, subscribed(t="a || b"), "g") == [], "ours may not have been told yet"


def test_members_that_disagree_are_told_what_and_what_comes_of_it():
    advice = ": members of a group must subscribe to the same, or messages are lost to the group"
    assert differences(subscribed(t="a"), subscribed(t="b"), "g") == [
        f"another member of group g subscribes to topic 't' with TAG 'b', this one to TAG 'a'{advice}"
    ]
    assert differences(subscribed(t="a"), subscribed(t=Sql("n > 1")), "g") == [
        f"another member of group g subscribes to topic 't' with SQL92 'n > 1', this one to TAG 'a'{advice}"
    ]
    assert differences(subscribed(t="a"), subscribed(t="a", u="*"), "g") == [
        f"another member of group g subscribes to topic 'u' with TAG '*', this one not at all{advice}"
    ]
