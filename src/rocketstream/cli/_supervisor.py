"""The parent of `rocketstream run --processes N`: it starts processes, starts them again, and ends them.

The rule of this file: it never imports the user's program and runs no client, so nothing that goes wrong in a consumer
goes wrong here. Processes are new ones, never forks. Each has a socket to its parent: over it the process says how its
start went, and by its end notices that the parent is gone.

The others are started when the first is up: a mistake that all of them would make is made, and told, once.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
import socket
import sys
from collections.abc import Callable
from dataclasses import dataclass

from rocketstream.cli._run_metrics import Endpoint, Questions, served_for
from rocketstream.cli._worker import FAILED, INTERRUPTED, USAGE, StopSignals
from rocketstream.clock import Clock, SystemClock
from rocketstream.metrics import catalogue
from rocketstream.metrics.values import Sample

FIRST_PAUSE, LONGEST_PAUSE = 1.0, 30.0
GOOD_AFTER = 60.0
"""Who ran for so long begins with the shortest pause again."""
MAX_FAST_FAILURES = 5
GRACE = 10.0
"""What a process gets beyond its listeners' time, to store offsets and leave its group."""

_MAX_LINE = 64 * 1024 * 1024  # what a process says of its metrics is long where it has many topics


@dataclass(slots=True)
class Restarts:
    """When one of the processes is started again: 1 s after its end, 2 s, 4 s, ... 30 s."""

    pause: float = FIRST_PAUSE
    fast_failures: int = 0
    """How often in succession it has ended before it was up."""

    def ended(self, was_up_for: float | None) -> float:
        """Note an end (None: it never was up); returns the pause before the next start."""
        if was_up_for is None:
            self.fast_failures += 1
        else:
            self.fast_failures = 0
            if was_up_for >= GOOD_AFTER:
                self.pause = FIRST_PAUSE
        pause, self.pause = self.pause, min(self.pause * 2, LONGEST_PAUSE)
        return pause


class Child:
    """A process, and what it has said."""

    def __init__(self, number: int, process: asyncio.subprocess.Process) -> None:
        self.process = process
        self.up_since: float | None = None
        self.why: str | None = None
        self.questions = Questions()
        self.writer: asyncio.StreamWriter | None = None
        self.name = f"process {number} (pid {process.pid})"

    def send(self, number: int) -> None:
        """Send a signal, unless it is gone."""
        with contextlib.suppress(ProcessLookupError):
            self.process.send_signal(number)


