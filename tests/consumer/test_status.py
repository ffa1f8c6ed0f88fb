"""What a consumer says of itself: where each queue is, and the reason, in words, why one does not move."""

from __future__ import annotations

import threading

import pytest

from rocketstream.clock import ManualClock
from rocketstream.consumer.flow_control import FlowLimits, next_step
from rocketstream.consumer.process_queue import ProcessQueue
from rocketstream.consumer.pull_request import PullRequest
from rocketstream.consumer.results import ConsumeResult
from rocketstream.consumer.status import queue_status, reason_to_wait
from rocketstream.message import MessageQueue
from rocketstream.wire.record_decoder import decode_records
from tests.consumer.peers import RETRY, Heard, make_core, request_of
from tests.consumer.pull_answers import illegal, no_new, record
from tests.scripted import eventually

QUEUE = MessageQueue("t", "a", 0)


def messages(first, count):
    body = b"".join(record(first + n, body=b"x" * 100) for n in range(count))
    return decode_records(body, queue=QUEUE, min_offset=0, max_offset=first + count)[0]


@pytest.fixture
def request_():
    """A pull request of queue 0 with messages 10 to 14 cached and 20 the newest."""
    pq = ProcessQueue(QUEUE, now=100.0)
    pq.put(messages(10, 5), 20)
    request = PullRequest("g", QUEUE, pq, 15)
    request.broker_max = 20
    return request


def why(request, now=105.0, *, needs_lock=False):
    return reason_to_wait(request, now, needs_lock=needs_lock)


def step(request, **others):
    """What flow control says, noted as the puller does."""
    asked = {"running": True, "paused": False, "subscribed": True, "orderly": False, "needs_lock": False}
    request.waiting = next_step(request.process_queue, limits=FlowLimits(count=3), **{**asked, **others})


def test_the_status_of_a_queue(request_):
    status = queue_status(request_, 10, 105.0, needs_lock=False, shown=QUEUE)
    assert status.queue == QUEUE
    assert (status.next_offset, status.stored_offset, status.lag) == (15, 10, 10)
    assert (status.cached_count, status.cached_bytes) == (5, 500)
    assert (status.cached_first, status.cached_last) == (10, 14)
    assert (status.locked, status.dropped, status.last_pull_ago) == (False, False, 5.0)
    assert status.waits_for == "message 10 waits for a thread"


def test_the_lag_counts_from_the_first_unfinished_message_else_from_the_next_pull(request_):
    pq = request_.process_queue
    pq.take(2, 100.0)
    assert queue_status(request_, 10, 105.0, needs_lock=False, shown=QUEUE).lag == 10, "taken is not finished"
    pq.clear()
    assert queue_status(request_, 10, 105.0, needs_lock=False, shown=QUEUE).lag == 5
    request_.broker_max = 3
    assert queue_status(request_, 10, 105.0, needs_lock=False, shown=QUEUE).lag == 0


def test_a_listener_that_has_a_message_for_long_is_the_reason(request_):
    (first, *_) = request_.process_queue.take(1, 100.0)
    first.consume_started = 100.0
    assert why(request_, 100.9) is None
    assert why(request_, 142.0) == "the listener has had message 10 for 42 s"


def test_flow_control_is_a_reason_with_its_numbers(request_):
    step(request_)
    assert why(request_) == (
        "t@a:0 is not pulled for now, more than 3 messages are cached: min_offset=10, max_offset=14, count=5,"
        " size=0.0 MiB; message 10 waits for a thread"
    )


def test_a_suspended_consumer_and_a_missing_lock_are_reasons(request_):
    request_.process_queue.clear()
    assert why(request_) is None
    assert why(request_, needs_lock=True) == "the broker has not given us its lock"
    request_.process_queue.set_locked(100.0)
    assert why(request_, needs_lock=True) is None
    step(request_, paused=True)
    assert why(request_) == "the consumer is suspended"
    step(request_, orderly=True, needs_lock=True)
    request_.process_queue.set_unlocked()
    step(request_, orderly=True, needs_lock=True)
    assert why(request_, needs_lock=True) == "the queue is not locked at the broker"


def test_a_dropped_queue_says_so_before_all_else(request_):
    step(request_)
    request_.process_queue.drop()
    assert why(request_) == "it was dropped and is about to be taken anew or given away"


# --- a whole consumer -------------------------------------------------------------------------------------------------


async def test_the_status_of_a_consumer_in_its_life(name_server, clock, a):
    core = make_core(name_server.address, clock)
    fresh = await core.overview.status()
    assert (fresh.group, fresh.state, fresh.paused) == ("g", "CREATE_JUST", False)
    assert (fresh.queues, fresh.threads, fresh.problems, fresh.lag) == ((), 0, {}, 0)
    assert await core.overview.assignment() == ()
    await core.start()
    running = await core.overview.status()
    assert (running.client_id, running.state, running.threads) == (core.client_id, "RUNNING", 20)
    (queue,) = running.queues
    assert (queue.queue, queue.next_offset, queue.stored_offset, queue.lag) == (QUEUE, 0, -1, 0)
    assert queue.waits_for is None
    assert await core.overview.assignment() == (QUEUE,)
    await core.shutdown(1.0)
    ended = await core.overview.status()
    assert (ended.state, ended.queues) == ("SHUTDOWN_ALREADY", ())


