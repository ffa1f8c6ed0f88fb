"""A Spark driver in a process of its own, which a test tells what to do and may kill: `python -m tests.spark.driving`.

There is one JVM per Python process, and the `spark` fixture has it; and a driver that is killed must not be pytest. The
driver reads a line of JSON for each call (a function of a module of ours, and its arguments), runs it with its session,
and answers with a line of JSON.
"""

from __future__ import annotations

import importlib
import json
import os
import select
import sys
import time
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self

from rocketstream.testing.process import GuardedProcess
from rocketstream.testing.process_tree import descendants, kill, python_workers
from tests.bare_client import eventually
from tests.spark.home import jvm_options, spark_home

ROOT = Path(__file__).parents[2]
QUIET = {
    "spark.ui.enabled": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.memory": "512m",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.session.timeZone": "UTC",
    "spark.executorEnv.PYTHONPATH": str(ROOT),
}


class CallFailed(AssertionError):
    """A call raised in the driver; the text is its traceback there."""


class Driver:
    """The process; calls run in it one after the other."""

    def __init__(self, log: Path, settings: Mapping[str, str]) -> None:
        self._log = log
        environment = {
            **{key: value for key, value in os.environ.items() if not key.startswith(("SPARK_", "PYSPARK_"))},
            "PYTHONPATH": str(ROOT),
            "PYSPARK_PYTHON": sys.executable,
            "SPARK_HOME": str(spark_home()),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_SUBMIT_OPTS": jvm_options(),
        }
        with log.open("ab") as output:
            self._process = GuardedProcess(
                [sys.executable, "-m", "tests.spark.driving", json.dumps({**QUIET, **settings})],
                environment=environment,
                output=output,
                piped=True,
            )
        self._answer("the session")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def call(self, function: Callable[..., Any], /, **arguments: Any) -> Any:
        """Run `function(spark, **arguments)` there and return its answer; its error is a `CallFailed`."""
        return self.begin(function, **arguments)()

    def begin(self, function: Callable[..., Any], /, **arguments: Any) -> Callable[[], Any]:
        """Begin a call, and return what waits for its answer."""
        name = f"{function.__module__}:{function.__qualname__}"
        self._process.stdin.write(json.dumps([name, arguments]).encode() + b"\n")
        self._process.stdin.flush()
        return lambda: self._answer(name)

    def _answer(self, what: str) -> Any:
        line = self._process.stdout.readline()
        assert line, f"the driver ended before {what} was answered\n{self.log}"
        answer = json.loads(line)
        if "error" in answer:
            raise CallFailed(answer["error"])
        return answer["value"]

    def wait_until(self, condition: Callable[[], object], timeout: float = 480.0) -> None:
        """Wait for what a call that was begun does in its own time; that it ends before is a failure, told at once."""
        deadline = time.monotonic() + timeout
        while not condition():
            ended, _, _ = select.select([self._process.stdout], [], [], 0.05)
            if ended:
                raise AssertionError(f"ended before what was waited for: {self._answer('the call')}\n{self.log}")
            assert time.monotonic() < deadline, f"not within {timeout:.0f} s\n{self.log}"

    @property
    def python_worker_pids(self) -> list[int]:
        """Its own Python workers, which run tasks when its master is `local`."""
        return python_workers(self._process.pid)

    def kill(self) -> None:
        """End it and its JVM by SIGKILL, at once; returns when nothing of it is left."""
        below = descendants(self._process.pid)
        java = [process.pid for process in below if "org.apache.spark.deploy.SparkSubmit" in process.command]
        assert java, f"a driver without a JVM\n{self.log}"
        kill([*java, self._process.pid])
        self._process.wait(30.0)
        self._process.close()
        # Python workers see that nobody reads them any more and end by themselves; one may have sent more until then.
        eventually(lambda: not any(map(_alive, (process.pid for process in below))))

    def close(self) -> None:
        """Let it stop its session, and end it."""
        if self._process.alive:
            self._process.stdin.close()
            self._process.wait(60.0)
        self._process.close()

    @property
    def log(self) -> str:
        """The end of what it logged."""
        return self._log.read_text(errors="replace")[-6000:]


class Drivers:
    """One driver at a time: started when it is needed, killed when a test says so, and then started anew."""

    def __init__(self, logs: Path, settings: Mapping[str, str]) -> None:
        self._logs = logs
        self._settings = settings
        self._driver: Driver | None = None
        self._count = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def current(self) -> Driver:
        """The driver that runs, or a new one."""
        if self._driver is None:
            self._count += 1
            self._driver = Driver(self._logs / f"driver-{self._count}.log", self._settings)
        return self._driver

    def kill(self) -> None:
        """End the one that runs by SIGKILL."""
        assert self._driver is not None
        self._driver.kill()
        self._driver = None

    def close(self) -> None:
        """Let the one that runs end in order."""
        if self._driver is not None:
            self._driver.close()
            self._driver = None


def _alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


# --- in the driver's process ------------------------------------------------------------------------------------------


def main() -> None:
    # What else is printed here is for the log, not for the test.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    from pyspark.sql import SparkSession

    builder = SparkSession.builder
    for key, value in json.loads(sys.argv[1]).items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    say(answers, {"value": "up"})
    for line in sys.stdin:
        name, arguments = json.loads(line)
        module, _, function = name.partition(":")
        try:
            answer = {"value": getattr(importlib.import_module(module), function)(spark, **arguments)}
        except Exception:
            answer = {"error": traceback.format_exc()}
        say(answers, answer)
    spark.stop()


def say(answers: IO[str], answer: dict[str, Any]) -> None:
    answers.write(json.dumps(answer) + "\n")
    answers.flush()


if __name__ == "__main__":
    main()
