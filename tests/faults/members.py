"""Members of a group as processes: they join, leave in order, and die; and a producer that goes on meanwhile."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from rocketstream import Message, Producer, SendReceipt

ROOT = Path(__file__).parents[2]
WAIT = 60.0


class Member:
    """One process (`member.py`)."""

    def __init__(self, notebook: Path, told: dict[str, Any]) -> None:
        self.notebook = notebook
        self.killed_at: int | None = None
        notebook.touch()
        self._log = notebook.with_suffix(".log").open("wb")
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.faults.member", json.dumps(told | {"notebook": str(notebook)})],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=self._log,
        )

    def wait_until_up(self) -> None:
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == b"up\n", self.log

    @property
    def log(self) -> str:
        return self.notebook.with_suffix(".log").read_text()[-4000:]

    def leave(self) -> None:
        """Shut down in order."""
        self._process.send_signal(signal.SIGTERM)
        assert self._process.wait(WAIT) == 0, self.log
        self._close()

    def kill(self) -> None:
        """End it by SIGKILL: it says goodbye to nobody."""
        assert self._process.poll() is None, self.log
        self._process.kill()
        self._process.wait(WAIT)
        self.killed_at = time.time_ns()
        self._close()

    def end(self) -> None:
        """For the end of a test, whatever has become of it."""
        with suppress(ProcessLookupError):
            self._process.kill()
        self._process.wait(WAIT)
        self._close()

    def _close(self) -> None:
        assert self._process.stdout is not None
        self._process.stdout.close()
        self._log.close()

    @property
    def queues(self) -> list[int]:
        """The ids of the queues that it has now."""
        found = self.notebook.with_suffix(".queues")
        return [int(queue) for queue in found.read_text().split()] if found.exists() else []

    def lines(self) -> Iterator[bytes]:
        """What it has written so far; a last line without its end is still being written, or never will be."""
        return iter(self.notebook.read_bytes().split(b"\n")[:-1])


class Group:
    """The members of one group; those that are left at the end are killed."""

    def __init__(self, directory: Path, **told: Any) -> None:
        self._directory = directory
        self._told = {"orderly": False, "batch": 1, **told}
        self.present: list[Member] = []
        self.all: list[Member] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for member in self.present:
            member.end()

    def join(self, count: int = 1) -> None:
        """Start members and return when they are up."""
        new = [Member(self._directory / f"member-{len(self.all) + n}", self._told) for n in range(count)]
        self.present += new
        self.all += new
        for member in new:
            member.wait_until_up()

    def wait_until_shared(self, queues: int) -> None:
        """Until each queue has one owner, and each member its share."""

        def shared() -> bool:
            shares = [member.queues for member in self.present]
            return all(shares) and sorted(queue for share in shares for queue in share) == list(range(queues))

        wait_until(shared, WAIT, lambda: [member.queues for member in self.present])

    def leave(self) -> None:
        """The oldest leaves in order."""
        self.present.pop(0).leave()

    def kill(self) -> None:
        """The oldest dies."""
        self.present.pop(0).kill()

    def leave_all(self) -> None:
        while self.present:
            self.leave()

    def counts(self) -> Counter[int]:
        """How often each number was consumed."""
        return Counter(int(line) for member in self.all for line in member.lines())


class SteadyProducer(threading.Thread):
    """Sends numbers until so many are acknowledged, at a steady rate; while the broker is down it waits for it."""

    def __init__(self, producer: Producer, topic: str, count: int, rate: int) -> None:
        super().__init__(daemon=True)
        self.acknowledged: set[int] = set()
        self.failed: set[int] = set()
        self.up = threading.Event()
        self.up.set()
        self._producer = producer
        self._topic = topic
        self._count = count
        self._burst, self._pause = rate // 50, 0.02
        self._changed = threading.Condition()

    def run(self) -> None:
        number = 0
        due = time.monotonic()
        while len(self.acknowledged) < self._count:
            self.up.wait()
            for _ in range(self._burst):
                self._send(number)
                number += 1
            due = max(due + self._pause, time.monotonic() - 1.0)
            time.sleep(max(due - time.monotonic(), 0.0))
        with self._changed:
            self._changed.wait_for(lambda: len(self.acknowledged) + len(self.failed) == number, WAIT)

    def _send(self, number: int) -> None:
        future = self._producer.send_async(Message(self._topic, b"%d " % number + b"x" * 80))

        def done(future: Future[SendReceipt]) -> None:
            with self._changed:
                (self.acknowledged if future.exception() is None else self.failed).add(number)
                self._changed.notify_all()

        future.add_done_callback(done)

    def wait_for(self, count: int, timeout: float = 120.0) -> None:
        """Until so many were acknowledged."""
        with self._changed:
            assert self._changed.wait_for(lambda: len(self.acknowledged) >= count, timeout), (
                f"{len(self.acknowledged)} of {count} acknowledged, {len(self.failed)} failed"
            )


def wait_until(condition: Callable[[], object], timeout: float, what: Callable[[], object]) -> None:
    """For what other processes do in their own time; `what` says how far they came."""
    deadline = time.monotonic() + timeout
    while not condition():
        assert time.monotonic() < deadline, what()
        time.sleep(0.25)
