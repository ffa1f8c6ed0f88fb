"""A stream's plans, asked as Spark asks for them, of a cluster that is a few dictionaries."""

from __future__ import annotations

import logging
import pickle
from collections.abc import Iterable
from concurrent.futures import Future
from typing import Any

import pytest

from rocketstream.clock import ManualClock
from rocketstream.errors import RocketStreamError
from rocketstream.message import MessageQueue
from rocketstream.spark.errors import DataLossError
from rocketstream.spark.offsets import Offsets
from rocketstream.spark.options import ReadOptions
from rocketstream.spark.ranges import QueueRange
from rocketstream.spark.stream import RocketMQStreamReader
from rocketstream.spark.stream_planning import StreamPlanner

A, B, C = (MessageQueue("orders", "a", number) for number in range(3))


class FakeIo:
    """Runs what it is given at once, or when it is told to."""

    def __init__(self) -> None:
        self.waiting: list[tuple[Any, Future[None]]] = []
        self.held = False

    def submit(self, work: Any, what: str) -> Future[None]:
        done: Future[None] = Future()
        self.waiting.append((work, done))
        if not self.held:
            self.release()
        return done

    def release(self) -> None:
        self.held = False
        while self.waiting:
            work, done = self.waiting.pop(0)
            try:
                work.send(None)
            except StopIteration:
                done.set_result(None)


class FakeLink:
    """A cluster: the ends of its queues, and what is written for groups."""

    def __init__(self) -> None:
        self.first: Offsets = {A: 0, B: 0}
        self.last: Offsets = {A: 100, B: 50}
        self.group_offsets: Offsets = {}
        self.writes: list[Offsets] = []
        self.asked = 0
        self.fails: RocketStreamError | None = None
        self.io = FakeIo()

    def queues(self, topics: Iterable[str], *, all_must_exist: bool = True) -> list[MessageQueue]:
        return sorted(self.last)

    def limits(self, queues: Iterable[MessageQueue]) -> tuple[Offsets, Offsets]:
        self.asked += 1
        chosen = list(queues)
        return {queue: self.first[queue] for queue in chosen}, {queue: self.last[queue] for queue in chosen}

    def min_offsets(self, queues: Iterable[MessageQueue]) -> Offsets:
        return self.limits(queues)[0]

    def committed(self, group: str, queues: Iterable[MessageQueue]) -> dict[MessageQueue, int | None]:
        return {queue: self.group_offsets.get(queue) for queue in queues}

    async def commit_async(self, group: str, offsets: Offsets) -> None:
        if self.fails is not None:
            raise self.fails
        self.writes.append(dict(offsets))
        self.group_offsets.update(offsets)


@pytest.fixture
def cluster() -> FakeLink:
    return FakeLink()


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


def planner(cluster: FakeLink, clock: ManualClock, **options: str) -> StreamPlanner:
    chosen = {"nameServers": "a:1", "topic": "orders", "startingOffsets": "earliest", **options}
    return StreamPlanner(ReadOptions.parse(chosen), cluster, clock)  # type: ignore[arg-type]


async def test_a_stream_from_the_first_message_reads_all_there_is(cluster: FakeLink, clock: ManualClock) -> None:
    plan = planner(cluster, clock)
    start = plan.initial()
    assert start == {A: 0, B: 0}
    end = plan.latest(start, None)
    assert end == {A: 100, B: 50}
    assert plan.partitions(start, end) == [[QueueRange(A, 0, 100), QueueRange(B, 0, 50)]]
    assert plan.latest(end, None) == end
    cluster.last[B] = 60
    await clock.advance(1.0)
    assert plan.latest(end, None) == {A: 100, B: 60}


def test_a_stream_from_the_end_pins_its_start_with_a_batch_of_nothing(cluster: FakeLink, clock: ManualClock) -> None:
    plan = planner(cluster, clock, startingOffsets="latest")
    start = plan.initial()
    assert start == {A: 100, B: 50}
    cluster.last[A] = 130
    assert plan.latest(plan.initial(), None) == start
    assert plan.latest(start, None) == {A: 130, B: 50}


def test_the_start_is_the_same_however_often_it_is_asked_for(cluster: FakeLink, clock: ManualClock) -> None:
    plan = planner(cluster, clock, startingOffsets="latest")
    first = plan.initial()
    cluster.last[A] = 999
    assert plan.initial() == first


