"""Who started whom: the processes below one, for tests that kill a Spark executor or one of its Python workers.

Spark starts these itself, so nobody here holds a handle of them: they are found by asking the system, each time anew,
and believed to be what their command line says.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class ProcessInfo:
    """A process of somebody else's, at the moment of the question."""

    pid: int
    parent: int
    command: str


def descendants(pid: int) -> list[ProcessInfo]:
    """The processes that `pid` started, and theirs, parents first; zombies are not among them."""
    children: dict[int, list[ProcessInfo]] = {}
    for process in _all_processes():
        children.setdefault(process.parent, []).append(process)
    found: list[ProcessInfo] = []
    frontier = [pid]
    while frontier:
        below = [child for parent in frontier for child in children.get(parent, ())]
        found += below
        frontier = [child.pid for child in below]
    return found


def python_workers(pid: int) -> list[int]:
    """The process ids of the Python workers below `pid` that run tasks: those that a daemon of PySpark forked."""
    below = descendants(pid)
    daemons = {process.pid for process in below if "pyspark.daemon" in process.command}
    return [process.pid for process in below if process.pid in daemons and process.parent in daemons]


def kill(pids: Iterable[int]) -> list[int]:
    """End each by SIGKILL and return those that were still there."""
    killed = []
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
            killed.append(pid)
    return killed


def _all_processes() -> Iterable[ProcessInfo]:
    return _from_proc() if Path("/proc/self/stat").exists() else _from_ps()  # slim containers have no ps


def _from_proc() -> Iterable[ProcessInfo]:
    for entry in os.scandir("/proc"):
        if not entry.name.isdigit():
            continue
        try:
            # "pid (name) state parent ...": the name may hold anything, brackets included.
            state, parent = Path(entry.path, "stat").read_text(errors="replace").rpartition(")")[2].split()[:2]
            command = Path(entry.path, "cmdline").read_bytes()
        except OSError:
            continue  # ended meanwhile
        if state != "Z":
            yield ProcessInfo(int(entry.name), int(parent), command.replace(b"\0", b" ").decode(errors="replace"))


def _from_ps() -> Iterable[ProcessInfo]:
    answer = subprocess.run(
        ["ps", "-axww", "-o", "pid=,ppid=,stat=,command="], capture_output=True, text=True, check=True
    )
    for line in answer.stdout.splitlines():
        pid, parent, state, *command = line.split(maxsplit=3)
        if not state.startswith("Z"):
            yield ProcessInfo(int(pid), int(parent), " ".join(command))
