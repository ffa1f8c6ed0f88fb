"""One real cluster for all workers of a pytest-xdist run.

A broker takes 8 to 15 s to start, and two cores do not carry one for each worker. So the process that controls the
workers starts a cluster of each version, once, as soon as a worker has collected a test that needs it; until it is
ready the workers run other tests. They talk through a directory: a worker writes `<version>.wanted`, the controller
answers with `<version>.json` (where the nodes are) or `<version>.failed` (why there are none). The controller owns the
clusters, so they end with it, however it ends.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import shutil
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Literal

from rocketstream.errors import RocketStreamError
from rocketstream.testing import cluster as clusters
from rocketstream.testing._lock import admitted
from rocketstream.testing.jars import JarResolutionError
from rocketstream.testing.java import JavaNotFoundError
from rocketstream.testing.node import ClusterError, log_files, log_tail

log = logging.getLogger(__name__)

_LOOK_EVERY = 0.1
#: Longer than it takes to fetch the jars and to start a broker on a machine that is busy with other tests.
_PATIENCE = 600.0


class NoRealClusterError(RocketStreamError):
    """This machine can't run a RocketMQ: it has no Java, or does not reach Maven Central."""


@dataclass(frozen=True, slots=True)
class SharedNode:
    """A server of a cluster that another process has started: to be used, not to be stopped."""

    name: str
    role: Literal["name server", "broker"]
    port: int
    pid: int
    directory: str
    broker_name: str = ""
    broker_id: int = 0

    @property
    def address(self) -> str:
        """Its host:port."""
        return f"127.0.0.1:{self.port}"

    @property
    def alive(self) -> bool:
        """Whether its process runs."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, 0)
            return True
        return False

    def log_files(self) -> list[Path]:
        """What the process printed, and RocketMQ's main log file."""
        return log_files(self.role, Path(self.directory))

    def log_tail(self, lines: int = 30) -> str:
        """The end of its logs."""
        return log_tail(self.name, self.log_files(), lines)


@dataclass(frozen=True, slots=True)
class SharedCluster:
    """A cluster that the workers of a test run share: what a `RocketMQCluster` tells, without its ways to change it."""

    version: str
    nodes: tuple[SharedNode, ...]

    @property
    def name_servers(self) -> list[SharedNode]:
        """Its name servers."""
        return [node for node in self.nodes if node.role == "name server"]

    @property
    def brokers(self) -> list[SharedNode]:
        """Its masters."""
        return [node for node in self.nodes if node.role == "broker" and node.broker_id == 0]

    @property
    def slaves(self) -> list[SharedNode]:
        """Its slaves."""
        return [node for node in self.nodes if node.role == "broker" and node.broker_id != 0]

    @property
    def name_server_address(self) -> str:
        """What a client's `name_servers` takes."""
        return ";".join(node.address for node in self.name_servers)

    def log_tail(self, lines: int = 30) -> str:
        """The end of every node's logs."""
        return "\n".join(node.log_tail(lines) for node in self.nodes)


# --- the controller's side ------------------------------------------------------------------------------------------


@dataclass
class SharedClusters:
    """Starts the clusters that workers want, each in a thread, and ends them."""

    directory: Path = field(default_factory=lambda: Path(tempfile.mkdtemp(prefix="rocketstream-shared-")))
    _started: dict[str, threading.Thread] = field(default_factory=dict)
    _running: list[clusters.RocketMQCluster] = field(default_factory=list)
    _over: threading.Event = field(default_factory=threading.Event)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        threading.Thread(target=self._watch, name="rocketstream-shared-clusters", daemon=True).start()

    def _watch(self) -> None:
        while not self._over.wait(_LOOK_EVERY):
            for wanted in self.directory.glob("*.wanted"):
                version = wanted.stem
                if version not in self._started:
                    thread = threading.Thread(target=self._start, args=(version,), name=f"start RocketMQ {version}")
                    thread.daemon = True
                    self._started[version] = thread
                    thread.start()

    def _start(self, version: str) -> None:
        cluster = clusters.RocketMQCluster(version)
        try:
            cluster.start()
        except Exception as problem:
            missing = isinstance(problem, JavaNotFoundError | JarResolutionError)
            self._tell(f"{version}.failed", {"missing": missing, "problem": str(problem)})
            return
        with self._lock:
            if self._over.is_set():
                cluster.close()
                return
            self._running.append(cluster)
        nodes = [
            SharedNode(
                node.name, node.role, node.port, node.pid or 0, str(node.directory), node.broker_name, node.broker_id
            )
            for node in cluster.nodes
        ]
        self._tell(f"{version}.json", [asdict(node) for node in nodes])

    def _tell(self, name: str, what: object) -> None:
        fresh = self.directory / f".{name}"
        fresh.write_text(json.dumps(what), "utf-8")
        fresh.replace(self.directory / name)

    def close(self) -> None:
        """End every cluster."""
        self._over.set()
        with self._lock:
            running, self._running = self._running, []
        for cluster in running:
            cluster.close()
        shutil.rmtree(self.directory, ignore_errors=True)


# --- a worker's side ------------------------------------------------------------------------------------------------


def want(directory: Path, version: str) -> None:
    """Ask the controller for a cluster, which takes a while."""
    (directory / f"{version}.wanted").touch()


def wait_for(directory: Path, version: str) -> SharedCluster:
    """The cluster that was asked for, once it is ready; `NoRealClusterError` where the machine can't run one."""
    want(directory, version)
    deadline = time.monotonic() + _PATIENCE
    ready, failed = directory / f"{version}.json", directory / f"{version}.failed"
    while time.monotonic() < deadline:
        if ready.exists():
            nodes = tuple(SharedNode(**node) for node in json.loads(ready.read_text("utf-8")))
            return SharedCluster(version, nodes)
        if failed.exists():
            why = json.loads(failed.read_text("utf-8"))
            raise (NoRealClusterError if why["missing"] else ClusterError)(why["problem"])
        time.sleep(_LOOK_EVERY)
    raise ClusterError(f"RocketMQ {version}, which all workers share, is not ready after {_PATIENCE:.0f} s")


@contextlib.contextmanager
def in_use(directory: Path, version: str, *, alone: bool) -> Iterator[None]:
    """Use a shared cluster during a test: beside others, or `alone` for a test that changes it."""
    with admitted(directory / f"{version}.lock", alone=alone):
        yield
