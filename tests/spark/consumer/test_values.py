"""What the driver and its tasks tell each other, and how queues are spread over tasks."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from rocketstream.message import MessageQueue
from rocketstream.spark.listening.sharing import share
from rocketstream.spark.listening.values import LogLine, QueueResult, QueueState, TaskResult

offsets = st.integers(0, 2**62)
states = st.builds(
    QueueState,
    offsets,
    offsets,
    st.lists(offsets, max_size=4).map(tuple),
    st.lists(st.tuples(offsets, st.integers(0, 99)), max_size=4).map(tuple),
)
queue_results = st.builds(
    QueueResult,
    st.builds(MessageQueue, st.text(max_size=9), st.text(max_size=9), st.integers(0, 99)),
    states,
    offsets,
    st.floats(0, 30),
    st.booleans(),
    st.none() | offsets,
)
counts = st.dictionaries(st.text(max_size=9), st.dictionaries(st.text(max_size=9), st.integers(0, 99)), max_size=3)


@given(
    st.builds(
        TaskResult,
        st.integers(0),
        st.text(max_size=9),
        st.lists(queue_results, max_size=4).map(tuple),
        counts,
        st.lists(st.builds(LogLine, st.integers(0, 50), st.text(max_size=99)), max_size=4).map(tuple),
        st.integers(0, 99),
    )
)
def test_a_result_comes_back_as_it_was(result):
    assert TaskResult.from_json(result.to_json()) == result


def test_what_is_left_to_consume():
    state = QueueState(finished=5, position=9, unfinished=(5, 7))
    assert [offset for offset in range(12) if state.wants(offset)] == [5, 7, 9, 10, 11]


@given(st.dictionaries(st.integers(), st.integers(0, 10**6), max_size=40), st.integers(0, 9))
def test_every_queue_is_in_one_task_and_no_task_is_empty(backlogs, tasks):
    shares = share(backlogs, tasks)
    if not tasks:
        assert shares == []
        return
    assert sorted(queue for queues in shares for queue in queues) == sorted(backlogs)
    assert all(shares)
    assert len(shares) == min(tasks, len(backlogs))


@given(st.dictionaries(st.integers(), st.integers(1, 10**6), min_size=1, max_size=40), st.integers(1, 9))
def test_tasks_have_about_the_same_to_do(backlogs, tasks):
    loads = [sum(backlogs[queue] for queue in queues) for queues in share(backlogs, tasks)]
    assert max(loads) <= sum(backlogs.values()) / tasks + max(backlogs.values())
    assert max(loads) - min(loads) <= max(backlogs.values()) or len(backlogs) < tasks


def test_queues_of_which_nothing_is_known_are_spread_too():
    assert sorted(map(len, share(dict.fromkeys(range(8), 0), 4))) == [2, 2, 2, 2]
