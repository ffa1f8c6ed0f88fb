"""Where a reset goes, and what speaks against it."""

from __future__ import annotations

import pytest

from rocketstream.admin.reset_targets import ResetTarget, refusal
from rocketstream.admin.values import OffsetReset, QueueReset
from rocketstream.errors import ConfigurationError
from rocketstream.message import MessageQueue
from rocketstream.wire.bodies.members import Connection, ConsumerConnection
from rocketstream.wire.bodies.subscription import SubscriptionData
from rocketstream.wire.codes import MessageModel

NOW = 1_800_000_000_000
QUEUE = MessageQueue("t", "broker-a", 1)
OTHER = MessageQueue("t", "broker-b", 1)


def target(to=None, offset=None, offsets=None, like=None, broker_name=None, queue_id=None) -> ResetTarget:
    return ResetTarget.make(to, offset, offsets, like, broker_name, queue_id, NOW)


def aim(where: ResetTarget, limits=(5, 10), liked: int | None = None) -> int | None:
    return where.fixed_offset(QUEUE, limits, liked, shown_topic="t", shown_group="other")


@pytest.mark.parametrize(
    ("where", "liked", "offset"),
    [
        (target("earliest"), None, 5),
        (target("latest"), None, 10),
        (target(NOW), None, None),
        (target(offset=5), None, 5),
        (target(offset=10), None, 10),
        (target(offsets={("broker-a", 1): 7}), None, 7),
        (target(offsets={QUEUE: 8}), None, 8),
        (target(like="other"), 6, 6),
        (target(like="other"), 2, 5),
        (target(like="other"), 12, 10),
    ],
)
def test_where_a_queue_goes(where, liked, offset):
    assert aim(where, liked=liked) == offset


@pytest.mark.parametrize(
    ("where", "problem"),
    [
        (target(offset=4), "offset=4 is not in queue 1 of topic 't' on broker-a: it holds 5 to 10"),
        (target(offset=11), "offset=11 is not in queue 1"),
        (target(offsets={QUEUE: 11}), "offset=11 is not in queue 1"),
        (target(like="other"), "group 'other' has committed no offset in queue 1 of topic 't' on broker-a"),
    ],
)
def test_where_no_queue_can_go(where, problem):
    with pytest.raises(ConfigurationError) as caught:
        aim(where)
    assert str(caught.value).startswith(problem)


@pytest.mark.parametrize(
    ("where", "wanted", "for_all"),
    [
        (target("latest"), {QUEUE, OTHER}, True),
        (target(NOW), {QUEUE, OTHER}, True),
        (target("latest", broker_name="broker-a"), {QUEUE}, False),
        (target("latest", queue_id=1), {QUEUE, OTHER}, False),
        (target("latest", queue_id=2), set(), False),
        (target(offset=7), {QUEUE, OTHER}, False),
        (target(offsets={QUEUE: 7}), {QUEUE}, False),
        (target(like="other"), {QUEUE, OTHER}, False),
    ],
)
def test_which_queues_are_wanted(where, wanted, for_all):
    assert set(filter(where.wants, (QUEUE, OTHER))) == wanted
    assert where.wants_broker("broker-a") is (QUEUE in wanted or where.queue_id == 2)
    assert where.is_a_time_for_all is for_all


def test_queues_that_were_named_and_are_not_there_are_told():
    where = target(offsets={QUEUE: 1, ("broker-a", 9): 1, ("broker-z", 0): 1})
    assert where.missing({QUEUE: 1}) == ["broker-a:9", "broker-z:0"]
    assert target("latest").missing({}) == []


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ({}, "a reset needs to=, offset=, offsets= or like=, and only one of them"),
        ({"to": "latest", "like": "g"}, "a reset needs to=, offset=, offsets= or like=, and only one of them"),
        ({"to": NOW + 3_600_000}, "is in the future: 'latest' skips everything"),
        ({"offset": -1}, "offset=-1 must be a whole number, 0 or greater"),
        ({"offset": True}, "offset=True must be a whole number, 0 or greater"),
        ({"to": "latest", "queue_id": -1}, "queue_id=-1 must be a whole number"),
        ({"offsets": {}}, "offsets={} must map queues"),
        ({"offsets": {"q": 1}}, "offsets: 'q' is neither a MessageQueue nor (broker name, queue id)"),
        ({"offsets": {("a", "b"): 1}}, "is neither a MessageQueue nor (broker name, queue id)"),
        ({"offsets": {QUEUE: -1}}, "offsets: -1 for broker-a:1 is no offset"),
        ({"offsets": {QUEUE: 1}, "queue_id": 1}, "offsets= names its queues"),
    ],
)
def test_targets_that_make_no_sense_are_refused(arguments, problem):
    with pytest.raises(ConfigurationError) as caught:
        target(**arguments)
    assert problem in str(caught.value)


def members(*topics: str, model: MessageModel = MessageModel.CLUSTERING) -> ConsumerConnection:
    return ConsumerConnection(
        connection_set=(Connection(client_id="c"),),
        subscription_table={topic: SubscriptionData(topic=topic) for topic in topics},
        message_model=model,
    )


@pytest.mark.parametrize(
    ("online", "old", "problem"),
    [
        (None, {QUEUE: None}, None),
        (members("t"), {QUEUE: None}, None),
        (members("other"), {QUEUE: 3}, None),
        (members("other"), {QUEUE: None}, "does not consume topic 't': its members subscribe to other"),
        (members("other"), {QUEUE: 0}, "does not consume topic 't'"),
        (members(), {QUEUE: None}, None),
        (members("t", model=MessageModel.BROADCASTING), {QUEUE: 3}, "is BROADCASTING"),
    ],
)
def test_what_would_surprise(online, old, problem):
    told = refusal(online, "t", old, group="g", topic="t")
    assert (told is None) if problem is None else (problem in (told or ""))


def test_what_a_reset_skips_and_brings_again():
    queues = (QueueReset("t", "a", 0, 5, 8, 10), QueueReset("t", "a", 1, 8, 2, 9), QueueReset("t", "a", 2, None, 4, 4))
    assert [(queue.skipped, queue.again) for queue in queues] == [(3, 0), (0, 6), (0, 0)]
    told = OffsetReset("g", "t", queues, True, False).to_dict()
    assert (told["skipped"], told["again"], told["queues"][1]["again"]) == (3, 6, 6)
