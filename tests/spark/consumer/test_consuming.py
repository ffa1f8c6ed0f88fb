"""The Spark consumer's tasks and their driver, without Spark: what is consumed, what comes again, what is stored."""

from __future__ import annotations

import threading
import time

import pytest

from rocketstream import ConsumeResult, Tag
from rocketstream.cluster.names import dlq_topic, retry_topic
from rocketstream.consumer.hooks import ConsumeHook, FilterHook
from rocketstream.spark.listening.runner import run_task
from rocketstream.spark.listening.watching import QueueWatcher
from rocketstream.wire.codes import ResponseCode
from tests.bare_client import eventually
from tests.spark.consumer.journal import Concurrent, Journal

#: Listeners are pickled by their names: in this process they share these.
LET_GO = threading.Event()
ENTERED = threading.Event()


class Slow(Concurrent):
    """Takes its time."""

    def __call__(self, messages, context):
        time.sleep(0.03)
        return super().__call__(messages, context)


class Hangs(Concurrent):
    """Does not come back from `hang-…` the first time."""

    def __call__(self, messages, context):
        result = super().__call__(messages, context)
        if messages[0].body.startswith(b"hang") and not messages[0].reconsume_times:
            LET_GO.wait(60)
        return result if not messages[0].body.startswith(b"hang") else ConsumeResult.SUCCESS


@pytest.fixture
def let_go():
    LET_GO.clear()
    yield LET_GO
    LET_GO.set()


class Noting(ConsumeHook):
    """Writes what it sees."""

    def __init__(self, journal: Journal) -> None:
        self.journal = journal

    def before(self, context):
        self.journal.write("before")

    def after(self, context):
        self.journal.write(f"after {context.status} {context.return_type} {context.success}")


class NoOdd(FilterHook):
    """Leaves out messages whose body ends in an odd number."""

    def filter(self, context):
        context.messages[:] = [message for message in context.messages if int(message.body[-1:]) % 2 == 0]


def bodies_until(place, count: int) -> list[str]:
    eventually(lambda: len(place.journal.lines()) >= count)
    return sorted(place.journal.bodies())


def test_messages_of_many_queues_and_their_retries(place):
    topic = f"{place.topic}-8"
    place.create_topic(8, topic)
    for queue_id in range(8):
        place.send(f"ok-{queue_id}", f"fail1-{queue_id}", queue_id=queue_id, topic=topic)
    consumer = place.consumer(Concurrent(place.journal)).subscribe(topic)
    with consumer:
        bodies_until(place, 24)
        # A retried message shows the topic that it was sent to (CON-04).
        assert {line.topic for line in place.journal.lines()} == {topic}
        assert len(consumer.runner.plans[0].parts) == 4, "as many tasks as slots, several queues in each"
        assert {part.queue.queue_id for plan in consumer.runner.plans[:2] for part in plan.parts} == set(range(8))
        eventually(lambda: consumer.status().lag == 0)
        eventually(lambda: place.committed(topic) == dict.fromkeys(range(8), 2))  # while it runs, after each task
        metrics = consumer.metrics[topic]
        assert (metrics["ok_messages"], metrics["failed_messages"], metrics["pulled_messages"]) == (8, 8, 16)
    assert sum(place.committed(retry_topic(place.group)).values()) == 8
    assert len(place.journal.lines()) == 24


def test_an_idle_consumer_runs_no_tasks(place, monkeypatch):
    looks: list[object] = []
    send = QueueWatcher._send
    monkeypatch.setattr(QueueWatcher, "_send", lambda self, request: (looks.append(request), send(self, request)))
    consumer = place.consume(Concurrent(place.journal), broker_suspend_max_time=0.05)
    place.send("ok-0")
    bodies_until(place, 1)
    eventually(lambda: consumer.tasks.ended == 1)
    seen = len(looks)
    eventually(lambda: len(looks) > seen + 4)
    assert consumer.tasks.ended == 1
    assert len(consumer.runner.plans) == 1
    place.send("ok-1")
    assert bodies_until(place, 2) == ["ok-0", "ok-1"]


