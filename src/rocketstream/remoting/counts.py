"""What a remoting client counts: how requests ended, connections, bytes.

The rule of this file: numbers only, added to on the I/O thread.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from rocketstream.metrics import catalogue
from rocketstream.metrics.values import Sample
from rocketstream.wire.codes import request_name


class RequestCounts:
    """How many requests have ended how, by their code."""

    __slots__ = ("abandoned", "answered", "lost", "one_way", "timeout")

    def __init__(self) -> None:
        self.answered: dict[int, int] = defaultdict(int)
        self.timeout: dict[int, int] = defaultdict(int)
        self.lost: dict[int, int] = defaultdict(int)
        self.abandoned: dict[int, int] = defaultdict(int)
        self.one_way: dict[int, int] = defaultdict(int)

    def __repr__(self) -> str:
        told = ", ".join(f"{sum(getattr(self, result).values())} {result}" for result in sorted(self.__slots__))
        return f"<RequestCounts {told}>"

    def samples(self) -> Iterator[Sample]:
        """One for each code and result that was seen."""
        for result in self.__slots__:
            for code, count in getattr(self, result).items():
                yield Sample(catalogue.REQUESTS, (request_name(code), result), count)


class ConnectionCounts:
    """Connections that were made, and what has passed over those that are gone."""

    __slots__ = ("bytes_in", "bytes_out", "failed", "made")

    def __init__(self) -> None:
        self.made = self.failed = self.bytes_in = self.bytes_out = 0

    def __repr__(self) -> str:
        return f"<ConnectionCounts {self.made} made, {self.failed} failed>"
