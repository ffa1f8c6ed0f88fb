"""`rocketstream run --metrics-port`: one endpoint for all processes, which asks them when it is asked."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import socket
import subprocess
import urllib.request
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from rocketstream.cli import _run_metrics
from rocketstream.cli._run_metrics import Endpoint, Questions, served_for, served_here
from rocketstream.cli._supervisor import Restarts, Supervisor
from tests.cli.test_processes import PROGRAM, environment
from tests.scripted import eventually

PROGRAM_TEXT = """
import os
from rocketstream import PushConsumer
from rocketstream.metrics import catalogue
from rocketstream.metrics.registry import registry
from rocketstream.metrics.values import HistogramValue, Sample
from rocketstream.remoting.io_thread import IoThread


class Counts:
    def collect_metrics(self):
        buckets = (1,) * (len(catalogue.CONSUMER_PULL_SECONDS.bounds) + 1)
        return [
            Sample(catalogue.CONSUMER_LAG, ("g", "t"), os.getpid()),
            Sample(catalogue.CONSUMER_PULL_SECONDS, ("g", "t"), HistogramValue(buckets, 2.5)),
        ]


class Quiet(PushConsumer):
    # A consumer without a broker.
    counts = Counts()

    def start(self):
        async def add():
            registry.add(self.counts)

        IoThread.shared().run(add())

    def shutdown(self, timeout=None):
        pass


consumer = Quiet("g")
"""


class Running:
    """A supervisor at work, and what its endpoint says."""

    def __init__(self, supervisor: Supervisor, said: list[str]) -> None:
        self.supervisor = supervisor
        self.said = said

    @property
    def pids(self) -> dict[str, int]:
        return {str(n): child.process.pid for n, child in self.supervisor._children.items()}

    async def scrape(self) -> dict[tuple[str, str], float]:
        """Values by name and process."""
        (url,) = [line.removeprefix("metrics are at ") for line in self.said if line.startswith("metrics are at ")]

        def read() -> str:
            with urllib.request.urlopen(url, timeout=30) as answer:
                text: str = answer.read().decode()
            return text

        families = text_string_to_metric_families(await asyncio.to_thread(read))
        return {(s.name, s.labels.get("process", "")): s.value for family in families for s in family.samples}

    async def lags(self) -> dict[str, float]:
        found = await self.scrape()
        return {process: value for (name, process), value in found.items() if name.endswith("consumer_lag_messages")}

    async def until_up(self, count: int) -> None:
        children = self.supervisor._children
        await eventually(lambda: sum(child.up_since is not None for child in children.values()) == count)
        assert (await self.scrape())["rocketstream_run_processes", ""] == count


@pytest.fixture
async def running(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Running]:
    """Two processes of a consumer that needs no broker."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(_run_metrics, "ANSWER_TIMEOUT", 5.0)
    (tmp_path / "program.py").write_text(PROGRAM_TEXT)
    said: list[str] = []
    supervisor = Supervisor("program:consumer", 2, 1.0, "error", said.append, restarts=lambda: Restarts(pause=0.001))
    with served_for(supervisor, Endpoint(0, "127.0.0.1"), said.append):
        work = asyncio.ensure_future(supervisor.run())
        yield Running(supervisor, said)
        supervisor._on_signal(signal.SIGTERM)
        assert await work == 0


@pytest.mark.feature("metrics/processes")
async def test_one_endpoint_shows_all_processes(running, monkeypatch):
    await running.until_up(2)
    found = await running.scrape()
    assert await running.lags() == running.pids
    for process in ("1", "2"):
        assert found["rocketstream_consumer_pull_seconds_sum", process] == 2.5
    assert found["rocketstream_run_restarts_total", ""] == 0

    stopped = running.pids["2"]
    os.kill(stopped, signal.SIGSTOP)
    monkeypatch.setattr(_run_metrics, "ANSWER_TIMEOUT", 0.3)
    try:
        assert list(await running.lags()) == ["1"], "who does not answer is left out"
    finally:
        os.kill(stopped, signal.SIGCONT)
    monkeypatch.setattr(_run_metrics, "ANSWER_TIMEOUT", 5.0)
    assert set(await running.lags()) == {"1", "2"}, "an answer that came too late is no trouble"

    os.kill(stopped, signal.SIGKILL)
    await eventually(lambda: running.pids.get("2") not in (None, stopped))
    await running.until_up(2)
    assert await running.lags() == running.pids
    assert (await running.scrape())["rocketstream_run_restarts_total", ""] == 1


async def test_an_answer_that_nobody_waits_for_is_forgotten():
    questions = Questions()
    written: list[bytes] = []
    asking = asyncio.ensure_future(questions.ask(written.append))
    await asyncio.sleep(0)
    questions.answered({"number": 99, "samples": []})
    assert written == [b'{"ask": "metrics", "number": 1}\n']
    questions.answered({"number": 1, "samples": []})
    questions.answered({"number": 1, "samples": []})
    assert await asking == []


async def test_a_process_that_is_gone_has_no_metrics():
    def gone(data: bytes) -> None:
        raise BrokenPipeError

    assert await Questions().ask(gone) == []


def test_one_process_serves_its_own_metrics():
    said: list[str] = []
    with served_here(Endpoint(0, "127.0.0.1"), said.append):
        (line,) = said
        url = line.removeprefix("metrics are at ")
        with urllib.request.urlopen(url, timeout=10) as answer:
            assert answer.status == 200
    with served_here(None, said.append):
        assert len(said) == 1


@pytest.mark.parametrize("processes", ["1", "2"])
def test_a_port_that_is_taken_is_one_sentence(processes, tmp_path):
    (tmp_path / "program.py").write_text(PROGRAM_TEXT)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        arguments = ["--processes", processes, "--metrics-port", port, "--metrics-address", "127.0.0.1"]
        done = subprocess.run(
            [*PROGRAM, "run", "program:consumer", *arguments],
            cwd=tmp_path,
            env=environment(),
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )
    assert done.returncode == 2
    assert re.fullmatch(
        rf"rocketstream: metrics cannot be served at 127\.0\.0\.1:{port}: .*[Aa]ddress already in use\n", done.stderr
    )
