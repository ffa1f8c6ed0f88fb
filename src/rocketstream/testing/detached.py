"""A cluster that outlives the command that started it: `rocketstream cluster up`, `status`, `down`.

There is one per user. Its state file names each process; a process is only believed to be ours when its command line
carries the cluster's token, because its id may belong to somebody else by now. The file is written before a process can
be lost: at each launch, not at the end.
"""

from __future__ import annotations

import json
import os
import shutil
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import IO, Any

import platformdirs

from rocketstream.errors import ProtocolError, RocketStreamError
from rocketstream.testing._ask import registered_brokers
from rocketstream.testing._lock import locked
from rocketstream.testing._resolvers import Progress
from rocketstream.testing.cluster import RocketMQCluster
from rocketstream.testing.ports import is_free
from rocketstream.testing.process import DetachedProcess, Process

DEFAULT_PORT = 9876
STATE_FILE = "cluster.json"
_STOP_TIMEOUT = 60.0


class AlreadyRunningError(RocketStreamError):
    """There is a detached cluster already."""


def state_directory() -> Path:
    """Where the detached cluster lives: $ROCKETSTREAM_STATE, or the user's state directory."""
    override = os.environ.get("ROCKETSTREAM_STATE")
    return Path(override) if override else Path(platformdirs.user_state_dir("rocketstream", appauthor=False))


@dataclass(slots=True)
class DetachedNode:
    """A server of the detached cluster, as the state file has it."""

    name: str
    role: str
    address: str
    pid: int
    token: str
    directory: str
    registered_as: str = ""

    @property
    def process(self) -> DetachedProcess:
        return DetachedProcess(self.pid, self.token)

    @property
    def alive(self) -> bool:
        """Whether its process still runs."""
        return self.process.alive


@dataclass(slots=True)
class DetachedCluster:
    """The cluster that `rocketstream cluster up` left running, read from its state file."""

    version: str
    directory: Path
    nodes: list[DetachedNode] = field(default_factory=list)

    @property
    def name_server_address(self) -> str:
        """What a client's `name_servers` takes."""
        return ";".join(node.address for node in self.nodes if node.role == "name server")

    def problems(self) -> list[str]:
        """What is wrong, found by asking; an empty list means that the cluster is up."""
        found = [f"{node.name} ({node.address}) does not run any more" for node in self.nodes if not node.alive]
        for server in self.nodes:
            if server.role != "name server" or not server.alive:
                continue
            try:
                known = registered_brokers(server.address)
            except (OSError, ProtocolError) as problem:
                found.append(f"{server.name} ({server.address}) does not answer: {problem}")
                continue
            found += [
                f"{node.name} ({node.address}) is not registered at {server.name}"
                for node in self.nodes
                if node.role == "broker" and node.alive and node.registered_as not in known
            ]
        return found

    def stop(self) -> None:
        """Stop every process in order, brokers first, and remove the cluster's directory and state."""
        brokers = [node.process for node in self.nodes if node.role == "broker"]
        name_servers = [node.process for node in self.nodes if node.role == "name server"]
        for group in (brokers, name_servers):
            for process in group:
                process.terminate()
            for process in group:
                if not process.wait(_STOP_TIMEOUT):
                    process.kill()
                    process.wait(10.0)
        self.remove()

    def remove(self) -> None:
        """Forget a cluster whose processes are gone."""
        shutil.rmtree(self.directory, ignore_errors=True)
        _state_file().unlink(missing_ok=True)

    def save(self) -> None:
        state = {"version": self.version, "directory": str(self.directory), "nodes": [asdict(n) for n in self.nodes]}
        fresh = _state_file().with_suffix(".new")
        fresh.write_text(json.dumps(state, indent=1))
        os.replace(fresh, _state_file())


def load() -> DetachedCluster | None:
    """The cluster of the state file, if there is one; whether it still runs is `problems()`'s to say."""
    try:
        state: dict[str, Any] = json.loads(_state_file().read_text())
        nodes = [DetachedNode(**node) for node in state["nodes"]]
        return DetachedCluster(state["version"], Path(state["directory"]), nodes)
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError) as problem:
        raise RocketStreamError(
            f"{_state_file()} is not readable ({problem}): end what it describes by hand, and delete the file"
        ) from problem


def start(
    version: str,
    *,
    brokers: int = 1,
    slaves: int = 0,
    port: int | None = None,
    progress: Progress | None = None,
) -> DetachedCluster:
    """Start a cluster and leave it running; its first name server listens on `port`, else on 9876 if that is free."""
    root = state_directory()
    root.mkdir(parents=True, exist_ok=True)
    with locked(root / "cluster.lock"):
        before = load()
        if before is not None and any(node.alive for node in before.nodes):
            raise AlreadyRunningError(
                f"a RocketMQ {before.version} cluster is already running at {before.name_server_address}:"
                " `rocketstream cluster down` stops it"
            )
        if before is not None:
            before.remove()
        if port is None and is_free(DEFAULT_PORT):
            port = DEFAULT_PORT
        return _start(version, brokers, slaves, port, root / "cluster", progress)


def _start(
    version: str, brokers: int, slaves: int, port: int | None, directory: Path, progress: Progress | None
) -> DetachedCluster:
    token = uuid.uuid4().hex
    detached = DetachedCluster(version, directory)

    def launch(command: Sequence[str], environment: Mapping[str, str], output: IO[bytes]) -> Process:
        process = DetachedProcess.start(command, token, environment=environment, output=output)
        detached.nodes.append(DetachedNode("starting", "broker", "", process.pid, token, output.name))
        detached.save()
        return process

    cluster = RocketMQCluster(
        version,
        brokers=brokers,
        slaves=slaves,
        jvm_properties={"rocketstream.cluster": token},
        directory=directory,
        name_server_port=port,
        launcher=launch,
        progress=progress,
    )
    try:
        cluster.start()
    except BaseException:
        detached.remove()
        raise
    detached.nodes = []
    for node in cluster.nodes:
        assert node.process is not None
        registered = f"{node.broker_name}/{node.broker_id}@{node.address}" if node.role == "broker" else ""
        detached.nodes.append(
            DetachedNode(node.name, node.role, node.address, node.process.pid, token, str(node.directory), registered)
        )
        node.process.close()
    detached.save()
    return detached


def _state_file() -> Path:
    return state_directory() / STATE_FILE
