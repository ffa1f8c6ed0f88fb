"""The commands as processes: without a cluster, interrupted, and with nobody left to read what they print."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable

import pytest

# What is said on a terminal does not depend on the broker; the embedded one is shown by test_operate.
pytestmark = pytest.mark.rocketmq_real

PROGRAM = [sys.executable, "-c", "from rocketstream.cli import main; main()"]

Command = Callable[..., subprocess.CompletedProcess[str]]


def environment(**others: str) -> dict[str, str]:
    # Unbuffered output would hide what happens to a buffer that nobody reads.
    unwanted = ("NAMESRV_ADDR", "COLUMNS", "PYTHONUNBUFFERED")
    kept = {name: value for name, value in os.environ.items() if name not in unwanted}
    return {**kept, **others}


@pytest.fixture
def rocketstream() -> Command:
    def run(*arguments: str, stdin: str = "", **variables: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*PROGRAM, *arguments],
            env=environment(**variables),
            input=stdin,
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )

    return run


@pytest.mark.parametrize(
    "arguments",
    [
        ["topics"],
        ["topic", "create", "t"],
        ["topic", "delete", "t"],
        ["topic", "route", "t"],
        ["groups"],
        ["lag", "g"],
        ["reset", "g", "t", "--to", "latest"],
        ["messages", "t"],
        ["consume", "t"],
        ["produce", "t", "--body", "x"],
    ],
    ids=" ".join,
)
def test_without_a_name_server(rocketstream, arguments):
    done = rocketstream(*arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == (
        "rocketstream: no name server is given: use -n HOST:PORT (for example -n 127.0.0.1:9876) or set $NAMESRV_ADDR\n"
    )


@pytest.mark.parametrize("arguments", [["topics"], ["messages", "t"], ["lag", "g"], ["produce", "t", "--body", "x"]])
def test_with_a_name_server_that_is_dead(rocketstream, arguments):
    with socket.create_server(("127.0.0.1", 0)) as once:
        nobody = f"127.0.0.1:{once.getsockname()[1]}"
    done = rocketstream(*arguments, NAMESRV_ADDR=nobody)
    assert (done.returncode, done.stdout) == (1, "")
    (sentence,) = done.stderr.splitlines()
    assert sentence.startswith("rocketstream: ")
    assert nobody in sentence


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["topics", "--nonsense"], "No such option: --nonsense"),
        (["lag"], "Missing argument 'GROUP'"),
        (["messages", "t", "--limit", "0"], "Invalid value for '--limit'"),
        (["produce", "t", "--file", "/no/such/file"], "Invalid value for '--file'"),
        (["topic", "sideways"], "No such command 'sideways'"),
    ],
)
def test_with_a_wrong_option(rocketstream, arguments, problem):
    done = rocketstream(*arguments, NAMESRV_ADDR="127.0.0.1:1")
    assert done.returncode == 2
    assert problem in done.stderr
    assert "Traceback" not in done.stderr


def test_ctrl_c_while_it_loads(rocketstream):
    impatient = """
import sys

class Impatient:
    def find_spec(self, name, *_):
        if name == "typer":
            raise KeyboardInterrupt

sys.meta_path.insert(0, Impatient())
from rocketstream.cli import main
main()
"""
    done = subprocess.run([sys.executable, "-c", impatient], capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")


def test_ctrl_c_ends_a_consumer_cleanly(rocketmq_cluster, client, topic):
    client.send(topic, b"the only one")
    with subprocess.Popen(
        [*PROGRAM, "consume", topic, "--from", "earliest", "-n", rocketmq_cluster.name_server_address],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment(),
        text=True,
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        assert process.stdout.readline() == "    the only one\n"
        process.send_signal(signal.SIGINT)
        rest, problems = process.communicate(timeout=30)
    assert (process.returncode, rest, problems) == (130, "", "1 message\n")


def test_ctrl_c_ends_a_watch_cleanly(rocketmq_cluster, client, topic, unique_group):
    from tests.bare_client import BareConsumer

    client.instance.register_consumer(BareConsumer(unique_group, topic))
    client.run(client.instance.heartbeat())
    with subprocess.Popen(
        [*PROGRAM, "lag", unique_group, "--watch", "--json", "--interval", "0.1"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment(NAMESRV_ADDR=rocketmq_cluster.name_server_address),
        text=True,
    ) as process:
        assert process.stdout is not None
        assert all(unique_group in process.stdout.readline() for _ in range(2))
        process.send_signal(signal.SIGINT)
        _, problems = process.communicate(timeout=30)
    assert (process.returncode, problems) == (130, "")


@pytest.mark.parametrize("form", [[], ["--json"]], ids=["text", "json"])
def test_a_reader_that_has_seen_enough(rocketmq_cluster, client, topic, form):
    """`| head -1`: no traceback, no complaint at the interpreter's end."""
    for number in range(20):
        client.send(topic, b"%05d" % number * 4000)
    with subprocess.Popen(
        [*PROGRAM, "messages", topic, *form, "-n", rocketmq_cluster.name_server_address],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment(),
        text=True,
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline()
        process.stdout.close()
        problems = process.stderr.read()
        process.wait(timeout=30)
    assert (process.returncode, problems) == (1, "")


@pytest.mark.parametrize("form", [[], ["--json"]], ids=["text", "json"])
def test_a_reader_that_has_gone_before(rocketmq_cluster, topic, form):
    """Little output stays in Python's buffer, which the interpreter tries to write once more at its end."""
    nobody_reads, out = os.pipe()
    os.close(nobody_reads)
    try:
        done = subprocess.run(
            [*PROGRAM, "topics", *form, "-n", rocketmq_cluster.name_server_address],
            stdout=out,
            stderr=subprocess.PIPE,
            env=environment(),
            text=True,
            check=False,
            timeout=60,
        )
    finally:
        os.close(out)
    assert (done.returncode, done.stderr) == (1, "")


def test_letters_that_the_terminal_has_not(rocketmq_cluster, client, topic):
    client.send(topic, "größer 数".encode())
    done = subprocess.run(
        [*PROGRAM, "messages", topic, "-n", rocketmq_cluster.name_server_address],
        env=environment(PYTHONIOENCODING="ascii"),
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines()[1] == r"    gr\xf6\xdfer \u6570"
