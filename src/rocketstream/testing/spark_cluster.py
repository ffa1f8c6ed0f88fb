"""A standalone Spark for as long as a `with` block: a master and workers as processes of their own, on loopback.

    with SparkStandalone(workers=2) as cluster:
        builder = SparkSession.builder.master(cluster.master_url)
        for key, value in cluster.settings.items():
            builder = builder.config(key, value)
        spark = builder.getOrCreate()
        cluster.kill_executor()

It runs from the jars of the installed PySpark. It is ready when its master says so itself: when that lists each worker
as alive. Like a `RocketMQCluster` it never outlives the process that made it, not even one that was killed.
"""

from __future__ import annotations

import importlib.util
import json
import logging
import os
import shutil
import socket
import tempfile
import time
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from rocketstream.errors import RocketStreamError
from rocketstream.testing import ports
from rocketstream.testing.java import find_java
from rocketstream.testing.process import DirectoryGuard, GuardedProcess
from rocketstream.testing.process_tree import descendants, kill, python_workers

log = logging.getLogger(__name__)

_MASTER = "org.apache.spark.deploy.master.Master"
_WORKER = "org.apache.spark.deploy.worker.Worker"
_EXECUTOR = "CoarseGrainedExecutorBackend"
_ATTEMPTS = 3  # a port can be taken between our look and the master's
#: A JVM of a test has to be there soon and small. Spark would try the next ports when one is taken, and not tell us.
_SMALL_JVM = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:-UsePerfData"
_DAEMON_OPTIONS = f"{_SMALL_JVM} -Dspark.port.maxRetries=0 -Dspark.master.rest.enabled=false"


class SparkClusterError(RocketStreamError):
    """A part of the standalone Spark did not start or ended; the text ends with the tail of its log."""


class SparkDaemon:
    """The master or a worker: a process that can be killed and started again."""

    def __init__(self, name: str, directory: Path, command: Sequence[str], environment: Mapping[str, str]) -> None:
        self.name = name
        self.directory = directory
        self._command = command
        self._environment = environment
        self._process: GuardedProcess | None = None

    def __repr__(self) -> str:
        return f"<{self.name} {f'process {self.pid}' if self.alive else 'down'}>"

    @property
    def alive(self) -> bool:
        """Whether its process runs."""
        return self._process is not None and self._process.alive

    @property
    def pid(self) -> int | None:
        """The process id of its JVM while that runs."""
        return self._process.pid if self._process is not None and self._process.alive else None

    def launch(self) -> None:
        """Start the process without waiting for it to answer."""
        if self.alive:
            raise SparkClusterError(f"the {self.name} is already running (process {self.pid})")
        self.kill()
        self.directory.mkdir(parents=True, exist_ok=True)
        with (self.directory / "console.log").open("ab") as console:
            self._process = GuardedProcess(self._command, environment=self._environment, output=console)

    def kill(self) -> None:
        """End it by SIGKILL; returns when it is gone. A worker's executors see that and end by themselves."""
        if self._process is not None:
            self._process.kill()
            self._process.wait(30.0)
            self._process.close()
            self._process = None

    def log_tail(self, lines: int = 30) -> str:
        """The end of what it printed, and, of a worker, of what its executors did."""
        parts = []
        for path in (self.directory / "console.log", *sorted(self.directory.glob("app-*/*/stderr"))):
            if path.is_file() and (said := path.read_text(errors="replace").splitlines()[-lines:]):
                parts.append(f"--- {self.name}: the end of {path.relative_to(self.directory)}\n" + "\n".join(said))
        return "\n".join(parts) or f"--- the {self.name} has logged nothing"


class SparkWorker(SparkDaemon):
    """A worker, which starts executors for the applications that the master sends to it."""

    @property
    def executor_pids(self) -> list[int]:
        """The process ids of the executors that it runs now."""
        if self.pid is None:
            return []
        return [process.pid for process in descendants(self.pid) if _EXECUTOR in process.command]


