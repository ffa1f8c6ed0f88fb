"""The future that `send_async` returns: a `concurrent.futures.Future` that costs little while nobody waits on it.

The standard one makes a condition with a lock for each future and takes it for every question; with tens of thousands
of messages a second that is a good part of all the work. Here the condition is made when somebody first waits, and
the rule that keeps it correct is an order: whoever concludes first stores the outcome and then looks for a condition;
whoever waits first makes the condition and then looks for an outcome. One of the two sees the other.
"""

from __future__ import annotations

import concurrent.futures
import logging
import threading
from collections.abc import Callable
from concurrent.futures._base import CANCELLED_AND_NOTIFIED, FINISHED, PENDING
from typing import Any, cast

from rocketstream.producer.receipt import SendReceipt

log = logging.getLogger("rocketstream.producer")

_DONE = (FINISHED, CANCELLED_AND_NOTIFIED)


class UserFuture(concurrent.futures.Future[SendReceipt]):
    """The receipt to come. What users hang on it runs on callback threads: it may block, or send again.

    `on_end` is our own and is called at once, on the thread that concludes it.
    """

    def __init__(self, callback_threads: concurrent.futures.Executor, on_end: Callable[[], None] | None = None) -> None:
        # Without the constructor of the base, which makes the condition.
        self._state = PENDING
        self._result = None
        self._exception = None
        self._waiters: list[Any] = []
        self._done_callbacks: list[Callable[[concurrent.futures.Future[SendReceipt]], object]] = []
        self._callback_threads = callback_threads
        self._on_end = on_end
        self._open = True

    @property
    def _condition(self) -> threading.Condition:  # type: ignore[override]
        # What the base and `concurrent.futures.wait` take; `setdefault` of a dict is one step for all threads.
        made: threading.Condition | None = self.__dict__.get("_made_condition")
        if made is None:
            made = self.__dict__.setdefault("_made_condition", threading.Condition())
        return made

    # --- questions ----------------------------------------------------------------------------------------------------

    def done(self) -> bool:
        """Whether there is an outcome."""
        return self._state in _DONE

    def cancelled(self) -> bool:
        """Whether it was cancelled before there was an outcome."""
        return self._state is CANCELLED_AND_NOTIFIED

    def result(self, timeout: float | None = None) -> SendReceipt:
        """The receipt, once it is there; raises what went wrong."""
        if self._state is FINISHED and self._exception is None:
            return cast(SendReceipt, self._result)
        return super().result(timeout)

    # --- the end ------------------------------------------------------------------------------------------------------

    def cancel(self) -> bool:
        """Give up on the receipt, which does not unsend the message; False if there is an outcome already."""
        if not self._claim():
            return self.cancelled()
        self._state = CANCELLED_AND_NOTIFIED
        self._announce(lambda waiter: waiter.add_cancelled(self))
        return True

    def conclude(self, outcome: SendReceipt | BaseException) -> None:
        """Here is the outcome, unless it was cancelled."""
        if not self._claim():
            return
        if isinstance(outcome, BaseException):
            self._exception = outcome
            self._state = FINISHED
            self._announce(lambda waiter: waiter.add_exception(self))
        else:
            self._result = outcome
            self._state = FINISHED
            self._announce(lambda waiter: waiter.add_result(self))

    def _claim(self) -> bool:
        """Whether the caller is the one who ends it: `pop` of a dict gives the key to one thread only."""
        return bool(self.__dict__.pop("_open", False))

    def _announce(self, tell: Callable[[Any], None]) -> None:
        condition: threading.Condition | None = self.__dict__.get("_made_condition")
        if condition is not None:
            with condition:
                for waiter in self._waiters:
                    tell(waiter)
                condition.notify_all()
        if self._on_end is not None:
            self._on_end()
        if self._done_callbacks:
            self._hand_over()

    # --- callbacks ----------------------------------------------------------------------------------------------------

    def add_done_callback(self, fn: Callable[[concurrent.futures.Future[SendReceipt]], object]) -> None:
        """Call `fn` with this future once it is done, on a callback thread."""
        self._done_callbacks.append(fn)
        if self.done():
            self._hand_over()

    def _hand_over(self) -> None:
        # `pop` decides which of two threads hands over a callback that was added in the moment of the end.
        while True:
            try:
                fn = self._done_callbacks.pop(0)
            except IndexError:
                return
            try:
                self._callback_threads.submit(_run_callback, fn, self)
            except RuntimeError:  # the producer was shut down in the meantime; the callback is owed all the same
                threading.Thread(target=_run_callback, args=(fn, self), daemon=True).start()


def _run_callback(
    fn: Callable[[concurrent.futures.Future[SendReceipt]], object], done: concurrent.futures.Future[SendReceipt]
) -> None:
    try:
        fn(done)
    except Exception:
        log.exception("a callback of a send raised")