class Supervisor:
    """Keeps N processes running until it is told to stop."""

    def __init__(
        self,
        target: str,
        processes: int,
        shutdown_timeout: float,
        level: str | None,
        tell: Callable[[str], None],
        clock: Clock | None = None,
        restarts: Callable[[], Restarts] = Restarts,
    ) -> None:
        self._processes = processes
        self._restarts = restarts
        self._shutdown_timeout = shutdown_timeout
        self._tell = tell
        self._clock = clock or SystemClock()
        self._stops = StopSignals(self._clock)
        self._command = [sys.executable, "-m", "rocketstream.cli._worker", target, str(shutdown_timeout), level or ""]
        self._children: dict[int, Child] = {}
        self._keepers: list[asyncio.Task[None]] = []
        self._code: int | None = None
        self._ending = asyncio.Event()
        self._killed = False
        self._restarted = 0

    def __repr__(self) -> str:
        return f"<Supervisor {len(self._children)} of {self._processes} processes, code {self._code}>"

    async def run(self) -> int:
        """Everything; returns the exit code."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, self._on_signal, number)
        try:
            self._keep(1)
            await self._ending.wait()
            await self._let_them_end()
        finally:
            for number in (signal.SIGINT, signal.SIGTERM):
                loop.remove_signal_handler(number)
            self._ending.set()
            while not all(keeper.done() for keeper in self._keepers):
                for child in self._children.values():
                    child.send(signal.SIGKILL)
                await asyncio.wait(self._keepers, timeout=1.0)
        return INTERRUPTED if self._killed else self._code or 0

    # --- starting ---------------------------------------------------------------------------------------------------

    def _keep(self, number: int) -> None:
        keeper = asyncio.ensure_future(self._keep_running(number))
        keeper.add_done_callback(self._keeper_ended)
        self._keepers.append(keeper)

    def _keeper_ended(self, keeper: asyncio.Task[None]) -> None:
        problem = None if keeper.cancelled() else keeper.exception()
        if problem is not None:  # the system has no process, or no socket, left
            self._tell(f"rocketstream: no process could be started: {problem}")
            self._end(FAILED)

    async def _keep_running(self, number: int) -> None:
        restarts = self._restarts()
        while not self._ending.is_set():
            child, listening = await self._start(number)
            code = await child.process.wait()
            # What it said last is there already; a process of its own may hold the socket open, though.
            await asyncio.wait({listening}, timeout=1.0)
            listening.cancel()
            del self._children[number]
            if self._ending.is_set():
                return
            now = self._clock.monotonic()
            pause = restarts.ended(None if child.up_since is None else now - child.up_since)
            what = self._what_happened(child, code)
            if child.up_since is None and code == USAGE:  # it would be no better the next time
                self._tell(f"rocketstream: {child.why or what}")
                self._end(USAGE)
            elif restarts.fast_failures >= MAX_FAST_FAILURES and not self._any_up():
                self._tell(f"{what}; after {restarts.fast_failures} attempts that is the end")
                self._end(FAILED)
            else:
                self._tell(f"{what}; started again in {pause:g} s")
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._ending.wait(), pause)
                self._restarted += 1

    @staticmethod
    def _what_happened(child: Child, code: int) -> str:
        how = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with code {code}"
        if child.up_since is not None:
            return f"{child.name} {how}"
        return f"{child.name} could not start: {child.why or f'it {how}'}"

    async def _start(self, number: int) -> tuple[Child, asyncio.Task[None]]:
        ours, theirs = socket.socketpair()
        with theirs:
            process = await asyncio.create_subprocess_exec(
                *self._command,
                str(theirs.fileno()),
                pass_fds=[theirs.fileno()],
                stdin=asyncio.subprocess.DEVNULL,
                process_group=0,  # a terminal's Ctrl-C is for the parent alone, which passes it on
            )
        child = self._children[number] = Child(number, process)
        listening = asyncio.ensure_future(self._listen(child, ours))
        if self._ending.is_set():
            child.send(signal.SIGTERM)
        return child, listening

    async def _listen(self, child: Child, connection: socket.socket) -> None:
        reader, writer = await asyncio.open_connection(sock=connection, limit=_MAX_LINE)
        child.writer = writer
        try:
            while line := await reader.readline():
                said = json.loads(line)
                if said["event"] == "started":
                    self._is_up(child)
                elif said["event"] == "metrics":
                    child.questions.answered(said)
                else:
                    child.why = said["why"]
            await child.process.wait()  # as long as the socket is open the process knows that it has a parent
        finally:
            writer.close()

    def _is_up(self, child: Child) -> None:
        child.up_since = self._clock.monotonic()
        self._tell(f"{child.name} is up")
        if len(self._keepers) == 1:
            for number in range(2, self._processes + 1):
                self._keep(number)

    async def metrics(self) -> dict[str, list[Sample]]:
        """What the processes measure, by their number; what the supervisor itself does is under no number."""
        asked = {
            number: asyncio.ensure_future(child.questions.ask(child.writer.write))
            for number, child in self._children.items()
            if child.up_since is not None and child.writer is not None
        }
        up = sum(child.up_since is not None for child in self._children.values())
        told = {"": [Sample(catalogue.RUN_PROCESSES, (), up), Sample(catalogue.RUN_RESTARTS, (), self._restarted)]}
        for number, answer in asked.items():
            told[str(number)] = await answer
        return told

    def _any_up(self) -> bool:
        return any(child.up_since is not None for child in self._children.values())

    # --- ending -----------------------------------------------------------------------------------------------------

    def _on_signal(self, number: int) -> None:
        if self._stops.is_first():
            self._tell(f"{signal.Signals(number).name}: the processes end; a second Ctrl-C kills them")
            self._end(0)
        elif self._stops.is_impatient(number):
            self._killed = True
            self._kill("a second Ctrl-C")

    def _end(self, code: int) -> None:
        if self._code is None:
            self._code = code
        self._ending.set()

    async def _let_them_end(self) -> None:
        for child in self._children.values():
            child.send(signal.SIGTERM)  # not SIGINT: to Python that is an exception until somebody handles it
        limit = self._shutdown_timeout + GRACE
        _, late = await asyncio.wait(self._keepers, timeout=limit)
        if late:
            self._kill(f"it has not ended in {limit:g} s")
            self._code = self._code or FAILED

    def _kill(self, why: str) -> None:
        for child in self._children.values():
            self._tell(f"{child.name} is killed: {why}")
            child.send(signal.SIGKILL)


def supervise(
    target: str,
    processes: int,
    shutdown_timeout: float,
    level: str | None,
    tell: Callable[[str], None],
    endpoint: Endpoint | None = None,
) -> int:
    """Run a consumer in N processes until a signal, or until they do not start; the exit code."""

    async def run() -> int:
        supervisor = Supervisor(target, processes, shutdown_timeout, level, tell)
        with served_for(supervisor, endpoint, tell):
            return await supervisor.run()

    return asyncio.run(run())
