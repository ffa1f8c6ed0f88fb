"""`rocketstream pipeline`: what it says and how it ends; without Spark where it can, and once for real."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from rocketstream import AdminClient, Message, Producer
from rocketstream.broker import EmbeddedBroker
from rocketstream.cli import _pipeline_run
from rocketstream.cli.app import make_app
from rocketstream.spark.pipeline import Mistake, PipelineFailedError, PipelineFileError, RunProgress
from rocketstream.spark.pipeline.progress import Tally, run_progress
from tests.cli import test_terminal
from tests.cli.test_processes import PROGRAM, environment
from tests.cli.test_terminal import Terminal, plain

FILE = """\
name = "shop"
checkpoint = "state"
rocketmq = { nameServers = "%s" }
[[sources]]
name = "orders"
topics = ["orders"]
options = { startingOffsets = "earliest", maxOffsetsPerTrigger = 100 }
schema = "n INT NOT NULL"
dead_letter = { path = "dead" }
[[sinks]]
name = "files"
from = "orders"
type = "json"
path = "out"
"""


def invoke(*arguments: str) -> Result:
    return CliRunner().invoke(make_app("pipeline"), ["pipeline", *arguments])


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "shop.toml"
    path.write_text(FILE % "127.0.0.1:9", "utf-8")
    return path


# --- check -----------------------------------------------------------------------------------------------------------


def test_check_says_that_all_is_well(file: Path) -> None:
    done = invoke("check", str(file))
    assert (done.exit_code, done.stderr) == (0, f"{file}: no mistakes; orders to files\n")
    assert json.loads(invoke("check", str(file), "--json").stdout) == {"file": str(file), "mistakes": []}


@pytest.mark.parametrize("command", ["check", "run"])
def test_all_mistakes_with_their_lines(file: Path, command: str) -> None:
    file.write_text((FILE % "127.0.0.1:9").replace("schema", "shcema").replace("json", "jason"), "utf-8")
    done = invoke(command, str(file))
    assert done.exit_code == 2
    assert done.stderr.splitlines() == [
        f"{file}:8: source 'orders': unknown key 'shcema': did you mean 'schema'?",
        f"{file}:9: source 'orders': `dead_letter` is for bodies that don't fit a `schema`, and there is none",
        f"{file}:13: sink 'files': `type` must be parquet, json, csv, delta, iceberg, console or rocketmq, not 'jason':"
        " did you mean 'json'?",
    ]
    document = json.loads(invoke(command, str(file), "--json").stdout)
    assert [mistake["line"] for mistake in document["mistakes"]] == [8, 9, 13]


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    done = invoke("run", str(tmp_path / "none.toml"))
    assert done.exit_code == 2
    assert done.stderr == f"rocketstream: {tmp_path}/none.toml: the file can't be read: No such file or directory\n"


def test_wrong_settings(file: Path) -> None:
    done = invoke("run", str(file), "--conf", "memory")
    assert done.exit_code == 2
    assert "--conf 'memory' must be NAME=VALUE" in done.stderr


def test_without_spark(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyspark", None)
    done = invoke("run", str(file))
    assert done.exit_code == 2
    assert "pipelines need Spark, and pyspark is not installed: pip install 'rocketstream[spark]'" in done.stderr
    assert "\n" not in done.stderr.strip()


# --- run, with a Spark that is none ----------------------------------------------------------------------------------


class Session:
    def __init__(self) -> None:
        self.stopped = False

    def stop(self) -> None:
        self.stopped = True


class Run:
    """Stands in for `PipelineRun`: does what the test says."""

    problem: Exception | None = None
    start_problem: Exception | None = None
    looks = 2
    send: int | None = None
    gentle = True

    def __init__(self, pipeline: Any, spark: Session) -> None:
        self.pipeline = pipeline
        self.stopped_within: float | None = None
        self._left = type(self).looks
        Run.last = self

    last: Run

    def start(self) -> None:
        if self.start_problem is not None:
            raise self.start_problem

    def wait(self, timeout: float) -> bool:
        self._left -= 1
        if self.send is not None and self._left == 0:
            signal.raise_signal(self.send)
        if self.problem is not None and self._left <= 0:
            raise self.problem
        return self.send is None and self._left <= 0

    def progress(self) -> RunProgress:
        tally = Tally("files", "sink")
        offsets = {"orders": {"b": {"0": 5}}}
        tally.add(
            [
                {
                    "batchId": 0,
                    "timestamp": "1",
                    "numInputRows": 5,
                    "processedRowsPerSecond": 2.4,
                    "durationMs": {"addBatch": 1, "triggerExecution": 2100},
                    "sources": [{"endOffset": offsets, "latestOffset": offsets}],
                    "observedMetrics": {"orders": {"bad_rows": 2}},
                }
            ]
        )
        return run_progress({"files": (tally, "running")})

    def stop(self, timeout: float) -> bool:
        self.stopped_within = timeout
        return self.gentle


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[list[dict[str, Any]]]:
    """What sessions were asked for; `Run` says how it goes. Signal handlers are put back."""
    asked: list[dict[str, Any]] = []

    def open_session(name: str, **others: Any) -> Session:
        asked.append({"name": name, **others, "session": Session()})
        return asked[-1]["session"]

    monkeypatch.setattr(_pipeline_run, "open_session", open_session)
    monkeypatch.setattr(_pipeline_run, "PipelineRun", Run)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    for name in ("problem", "start_problem", "send", "gentle", "looks"):
        monkeypatch.setattr(Run, name, getattr(Run, name))
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    yield asked
    for number, handler in before.items():
        signal.signal(number, handler)


LINE = "files: running, 5 rows, 2 rows/s, lag 0, last batch 2.1 s, 2 bad"


def test_a_run_that_ends_by_itself(file: Path, fake: list[dict[str, Any]], tmp_path: Path) -> None:
    done = invoke("run", str(file), "--interval", "0.1", "--master", "local[1]", "-c", "spark.x=1", "-c", "sql.y=2")
    assert done.exit_code == 0, done.stderr
    assert set(done.stdout.splitlines()) == {LINE}
    assert done.stderr.splitlines()[-1] == "shop: 5 rows read, 2 dead letters, lag 0"
    (asked,) = fake
    assert (asked["name"], asked["master"]) == ("shop", "local[1]")
    assert asked["conf"] == {"spark.x": "1", "spark.sql.y": "2"}
    assert asked["session"].stopped
    assert list(tmp_path.glob("*.log")) == []


def test_progress_for_programs(file: Path, fake: list[dict[str, Any]]) -> None:
    done = invoke("run", str(file), "--interval", "0.1", "--json")
    documents = [json.loads(line) for line in done.stdout.splitlines()]
    assert documents[-1]["queries"][0]["rows"] == 5
    assert (documents[-1]["pipeline"], documents[-1]["dead_letters"]) == ("shop", 2)
    assert done.stderr == ""


def test_available_now_goes_before_what_the_file_says(file: Path, fake: list[dict[str, Any]]) -> None:
    invoke("run", str(file))
    assert not Run.last.pipeline.sinks[0].trigger.available_now
    invoke("run", str(file), "--once", "-n", "there:1")
    assert Run.last.pipeline.sinks[0].trigger.available_now
    assert Run.last.pipeline.sources[0].options["nameServers"] == "there:1"


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 0)])
def test_a_signal_ends_it_gently(file: Path, fake: list[dict[str, Any]], number: int, code: int) -> None:
    Run.send = number
    done = invoke("run", str(file), "--interval", "0.1", "--stop-timeout", "7")
    assert done.exit_code == code, done.stderr
    assert Run.last.stopped_within == 7.0
    assert "shop ends after the batches under way (7 s at most; Ctrl-C: at once)" in done.stderr
    assert fake[0]["session"].stopped


def test_a_batch_that_was_broken_off_is_told(file: Path, fake: list[dict[str, Any]]) -> None:
    Run.send, Run.gentle = signal.SIGINT, False
    assert "a batch was broken off: the next run does it again" in invoke("run", str(file)).stderr


def test_a_query_that_fails(file: Path, fake: list[dict[str, Any]], tmp_path: Path) -> None:
    Run.problem = PipelineFailedError("sink 'files': no room", "all of\n\tat java")
    done = invoke("run", str(file), "--interval", "0.1")
    assert done.exit_code == 1
    (log,) = tmp_path.glob("*.log")
    assert done.stderr.splitlines()[-2:] == [f"Spark's log: {log}", "rocketstream: sink 'files': no room"]
    assert "at java" not in done.stderr
    done = invoke("run", str(file), "--interval", "0.1", "--verbose")
    assert "at java" in done.stderr
    assert fake[1]["log"] is None


def test_mistakes_that_only_spark_sees(file: Path, fake: list[dict[str, Any]], tmp_path: Path) -> None:
    Run.start_problem = PipelineFileError(str(file), [Mistake(3, "no such column")])
    done = invoke("run", str(file))
    assert done.exit_code == 2
    assert done.stderr.splitlines()[-1] == f"{file}:3: no such column"
    assert json.loads(invoke("run", str(file), "--json").stdout)["mistakes"] == [
        {"line": 3, "sentence": "no such column"}
    ]
    assert list(tmp_path.glob("*.log")) == []


# --- for real --------------------------------------------------------------------------------------------------------


@pytest.mark.timeout(900)  # two Sparks that start, on a busy machine
@pytest.mark.slow(60, "starts Spark twice")
def test_on_a_terminal_interrupted_and_resumed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(test_terminal, "PATIENCE", 240.0)
    with EmbeddedBroker() as broker:
        servers = broker.name_server_address
        with AdminClient(servers) as admin:
            admin.create_topic("orders", queues=1)
        with Producer("shop", name_servers=servers, send_timeout=10.0) as producer:
            for number in range(300):
                producer.send(Message("orders", b"poison" if number == 7 else b'{"n": %d}' % number))
        file = tmp_path / "shop.toml"
        file.write_text(FILE % servers, "utf-8")
        small = ("--master", "local[2]", "--conf", "driver.memory=600m")
        terminal = Terminal()
        try:
            terminal.run("pipeline", "run", str(file), *small, name_server=servers)
            # Ctrl-C goes to all processes of the terminal, Spark's too.
            terminal.read_until(r"files\S* .*?running.*? [1-9]\d* ")
            terminal.press_ctrl_c()
            assert terminal.end() == 130, plain(terminal.text)[-3000:]
        finally:
            terminal.close()
        said = plain(terminal.text)
        assert re.search(r"shop: \d+ rows read, 1 dead letters, lag \d+", said), said[-3000:]
        assert "Traceback" not in said
        done = subprocess.run(
            [*PROGRAM, "pipeline", "run", str(file), *small, "--once", "--json"],
            env=environment(),
            capture_output=True,
            text=True,
            check=False,
            timeout=500,
        )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    assert not json.loads(done.stdout.splitlines()[-1])["lag"]  # unknown if it only did a planned batch again
    rows = [json.loads(line) for path in (tmp_path / "out").glob("*.json") for line in path.read_text().splitlines()]
    assert sorted(row["n"] for row in rows) == [number for number in range(300) if number != 7]
