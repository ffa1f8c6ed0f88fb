"""Permits: a bound that loses none."""

from __future__ import annotations

import asyncio

import pytest

from rocketstream.clock import ManualClock
from rocketstream.errors import TooManyRequestsError
from rocketstream.remoting.permits import Permits


@pytest.mark.behaviour("REM-06")
async def test_waiters_are_served_in_order_and_the_stock_comes_back():
    clock = ManualClock()
    permits = Permits(1, "test", clock)
    served: list[int] = []

    async def take(number: int) -> None:
        await permits.acquire("b:1", clock.monotonic() + 10)
        served.append(number)

    await permits.acquire("b:1", clock.monotonic() + 10)
    waiting = [asyncio.ensure_future(take(number)) for number in range(3)]
    await clock.settle()
    assert repr(permits) == "<Permits test: 1 of 1 in use, 3 waiting>"
    for _ in range(4):
        permits.release()
        await clock.settle()
    await asyncio.gather(*waiting)
    assert served == [0, 1, 2]
    assert permits.in_use == 0


@pytest.mark.behaviour("REM-06")
async def test_a_permit_that_arrives_as_its_taker_leaves_goes_to_the_next():
    clock = ManualClock()
    permits = Permits(1, "test", clock)
    await permits.acquire("b:1", clock.monotonic() + 10)
    leaving = asyncio.ensure_future(permits.acquire("b:1", clock.monotonic() + 10))
    next_one = asyncio.ensure_future(permits.acquire("b:1", clock.monotonic() + 10))
    await clock.settle()
    permits.release()  # granted to the first ...
    leaving.cancel()  # ... who leaves before it has noticed
    await clock.settle()
    assert leaving.cancelled()
    assert next_one.done()
    permits.release()
    assert permits.in_use == 0


@pytest.mark.behaviour("REM-06")
async def test_giving_up_leaves_no_place_in_the_queue():
    clock = ManualClock()
    permits = Permits(1, "test", clock)
    await permits.acquire("b:1", clock.monotonic() + 10)
    late = asyncio.ensure_future(permits.acquire("b:1", clock.monotonic() + 1))
    await clock.advance(1)
    with pytest.raises(TooManyRequestsError):
        await late
    permits.release()
    assert permits.in_use == 0
