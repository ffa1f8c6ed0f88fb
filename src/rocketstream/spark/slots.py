"""How many tasks may run at a time, as far as the process that plans a read can find out.

Spark tells a planner's Python process nothing of its configuration: no setting is in its environment and there is no
way back into the driver. But it is a child of the driver's JVM, whose command line says with which master and how many
cores it was submitted. Where that says nothing, a driver of a cluster is taken to have a slot for each queue, up to a
bound and at least as many as the driver has cores; any other, the driver's cores.

The rule of this file: a guess never fails, and nothing but the number of slots is looked for.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

_LOCAL: Final = re.compile(r"local\[(\d+|\*)(?:,\s*\d+)?\]")
_LOCAL_CLUSTER: Final = re.compile(r"local-cluster\[\s*(\d+)\s*,\s*(\d+)\s*,.*\]")
_CONFIGURED: Final = re.compile(r"(?:-D)?(spark\.[\w.]+)=(.*)")
# What spark-submit's own arguments stand for.
_ARGUMENTS: Final = {
    "--master": "spark.master",
    "--total-executor-cores": "spark.cores.max",
    "--executor-cores": "spark.executor.cores",
    "--num-executors": "spark.executor.instances",
}
_ANCESTORS: Final = 6
_MOST: Final = 10_000
_MOST_GUESSED: Final = 32


def slots(queues: int) -> int:
    """How many tasks may run at a time: what the driver was submitted with, else a guess for so many queues."""
    for command in _ancestors():
        if any(part.startswith("org.apache.spark.") for part in command):
            return slots_of(command, cores()) or max(cores(), min(queues, _MOST_GUESSED))
    return cores()


def cores() -> int:
    """The cores that this process may use."""
    try:
        return len(os.sched_getaffinity(0))
    except (AttributeError, OSError):
        return os.cpu_count() or 1


def slots_of(command: Sequence[str], cores: int) -> int | None:
    """The slots that a driver's command line speaks of, if it does; `cores` is what `local[*]` means."""
    conf: dict[str, str] = {}
    for at, part in enumerate(command):
        if part in _ARGUMENTS and at + 1 < len(command):
            conf[_ARGUMENTS[part]] = command[at + 1]
        elif found := _CONFIGURED.fullmatch(part):
            conf[found[1]] = found[2]
    master = conf.get("spark.master", "")
    if master == "local":
        return 1
    if found := _LOCAL.fullmatch(master):
        return cores if found[1] == "*" else _bounded(int(found[1]))
    if found := _LOCAL_CLUSTER.fullmatch(master):
        return _bounded(int(found[1]) * int(found[2]))
    most = _number(conf, "spark.cores.max")
    if most is not None:
        return most
    instances, each = _number(conf, "spark.executor.instances"), _number(conf, "spark.executor.cores")
    if instances is not None:
        return _bounded(instances * (each or 1))
    return _number(conf, "spark.default.parallelism")


def _number(conf: dict[str, str], name: str) -> int | None:
    value = conf.get(name, "")
    return _bounded(int(value)) if value.isascii() and value.isdigit() and len(value) < 9 and int(value) else None


def _bounded(number: int) -> int:
    return min(max(number, 1), _MOST)


def _ancestors() -> Iterator[list[str]]:
    """The command lines of the processes above this one; none where there is no /proc."""
    pid = os.getpid()
    for _ in range(_ANCESTORS):
        try:
            status = Path(f"/proc/{pid}/stat").read_text()
            pid = int(status.rpartition(")")[2].split()[1])
            if pid <= 1:
                return
            yield Path(f"/proc/{pid}/cmdline").read_bytes().decode("utf-8", "replace").split("\0")
        except (OSError, ValueError, IndexError):
            return