class SparkStandalone:
    """A Spark master and its workers on free loopback ports.

    Each worker offers `cores` and `memory`. An application that uses `settings` gets one executor of `executor_memory`
    on each worker, and runs on the Python of this process. `environment` goes to the master and the workers on top of
    ours.
    """

    def __init__(
        self,
        workers: int = 2,
        cores: int = 1,
        memory: str = "1g",
        *,
        executor_memory: str = "512m",
        environment: Mapping[str, str] | None = None,
        start_timeout: float = 60.0,
    ) -> None:
        self.workers: list[SparkWorker] = []
        self._count, self._cores, self._memory = workers, cores, memory
        self._executor_memory = executor_memory
        self._environment = dict(environment or {})
        self._start_timeout = start_timeout
        self._master: SparkDaemon | None = None
        self._port = self._web_port = 0
        self._directory: Path | None = None
        self._directory_guard: DirectoryGuard | None = None

    def __repr__(self) -> str:
        if self._master is None:
            return "<SparkStandalone: not started>"
        return f"<SparkStandalone {self.master_url}: {', '.join(map(repr, [self._master, *self.workers]))}>"

    # --- what a test asks and does ----------------------------------------------------------------------------------

    @property
    def master(self) -> SparkDaemon:
        """The master's process."""
        if self._master is None:
            raise SparkClusterError("the Spark cluster is not started")
        return self._master

    @property
    def master_url(self) -> str:
        """What `SparkSession.builder.master` and `--master` take."""
        return f"spark://127.0.0.1:{self._port}"

    @property
    def settings(self) -> dict[str, str]:
        """Spark settings for an application on this cluster: its master, loopback, executors that fit the workers."""
        return {
            "spark.master": self.master_url,
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.ui.enabled": "false",
            "spark.executor.cores": str(self._cores),
            "spark.executor.memory": self._executor_memory,
            "spark.executor.extraJavaOptions": _SMALL_JVM,
            # Or the first job would run on the first executor alone.
            "spark.scheduler.minRegisteredResourcesRatio": "1.0",
            "spark.scheduler.maxRegisteredResourcesWaitingTime": "600s",
            "spark.cores.max": str(self._cores * self._count),
        }

    @property
    def executor_pids(self) -> list[int]:
        """The process ids of all executors that run now, worker by worker."""
        return [pid for worker in self.workers for pid in worker.executor_pids]

    @property
    def python_worker_pids(self) -> list[int]:
        """The process ids of the Python workers that executors have now, busy or waiting for a task."""
        return [pid for worker in self.workers if worker.pid is not None for pid in python_workers(worker.pid)]

    def kill_executor(self, index: int = 0) -> int:
        """End one executor (of all, in the order of `executor_pids`) by SIGKILL and return its process id.

        Its worker tells the master, which has a new one started for the application.
        """
        running = self.executor_pids
        if not -len(running) <= index < len(running):
            raise SparkClusterError(f"there is no executor {index}: {len(running)} run on {self!r}")
        kill([running[index]])
        return running[index]

    def state(self) -> dict[str, Any]:
        """What the master tells about itself, its workers and applications (its web page's JSON)."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self._web_port}/json/", timeout=10) as answer:
            told: dict[str, Any] = json.load(answer)
        return told

    def log_tail(self, lines: int = 30) -> str:
        """The end of every daemon's and executor's log."""
        return "\n".join(daemon.log_tail(lines) for daemon in self._daemons())

    # --- life -------------------------------------------------------------------------------------------------------

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def start(self) -> None:
        """Start the master and the workers, and return once the master lists every worker as alive."""
        if self._directory is not None:
            raise SparkClusterError("the Spark cluster is already started")
        home = _spark_home()
        self._directory = Path(tempfile.mkdtemp(prefix="rocketstream-spark-"))
        self._directory_guard = DirectoryGuard(self._directory)
        try:
            for attempt in range(1, _ATTEMPTS + 1):
                try:
                    return self._start_daemons(home, self._directory / str(attempt))
                except SparkClusterError:
                    if attempt == _ATTEMPTS or "BindException" not in self.log_tail(200):
                        raise
                log.warning("a port was taken before Spark could listen on it: once more")
                self._kill_daemons()
        except BaseException:
            self.close()
            raise

    def _start_daemons(self, home: Path, directory: Path) -> None:
        self._port, self._web_port = ports.reserve(), ports.reserve()
        spark_class = str(home / "bin" / "spark-class")
        place = ("--host", "127.0.0.1")
        self._master = SparkDaemon(
            "Spark master",
            directory / "master",
            [spark_class, _MASTER, *place, "--port", str(self._port), "--webui-port", str(self._web_port)],
            self._daemon_environment(home, directory / "master"),
        )
        # Workers who come too early ask again only after some seconds.
        self._master.launch()
        self._wait_until(lambda: _accepts(self._port), "the Spark master does not listen")
        for number in range(self._count):
            work = directory / f"worker-{number}"
            offer = (
                "--cores",
                str(self._cores),
                "--memory",
                self._memory,
                "--webui-port",
                "0",
                "--work-dir",
                str(work),
            )
            command = [spark_class, _WORKER, *place, *offer, self.master_url]
            self.workers.append(
                SparkWorker(f"Spark worker {number}", work, command, self._daemon_environment(home, work))
            )
            self.workers[-1].launch()
        self.wait_until_ready()

    def wait_until_ready(self) -> None:
        """Return once the master lists as many alive workers as run, for instance after one was started again."""

        def ready() -> bool:
            try:
                return int(self.state()["aliveworkers"]) >= sum(worker.alive for worker in self.workers)
            except (OSError, ValueError):  # a young master listens before it has its page, and answers with nothing
                return False

        self._wait_until(ready, "the Spark master does not list all workers")

    def _wait_until(self, condition: Callable[[], bool], otherwise: str) -> None:
        deadline = time.monotonic() + self._start_timeout
        while not condition():
            if dead := [daemon for daemon in self._daemons() if not daemon.alive]:
                raise SparkClusterError(f"the {dead[0].name} ended\n{dead[0].log_tail()}")
            if time.monotonic() > deadline:
                raise SparkClusterError(f"{otherwise} after {self._start_timeout:.0f} s\n{self.log_tail()}")
            time.sleep(0.05)

    def close(self) -> None:
        """End executors, workers and the master, and remove what they wrote."""
        self._kill_daemons()
        if self._directory is not None and self._directory_guard is not None:
            shutil.rmtree(self._directory, ignore_errors=True)
            self._directory_guard.dismiss()
        self._directory = self._directory_guard = None

    def _kill_daemons(self) -> None:
        orphans = [process.pid for worker in self.workers if worker.pid for process in descendants(worker.pid)]
        for daemon in reversed(self._daemons()):
            daemon.kill()
        kill(orphans)
        for port in (self._port, self._web_port):
            ports.release(port)
        self._master = None
        self.workers = []

    def _daemons(self) -> list[SparkDaemon]:
        return [] if self._master is None else [self._master, *self.workers]

    def _daemon_environment(self, home: Path, directory: Path) -> dict[str, str]:
        # Settings of a Spark that the user has elsewhere are not for this one.
        ours = {key: value for key, value in os.environ.items() if not key.startswith("SPARK_")}
        return {
            **ours,
            "SPARK_HOME": str(home),
            "JAVA_HOME": str(find_java().executable.resolve().parent.parent),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_LOCAL_DIRS": str(directory / "local"),
            "SPARK_DAEMON_MEMORY": "192m",
            "SPARK_DAEMON_JAVA_OPTS": _DAEMON_OPTIONS,
            **self._environment,
        }


def _spark_home() -> Path:
    """Where the installed PySpark has its jars; found without importing it."""
    found = importlib.util.find_spec("pyspark")
    if found is None or found.origin is None:
        raise SparkClusterError("a standalone Spark needs PySpark: pip install 'rocketstream[spark]'")
    home = Path(found.origin).parent
    if not (home / "bin" / "spark-class").exists():
        raise SparkClusterError(f"{home} has no bin/spark-class: pyspark-client has no jars, install pyspark instead")
    return home


def _accepts(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1.0).close()
    except OSError:
        return False
    return True
