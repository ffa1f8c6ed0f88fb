"""Processes of the test bed: guarded ones that die with us, detached ones that outlive us.

Both offer the same few verbs, so that a node does not care which kind it is. A guarded process is started by a guard
(`_guard.py`, which says why); a detached one is recognised later by a token in its command line, because a process id
alone may have been given to somebody else meanwhile.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Protocol

from rocketstream.errors import RocketStreamError

_GUARD = Path(__file__).with_name("_guard.py")


class ProcessError(RocketStreamError):
    """A process of the test bed could not be started."""


class Process(Protocol):
    """What a node needs of the process that it runs in."""

    @property
    def pid(self) -> int: ...
    @property
    def alive(self) -> bool: ...
    @property
    def exit_code(self) -> int | None: ...
    def terminate(self) -> None: ...
    def kill(self) -> None: ...
    def wait(self, timeout: float) -> bool: ...
    def close(self) -> None: ...


class DirectoryGuard:
    """Removes a temporary directory if this process ends without doing so itself."""

    def __init__(self, directory: Path) -> None:
        self._guard, self._lifeline, _ = _start_guard([], remove=directory)

    def dismiss(self) -> None:
        """The directory is gone or no longer ours to remove."""
        with contextlib.suppress(OSError):
            os.write(self._lifeline, b"q")
            os.close(self._lifeline)
        self._guard.wait()


class GuardedProcess:
    """A process that is killed when this one ends, whatever ends it."""

    def __init__(
        self,
        command: Sequence[str],
        *,
        environment: Mapping[str, str] | None = None,
        output: IO[bytes] | None = None,
        piped: bool = False,
    ) -> None:
        self._guard, self._lifeline, status = _start_guard(command, environment=environment, output=output, piped=piped)
        with os.fdopen(status, "rb") as answer:
            line = answer.readline()
        if not line.strip():
            self._guard.wait()
            self.close()
            raise ProcessError(f"could not start {command[0]}: its guard ended with {self._guard.returncode}")
        self.pid = int(line)

    @property
    def alive(self) -> bool:
        return self._guard.poll() is None

    @property
    def exit_code(self) -> int | None:
        """As a shell tells it: 128 + the signal's number for a process that a signal ended."""
        return self._guard.poll()

    @property
    def stdin(self) -> IO[bytes]:
        assert self._guard.stdin is not None, "started without piped=True"
        return self._guard.stdin

    @property
    def stdout(self) -> IO[bytes]:
        assert self._guard.stdout is not None, "started without piped=True"
        return self._guard.stdout

    def terminate(self) -> None:
        self._signal(signal.SIGTERM)

    def kill(self) -> None:
        self._signal(signal.SIGKILL)

    def _signal(self, number: int) -> None:
        if self.alive:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def wait(self, timeout: float) -> bool:
        """Return whether the process ended within `timeout` seconds."""
        try:
            self._guard.wait(timeout)
        except subprocess.TimeoutExpired:
            return False
        return True

    def close(self) -> None:
        """Kill what still runs and give the pipes back."""
        if self._lifeline >= 0:
            os.close(self._lifeline)
            self._lifeline = -1
        self._guard.wait()
        for pipe in (self._guard.stdin, self._guard.stdout):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()


def _start_guard(
    command: Sequence[str],
    *,
    environment: Mapping[str, str] | None = None,
    output: IO[bytes] | None = None,
    piped: bool = False,
    remove: Path | None = None,
) -> tuple[subprocess.Popen[bytes], int, int]:
    """The guard, our end of the lifeline, and the end of the pipe on which the guard tells the process id."""
    if os.name == "nt":  # pragma: no cover
        raise ProcessError("real brokers for tests need a POSIX system: on Windows use WSL or the embedded broker")
    life_read, life_write = os.pipe()
    status_read, status_write = os.pipe()
    try:
        guard = subprocess.Popen(
            [
                # -I -S: the guard needs the standard library only, and has to be there within milliseconds.
                *(sys.executable, "-I", "-S", str(_GUARD)),
                *(f"--lifeline={life_read}", f"--status={status_write}", f"--parent={os.getpid()}"),
                *([f"--remove={remove}"] if remove else []),
                *("--", *command),
            ],
            env=environment,
            stdin=subprocess.PIPE if piped else subprocess.DEVNULL,
            stdout=subprocess.PIPE if piped else (output or subprocess.DEVNULL),
            stderr=output or subprocess.DEVNULL,
            pass_fds=(life_read, status_write),
            start_new_session=True,
        )
    except BaseException:
        for unused in (life_write, status_read):
            os.close(unused)
        raise
    finally:
        os.close(life_read)
        os.close(status_write)
    if not command:
        os.close(status_read)
    return guard, life_write, status_read


class DetachedProcess:
    """A process that outlives us, found again by its id and a token that its command line carries."""

    def __init__(self, pid: int, token: str, started: subprocess.Popen[bytes] | None = None) -> None:
        self.pid = pid
        self._token = token
        self._started = started  # only in the process that started it: it is our child and has to be reaped

    @classmethod
    def start(
        cls, command: Sequence[str], token: str, *, environment: Mapping[str, str], output: IO[bytes]
    ) -> DetachedProcess:
        """Start `command`, which must carry `token`, in a session of its own."""
        child = subprocess.Popen(
            command,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
        return cls(child.pid, token, child)

    @property
    def alive(self) -> bool:
        if self._started is not None:
            return self._started.poll() is None
        return self._token in _command_line(self.pid)

    @property
    def exit_code(self) -> int | None:
        code = self._started.poll() if self._started is not None else None
        return code if code is None or code >= 0 else 128 - code

    def terminate(self) -> None:
        self._signal(signal.SIGTERM)

    def kill(self) -> None:
        self._signal(signal.SIGKILL)

    def _signal(self, number: int) -> None:
        if self.alive:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def wait(self, timeout: float) -> bool:
        deadline = time.monotonic() + timeout
        while self.alive:
            if time.monotonic() >= deadline:
                return False
            time.sleep(0.1)
        return True

    def close(self) -> None:
        """Nothing: a detached process is left alone. (Its Popen is reaped by init once we are gone.)"""
        if self._started is not None and self._started.poll() is None:
            # Python would warn about a child that still runs; here that is the point.
            self._started.returncode = 0


def _command_line(pid: int) -> str:
    """The command line of a running process; empty when there is none (or only a zombie)."""
    if Path("/proc/self/cmdline").exists():  # slim containers have no ps
        try:
            return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            return ""
    answer = subprocess.run(
        ["ps", "-ww", "-o", "stat=,command=", "-p", str(pid)], capture_output=True, text=True, check=False
    )
    line = answer.stdout.strip()
    return "" if line.startswith("Z") else line
