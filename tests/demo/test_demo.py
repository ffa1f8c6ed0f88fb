"""`rocketstream demo` as a person and a script meet it: whole, without Spark, interrupted, with things missing."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rocketstream.testing.plugin import EMBEDDED, chosen_targets, require_real
from tests.bare_client import eventually

PROGRAM = [sys.executable, "-m", "rocketstream", "demo"]

Demo = Callable[..., subprocess.CompletedProcess[str]]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "target" in metafunc.fixturenames:
        targets = chosen_targets(metafunc.config, metafunc.definition)
        metafunc.parametrize("target", [target for target in targets if target in (EMBEDDED, "5.5.0")])


@pytest.fixture
def demo(tmp_path: Path) -> Demo:
    """Run the command in a directory of its own."""

    def run(*arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*PROGRAM, *arguments],
            cwd=tmp_path,
            env={**os.environ, **variables},
            capture_output=True,
            text=True,
            check=False,
            timeout=400,
        )

    return run


@pytest.mark.timeout(420)
@pytest.mark.slow(60, "runs a broker, consumers and Spark")
@pytest.mark.long(100, "runs the demo on a cluster of its own", real=True)
def test_the_whole_demo_adds_up(demo: Demo, target: str, tmp_path: Path) -> None:
    if target != EMBEDDED:
        require_real(target)
    ended = demo("--messages", "2000", "--json", *(() if target == EMBEDDED else ("--cluster", target)))
    assert ended.returncode == 0, ended.stderr
    said: dict[str, Any] = json.loads(ended.stdout)
    assert said["ok"] is True
    assert [one["title"] for one in said["checks"] if not one["holds"]] == []
    assert len(said["checks"]) == 12
    assert (said["produced"], said["billed"], said["dead_letters"]) == (2_000, 1_942, 18)
    assert said["pipeline"]["orders"] == 1_950
    assert said["pipeline"]["unreadable"] == 10
    assert said["pipeline"]["duplicates_dropped"] == 40
    # Nothing of Spark's noise.
    assert "WARN" not in ended.stderr
    assert "Exception" not in ended.stderr
    page = (tmp_path / "rocketstream-demo" / "report.html").read_text("utf-8")
    assert "Everything adds up: all 12 checks hold." in page
    assert ("the embedded broker" if target == EMBEDDED else f"RocketMQ {target}") in page


@pytest.mark.slow(12, "runs most of the demo")
def test_without_spark_it_shows_the_rest(demo: Demo, tmp_path: Path) -> None:
    nothing = str(tmp_path / "nothing")
    report = tmp_path / "deep" / "er" / "page.html"
    ended = demo("--no-spark", "--messages", "300", "--report", str(report), PATH=nothing, JAVA_HOME="")
    assert ended.returncode == 0, ended.stderr
    assert "Everything adds up: all 6 checks hold." in ended.stdout
    assert str(report) in ended.stdout
    assert "all 6 checks hold" in report.read_text("utf-8")


def test_without_java_one_sentence_says_what_to_do(demo: Demo, tmp_path: Path) -> None:
    ended = demo(PATH=str(tmp_path / "nothing"), JAVA_HOME="")
    assert ended.returncode == 2
    assert ended.stdout == ""
    assert ended.stderr.startswith("rocketstream: Java 17 or newer is needed for Spark")
    assert "rocketstream demo --no-spark" in ended.stderr
    assert ended.stderr.count("\n") == 1


def test_without_pyspark_one_sentence_says_what_to_do(demo: Demo, tmp_path: Path) -> None:
    (tmp_path / "pyspark.py").write_text("raise ModuleNotFoundError('No module named pyspark', name='pyspark')")
    ended = demo(PYTHONPATH=str(tmp_path))
    assert ended.returncode == 2
    assert "pyspark is not installed: pip install 'rocketstream[spark]'" in ended.stderr
    assert "rocketstream demo --no-spark" in ended.stderr
    assert ended.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--messages", "7"], "--messages 7 must be from 100 to 1000000"),
        (["--report", "."], "is a directory"),
    ],
    ids=["messages", "report"],
)
def test_wrong_arguments_are_one_sentence(demo: Demo, arguments: list[str], sentence: str) -> None:
    ended = demo(*arguments)
    assert ended.returncode == 2
    assert sentence in ended.stderr
    assert "Traceback" not in ended.stderr


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.slow(12, "runs the demo until its first orders are billed")
def test_an_interrupted_demo_ends_with_what_it_has(tmp_path: Path, number: int) -> None:
    with (tmp_path / "said").open("w+") as said:
        process = subprocess.Popen(
            [*PROGRAM, "--no-spark", "--json"], cwd=tmp_path, stdout=subprocess.PIPE, stderr=said, text=True
        )
        try:
            # A line of progress: then some orders have been billed.
            eventually(lambda: "billed" in (tmp_path / "said").read_text())
            process.send_signal(number)
            out, _ = process.communicate(timeout=60)
        finally:
            process.kill()
            process.communicate()
    assert process.returncode == 130
    document = json.loads(out)
    assert (document["complete"], document["ok"], document["checks"]) == (False, False, [])
    assert document["billed"] > 0
    assert "not complete" in (tmp_path / "rocketstream-demo" / "report.html").read_text("utf-8")
