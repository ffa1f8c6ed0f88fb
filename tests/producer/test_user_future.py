"""The future of `send_async`: all that the standard one promises, at less cost."""

from __future__ import annotations

import asyncio
import concurrent.futures
import threading

import pytest

from rocketstream.errors import ConfigurationError
from rocketstream.message import MessageQueue
from rocketstream.producer.receipt import SendReceipt, SendStatus
from rocketstream.producer.user_future import UserFuture
from tests.bare_client import eventually

LONG = 60.0
RECEIPT = SendReceipt(SendStatus.OK, "id", "offset", MessageQueue("t", "a", 0), 7)


@pytest.fixture
def threads():
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        yield pool


@pytest.fixture
def future(threads):
    return UserFuture(threads)


def test_before_and_after(future):
    assert not future.done()
    assert not future.running()
    assert "pending" in repr(future)
    with pytest.raises(TimeoutError):
        future.result(0)
    with pytest.raises(TimeoutError):
        future.exception(0)
    future.conclude(RECEIPT)
    assert future.done()
    assert not future.cancelled()
    assert future.result() is RECEIPT
    assert future.exception() is None
    assert "finished" in repr(future)
    assert not future.cancel(), "too late"


def test_an_error_is_raised(future):
    error = ConfigurationError("no")
    future.conclude(error)
    assert future.exception() is error
    with pytest.raises(ConfigurationError, match="no"):
        future.result()


def test_the_first_outcome_counts(future):
    future.conclude(RECEIPT)
    future.conclude(ConfigurationError("late"))
    assert future.result() is RECEIPT


def test_a_cancelled_one_stays_so(future):
    assert future.cancel()
    assert future.cancel(), "as the standard one says"
    future.conclude(RECEIPT)
    assert future.cancelled()
    assert future.done()
    with pytest.raises(concurrent.futures.CancelledError):
        future.result()


@pytest.mark.parametrize("end", ["conclude", "cancel"])
def test_our_own_function_is_called_once_and_at_once(threads, end):
    called: list[int] = []
    future = UserFuture(threads, lambda: called.append(threading.get_ident()))
    if end == "conclude":
        future.conclude(RECEIPT)
    else:
        future.cancel()
    future.conclude(RECEIPT)
    future.cancel()
    assert called == [threading.get_ident()]


@pytest.mark.parametrize("question", ["result", "exception"])
def test_whoever_waits_is_woken(future, question):
    answers: list[object] = []
    waiting = [threading.Thread(target=lambda: answers.append(getattr(future, question)(LONG))) for _ in range(3)]
    for thread in waiting:
        thread.start()
    eventually(lambda: len(future._condition._waiters) == 3)  # type: ignore[attr-defined]
    future.conclude(RECEIPT)
    for thread in waiting:
        thread.join(LONG)
    assert answers == [RECEIPT if question == "result" else None] * 3


def test_callbacks_run_on_their_threads_in_order_also_when_they_come_late(future):
    seen: list[tuple[str, object, bool]] = []

    def note(name):
        return lambda done: seen.append((name, done, threading.current_thread() is threading.main_thread()))

    future._callback_threads.submit(lambda: None).result()
    future.add_done_callback(note("early"))
    future.conclude(RECEIPT)
    eventually(lambda: len(seen) == 1)
    future.add_done_callback(note("late"))
    eventually(lambda: len(seen) == 2)
    assert seen == [("early", future, False), ("late", future, False)]


def test_a_callback_that_raises_is_logged(future, caplog):
    def fail(done):
        raise ValueError("mine")

    future.add_done_callback(fail)
    future.conclude(RECEIPT)
    eventually(lambda: "a callback of a send raised" in caplog.text)


def test_callbacks_are_owed_after_the_threads_have_ended(threads):
    future = UserFuture(threads)
    called = threading.Event()
    future.add_done_callback(lambda done: called.set())
    threads.shutdown()
    future.conclude(RECEIPT)
    assert called.wait(LONG)


def test_the_standard_library_waits_for_many(threads):
    futures = [UserFuture(threads) for _ in range(4)]
    futures[0].conclude(RECEIPT)
    done, pending = concurrent.futures.wait(futures, 0)
    assert (done, pending) == ({futures[0]}, set(futures[1:]))
    arrived: list[object] = []
    waiter = threading.Thread(target=lambda: arrived.extend(concurrent.futures.as_completed(futures, LONG)))
    waiter.start()
    eventually(lambda: all(future._waiters for future in futures[1:]))
    futures[3].conclude(RECEIPT)
    futures[1].conclude(ConfigurationError("no"))
    futures[2].cancel()
    waiter.join(LONG)
    assert arrived == [futures[0], futures[3], futures[1], futures[2]]


async def test_a_loop_can_await_it(future):
    awaited = asyncio.wrap_future(future)
    future.conclude(RECEIPT)
    assert await awaited is RECEIPT


def test_every_waiter_and_every_callback_meets_the_end_exactly_once(threads):
    """The moment of the end, again and again: no lock decides who is first."""
    for _ in range(300):
        future = UserFuture(threads)
        called: list[object] = []
        got: list[object] = []
        start = threading.Barrier(3)

        def wait(future=future, start=start, got=got) -> None:
            start.wait()
            got.append(future.result(LONG))

        def hang_on(future=future, start=start, called=called) -> None:
            start.wait()
            for _ in range(5):
                future.add_done_callback(called.append)

        both = [threading.Thread(target=wait), threading.Thread(target=hang_on)]
        for thread in both:
            thread.start()
        start.wait()
        future.conclude(RECEIPT)
        for thread in both:
            thread.join(LONG)
        assert got == [RECEIPT]
        eventually(lambda called=called: len(called) == 5)
