"""The bound on `send_async`: callers wait, memory does not grow, and nobody waits while there is room."""

from __future__ import annotations

import threading

import pytest

from rocketstream.errors import TooManyRequestsError
from rocketstream.producer.async_gate import AsyncGate
from tests.bare_client import eventually

LONG = 60.0


def entering(gate: AsyncGate, size: int, done: list[int], timeout: float = LONG) -> threading.Thread:
    def enter() -> None:
        gate.enter(size, timeout)
        done.append(size)

    thread = threading.Thread(target=enter)
    thread.start()
    return thread


def waiting(gate: AsyncGate) -> int:
    return len(gate._free._waiters)  # type: ignore[attr-defined]


def test_the_count_is_bounded_and_room_is_given_back():
    gate = AsyncGate(2, 1000)
    gate.enter(1, LONG)
    gate.enter(1, LONG)
    assert gate.under_way == (2, 2)
    with pytest.raises(TooManyRequestsError) as caught:
        gate.enter(1, 0.001)
    assert str(caught.value) == (
        "send_async: 2 messages of 2 bytes are under way (max_async_messages=2, max_async_bytes=1000) and none ended"
        " within 0.001 s"
    )
    gate.leave(1)
    gate.enter(5, 0.001)
    assert gate.under_way == (2, 6)
    assert repr(gate) == "<AsyncGate 2 of 2 messages, 6 of 1000 bytes>"


def test_bytes_are_bounded_too():
    gate = AsyncGate(100, 10)
    gate.enter(10, LONG)
    with pytest.raises(TooManyRequestsError):
        gate.enter(1, 0.001)
    gate.leave(10)
    gate.enter(9, 0.001)
    gate.enter(1, 0.001)


def test_a_message_larger_than_the_bound_passes_alone():
    gate = AsyncGate(100, 10)
    gate.enter(50, 0.001)
    with pytest.raises(TooManyRequestsError):
        gate.enter(1, 0.001)
    gate.leave(50)
    gate.enter(1, 0.001)
    with pytest.raises(TooManyRequestsError):
        gate.enter(50, 0.001)


def test_one_large_message_that_leaves_makes_room_for_many_small_ones():
    gate = AsyncGate(100, 10)
    gate.enter(10, LONG)
    done: list[int] = []
    threads = [entering(gate, 2, done) for _ in range(5)]
    eventually(lambda: waiting(gate) == 5)
    gate.leave(10)
    for thread in threads:
        thread.join(LONG)
    assert done == [2] * 5, "all five, though only one message has left"
    assert gate.under_way == (5, 10)


def test_a_waiter_that_gives_up_does_not_take_the_room_from_the_next():
    gate = AsyncGate(1, 10)
    gate.enter(1, LONG)
    done: list[int] = []
    with pytest.raises(TooManyRequestsError):
        gate.enter(1, 0.001)
    thread = entering(gate, 1, done)
    eventually(lambda: waiting(gate) == 1)
    gate.leave(1)
    thread.join(LONG)
    assert done == [1]


def test_the_end_can_be_waited_for():
    gate = AsyncGate(1, 10)
    assert gate.wait_empty(0.001)
    gate.enter(1, LONG)
    assert not gate.wait_empty(0.001)
    done: list[int] = []
    ends: list[bool] = []
    enders = [threading.Thread(target=lambda: ends.append(gate.wait_empty(LONG))) for _ in range(2)]
    for ender in enders:
        ender.start()
    eventually(lambda: len(gate._empty._waiters) == 2)  # type: ignore[attr-defined]
    thread = entering(gate, 1, done)
    eventually(lambda: waiting(gate) == 1)
    gate.leave(1)
    thread.join(LONG)
    gate.leave(1)
    for ender in enders:
        ender.join(LONG)
    assert ends == [True, True]
    assert gate.under_way == (0, 0)


def test_it_never_holds_more_than_allowed():
    gate = AsyncGate(3, 30)
    most: list[tuple[int, int]] = []
    lock = threading.Lock()

    def work(size: int) -> None:
        for _ in range(200):
            gate.enter(size, LONG)
            with lock:
                most.append(gate.under_way)
            gate.leave(size)

    threads = [threading.Thread(target=work, args=(size,)) for size in (1, 5, 10, 15, 20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(LONG)
    assert len(most) == 1000
    assert max(count for count, _ in most) <= 3
    assert max(size for _, size in most) <= 30
    assert gate.under_way == (0, 0)