def test_only_what_is_subscribed_to_and_its_retries(place):
    place.send("ok-0", tags="a")
    place.send("ok-1", "ok-2", tags="b")
    consumer = place.consume(Concurrent(place.journal), Tag("a"), broker_suspend_max_time=0.05)
    bodies_until(place, 1)
    # What the filter leaves out at the end is passed over without a task (RES-09).
    eventually(lambda: place.committed() == {0: 3})
    ended = consumer.tasks.ended
    place.send("ok-3", tags="c")
    eventually(lambda: (consumer.core.io.run(consumer.core.persist_offsets()), place.committed() == {0: 4})[1])
    assert consumer.tasks.ended == ended
    place.send("fail1-4", tags="a")
    assert bodies_until(place, 3) == ["fail1-4", "fail1-4", "ok-0"], "a retry topic is not filtered"


def test_a_task_takes_nothing_new_once_its_time_is_over(place):
    place.send(*(f"ok-{number}" for number in range(40)))
    consumer = place.consume(Slow(place.journal), round_time=0.1, consume_thread_min=2)
    assert bodies_until(place, 40) == sorted(f"ok-{number}" for number in range(40)), "each once"
    eventually(lambda: place.committed() == {0: 40})
    assert len(consumer.runner.results) >= 3
    finished = [result.queues[0].state.finished for result in consumer.runner.results]
    assert finished == sorted(finished)
    assert len(place.journal.lines()) == 40


@pytest.mark.behaviour("PQ-08")
def test_a_listener_that_does_not_end_does_not_hold_up_its_queue_for_ever(place, let_go):
    place.send("hang-0", "ok-1", "ok-2")
    place.consume(Hangs(place.journal), round_time=0.2, consume_timeout=0.3, max_reconsume_times=16)
    eventually(lambda: place.committed() == {0: 3})
    let_go.set()
    assert len(place.journal.lines()) == 3
    place.send("ok-3")
    eventually(lambda: "ok-3" in place.journal.bodies())


@pytest.mark.behaviour("CON-11")
def test_what_no_broker_takes_back_is_consumed_again_and_nothing_else(place, short_pauses):
    refused, faults = ResponseCode.SYSTEM_ERROR, place.broker.faults
    place.send("ok-0", "always-1", "ok-2")
    back = faults.answer("CONSUMER_SEND_MSG_BACK", refused, times=None)
    with back, faults.answer("SEND_MESSAGE", refused, times=None):
        consumer = place.consume(Concurrent(place.journal))
        eventually(lambda: place.journal.count("always-1") >= 3)
        eventually(lambda: place.committed() == {0: 1})
        (queue,) = (one for one in consumer.status().queues if one.queue.topic == place.topic)
        assert (queue.cached_count, queue.cached_first, queue.lag) == (1, 1, 2)
    eventually(lambda: place.committed() == {0: 3})
    assert (place.journal.count("ok-0"), place.journal.count("ok-2")) == (1, 1)
    times = [line.times for line in place.journal.lines() if line.body == "always-1"]
    assert times[:3] == [0, 1, 2], "each try counts"


def test_what_the_broker_refuses_goes_through_the_retry_topic(place):
    with place.broker.faults.answer("CONSUMER_SEND_MSG_BACK", ResponseCode.SYSTEM_ERROR):
        place.send("fail1-0")
        place.consume(Concurrent(place.journal))
        eventually(lambda: place.committed() == {0: 1})
    eventually(lambda: place.client.max_offset("SCHEDULE_TOPIC_XXXX", 2) == 1)  # level 3: ten seconds


def test_a_dead_letter_at_once(place):
    place.send("dead-0", "ok-1")
    place.consume(Concurrent(place.journal))
    eventually(lambda: place.committed() == {0: 2})
    assert [one.body for one in place.admin.peek(dlq_topic(place.group), 9)] == [b"dead-0"]
    assert len(place.journal.lines()) == 2


async def later(messages, context):
    """A listener that waits on its loop."""
    import asyncio

    await asyncio.sleep(0.01)
    NOTED.append(messages[0].body)
    return ConsumeResult.SUCCESS


