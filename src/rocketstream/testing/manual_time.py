"""Time for an embedded broker that passes only when a test says so."""

from __future__ import annotations

from rocketstream.clock import ManualClock, SystemClock


class ManualTime(ManualClock):
    """A clock that begins now and stands still until the broker's `advance` moves it.

    Clients have the machine's time: it begins now, so that what they say of time makes sense to the broker.
    """

    # A day of a broker is a hundred thousand timers. Its clients are behind sockets and answer in their own time,
    # however many turns they are given.
    SETTLE_TURNS = 1

    def __init__(self) -> None:
        super().__init__(wall=SystemClock().wall())
