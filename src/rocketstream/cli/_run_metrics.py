"""The metrics of `rocketstream run`, of one process or of many behind one endpoint.

The rule of this file: the endpoint asks when it is asked. A process that does not answer in time is left out, and the
others are shown.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from rocketstream.metrics import start_http_server
from rocketstream.metrics.prometheus import MetricsServer, families_of, serve
from rocketstream.metrics.transport import decode_samples
from rocketstream.metrics.values import Sample

if TYPE_CHECKING:
    from rocketstream.cli._supervisor import Supervisor

ANSWER_TIMEOUT = 3.0
"""Longer than a client in the process is waited for there."""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where metrics are to be served."""

    port: int
    address: str = "0.0.0.0"


@contextlib.contextmanager
def served_here(endpoint: Endpoint | None, tell: Callable[[str], None]) -> Iterator[None]:
    """Serve this process's own metrics meanwhile, if that is wanted."""
    if endpoint is None:
        yield
        return
    with start_http_server(endpoint.port, endpoint.address) as server:
        _announce(server, tell)
        yield


@contextlib.contextmanager
def served_for(supervisor: Supervisor, endpoint: Endpoint | None, tell: Callable[[str], None]) -> Iterator[None]:
    """Serve the metrics of a supervisor's processes meanwhile; on its event loop."""
    if endpoint is None:
        yield
        return
    loop = asyncio.get_running_loop()

    def collect() -> list[Any]:
        parts: Mapping[str, Iterable[Sample]] = asyncio.run_coroutine_threadsafe(supervisor.metrics(), loop).result(
            2 * ANSWER_TIMEOUT
        )
        return families_of(parts, "process")

    server = serve(endpoint.port, endpoint.address, collect)
    _announce(server, tell)
    try:
        yield
    finally:
        # On another thread: a request that is under way asks this event loop, and would never end.
        loop.run_in_executor(None, server.close)


def _announce(server: MetricsServer, tell: Callable[[str], None]) -> None:
    tell(f"metrics are at {server.url}")


@dataclass(slots=True)
class Questions:
    """What a process was asked over its socket, and has not answered yet."""

    _numbers: Iterator[int] = field(default_factory=lambda: itertools.count(1))
    _open: dict[int, asyncio.Future[list[Sample]]] = field(default_factory=dict)

    async def ask(self, write: Callable[[bytes], None]) -> list[Sample]:
        """The process's samples; none if it does not answer in time."""
        number = next(self._numbers)
        answer = self._open[number] = asyncio.get_running_loop().create_future()
        try:
            write(json.dumps({"ask": "metrics", "number": number}).encode() + b"\n")
            return await asyncio.wait_for(answer, ANSWER_TIMEOUT)
        except (TimeoutError, OSError):
            return []
        finally:
            del self._open[number]

    def answered(self, said: Mapping[str, Any]) -> None:
        """The process has answered."""
        answer = self._open.get(said["number"])
        if answer is not None and not answer.done():
            answer.set_result(decode_samples(said["samples"]))
