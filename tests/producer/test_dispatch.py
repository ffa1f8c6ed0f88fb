"""The way from callers' threads to the I/O thread: who waits for whom, and that nobody waits for ever."""

from __future__ import annotations

import concurrent.futures
import threading

import pytest

from rocketstream.errors import ClientStateError, ConfigurationError
from rocketstream.message import Message, MessageQueue
from rocketstream.producer import dispatch
from rocketstream.producer.dispatch import BlockedCaller
from rocketstream.producer.receipt import SendReceipt, SendStatus
from tests.producer.peers import running_producers

LONG = 60.0
RECEIPT = SendReceipt(SendStatus.OK, "id", "offset", MessageQueue("t", "a", 0), 7)


@pytest.fixture(scope="module")
def running():
    with running_producers() as producers:
        yield producers


def test_a_blocked_caller_gets_the_first_outcome():
    caller = BlockedCaller()
    caller.conclude(RECEIPT)
    caller.conclude(ConfigurationError("late"))
    assert caller.wait() is RECEIPT


@pytest.mark.parametrize(
    ("end", "kind"),
    [
        (lambda caller: caller.conclude(ConfigurationError("no")), ConfigurationError),
        (lambda caller: caller.cancel(), concurrent.futures.CancelledError),
    ],
    ids=["error", "end"],
)
def test_a_blocked_caller_is_woken_by_an_error_or_the_end(end, kind):
    caller = BlockedCaller()
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(caller.wait)
        end(caller)
        with pytest.raises(kind):
            waiting.result(LONG)


def test_a_caller_that_was_interrupted_wants_no_receipt():
    class Interrupted:
        def acquire(self) -> None:
            raise KeyboardInterrupt

    caller = BlockedCaller()
    caller._done = Interrupted()  # type: ignore[assignment]
    assert not caller.cancelled()
    with pytest.raises(KeyboardInterrupt):
        caller.wait()
    assert caller.cancelled()


@pytest.mark.parametrize("name", ["send", "send_batch"])
def test_a_blocking_send_on_the_io_thread_is_refused_instead_of_waiting_for_itself(running, name):
    producer = running.producer
    refused: concurrent.futures.Future[str] = concurrent.futures.Future()

    def send() -> None:
        message = Message("t", b"x")
        try:
            getattr(producer, name)([message] if name == "send_batch" else message)
        except ClientStateError as error:
            refused.set_result(str(error))

    producer.core.io.call_soon(send)
    assert refused.result(LONG).endswith("a blocking call on the I/O thread would wait for itself")


def test_a_caller_far_ahead_lets_the_io_thread_catch_up(running):
    """While the I/O thread is busy, a sender of many comes to a halt; then it goes on and all arrive."""
    producer = running.producer
    producer.send(Message("t", b"x"))
    may_go_on = threading.Event()
    busy = threading.Event()
    producer.core.io.call_soon(lambda: (busy.set(), may_go_on.wait(LONG)))
    assert busy.wait(LONG)
    futures = [producer.send_async(Message("t", b"%d" % n)) for n in range(dispatch._FAR_AHEAD - 1)]
    assert len(producer.core._dispatcher._callers_ahead) == 0
    more: list[concurrent.futures.Future[SendReceipt]] = []
    sender = threading.Thread(target=lambda: more.append(producer.send_async(Message("t", b"the last"))))
    sender.start()
    while not producer.core._dispatcher._callers_ahead:
        assert sender.is_alive()
    may_go_on.set()
    sender.join(LONG)
    for future in [*futures, *more]:
        assert future.result(LONG).status is SendStatus.OK
    assert not producer.core._dispatcher._callers_ahead