class Stuck(Heard):
    """A listener that keeps its first message until it is let go."""

    def __init__(self):
        super().__init__()
        self.go_on = threading.Event()

    def __call__(self, messages, context):
        super().__call__(messages, context)
        self.go_on.wait(30.0)
        return ConsumeResult.SUCCESS


async def watched(clock: ManualClock, caplog, seconds=40.0):
    """What the watchdog says within that time, by its own timer."""
    caplog.clear()
    for _ in range(round(seconds / 10.0)):
        await clock.advance(10.0)
    return [entry.getMessage() for entry in caplog.records if "has not moved" in entry.getMessage()]


async def test_the_watchdog_says_which_listener_holds_a_queue_up(started, clock, a, caplog):
    listener = Stuck()
    core = await started(listener, consume_thread_min=1, consume_thread_max=1)
    a.store("one", "two")
    await listener.until(1)
    (said,) = await watched(clock, caplog)
    assert "has not moved for 30 s though 2 messages wait (stored offset -1, 2 cached)" in said
    assert said.endswith("the listener has had message 0 for 40 s")
    (queue,) = (await core.overview.status()).queues
    assert queue.waits_for == "the listener has had message 0 for 40 s"
    listener.go_on.set()


async def test_the_watchdog_gives_flow_control_with_its_numbers(started, clock, a, caplog):
    listener = Stuck()
    core = await started(listener, pull_threshold_for_queue=2, consume_thread_min=1, consume_thread_max=1)
    a.store("one", "two", "three")
    await listener.until(1)
    await eventually(lambda: request_of(core, QUEUE).waiting is not None)
    (said,) = await watched(clock, caplog)
    assert "more than 2 messages are cached: min_offset=0, max_offset=2, count=3" in said
    assert "the listener has had message 0 for 40 s" in said
    listener.go_on.set()


async def test_the_watchdog_says_that_a_consumer_is_suspended(started, clock, a, caplog):
    heard = Heard()
    core = await started(heard, pull_batch_size=1)
    await a.until_held()
    await core.set_paused(True)
    a.store("one", "two")
    await heard.until(1)
    await eventually(lambda: not request_of(core, QUEUE).process_queue.count)
    (said,) = await watched(clock, caplog)
    assert "though 1 messages wait" in said
    assert said.endswith(": the consumer is suspended")
    assert (await core.overview.status()).paused
    await core.set_paused(False)
    await heard.until(2)


async def test_the_watchdog_says_that_a_broker_is_unreachable(started, clock, a, caplog):
    core = await started(pull_batch_size=1)
    await a.until_held()
    request_of(core, QUEUE).broker_max = 5
    await a.stop()
    await eventually(lambda: request_of(core, QUEUE).waiting is not None)
    (queue,) = (await core.overview.status()).queues
    assert a.address in queue.waits_for
    assert queue.lag == 5
    caplog.clear()
    for _ in range(14):  # each try has to fail before the next is due
        await clock.advance(3.0)
        await eventually(lambda: request_of(core, QUEUE).waiting is not None)
    (said,) = [entry.getMessage() for entry in caplog.records if "has not moved" in entry.getMessage()]
    assert f"{a.address}: cannot connect" in said


async def test_the_watchdog_says_that_a_queue_is_not_locked(started, clock, a, caplog):
    core = await started(orderly=True, pull_batch_size=1)
    await a.until_held()
    a.locks[QUEUE] = "somebody else"
    await clock.advance(1.0)
    await eventually(lambda: not request_of(core, QUEUE).process_queue.locked)
    a.answer(no_new(0, max_offset=5))
    await eventually(lambda: request_of(core, QUEUE).waiting is not None)
    (said,) = await watched(clock, caplog)
    assert said.endswith("though 5 messages wait (stored offset 0, 0 cached): the queue is not locked at the broker")


async def test_a_queue_that_is_about_to_be_taken_anew_says_so(started, a):
    core = await started()
    await a.until_held()
    a.answer(illegal(7))
    await eventually(lambda: request_of(core, QUEUE).process_queue.dropped)
    (queue,) = (await core.overview.status()).queues
    assert queue.dropped
    assert queue.waits_for == "it was dropped and is about to be taken anew or given away"
    assert await core.overview.assignment() == ()


async def test_the_retry_topics_queues_are_in_the_status_but_not_in_the_assignment(started, name_server, a):
    name_server.set_route(RETRY, {"a": {0: a.address}}, queues=1)
    core = await started()
    assert [queue.queue.topic for queue in (await core.overview.status()).queues] == [RETRY, "t"]
    assert await core.overview.assignment() == (QUEUE,)
