"""The Spark consumer on Spark: workers that are killed, tasks that are cancelled, a program that is interrupted."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from rocketstream import ConsumeResult, StartFrom
from rocketstream.spark import SparkConsumer
from tests.bare_client import eventually
from tests.spark.consumer.conftest import Place
from tests.spark.consumer.journal import Concurrent, Journal

HERE = Path(__file__).parent


class Deadly(Concurrent):
    """Kills the process that runs it when it first meets `kill-…`."""

    def __call__(self, messages: Any, context: Any) -> Any:
        body = messages[0].body.decode()
        if body.startswith("kill") and not self.journal.count(body):
            self.journal.add(messages, context)
            os.kill(os.getpid(), signal.SIGKILL)
        if body.startswith("kill"):
            self.journal.add(messages, context)
            return ConsumeResult.SUCCESS
        return super().__call__(messages, context)


class Hangs:
    """Notes that it was called, and does not come back."""

    def __init__(self, journal: Journal) -> None:
        self.journal = journal

    def __call__(self, messages: Any, context: Any) -> Any:
        self.journal.add(messages, context)
        time.sleep(600)


class Opens:
    """Opens something that takes long, once per process."""

    def __init__(self, journal: Journal) -> None:
        self.journal = journal
        self._opened: list[int] = []

    async def __call__(self, messages: Any, context: Any) -> Any:
        if not self._opened:
            self._opened.append(os.getpid())
            self.journal.write(("opened", 0, "", 0, 0, os.getpid()))
        self.journal.add(messages, context)
        return ConsumeResult.SUCCESS


def consumer(spark: SparkSession, place: Place, listener: Any, **settings: Any) -> SparkConsumer:
    settings = {"start_from": StartFrom.FIRST, "consume_thread_min": 2, "consume_thread_max": 2, **settings}
    return SparkConsumer(spark, place.group, place.address, listener=listener, **settings).subscribe(place.topic)


def test_a_worker_that_is_killed_loses_nothing(spark, place, caplog):
    place.send("ok-0", "kill-1", "ok-2", "fail1-3")
    with consumer(spark, place, Deadly(place.journal)) as running:
        eventually(lambda: place.committed() == {0: 4})
        eventually(lambda: place.journal.count("fail1-3") >= 2)
        assert running.tasks.failed == 1
    bodies = place.journal.bodies()
    assert {body: bodies.count(body) >= 1 for body in ("ok-0", "ok-2")} == {"ok-0": True, "ok-2": True}
    assert bodies.count("kill-1") == 2
    assert "the messages of its 1 queues come again" in caplog.text


def test_a_shutdown_cancels_what_does_not_end(spark, place):
    place.send("ok-0")
    running = consumer(spark, place, Hangs(place.journal))
    running.start()
    eventually(lambda: place.journal.bodies() == ["ok-0"])
    running.shutdown(timeout=0.5)
    assert place.committed() == {0: 0}
    tracker = spark.sparkContext.statusTracker()
    eventually(lambda: not tracker.getActiveJobsIds())
    # The slot is free again.
    with consumer(spark, place, Concurrent(place.journal)):
        eventually(lambda: place.committed() == {0: 1})


def test_a_listener_lives_as_long_as_its_process(spark, place):
    with consumer(spark, place, Opens(place.journal), tasks=1) as running:
        for number in range(4):
            place.send(f"ok-{number}")
            eventually(lambda number=number: running.tasks.ended > number)
    lines = place.journal.lines()
    processes = {line.pid for line in lines}
    assert os.getpid() not in processes
    assert [line.pid for line in lines if line.body == "opened"] == sorted(processes, key=[x.pid for x in lines].index)
    assert len(lines) - len(processes) == 4


PROGRAM = """
import sys
from pathlib import Path
from pyspark.sql import SparkSession
from rocketstream import StartFrom
from rocketstream.spark import SparkConsumer
from tests.spark.consumer.journal import Concurrent, Journal

address, group, topic, journal = sys.argv[1:]
spark = (
    SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").config("spark.driver.memory", "512m")
    .config("spark.driver.bindAddress", "127.0.0.1").config("spark.driver.host", "127.0.0.1").getOrCreate()
)
consumer = SparkConsumer(
    spark, group, address, listener=Concurrent(Journal(Path(journal))), start_from=StartFrom.FIRST
).subscribe(topic)
consumer.run()
print("ended well", consumer.state.value)
spark.stop()
"""


@pytest.fixture
def program(place: Place) -> Iterator[subprocess.Popen[str]]:
    arguments = [sys.executable, "-c", PROGRAM, place.address, place.group, place.topic, str(place.journal.path)]
    environment = {**os.environ, "PYSPARK_PYTHON": sys.executable, "PYTHONPATH": str(HERE.parents[2])}
    process = subprocess.Popen(
        arguments, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


@pytest.mark.slow(20, "starts a Spark of its own")
def test_ctrl_c_is_a_clean_end(place, program):
    place.send(*(f"ok-{number}" for number in range(20)))
    eventually(lambda: len(place.journal.lines()) == 20, 9000)  # a second Spark starts meanwhile
    # As a terminal does: to every process that it started.
    os.killpg(program.pid, signal.SIGINT)
    out, errors = program.communicate(timeout=100)
    assert (program.returncode, out) == (0, "ended well SHUTDOWN_ALREADY\n"), errors
    assert place.committed() == {0: 20}
    assert place.admin.consumers(place.group).members == ()
    assert "Traceback" not in errors