def test_a_batch_that_did_not_finish_is_planned_again_whatever_the_start_is_now(
    cluster: FakeLink, clock: ManualClock
) -> None:
    """A new process: the checkpoint has the end of batch 0, and "latest" has moved beyond it."""
    plan = planner(cluster, clock, startingOffsets="latest")
    start, end = plan.initial(), {A: 90, B: 50}
    assert plan.partitions(start, end) == []
    assert plan.latest(end, None) == {A: 100, B: 50}


def test_a_limit_is_shared_by_the_queues(cluster: FakeLink, clock: ManualClock) -> None:
    plan = planner(cluster, clock)
    assert plan.latest(plan.initial(), 20) == {A: 10, B: 10}
    assert plan.latest({A: 10, B: 45}, 20) == {A: 25, B: 50}


async def test_a_queue_that_is_new_is_read_from_its_first_message(cluster: FakeLink, clock: ManualClock) -> None:
    plan = planner(cluster, clock, startingOffsets="latest")
    start = plan.latest(plan.initial(), None)
    cluster.first[C], cluster.last[C] = 3, 9
    assert plan.latest(start, None) == start, "queues are looked for once a second"
    await clock.advance(1.0)
    end = plan.latest(start, None)
    assert end == {A: 100, B: 50, C: 9}
    assert plan.partitions(start, end) == [[QueueRange(C, 3, 9)]]


async def test_a_queue_that_goes_stays_in_the_offsets(cluster: FakeLink, clock: ManualClock) -> None:
    plan = planner(cluster, clock)
    end = plan.latest(plan.initial(), None)
    del cluster.last[B]
    cluster.last[A] = 120
    await clock.advance(1.0)
    assert plan.latest(end, None) == {A: 120, B: 50}


def test_brokers_are_asked_once_in_a_moment(cluster: FakeLink, clock: ManualClock) -> None:
    plan = planner(cluster, clock)
    end = plan.latest(plan.initial(), None)
    asked = cluster.asked
    for _ in range(50):
        plan.latest(end, None)
        plan.report()
    assert cluster.asked == asked


async def test_what_is_available_now_is_read_and_no_more(cluster: FakeLink, clock: ManualClock) -> None:
    plan = planner(cluster, clock)
    plan.prepare_available_now()
    start = plan.initial()
    cluster.last = {A: 1000, B: 1000, C: 1000}
    cluster.first[C] = 0
    await clock.advance(5.0)
    reached = []
    while (end := plan.latest(start, 60)) != start:
        reached.append(end)
        start = end
        await clock.advance(1.0)
    assert reached == [{A: 30, B: 30}, {A: 70, B: 50}, {A: 100, B: 50}]


# --- the group --------------------------------------------------------------------------------------------------------


async def test_a_group_is_told_what_is_finished_and_never_more(cluster: FakeLink, clock: ManualClock) -> None:
    plan = planner(cluster, clock, group="g")
    start = plan.initial()
    end = plan.latest(start, 60)
    assert cluster.group_offsets == {}, "nothing is finished yet"
    plan.partitions(start, end)
    assert cluster.group_offsets == {}
    following = plan.latest(end, 60)
    assert cluster.group_offsets == end == {A: 30, B: 30}
    last = plan.latest(following, None)
    assert plan.latest(last, None) == last, "the last batch"
    assert cluster.group_offsets == last == {A: 100, B: 50}
    assert cluster.writes == [{A: 30, B: 30}, {A: 70, B: 50}, {A: 100}], "only what has changed"


def test_the_write_of_the_last_batch_is_waited_for(cluster: FakeLink, clock: ManualClock) -> None:
    plan = planner(cluster, clock, group="g")
    end = plan.latest(plan.initial(), None)
    cluster.io.held = True
    assert plan.group is not None
    plan.group.finished(end)
    cluster.last = dict(end)
    waited: list[bool] = []
    plan.group.flush = lambda: (cluster.io.release(), waited.append(True))  # type: ignore[assignment,method-assign]
    assert plan.latest(end, None) == end
    assert waited == [True]
    assert cluster.group_offsets == end


