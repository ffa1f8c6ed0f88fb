"""One real cluster for all workers of pytest-xdist: started once, used side by side, or alone by a test that asks."""

from __future__ import annotations

import fcntl
import os
import threading
from pathlib import Path

import pytest

from rocketstream.testing import shared_cluster
from rocketstream.testing._lock import admitted
from rocketstream.testing.java import JavaNotFoundError
from rocketstream.testing.node import ClusterError
from rocketstream.testing.shared_cluster import NoRealClusterError, SharedClusters, wait_for


class FakeNode:
    def __init__(self, name: str, role: str, port: int, directory: Path) -> None:
        self.name, self.role, self.port, self.directory = name, role, port, directory
        self.pid = os.getpid()
        self.broker_name, self.broker_id = ("broker-a", 0) if role == "broker" else ("", 0)


class FakeCluster:
    """Says what was done with it; its nodes are this process."""

    said: list[str]
    problem: Exception | None = None
    directory: Path

    def __init__(self, version: str) -> None:
        self.version = version

    @property
    def nodes(self) -> list[FakeNode]:
        return [
            FakeNode("namesrv-1", "name server", 9876, self.directory),
            FakeNode("broker-a", "broker", 10911, self.directory),
        ]

    def start(self) -> None:
        self.said.append(f"start {self.version}")
        if self.problem is not None:
            raise self.problem

    def close(self) -> None:
        self.said.append(f"close {self.version}")


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> type[FakeCluster]:
    monkeypatch.setattr(FakeCluster, "said", [], raising=False)
    monkeypatch.setattr(FakeCluster, "directory", tmp_path, raising=False)
    monkeypatch.setattr(FakeCluster, "problem", None)
    monkeypatch.setattr(shared_cluster.clusters, "RocketMQCluster", FakeCluster)
    return FakeCluster


def test_a_cluster_is_started_once_for_all_who_want_it_and_ends_with_the_controller(fake, tmp_path):
    clusters = SharedClusters()
    first, second = (wait_for(clusters.directory, "5.5.0") for _ in range(2))
    assert first == second
    assert (first.version, first.name_server_address) == ("5.5.0", "127.0.0.1:9876")
    (broker,) = first.brokers
    assert (broker.address, broker.broker_name, broker.alive) == ("127.0.0.1:10911", "broker-a", True)
    assert first.slaves == []
    (tmp_path / "console.log").write_text("it is up\n")
    assert "it is up" in first.log_tail()
    assert fake.said == ["start 5.5.0"]
    wait_for(clusters.directory, "4.9.7")
    clusters.close()
    assert sorted(fake.said[2:]) == ["close 4.9.7", "close 5.5.0"]
    assert not clusters.directory.exists()


@pytest.mark.parametrize(
    ("problem", "seen"), [(JavaNotFoundError("no Java"), NoRealClusterError), (ClusterError("died"), ClusterError)]
)
def test_a_cluster_that_does_not_start_is_told_to_who_wants_it(fake, problem, seen):
    fake.problem = problem
    clusters = SharedClusters()
    with pytest.raises(seen, match=str(problem)):
        wait_for(clusters.directory, "5.5.0")
    clusters.close()
    assert fake.said == ["start 5.5.0"], "there was nothing to end"


def test_who_wants_to_be_alone_is_not_kept_waiting_by_those_who_come_later(tmp_path):
    lock = tmp_path / "5.5.0.lock"
    order: list[str] = []

    def use(name: str, alone: bool) -> None:
        with admitted(lock, alone=alone):
            order.append(name)

    def gate_is_closed() -> bool:
        with lock.with_suffix(".gate").open("a+b") as gate:
            try:
                fcntl.flock(gate, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                return True
            return False

    with admitted(lock, alone=False):
        use("beside it", False)
        alone = threading.Thread(target=use, args=("alone", True))
        alone.start()
        while not gate_is_closed():
            pass
        later = threading.Thread(target=use, args=("later", False))
        later.start()
    for thread in (alone, later):
        thread.join(60.0)
    assert order == ["beside it", "alone", "later"]


def test_workers_share_a_cluster_and_some_tests_have_it_for_themselves(pytester: pytest.Pytester) -> None:
    log = pytester.path / "log"
    pytester.makeini("[pytest]\nasyncio_default_fixture_loop_scope = function\nrocketmq_targets = 5.5.0\n")
    pytester.makeconftest(
        f"""
import os
import rocketstream.testing.cluster as module

class Node:
    name = broker_name = "broker-a"
    role, port, pid, directory, broker_id = "broker", 10911, os.getpid(), "nowhere", 0

class Fake:
    nodes = [Node]
    def __init__(self, version): pass
    def start(self): self.say("start")
    def close(self): self.say("close")
    def say(self, what):
        with open({str(log)!r}, "a") as file:
            file.write(f"{{what}}\\n")

module.RocketMQCluster = Fake
"""
    )
    pytester.makepyfile(
        """
import fcntl, pytest
from rocketstream.testing.plugin import shared_directory

def lock(request, how):
    with (shared_directory(request.config) / "5.5.0.lock").open("a+b") as file:
        fcntl.flock(file, how | fcntl.LOCK_NB)

@pytest.mark.parametrize("number", range(6))
def test_beside_others(rocketmq_cluster, request, number):
    assert rocketmq_cluster.brokers[0].address == "127.0.0.1:10911"
    lock(request, fcntl.LOCK_SH)
    with pytest.raises(BlockingIOError):
        lock(request, fcntl.LOCK_EX)

@pytest.mark.rocketmq_exclusive
def test_alone(rocketmq_cluster, request):
    with pytest.raises(BlockingIOError):
        lock(request, fcntl.LOCK_SH)
"""
    )
    result = pytester.runpytest_subprocess("-n", "2", "--strict-markers", "-p", "no:cacheprovider")
    result.assert_outcomes(passed=7)
    assert log.read_text().split() == ["start", "close"]
