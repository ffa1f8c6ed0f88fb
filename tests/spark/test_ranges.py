from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from rocketstream.message import MessageQueue
from rocketstream.spark.ranges import QueueRange, admit, plan_partitions, ranges_between


def queue(number: int, broker: str = "a") -> MessageQueue:
    return MessageQueue("orders", broker, number)


sizes = st.lists(st.integers(0, 50_000), max_size=40)


def laid_out(sizes: list[int]) -> list[QueueRange]:
    return [QueueRange(queue(number), 7 * number, 7 * number + size) for number, size in enumerate(sizes)]


def offsets_of(ranges: list[QueueRange]) -> dict[MessageQueue, list[tuple[int, int]]]:
    found: dict[MessageQueue, list[tuple[int, int]]] = {}
    for one in ranges:
        found.setdefault(one.queue, []).append((one.start, one.end))
    return found


def test_a_range_says_what_it_is() -> None:
    assert str(QueueRange(queue(3), 5, 12)) == "orders@a:3 [5, 12)"
    assert QueueRange(queue(3), 5, 12).size == 7
    assert QueueRange(queue(3), 12, 5).size == 0


def test_ranges_lie_between_offsets_and_a_start_beyond_its_end_is_nothing() -> None:
    start = {queue(0): 5, queue(1): 9, queue(2): 4}
    end = {queue(0): 8, queue(1): 3, queue(2): 4, queue(3): 2}
    assert ranges_between(start, end) == [QueueRange(queue(0), 5, 8), QueueRange(queue(3), 0, 2)]


# --- admission ------------------------------------------------------------------------------------------------------


def test_without_a_limit_all_that_is_there_is_read() -> None:
    assert admit({queue(0): 1}, {queue(0): 9, queue(1): 4}, None) == {queue(0): 9, queue(1): 4}


def test_a_limit_is_shared_evenly() -> None:
    start = {queue(number): 100 for number in range(4)}
    ends = {queue(number): 1_000_000 for number in range(4)}
    assert admit(start, ends, 40) == {queue(number): 110 for number in range(4)}


def test_what_short_queues_leave_goes_to_long_ones() -> None:
    start = {queue(0): 0, queue(1): 0, queue(2): 0}
    assert admit(start, {queue(0): 2, queue(1): 1000, queue(2): 1000}, 100) == {queue(0): 2, queue(1): 49, queue(2): 49}


def test_a_limit_smaller_than_the_number_of_queues_starves_none_for_ever() -> None:
    start = {queue(number): 0 for number in range(5)}
    ends = {queue(number): 3 for number in range(5)}
    rounds = 0
    while start != ends:
        start = admit(start, ends, 2)
        rounds += 1
    assert rounds == 8


def test_a_queue_that_ends_before_its_start_stays_where_it_is() -> None:
    assert admit({queue(0): 9, queue(1): 0}, {queue(0): 3, queue(1): 5}, 4) == {queue(0): 9, queue(1): 4}


@given(st.dictionaries(st.integers(0, 30), st.tuples(st.integers(0, 1000), st.integers(0, 1000))), st.integers(1, 5000))
def test_admission_reads_as_much_as_it_may_and_no_more(queues: dict[int, tuple[int, int]], limit: int) -> None:
    start = {queue(number): begin for number, (begin, _) in queues.items()}
    ends = {queue(number): begin + size for number, (begin, size) in queues.items()}
    admitted = admit(start, ends, limit)
    sizes = {one: admitted[one] - start[one] for one in admitted}
    assert sum(sizes.values()) == min(limit, sum(size for _, size in queues.values()))
    assert all(start[one] <= admitted[one] <= ends[one] for one in admitted)
    # Fair: nobody who could have more gets less than another, but for a remainder of one.
    hungry = [sizes[one] for one in admitted if admitted[one] < ends[one]]
    assert not hungry or max(sizes.values()) <= min(hungry) + 1


# --- partitions -----------------------------------------------------------------------------------------------------


def test_several_queues_go_into_one_task() -> None:
    partitions = plan_partitions(laid_out([10_000] * 8), slots=2)
    assert [[one.queue.queue_id for one in task] for task in partitions] == [[0, 1, 2, 3], [4, 5, 6, 7]]


def test_one_long_queue_keeps_all_slots_busy() -> None:
    partitions = plan_partitions([QueueRange(queue(0), 100, 40_100)], slots=4)
    assert [task[0][1:] for task in partitions] == [(100, 10_100), (10_100, 20_100), (20_100, 30_100), (30_100, 40_100)]


def test_a_few_messages_are_one_task_whatever_the_slots() -> None:
    assert len(plan_partitions(laid_out([10, 20, 0, 5]), slots=16)) == 1
    assert plan_partitions(laid_out([0, 0]), slots=16) == []


def test_min_partitions_is_kept_even_for_a_few_messages() -> None:
    assert len(plan_partitions(laid_out([10, 20, 30]), slots=2, min_partitions=7)) == 7
    assert len(plan_partitions(laid_out([2, 1]), slots=2, min_partitions=7)) == 3


@given(sizes, st.integers(1, 64), st.none() | st.integers(1, 200))
def test_a_plan_reads_everything_once_in_order(sizes: list[int], slots: int, least: int | None) -> None:
    ranges = laid_out(sizes)
    partitions = plan_partitions(ranges, slots, least)
    total = sum(sizes)
    if least is None:
        assert len(partitions) <= slots
    else:
        assert len(partitions) == min(least, total)
    planned = offsets_of([one for task in partitions for one in task])
    for one in ranges:
        parts = planned.get(one.queue, [])
        assert sum(end - start for start, end in parts) == one.size
        if parts:
            assert (parts[0][0], parts[-1][1]) == (one.start, one.end)
            assert all(left[1] == right[0] for left, right in pairwise(parts))
    if partitions:
        work = [sum(one.size for one in task) for task in partitions]
        assert min(work) >= 1
        assert max(work) - min(work) <= 1
