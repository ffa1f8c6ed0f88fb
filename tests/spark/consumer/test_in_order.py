"""An orderly Spark consumer without Spark: order, pauses, commits across tasks, locks."""

from __future__ import annotations

from typing import Any

import pytest

from rocketstream import OrderlyResult
from rocketstream.consumer.orderly import LOCK_REFUSED
from rocketstream.spark.listening.runner import run_task
from rocketstream.spark.listening.values import QueuePart, QueueState, TaskPlan
from tests.bare_client import eventually
from tests.contract.test_push_orderly import try_to_lock
from tests.spark.consumer.journal import Journal, Orderly


def test_a_suspended_queue_does_not_stop_the_others(place):
    topic = f"{place.topic}-2"
    place.create_topic(2, topic)
    place.send("ok-0", "suspend3-1", "ok-2", topic=topic)
    place.send(*(f"ok-1{number}" for number in range(9)), queue_id=1, topic=topic)
    consumer = place.consumer(Orderly(place.journal, pause=0.2), orderly=True).subscribe(topic)
    with consumer:
        eventually(lambda: place.committed(topic) == {0: 3, 1: 9})
    by_queue: dict[int, list[tuple[str, int]]] = {0: [], 1: []}
    for line in place.journal.lines():
        by_queue[line.queue_id].append((line.body, line.times))
    assert by_queue[0] == [("ok-0", 0), *(("suspend3-1", times) for times in range(4)), ("ok-2", 0)]
    assert by_queue[1] == [(f"ok-1{number}", 0) for number in range(9)]
    pauses = [one.pause for result in consumer.runner.results for one in result.queues if one.pause]
    assert pauses == [0.2, 0.2, 0.2], "the driver waits, not the task"


def test_a_suspended_queue_pauses_for_as_long_as_it_was_told(place):
    place.send("always-0")
    consumer = place.consume(Orderly(place.journal, pause=30.0), orderly=True)
    eventually(lambda: consumer.tasks.ended == 1)
    for number in range(3):
        place.send(f"ok-{number}")
    (queue,) = (one for one in consumer.status().queues if one.queue.topic == place.topic)
    assert queue.waits_for == "it pauses for 30 s"
    other = f"{place.topic}-other"
    place.create_topic(1, other)
    place.send("ok-9", topic=other)
    consumer.subscribe(other)
    eventually(lambda: place.committed(other) == {0: 1})
    assert place.journal.bodies() == ["always-0", "ok-9"]
    assert place.committed() == {0: 0}


def test_a_short_pause_needs_no_new_task(place):
    place.send("suspend5-0", "ok-1")
    consumer = place.consume(Orderly(place.journal, pause=0.01), orderly=True)
    eventually(lambda: place.committed() == {0: 2})
    assert len(consumer.runner.plans) == 1
    assert [line.times for line in place.journal.lines()] == [0, 1, 2, 3, 4, 5, 0]


class KeepsThenRollsBack:
    """SUCCESS without a commit; `back-…` rolls back the first time and commits the second."""

    def __init__(self, journal: Journal, pause: float) -> None:
        self.journal = journal
        self.pause = pause

    def __call__(self, messages: Any, context: Any) -> OrderlyResult:
        context.auto_commit = False
        context.suspend_current_queue_time = self.pause
        body = messages[0].body.decode()
        first = not self.journal.count(body)
        self.journal.add(messages, context)
        if not body.startswith("back"):
            return OrderlyResult.SUCCESS
        return OrderlyResult.ROLLBACK if first else OrderlyResult.COMMIT


@pytest.mark.parametrize("pause", [0.01, 0.05])
def test_what_is_not_committed_goes_on_waiting_from_task_to_task(place, pause):
    consumer = place.consume(KeepsThenRollsBack(place.journal, pause), orderly=True, broker_suspend_max_time=0.05)
    for number, body in enumerate(("keep-0", "keep-1")):
        place.send(body)
        eventually(lambda number=number: consumer.tasks.ended == number + 1)
        eventually(lambda number=number: consumer.status().queues[-1].next_offset == number + 1)
    consumer.core.io.run(consumer.core.persist_offsets())
    assert place.committed() == {0: 0}
    (queue,) = (one for one in consumer.status().queues if one.queue.topic == place.topic)
    assert (queue.cached_count, queue.lag, queue.next_offset) == (2, 2, 2)
    place.send("back-2")
    eventually(lambda: place.committed() == {0: 3})
    assert place.journal.bodies() == ["keep-0", "keep-1", "back-2"] * 2


def test_the_locks_are_the_drivers(place):
    queue = place.client.queue(place.topic)
    consumer = place.consume(Orderly(place.journal), orderly=True)
    assert try_to_lock(place.client, place.group, queue) == set()
    place.send("ok-0")
    eventually(lambda: place.committed() == {0: 1})
    assert try_to_lock(place.client, place.group, queue) == set()
    assert all(one.locked for one in consumer.status().queues)
    consumer.shutdown()
    assert try_to_lock(place.client, place.group, queue) == {queue}


def test_a_task_whose_driver_has_lost_the_lock_consumes_nothing(place):
    """A driver that is cut off may have tasks that run on: they find out by asking the broker."""
    consumer = place.consume(Orderly(place.journal), orderly=True)
    place.send("ok-0")
    eventually(lambda: place.committed() == {0: 1})
    plan = consumer.runner.plans[0]
    stranger = TaskPlan(9, plan.parts, plan.subscriptions, "a driver of before", plan.project, plan.round_time)
    result = run_task(consumer.core.shipped, stranger)
    (queue,) = result.queues
    assert (queue.state, queue.pause, queue.look_first) == (QueueState(0, 0), LOCK_REFUSED, True)
    assert place.journal.bodies() == ["ok-0"]
    again = run_task(consumer.core.shipped, plan)
    assert again.queues[0].state == QueueState(1, 1)
    assert place.journal.bodies() == ["ok-0", "ok-0"]


def test_a_task_begins_where_its_plan_says(place):
    consumer = place.consume(Orderly(place.journal), orderly=True)
    place.send("ok-0", "ok-1", "ok-2")
    eventually(lambda: place.committed() == {0: 3})
    plan = consumer.runner.plans[0]
    parts = (QueuePart(plan.parts[0].queue, QueueState(1, 2, unfinished=(1,), times=((2, 7),))),)
    later = TaskPlan(9, parts, plan.subscriptions, plan.client_id, plan.project, plan.round_time)
    seen = len(place.journal.lines())
    assert run_task(consumer.core.shipped, later).queues[0].state == QueueState(3, 3)
    assert [(line.body, line.times) for line in place.journal.lines()[seen:]] == [("ok-2", 7)]
