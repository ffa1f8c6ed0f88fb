"""Waiting with an end, by the clock that was passed in."""

from __future__ import annotations

import asyncio
from typing import Any

from rocketstream.clock import Clock


async def done_before(clock: Clock, future: asyncio.Future[Any], deadline: float) -> bool:
    """Wait until the future is done or the deadline has come; tell whether it is done. It is never cancelled here."""
    if future.done():
        return True
    remaining = deadline - clock.monotonic()
    if remaining <= 0:
        return False
    woken: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def wake(_: object = None) -> None:
        if not woken.done():
            woken.set_result(None)

    timer = clock.call_later(remaining, wake)
    future.add_done_callback(wake)
    try:
        await woken
    finally:
        timer.cancel()
        future.remove_done_callback(wake)
    return future.done()