def test_offsets_that_cannot_be_written_stop_nothing_and_come_with_the_next(
    cluster: FakeLink, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    plan = planner(cluster, clock, group="g")
    end = plan.latest(plan.initial(), 20)
    cluster.fails = RocketStreamError("the broker is away")
    with caplog.at_level(logging.WARNING, "rocketstream.spark"):
        following = plan.latest(end, 20)
    assert "offsets of group g are not written yet: the broker is away" in caplog.text
    cluster.fails = None
    plan.latest(following, 20)
    assert cluster.group_offsets == following


def test_a_group_need_not_be_told(cluster: FakeLink, clock: ManualClock) -> None:
    plan = planner(cluster, clock, group="g", commitOffsets="false")
    end = plan.latest(plan.initial(), None)
    plan.latest(end, None)
    assert cluster.group_offsets == {}


def test_a_stream_begins_where_its_group_is_and_where_it_never_was_at_the_first(
    cluster: FakeLink, clock: ManualClock
) -> None:
    cluster.group_offsets = {A: 42}
    cluster.first[B] = 7
    assert planner(cluster, clock, group="g", startingOffsets="committed").initial() == {A: 42, B: 7}


# --- queues that end before what was read -----------------------------------------------------------------------------


async def test_what_retention_took_is_an_error_with_the_whole_range(cluster: FakeLink, clock: ManualClock) -> None:
    plan = planner(cluster, clock)
    start = plan.initial()
    cluster.first = {A: 30, B: 80}
    cluster.last[B] = 90
    await clock.advance(1.0)
    end = plan.latest(start, None)
    with pytest.raises(DataLossError, match=r"offsets 0 to 29 of queue 0 .*its messages begin at 30"):
        plan.partitions(start, end)
    again = planner(cluster, clock)
    with pytest.raises(DataLossError, match="offsets 0 to 29 of queue 0"):
        again.partitions(start, end)


async def test_or_is_left_out(cluster: FakeLink, clock: ManualClock, caplog: pytest.LogCaptureFixture) -> None:
    plan = planner(cluster, clock, failOnDataLoss="false")
    start = plan.initial()
    cluster.first = {A: 30, B: 80}
    await clock.advance(1.0)
    end = plan.latest(start, None)
    with caplog.at_level(logging.WARNING, "rocketstream.spark"):
        assert plan.partitions(start, end) == [[QueueRange(A, 30, 100)]]
    assert "orders@a:0 [0, 30) is not there" in caplog.text
    assert "orders@a:1 [0, 50) is not there" in caplog.text


async def test_a_queue_that_lost_messages_is_an_error_if_it_stays_so(cluster: FakeLink, clock: ManualClock) -> None:
    plan = planner(cluster, clock, outageTimeout="10")
    end = plan.latest(plan.initial(), None)
    cluster.last[A] = 40
    await clock.advance(1.0)
    assert plan.latest(end, None) == end, "a broker that comes back from a crash may find them yet"
    await clock.advance(10.0)
    with pytest.raises(DataLossError, match=r"offsets 40 to 99 of queue 0 .* was the topic made anew"):
        plan.latest(end, None)


async def test_a_queue_that_found_its_messages_again_goes_on(cluster: FakeLink, clock: ManualClock) -> None:
    plan = planner(cluster, clock, outageTimeout="10")
    end = plan.latest(plan.initial(), None)
    for last in (40, 101, 40, 102):
        cluster.last[A] = last
        await clock.advance(8.0)
        end = plan.latest(end, None)
    assert end == {A: 102, B: 50}


async def test_or_the_stream_goes_on_from_its_new_end_and_says_so(
    cluster: FakeLink, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    plan = planner(cluster, clock, outageTimeout="10", failOnDataLoss="false")
    end = plan.latest(plan.initial(), None)
    cluster.last[A] = 40
    await clock.advance(1.0)
    plan.latest(end, None)
    cluster.last[A] = 43
    await clock.advance(10.0)
    with caplog.at_level(logging.WARNING, "rocketstream.spark"):
        lower = plan.latest(end, None)
    assert lower == {A: 40, B: 50}
    assert plan.partitions(end, lower) == []
    assert "orders@a:0 [40, 100) is not there" in caplog.text
    assert plan.latest(lower, None) == {A: 43, B: 50}, "what was sent since is read"


# --- what Spark is given ----------------------------------------------------------------------------------------------


def test_a_reader_travels_without_its_planner() -> None:
    options = ReadOptions.parse({"nameServers": "a:1", "topic": "orders", "maxOffsetsPerTrigger": "7"})
    reader = RocketMQStreamReader(options, ["body"])
    reader._planner = object()  # type: ignore[assignment]
    other = pickle.loads(pickle.dumps(reader))
    assert other._planner is None
    assert other.getDefaultReadLimit().max_rows == 7


def test_a_stream_has_no_end() -> None:
    options = ReadOptions.parse({"nameServers": "a:1", "topic": "orders", "endingOffsets": "latest"})
    with pytest.raises(RocketStreamError, match="are for batch reads"):
        RocketMQStreamReader(options, ["body"])
