"""Operations at random: what a hypothesis strategy draws, so few names that they meet each other."""

from __future__ import annotations

from hypothesis import strategies as st

from tests.broker.group_operations import (
    Clone,
    Commit,
    DeleteGroup,
    GroupOffset,
    GroupStatistics,
    Heartbeat,
    Leave,
    Lock,
    MembersOf,
    PutGroup,
    Reset,
    TopicsOf,
    Unlock,
)
from tests.broker.model import SQL, TAGS
from tests.broker.operations import (
    LATE,
    DeleteTopic,
    FindByKey,
    FindByUniqueKey,
    FirstOffset,
    LastOffset,
    OffsetByTime,
    Pull,
    PutTopic,
    Send,
    SendAgain,
    SendBack,
    SendBatch,
    TopicSettings,
    TopicStatistics,
    View,
)
from tests.broker.target import Operation

topics = st.sampled_from(["t0", "t0", "t0", "t1"])
groups = st.sampled_from(["g0", "g0", "g1"])
readable = st.sampled_from(["t0"] * 15 + ["t1", "%DLQ%g0", "%DLQ%g1", "%RETRY%g0", "%RETRY%g1"])
#: Most sends go to one queue, so that something gathers there.
queues = st.sampled_from([0, 0, 0, 0, 0, 1, 2])
queue_sets = st.frozensets(st.sampled_from([0, 1, 2]))
clients = st.sampled_from([0, 1])
numbers = st.integers(0, 12)
offsets = st.sampled_from([0, 0, 0, 0, 0, 1, 1, 2, 3, 4, 5, 6, 7, 40, 41, -1, -(2**63), 1000, 2**62])
versions = st.integers(1, 3)
#: Two of the largest are more than one pull brings.
sizes = st.sampled_from([0, 0, 0, 100_000, 200_000])
keys = st.sampled_from(["k0", "k1"])

properties = st.fixed_dictionaries(
    {},
    optional={
        "TAGS": st.sampled_from(["a", "b", "c", "Aa", "BB"]),
        "KEYS": st.sampled_from(["k0", "k1", "k0 k1", "k1 k1"]),
        "n": st.sampled_from(["0", "1", "2", "3"]),
        "colour": st.sampled_from(["red", "blue"]),
    },
)

put_topic = st.builds(
    PutTopic,
    st.sampled_from(["t0", "t0", "t1", "t!"]),
    st.integers(1, 3),
    st.integers(1, 3),
    st.sampled_from([6, 6, 6, 6, 4, 2]),
)
send = st.builds(Send, st.sampled_from(["t0", "t0", "t0", "t1", "t!"]), queues, properties, sizes)
send_batch = st.builds(
    SendBatch,
    topics,
    queues,
    st.one_of(st.lists(properties, min_size=1, max_size=3), properties.map(lambda one: [one] * 40)).map(tuple),
)
send_back = st.builds(SendBack, groups, numbers, st.sampled_from([-1, -1, LATE]), st.sampled_from([None, None, 0]))
_pulled = {
    "group": groups,
    "topic": readable,
    "queue": st.sampled_from([0] * 9 + [1, 2, -1]),
    "offset": offsets,
    "most": st.sampled_from([32, 32, 1, 2, 0, -1, 100]),
    "commit": st.one_of(st.none(), st.integers(0, 6)),
}
pull_by_tags = st.builds(Pull, expression=st.sampled_from([*TAGS, *TAGS, "||"]), **_pulled)
pull_by_sql = st.builds(Pull, expression=st.sampled_from(sorted(SQL)), kind=st.just("SQL92"), **_pulled)
pull_as_member = st.builds(Pull, expression=st.none(), version=st.sampled_from([1, 1, 1, 2, 3]), **_pulled)

OPERATIONS: dict[str, st.SearchStrategy[Operation]] = {
    "put_topic": put_topic,
    "delete_topic": st.builds(DeleteTopic, topics),
    "topic_settings": st.builds(TopicSettings, readable),
    "topic_statistics": st.builds(TopicStatistics, readable),
    "send": send,
    "send_batch": send_batch,
    "send_back": send_back,
    "send_again": st.builds(SendAgain, groups, st.integers(0, 3), st.sampled_from([None, 1, 2])),
    "pull_by_tags": pull_by_tags,
    "pull_by_sql": pull_by_sql,
    "pull_as_member": pull_as_member,
    "view": st.builds(View, st.one_of(numbers, numbers, numbers, st.none())),
    "find_by_key": st.builds(FindByKey, readable, keys, st.sampled_from([1, 2, 64])),
    "find_by_unique_key": st.builds(FindByUniqueKey, readable, numbers),
    "first_offset": st.builds(FirstOffset, readable, queues),
    "last_offset": st.builds(LastOffset, readable, queues),
    "offset_by_time": st.builds(
        OffsetByTime,
        readable,
        queues,
        numbers,
        st.sampled_from([0, 0, -1, 1, -1_000_000, 1_000_000]),
        st.sampled_from([None, "LOWER", "UPPER"]),
    ),
    "group_offset": st.builds(GroupOffset, groups, readable, queues, st.sampled_from([None, True, False])),
    "commit": st.builds(Commit, groups, readable, queues, st.one_of(st.integers(0, 6), st.sampled_from([-1, 1000]))),
    "reset": st.builds(Reset, groups, readable, queues, st.integers(-2, 6)),
    "clone": st.builds(Clone, groups, groups, readable),
    "put_group": st.builds(
        PutGroup, groups, st.sampled_from([True, True, True, False]), st.sampled_from([True, True, False])
    ),
    "delete_group": st.builds(DeleteGroup, groups),
    "topics_of": st.builds(TopicsOf, groups),
    "group_statistics": st.builds(GroupStatistics, groups, st.one_of(readable, st.none())),
    "lock": st.builds(Lock, clients, groups, topics, queue_sets),
    "unlock": st.builds(Unlock, clients, groups, topics, queue_sets),
    "heartbeat": st.builds(
        Heartbeat,
        clients,
        groups,
        st.sampled_from([{"t0"}, {"t0", "t1"}, {"t1"}, {}]).map(frozenset),
        st.sampled_from(["*", "a", "a || b"]),
        versions,
        st.sampled_from([False, False, True]),
    ),
    "leave": st.builds(Leave, clients, groups),
    "members_of": st.builds(MembersOf, groups),
}
#: What the rest is about comes more often, what ends it all less.
_OFTEN = {
    "send": 8,
    "send_batch": 3,
    "pull_by_tags": 8,
    "pull_by_sql": 5,
    "pull_as_member": 5,
    "heartbeat": 4,
    "commit": 4,
    "group_offset": 3,
    "find_by_key": 4,
    "find_by_unique_key": 4,
    "offset_by_time": 4,
    "delete_topic": 1,
    "delete_group": 1,
    "put_group": 1,
}
NAMES = sorted((name for name in OPERATIONS for _ in range(_OFTEN.get(name, 2))), key=lambda name: -_OFTEN.get(name, 2))

#: A topic with a few messages: how every sequence begins, for most of it would be refused without.
beginnings = st.lists(st.builds(Send, st.just("t0"), st.just(0), properties, sizes), min_size=1, max_size=4).map(
    lambda sends: [PutTopic("t0", 2, 2, 6), *sends]
)
operations = st.sampled_from(NAMES).flatmap(OPERATIONS.__getitem__)