NOTED: list[bytes] = []


def test_an_async_listener(place):
    NOTED.clear()
    place.send(*(f"ok-{number}" for number in range(10)))
    place.consume(later)
    eventually(lambda: place.committed() == {0: 10})
    assert len(NOTED) == 10


def note(message):
    NOTED.append(message.body)


def test_handlers(place):
    NOTED.clear()
    place.send("ok-0", tags="a")
    place.send("ok-1", tags="b")
    consumer = place.consumer()

    consumer.handler(place.topic, "a")(note)
    with consumer:
        eventually(lambda: place.committed() == {0: 2})
    assert NOTED == [b"ok-0"]


def test_hooks_run_where_the_listener_runs(place):
    hooks = Journal(place.directory / "hooks")
    place.send("ok-0", "raise1-2", "ok-3")
    place.consume(Concurrent(place.journal), consume_hooks=[Noting(hooks)], filter_hooks=[NoOdd()])
    assert bodies_until(place, 3) == ["ok-0", "raise1-2", "raise1-2"]
    eventually(lambda: place.committed() == {0: 3})
    eventually(lambda: len(hooks.path.read_text().splitlines()) == 6)
    seen = sorted(hooks.path.read_text().splitlines())
    assert seen == ['"after RECONSUME_LATER EXCEPTION False"'] + ['"after SUCCESS SUCCESS True"'] * 2 + ['"before"'] * 3


class HangsOnce(FilterHook):
    """The first call does not come back in time."""

    def filter(self, context):
        if not ENTERED.is_set():
            ENTERED.set()
            LET_GO.wait(60)


def test_what_a_filter_hook_still_has_is_not_finished(place, let_go):
    ENTERED.clear()
    place.send("ok-0", "ok-1")
    place.consume(Concurrent(place.journal), filter_hooks=[HangsOnce()], round_time=0.2)
    assert bodies_until(place, 2) == ["ok-0", "ok-1"]
    assert not let_go.is_set()
    eventually(lambda: place.committed() == {0: 2})


def test_what_a_listener_raises_is_told_on_the_driver(place, caplog):
    place.send(*(f"raise1-{number}" for number in range(8)))
    consumer = place.consume(Concurrent(place.journal), consume_thread_min=1)
    bodies_until(place, 16)
    eventually(lambda: consumer.tasks.ended >= 2)
    told = [one for one in caplog.records if one.name == "rocketstream.spark.listening"]
    assert "ValueError: cannot do b'raise1-" in told[0].getMessage()
    assert "Traceback" in told[0].getMessage()
    assert len(told) == 6, "the first five, and how many more there were"
    assert "3 more warnings" in told[5].getMessage()


def test_a_namespace(place):
    place.create_topic(1, f"ns%{place.topic}")
    place.send("fail1-0", topic=f"ns%{place.topic}")
    consumer = place.consume(Concurrent(place.journal), namespace="ns")
    bodies_until(place, 2)
    assert {(line.topic, line.times) for line in place.journal.lines()} == {(place.topic, 0), (place.topic, 1)}
    assert {queue.topic for queue in consumer.assignment} == {place.topic}
    eventually(lambda: place.committed(f"ns%{place.topic}", f"ns%{place.group}") == {0: 1})


def test_a_trace(place):
    place.create_topic(1, "traces")
    place.send("ok-0")
    place.consume(Concurrent(place.journal), trace="traces")
    eventually(lambda: place.client.max_offset("traces") > 0)


def test_only_the_driver_stores_offsets(place):
    """A task that Spark gave up may run on: it must not bring the group back to where it is."""
    place.send(*(f"ok-{number}" for number in range(70)))
    # So few at a time that messages are finished before the last pull, which could carry their offset.
    consumer = place.consume(Concurrent(place.journal), pull_batch_size=8, pull_threshold_for_queue=8)
    eventually(lambda: place.committed() == {0: 70})
    run_task(consumer.core.shipped, consumer.runner.plans[0])
    assert len(place.journal.lines()) == 140
    assert place.committed() == {0: 70}
