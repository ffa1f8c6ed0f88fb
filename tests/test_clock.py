"""Time that a test moves, and the real one."""

from __future__ import annotations

import asyncio
import time

from rocketstream.clock import ManualClock, SystemClock


async def test_moving_the_clock_runs_what_is_due_in_order_and_nothing_else():
    clock = ManualClock(start=100, wall=1000)
    ran: list[tuple[str, float]] = []

    def note(name: str) -> None:
        ran.append((name, clock.monotonic()))

    clock.call_later(2, note, "b")
    clock.call_later(1, note, "a")
    clock.call_later(2, note, "c")
    clock.call_later(9, note, "later")
    clock.call_later(1.5, note, "never").cancel()
    assert clock.pending == [1, 2, 2, 9]
    await clock.advance(3)
    assert ran == [("a", 101), ("b", 102), ("c", 102)]
    assert clock.monotonic() == 103
    assert clock.wall() == 1003
    assert clock.wall_ms() == 1_003_000


async def test_a_timer_set_by_a_timer_runs_in_the_same_move_if_it_is_due():
    clock = ManualClock()
    ran: list[float] = []

    def again() -> None:
        ran.append(clock.monotonic())
        clock.call_later(1, again)

    clock.call_later(1, again)
    await clock.advance(3.5)
    assert ran == [1001, 1002, 1003]


async def test_sleepers_wake_when_time_has_come():
    clock = ManualClock()
    sleeper = asyncio.ensure_future(clock.sleep(5))
    await clock.advance(4.9)
    assert not sleeper.done()
    await clock.advance(0.1)
    assert sleeper.done()
    cancelled = asyncio.ensure_future(clock.sleep(5))
    await clock.settle()
    cancelled.cancel()
    await clock.settle()
    assert clock.pending == []


async def test_the_real_clock_goes_forward():
    clock = SystemClock()
    before = clock.monotonic()
    done = asyncio.Event()
    clock.call_later(0.001, done.set)
    await asyncio.wait_for(done.wait(), 10)
    await clock.sleep(0)
    assert clock.monotonic() > before
    assert clock.wall() > 1_700_000_000
    # Rounded up, a message would be born after the broker stored it.
    before, now, after = time.time(), clock.wall_ms(), time.time()
    assert int(before * 1000) <= now <= after * 1000
