"""A standalone Spark says when it is ready, and leaves nothing behind when its owner is killed.

That executors are there, die and come back is shown by those who use it (tests/spark/cluster).
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from rocketstream.testing import spark_cluster
from rocketstream.testing.process_tree import ProcessInfo, _from_proc, _from_ps, descendants, kill
from rocketstream.testing.spark_cluster import SparkClusterError, SparkDaemon, SparkStandalone
from tests.testing.processes import eventually, exists

CHAIN = """
import subprocess, sys
depth = int(sys.argv[1])
if depth:
    subprocess.run([sys.executable, "-c", sys.argv[2], str(depth - 1), sys.argv[2]])
else:
    print("deep", flush=True)
    sys.stdin.read()
"""
OWNER = """
import json, sys
from rocketstream.testing.spark_cluster import SparkStandalone
with SparkStandalone(workers=2) as cluster:
    daemons = [cluster.master, *cluster.workers]
    told = {"pids": [daemon.pid for daemon in daemons], "state": cluster.state(), "repr": repr(cluster)}
    print(json.dumps({**told, "directory": str(cluster.workers[0].directory)}), flush=True)
    sys.stdin.read()
"""


def test_a_young_master_that_answers_with_nothing_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    answers = [b"", b'{"aliveworkers": 0}']

    class YoungMaster(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(answers.pop(0))

        def log_message(self, *_: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), YoungMaster) as server:
        serving = threading.Thread(target=server.serve_forever)
        serving.start()
        try:
            cluster = SparkStandalone(workers=0)
            monkeypatch.setattr(cluster, "_web_port", server.server_port)
            cluster.wait_until_ready()
        finally:
            server.shutdown()
            serving.join()
    assert answers == []


@pytest.mark.slow(10, "starts a Spark cluster and kills its owner")
def test_a_cluster_whose_owner_is_killed_leaves_nothing_behind() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", OWNER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as owner:
        assert owner.stdout is not None
        assert owner.stderr is not None
        line = owner.stdout.readline()
        assert line, owner.stderr.read().decode()
        told = json.loads(line)
        assert told["state"]["status"] == "ALIVE"
        assert [worker["state"] for worker in told["state"]["workers"]] == ["ALIVE", "ALIVE"]
        assert "spark://127.0.0.1:" in told["repr"]
        assert all(map(exists, told["pids"]))
        owner.kill()
    assert eventually(lambda: not any(map(exists, told["pids"])), timeout=60.0)
    assert eventually(lambda: not Path(told["directory"]).exists(), timeout=60.0)


def test_a_cluster_that_is_not_started_says_so() -> None:
    cluster = SparkStandalone()
    assert repr(cluster) == "<SparkStandalone: not started>"
    with pytest.raises(SparkClusterError, match="not started"):
        _ = cluster.master
    with pytest.raises(SparkClusterError, match="no executor 0"):
        cluster.kill_executor()
    cluster.close()


def test_a_daemon_that_ends_at_once_is_told_with_its_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = tmp_path / "spark"
    (home / "bin").mkdir(parents=True)
    script = home / "bin" / "spark-class"
    script.write_text("#!/bin/sh\necho no such class: $1\nexit 3\n")
    script.chmod(0o755)
    monkeypatch.setattr(spark_cluster, "_spark_home", lambda: home)
    with pytest.raises(SparkClusterError, match="the Spark master ended") as told:
        SparkStandalone().start()
    assert "no such class: org.apache.spark.deploy.master.Master" in str(told.value)


def test_a_port_that_was_taken_meanwhile_is_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tries: list[int] = []

    def start(self: SparkStandalone, home: Path, directory: Path) -> None:
        self._master = SparkDaemon("Spark master", directory, ["true"], {})
        directory.mkdir()
        (directory / "console.log").write_text("java.net.BindException: Address already in use")
        tries.append(len(tries))
        if len(tries) < 3:
            raise SparkClusterError("the Spark master ended")

    monkeypatch.setattr(SparkStandalone, "_start_daemons", start)
    cluster = SparkStandalone()
    cluster.start()
    cluster.close()
    assert len(tries) == 3


def test_processes_below_are_found_and_killed() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", CHAIN, "2", CHAIN], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as top:
        assert top.stdout is not None
        assert top.stdout.readline() == b"deep\n"
        below = descendants(top.pid)
        assert [process.parent for process in below] == [top.pid, below[0].pid]
        assert all(sys.executable in process.command for process in below)
        pids = [process.pid for process in below]
        assert kill(reversed(pids)) == pids[::-1]
        assert top.wait(30) == 0
    assert eventually(lambda: not any(map(exists, pids)))
    assert descendants(top.pid) == []


@pytest.mark.parametrize("ask", [_from_proc, _from_ps])
def test_both_ways_of_asking_the_system_agree(ask: Callable[[], Iterable[ProcessInfo]]) -> None:
    if (ask is _from_ps and shutil.which("ps") is None) or (ask is _from_proc and not Path("/proc/self/stat").exists()):
        pytest.skip("this system has only the other one")
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        assert eventually(
            lambda: (child.pid, os.getpid(), True) in {(p.pid, p.parent, "input()" in p.command) for p in ask()}
        )
        child.kill()
        # It is not reaped yet: a zombie.
        assert eventually(lambda: child.pid not in {process.pid for process in ask()})
