"""One server of a real cluster: its directory, its command line, its process, its logs.

A node keeps its directory and its ports over any number of processes: what is killed comes back as the same server with
the same store, which is what a test of recovery needs.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Literal

from rocketstream.errors import RocketStreamError
from rocketstream.testing.jars import JarSet
from rocketstream.testing.java import Java
from rocketstream.testing.ports import BROKER_OFFSETS, NAME_SERVER_OFFSETS
from rocketstream.testing.process import Process

Profile = Literal["test", "benchmark"]

#: For tests a JVM has to be there soon and small; for benchmarks it has to be as fast as its users run it.
PROFILES: Mapping[Profile, Sequence[str]] = {
    "test": ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-XX:-UsePerfData", "-Xshare:auto"),
    "benchmark": ("-XX:+UseG1GC", "-XX:-UsePerfData"),
}
#: What RocketMQ reaches into and Java 17 closes unless told otherwise.
JAVA_17_DOORS = (
    "--add-exports=java.base/jdk.internal.ref=ALL-UNNAMED",
    "--add-opens=java.base/java.nio=ALL-UNNAMED",
    "--add-opens=java.base/sun.nio.ch=ALL-UNNAMED",
    "--add-opens=java.base/java.lang=ALL-UNNAMED",
)
_MAIN_CLASSES = {
    "name server": "org.apache.rocketmq.namesrv.NamesrvStartup",
    "broker": "org.apache.rocketmq.broker.BrokerStartup",
}
_LOGBACK_CHATTER = re.compile(r"\|-(INFO|WARN) in .*logback|JoranConfiguratorExt")
_PORT_TAKEN = ("Address already in use", "BindException")

#: (command, environment, file for what it prints): start it.
Launcher = Callable[[Sequence[str], Mapping[str, str], IO[bytes]], Process]


class ClusterError(RocketStreamError):
    """A node of a cluster did not start, ended or does not answer; the text ends with the tail of its logs."""


@dataclass(kw_only=True)
class Node:
    """A name server or broker that can be killed, stopped and started again on the same ports and store."""

    name: str
    role: Literal["name server", "broker"]
    port: int
    directory: Path
    java: Java
    jars: JarSet
    config: Mapping[str, str]
    heap: str
    jvm_options: Sequence[str]
    jvm_properties: Mapping[str, str]
    environment: Mapping[str, str]
    launcher: Launcher
    is_ready: Callable[[Node], bool]
    start_timeout: float = 60.0
    conf_files: Mapping[str, str] = field(default_factory=dict)
    broker_name: str = ""
    broker_id: int = 0
    process: Process | None = field(default=None, repr=False)

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def port_offsets(self) -> Sequence[int]:
        return BROKER_OFFSETS if self.role == "broker" else NAME_SERVER_OFFSETS

    @property
    def alive(self) -> bool:
        """Whether its process runs; that it answers is another question."""
        return self.process is not None and self.process.alive

    @property
    def pid(self) -> int | None:
        """The process id of its JVM while that runs."""
        return self.process.pid if self.process is not None and self.process.alive else None

    def start(self, timeout: float | None = None) -> None:
        """Start the process and return once it answers; a `ClusterError` shows the logs' tail if it does not."""
        self.launch()
        self.wait_until_ready(timeout)

    def stop(self, timeout: float = 60.0) -> None:
        """Ask it to shut down in order (SIGTERM) and wait; after `timeout` it is killed, and that is an error.

        A broker takes its time for it: about 5 s with RocketMQ 4.9.7, 15 to 30 s with 5.5.0.
        """
        if self.process is None:
            return
        self.process.terminate()
        in_order = self.process.wait(timeout)
        if not in_order:
            self.process.kill()
        self._forget_process()
        if not in_order:
            raise ClusterError(f"{self.name} did not stop within {timeout:.0f} s and was killed\n{self.log_tail()}")

    def kill(self) -> None:
        """End it as a power failure would (SIGKILL); returns when it is gone."""
        if self.process is not None:
            self.process.kill()
            self._forget_process()

    def restart(self, timeout: float | None = None) -> None:
        """Stop it in order if it runs, and start it again on the same ports and store."""
        self.stop()
        self.start(timeout)

    def _forget_process(self) -> None:
        assert self.process is not None
        self.process.wait(30.0)
        self.process.close()
        self.process = None

    # --- starting ---------------------------------------------------------------------------------------------------

    def launch(self) -> None:
        """Start the process without waiting for it to answer."""
        if self.alive:
            raise ClusterError(f"{self.name} is already running (process {self.pid})")
        if self.process is not None:
            self._forget_process()
        self._write_files()
        with (self.directory / "console.log").open("ab") as console:
            self.process = self.launcher(self._command(), self._environment(), console)

    def wait_until_ready(self, timeout: float | None = None) -> None:
        """Return once it answers; raise `ClusterError` as soon as its process ended, or after `timeout` seconds."""
        limit = self.start_timeout if timeout is None else timeout
        deadline = time.monotonic() + limit
        while not self.is_ready(self):
            if self.process is None or not self.process.alive:
                code = self.process.exit_code if self.process is not None else None
                raise ClusterError(f"{self.name} ({self.address}) ended with {code}\n{self.log_tail()}")
            if time.monotonic() > deadline:
                raise ClusterError(f"{self.name} ({self.address}) is not ready after {limit:.0f} s\n{self.log_tail()}")
            time.sleep(0.05)

    def _write_files(self) -> None:
        for place in ("conf", "home", "store"):
            (self.directory / place).mkdir(parents=True, exist_ok=True)
        lines = "".join(f"{key}={value}\n" for key, value in self.config.items())
        self._config_file.write_text(lines)
        for name, text in self.conf_files.items():
            file = self.directory / "conf" / name
            if not file.exists():  # RocketMQ itself may have changed it since
                file.write_text(text)
        # RocketMQ 4 insists on these two; RocketMQ 5 carries its own and ignores them.
        for log_name in ("namesrv", "broker"):
            (self.directory / "conf" / f"logback_{log_name}.xml").write_text(_LOGBACK.format(name=log_name))

    def _command(self) -> list[str]:
        properties = {"user.home": str(self.directory / "home"), **self.jvm_properties}
        return [
            str(self.java.executable),
            *JAVA_17_DOORS,
            *(f"-Xms{self.heap}", f"-Xmx{self.heap}"),
            *self.jvm_options,
            *(f"-D{key}={value}" for key, value in properties.items()),
            *("-cp", self.jars.classpath, _MAIN_CLASSES[self.role], "-c", str(self._config_file)),
        ]

    def _environment(self) -> dict[str, str]:
        inherited = {key: value for key, value in os.environ.items() if key != "NAMESRV_ADDR"}
        return {**inherited, **self.environment, "ROCKETMQ_HOME": str(self.directory)}

    @property
    def _config_file(self) -> Path:
        return self.directory / "conf" / f"{self.name}.conf"

    # --- logs -------------------------------------------------------------------------------------------------------

    def log_tail(self, lines: int = 30) -> str:
        """The end of what the process printed and of RocketMQ's own log file, for people who look for a cause."""
        return log_tail(self.name, self.log_files(), lines)

    def log_files(self) -> list[Path]:
        """What the process printed, and RocketMQ's main log file."""
        return log_files(self.role, self.directory)

    def failed_on_a_port(self) -> bool:
        """Whether it ended because somebody else has one of its ports."""
        return not self.alive and any(sign in self.log_tail(200) for sign in _PORT_TAKEN)


def log_files(role: Literal["name server", "broker"], directory: Path) -> list[Path]:
    """The log files of a node that has this directory."""
    logs = sorted((directory / "home").rglob("broker.log" if role == "broker" else "namesrv.log"))
    return [path for path in (directory / "console.log", *logs) if path.is_file()]


def log_tail(name: str, files: Sequence[Path], lines: int) -> str:
    """The last lines of a node's log files, without what the logging library says of itself."""
    parts = []
    for path in files:
        said = path.read_text(errors="replace").splitlines()
        tail = [line for line in said if line.strip() and not _LOGBACK_CHATTER.search(line)][-lines:]
        if tail:
            parts.append(f"--- {name}: the end of {path}\n" + "\n".join(tail))
    return "\n".join(parts) or f"--- {name} has logged nothing"


_LOGBACK = """<configuration>
  <appender name="file" class="ch.qos.logback.core.FileAppender">
    <file>${{user.home}}/logs/rocketmqlogs/{name}.log</file>
    <encoder><pattern>%d %p %t %c{{0}} - %m%n</pattern></encoder>
  </appender>
  <root level="INFO"><appender-ref ref="file"/></root>
</configuration>
"""
