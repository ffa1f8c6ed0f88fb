"""Free ports on the loopback interface, in the groups that RocketMQ takes.

A broker that listens on P also listens on P - 2 (its fast lane) and P + 1 (replication), whatever it is told. Ports are
drawn below the range from which operating systems serve outgoing connections, so that a broker that is restarted finds
its port still free.
"""

from __future__ import annotations

import contextlib
import os
import random
import socket
from collections.abc import Sequence

from rocketstream.errors import RocketStreamError

NAME_SERVER_OFFSETS = (0,)
BROKER_OFFSETS = (-2, 0, 1)

_LOW, _HIGH, _PARTS = 20_000, 32_000, 12
_random = random.SystemRandom()
_given_out: set[int] = set()


class PortError(RocketStreamError):
    """A port that was asked for is taken, or no group of ports is free."""


def is_free(port: int) -> bool:
    """Whether a server could listen on `port` now."""
    with contextlib.closing(socket.socket()) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("", port))
        except OSError:
            return False
    return True


def reserve(offsets: Sequence[int] = NAME_SERVER_OFFSETS) -> int:
    """Draw a port P such that P + each offset is free and was not given out by this process before."""
    low, high = _part()
    for _ in range(500):
        port = _random.randrange(low, high)
        wanted = {port + offset for offset in offsets}
        if not wanted & _given_out and all(map(is_free, wanted)):
            _given_out.update(wanted)
            return port
    raise PortError(f"no free ports {[f'P{offset:+d}' for offset in offsets]} between {low} and {high}")


def _part() -> tuple[int, int]:
    """The ports to draw from. Workers of pytest-xdist look at the same time, so each has a part of its own."""
    worker = os.environ.get("PYTEST_XDIST_WORKER", "").removeprefix("gw")
    number = int(worker) + 1 if worker.isdigit() else 0
    size = (_HIGH - _LOW) // _PARTS
    low = _LOW + size * (number % _PARTS)
    return low, low + size


def release(port: int, offsets: Sequence[int] = NAME_SERVER_OFFSETS) -> None:
    """Allow ports that were reserved to be given out again."""
    _given_out.difference_update(port + offset for offset in offsets)
