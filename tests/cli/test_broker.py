"""`rocketstream broker` as a person, a script and a service manager meet it."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from rocketstream import AdminClient, Message, Producer
from rocketstream.remoting.acl import Credentials
from tests.cli.test_processes import PROGRAM, environment

Start = Callable[..., "Running"]


class Running:
    """The command as a process, up to the line that says that it is ready."""

    def __init__(self, arguments: list[str], directory: Path, **variables: str) -> None:
        self._problems = (directory / "problems").open("w+")
        self.process = subprocess.Popen(
            [*PROGRAM, "broker", *arguments],
            cwd=directory,
            env=environment(**variables),
            stdout=subprocess.PIPE,
            stderr=self._problems,
            text=True,
        )

    def line(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline()

    def end(self, number: int = signal.SIGINT) -> tuple[int, str]:
        """Its exit code and what it said until then."""
        self.process.send_signal(number)
        said, _ = self.process.communicate(timeout=60)
        return self.process.returncode, said

    @property
    def problems(self) -> str:
        self._problems.seek(0)
        return self._problems.read()

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.communicate()
        self._problems.close()


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    with ExitStack() as stack:

        def start(*arguments: str, **variables: str) -> Running:
            running = Running(list(arguments), tmp_path, **variables)
            stack.callback(running.close)
            return running

        yield start


def test_a_screen_that_says_where_it_is_and_how_to_try_it(start):
    running = start("--port", "0")
    said = running.line()
    while "rocketstream produce" not in said:
        line = running.line()
        assert line, said
        said += line
    address = said.partition("name server")[2].split()[0]
    with Producer("p", address) as producer:
        producer.send(Message("hello", b"x"))
    assert f"rocketstream produce hello -n {address} --body" in said
    assert f"rocketstream consume hello -n {address}" in said
    assert "in memory" in said
    assert "one node" in said
    code, rest = running.end()
    assert (code, rest.strip()) == (0, "Stopping.")
    assert running.problems == ""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_json_for_scripts_and_what_is_kept(start, tmp_path, number):
    told = json.loads((running := start("--port", "0", "--data", "kept", "--json")).line())
    assert told.keys() == {"name_server", "broker", "data"}
    assert told["data"] == str(tmp_path / "kept")
    with Producer("p", told["name_server"]) as producer:
        producer.send(Message("hello", b"x"))
    assert running.end(number) == (0, "")
    told = json.loads(start("--port", "0", "--data", "kept", "--json").line())
    with AdminClient(told["name_server"]) as admin:
        assert [message.body for message in admin.peek("hello")] == [b"x"]


def test_a_port_that_is_taken(start):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        running = start("--port", str(taken.getsockname()[1]))
        assert running.process.wait(60) == 1
    assert "is taken, so the name server cannot listen there" in running.problems
    assert "Traceback" not in running.problems


def test_a_directory_that_another_one_has(start):
    start("--port", "0", "--data", "kept", "--json").line()
    second = start("--port", "0", "--data", "kept")
    assert second.process.wait(60) == 1
    assert "kept" in second.problems
    assert "Traceback" not in second.problems


def test_settings_reach_it(start):
    running = start("--port", "0", "--json", "--no-auto-create", "--broker-name", "mine", "--cluster-name", "ours")
    told = json.loads(running.line())
    with AdminClient(told["name_server"]) as admin:
        (broker,) = admin.cluster().brokers
        assert (broker.broker_name, broker.cluster) == ("mine", "ours")
        assert admin.broker_config(told["broker"])["autoCreateTopicEnable"] == "false"


def test_for_everybody_without_a_key_is_warned_of_and_with_one_is_not(start):
    running = start("--port", "0", "--host", "0.0.0.0", "--json")
    running.line()
    running.end()
    assert "Everybody who reaches 0.0.0.0 may read, send and delete" in running.problems.replace("\n", " ")
    keys = {"ROCKETMQ_ACCESS_KEY": "anna", "ROCKETMQ_SECRET_KEY": "secret"}
    running = start("--port", "0", "--host", "0.0.0.0", "--json", **keys)
    told = json.loads(running.line())
    with AdminClient(told["name_server"], credentials=Credentials("anna", "secret")) as admin:
        admin.create_topic("hello")
    running.end()
    assert running.problems == ""


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (["--access-key", "anna"], "--access-key and --secret-key belong together"),
        (["--key", sys.executable], "--key needs --certificate"),
        (["--certificate", __file__], "--certificate"),
        (["--flush", "never"], "--flush"),
    ],
)
def test_wrong_arguments(start, arguments, why):
    running = start("--port", "0", *arguments)
    assert running.process.wait(60) == 2
    assert why in running.problems
