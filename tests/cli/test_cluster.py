"""`rocketstream cluster up|status|down` as a person meets it."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from importlib.metadata import version
from pathlib import Path

import pytest

from rocketstream.testing import detached
from rocketstream.testing._ask import registered_brokers
from rocketstream.testing.detached import DetachedCluster, DetachedNode
from rocketstream.testing.plugin import FOLLOWED, require_real
from rocketstream.testing.ports import PortError
from tests.testing.processes import eventually, exists

Command = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A state directory of our own: the developer's cluster is none of our business. Nothing is left running in it."""
    directory = tmp_path / "state"
    monkeypatch.setenv("ROCKETSTREAM_STATE", str(directory))
    yield directory
    left = detached.load()
    for node in left.nodes if left is not None else ():
        node.process.kill()


@pytest.fixture
def rocketstream(state: Path) -> Command:
    """Run the command as a process of its own."""

    def run(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-c", "from rocketstream.cli import main; main()", *arguments],
            env={**os.environ, **environment},
            capture_output=True,
            text=True,
            check=False,
            timeout=200,
        )

    return run


def test_version(rocketstream: Command) -> None:
    done = rocketstream("--version")
    assert (done.returncode, done.stdout) == (0, f"rocketstream {version('rocketstream')}\n")


@pytest.mark.long(20, "starts a cluster and stops it in order")
def test_up_status_down(rocketstream: Command, state: Path) -> None:
    """The whole life of a cluster: it outlives `up`, is found by `status`, and is gone after `down`."""
    require_real("4.9.7")
    started = rocketstream("cluster", "up", "--version", "4.9.7", "--json")
    assert started.returncode == 0, started.stderr
    told = json.loads(started.stdout)
    pids = [node["pid"] for node in told["nodes"]]
    assert told["running"]
    assert registered_brokers(told["name_servers"])
    assert all(exists(pid) for pid in pids)

    status = rocketstream("cluster", "status")
    assert status.returncode == 0
    assert f"RocketMQ 4.9.7 is running. Name server address: {told['name_servers']}" in status.stdout
    assert "\x1b" not in status.stdout, "colours are for terminals"

    again = rocketstream("cluster", "up")
    assert again.returncode == 1
    assert again.stderr == (
        f"rocketstream: a RocketMQ 4.9.7 cluster is already running at {told['name_servers']}:"
        " `rocketstream cluster down` stops it\n"
    )

    os.kill(pids[-1], signal.SIGKILL)
    assert eventually(lambda: not exists(pids[-1]))
    hurt = rocketstream("cluster", "status")
    assert hurt.returncode == 1
    assert f"broker-a ({told['nodes'][-1]['address']}) does not run any more" in hurt.stdout

    down = rocketstream("cluster", "down")
    assert (down.returncode, down.stdout) == (0, "RocketMQ 4.9.7 is stopped and its data is removed.\n")
    assert not any(exists(pid) for pid in pids)
    assert [path.name for path in state.iterdir()] == ["cluster.lock"]
    gone = rocketstream("cluster", "status", "--json")
    assert (gone.returncode, json.loads(gone.stdout)) == (1, {"running": False})


def test_without_a_cluster(rocketstream: Command) -> None:
    status = rocketstream("cluster", "status")
    assert status.returncode == 1
    assert status.stdout == "No cluster is running. Start one with: rocketstream cluster up\n"
    down = rocketstream("cluster", "down")
    assert (down.returncode, down.stdout) == (0, "No cluster is running.\n")


def test_without_java(rocketstream: Command, state: Path) -> None:
    done = rocketstream("cluster", "up", PATH="", JAVA_HOME="")
    assert done.returncode == 1
    assert done.stderr.startswith("rocketstream: Java 17 or newer is needed to run RocketMQ: JAVA_HOME is not set")
    assert "Traceback" not in done.stderr
    assert detached.load() is None


def test_a_port_that_is_taken(rocketstream: Command) -> None:
    require_real(FOLLOWED)
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        done = rocketstream("cluster", "up", "--version", FOLLOWED, "--port", str(port))
    assert done.returncode == 1
    assert done.stderr == (
        f"rocketstream: port {port} of 127.0.0.1 is taken: stop what listens there, or choose another port\n"
    )


@pytest.mark.parametrize(
    "arguments", [["up", "--brokers", "0"], ["up", "--version", "latest"], ["up", "--nonsense"], ["sideways"]]
)
def test_wrong_usage(rocketstream: Command, arguments: list[str]) -> None:
    done = rocketstream("cluster", *arguments)
    assert done.returncode == 2
    assert "Traceback" not in done.stderr


def test_the_default_port_is_used_if_it_is_free_and_another_if_not(
    state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int | None] = []

    def start(version: str, brokers: int, slaves: int, port: int | None, *rest: object) -> DetachedCluster:
        asked.append(port)
        return DetachedCluster(version, state / "cluster")

    monkeypatch.setattr(detached, "_start", start)
    with socket.create_server(("127.0.0.1", 0)) as other:
        monkeypatch.setattr(detached, "DEFAULT_PORT", other.getsockname()[1])
        detached.start("4.9.7")
    detached.start("4.9.7")
    assert asked == [None, detached.DEFAULT_PORT]


def test_a_cluster_that_died_with_the_machine_is_no_hindrance(rocketstream: Command, state: Path) -> None:
    """After a restart of the machine the state file names processes that are gone, or somebody else's."""
    (state / "cluster").mkdir(parents=True)
    node = DetachedNode("namesrv-1", "name server", "127.0.0.1:1", os.getpid(), "a-token", str(state))
    DetachedCluster("4.9.7", state / "cluster", [node]).save()

    status = rocketstream("cluster", "status", "--json")
    assert json.loads(status.stdout)["problems"] == ["namesrv-1 (127.0.0.1:1) does not run any more"]
    down = rocketstream("cluster", "down")
    assert down.returncode == 0
    assert not (state / "cluster").exists()


def test_a_start_that_fails_leaves_nothing(state: Path) -> None:
    require_real(FOLLOWED)
    with socket.create_server(("127.0.0.1", 0)) as other, pytest.raises(PortError, match="is taken"):
        detached.start(FOLLOWED, port=other.getsockname()[1])
    assert detached.load() is None
    assert not (state / "cluster").exists()
