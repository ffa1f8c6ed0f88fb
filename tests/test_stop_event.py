"""An event that a signal handler may set, whatever the thread that it interrupts is doing."""

from __future__ import annotations

import dis
import signal
import sys
import threading

import pytest

from rocketstream.stop_event import StopEvent


def test_whoever_waits_is_woken_and_later_ones_need_not_wait():
    event = StopEvent()
    assert not event.wait(0)
    assert not event.is_set()
    woken = [threading.Thread(target=event.wait) for _ in range(5)]
    for thread in woken:
        thread.start()
    event.set()
    event.set()
    for thread in woken:
        thread.join(60)
    assert not any(thread.is_alive() for thread in woken)
    assert event.wait()
    assert event.is_set()


INSTRUCTIONS = [instruction.argval for instruction in dis.get_instructions(StopEvent.wait)].index("acquire")


@pytest.mark.parametrize("at", range(1, INSTRUCTIONS + 1))
def test_a_signal_is_heard_at_any_instruction_before_it_sleeps(at: int):
    """A handler that sets a `threading.Event` there deadlocks, or is not heard."""
    event = StopEvent()
    done: list[int] = []

    def interrupt(frame, kind, arg):
        frame.f_trace_opcodes = True
        if kind == "opcode" and frame.f_code is StopEvent.wait.__code__:
            done.append(1)
            if len(done) == at:
                signal.raise_signal(signal.SIGUSR1)
        return interrupt

    before, traced = signal.signal(signal.SIGUSR1, lambda *_: event.set()), sys.gettrace()
    sys.settrace(interrupt)
    try:
        assert event.wait(60.0)
    finally:
        sys.settrace(traced)
        signal.signal(signal.SIGUSR1, before)
    assert len(done) >= at


class NotInterrupted:
    """The operating system's wait, into which a signal comes that interrupts nothing: its handler runs afterwards."""

    def __init__(self, handler) -> None:
        self._handler = handler
        self.waits: list[float] = []

    def acquire(self, timeout: float = -1) -> bool:
        assert 0 < timeout < 1, "a signal is to be heard within a second"
        self.waits.append(timeout)
        self._handler()
        return False

    def release(self) -> None: ...


@pytest.mark.parametrize("timeout", [None, 3600.0])
def test_a_signal_that_comes_just_before_the_wait_is_heard_soon(timeout: float | None):
    event = StopEvent()
    lock = NotInterrupted(event.set)
    event._closed = lock  # type: ignore[assignment]
    assert event.wait(timeout)
    assert len(lock.waits) == 1
