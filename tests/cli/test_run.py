"""`rocketstream run`: consumers as programs, in real processes, on the real brokers."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from rocketstream import AdminClient
from tests.cli.test_processes import PROGRAM, environment
from tests.testing.processes import eventually, exists

# What is said on a terminal does not depend on the broker: one test with the embedded one is enough.
real = pytest.mark.rocketmq_real

PATIENCE = 90.0

SHOP = """
    import os
    import threading
    from rocketstream import ConsumeResult, PushConsumer, StartFrom

    def note(text):
        with open("notes", "a") as notes:
            notes.write(text + "\\n")

    def handle(messages, context):
        for message in messages:
            note(f"{os.getpid()} {message.body.decode()}")
        return ConsumeResult.SUCCESS

    def block(messages, context):
        note(f"{os.getpid()} blocked")
        threading.Event().wait()

    def make(listener=handle):
        consumer = PushConsumer(os.environ["GROUP"], listener=listener, start_from=StartFrom.FIRST)
        consumer.subscribe(os.environ["TOPIC"])
        return consumer

    def blocking():
        return make(block)

    async def looping():
        from rocketstream import aio

        async def listen(messages, context):
            return handle(messages, context)

        consumer = aio.PushConsumer(os.environ["GROUP"], listener=listen, start_from=StartFrom.FIRST)
        await consumer.subscribe(os.environ["TOPIC"])
        return consumer

    async def mixed_up():
        return make()

    class Quiet(PushConsumer):
        # For what needs processes and no broker.
        def start(self):
            note(f"{os.getpid()} started")

        def shutdown(self, timeout=None):
            note(f"{os.getpid()} ended within {timeout}")

    quiet = Quiet("quiet")
    number = 42
"""


class Program:
    """`rocketstream run` in a directory with the module `shop`, and what it says."""

    def __init__(self, directory: Path, arguments: list[str], **variables: str) -> None:
        self._notes, self._said = directory / "notes", directory / "said"
        with self._said.open("wb") as said:
            self.process = subprocess.Popen(
                [*PROGRAM, "run", *arguments], cwd=directory, env=environment(**variables), stdout=said, stderr=said
            )

    @property
    def said(self) -> str:
        return self._said.read_text()

    @property
    def notes(self) -> list[tuple[int, str]]:
        """What the consumers noted, each with its process."""
        lines = self._notes.read_text().splitlines() if self._notes.exists() else []
        return [(int(line.split(" ", 1)[0]), line.split(" ", 1)[1]) for line in lines]

    @property
    def noted(self) -> set[str]:
        return {text for _, text in self.notes}

    def pids(self) -> dict[str, int]:
        """The processes that said they were up, the last of each number."""
        up = [line.split() for line in self.said.splitlines() if line.endswith("is up")]
        return {words[1]: int(words[3].rstrip(")")) for words in up}

    def until(self, condition: Callable[[], object]) -> None:
        assert eventually(lambda: bool(condition()), PATIENCE), (self.said, self.notes[-10:], self.process.poll())

    def end(self, number: int | None = None) -> int:
        """Send it a signal, and return its exit code."""
        if number is not None:
            self.process.send_signal(number)
        return self.process.wait(PATIENCE)


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Program]]:
    """Start programs; whatever of them is left at the end is killed."""
    (tmp_path / "shop.py").write_text(textwrap.dedent(SHOP))
    programs: list[Program] = []

    def start(*arguments: str, **variables: str) -> Program:
        programs.append(Program(tmp_path, list(arguments), **variables))
        return programs[-1]

    yield start
    for program in programs:
        if program.process.poll() is None:
            program.process.kill()
            program.process.wait(PATIENCE)
        for pid in program.pids().values():
            if exists(pid):
                os.kill(pid, signal.SIGKILL)


# --- on real brokers -------------------------------------------------------------------------------------------------


@pytest.fixture
def shop(rocketmq_cluster, client, broker, unique_topic, unique_group) -> dict[str, str]:
    """What the module `shop` needs to know of the cluster; its topic has four queues."""
    client.create_topic(broker, unique_topic, queues=4)
    return {"NAMESRV_ADDR": rocketmq_cluster.name_server_address, "TOPIC": unique_topic, "GROUP": unique_group}


def members(shop: dict[str, str]) -> int:
    with AdminClient(shop["NAMESRV_ADDR"]) as admin:
        return len(admin.consumers(shop["GROUP"]).members)


@pytest.mark.feature("processes/run")
@pytest.mark.slow(12, "starts several processes")
def test_processes_share_the_queues_and_a_dead_one_is_replaced(start, shop, client):
    topic = shop["TOPIC"]
    program = start("shop:make", "--processes", "2", **shop)
    program.until(lambda: len(program.pids()) == 2)
    sent = 0

    def both_get_some() -> bool:
        """Queues are shared out anew while we look, so there is a message for each queue until both had one."""
        nonlocal sent
        for queue_id in range(4):
            client.send(topic, b"%d" % sent, queue_id=queue_id)
            sent += 1
        return {pid for pid, _ in program.notes} >= set(program.pids().values())

    program.until(both_get_some)
    killed = program.pids()["2"]
    os.kill(killed, signal.SIGKILL)
    program.until(lambda: program.pids()["2"] != killed)
    assert f"process 2 (pid {killed}) was killed by SIGKILL; started again in 1 s" in program.said
    program.until(both_get_some)
    program.until(lambda: program.noted >= {str(number) for number in range(sent)})

    assert program.end(signal.SIGTERM) == 0, program.said
    assert not any(exists(pid) for pid in program.pids().values())
    assert "Traceback" not in program.said
    assert members(shop) == 0
    with AdminClient(shop["NAMESRV_ADDR"]) as admin:
        assert admin.consumer_progress(shop["GROUP"], topic=topic).lag == 0


@pytest.mark.parametrize("target", ["shop:make", "shop:looping"])
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=lambda number: number.name)
@real
def test_one_process_is_the_process_itself(start, shop, client, target, number):
    client.send(shop["TOPIC"], b"the only one")
    program = start(target, **shop)
    program.until(lambda: program.notes == [(program.process.pid, "the only one")])
    assert program.end(number) == 0
    assert "Traceback" not in program.said
    assert f"consumer of group '{shop['GROUP']}' has been shut down" in program.said
    assert members(shop) == 0


@real
def test_what_keeps_it_from_starting_is_one_sentence(start, shop):
    program = start("shop:make", **{**shop, "TOPIC": "there-is-no-such-topic"}, PYTHONWARNINGS="error")
    assert program.end() == 1
    (sentence,) = [line for line in program.said.splitlines() if line.startswith("rocketstream: ")]
    assert "topic 'there-is-no-such-topic' has no route" in sentence
    assert "Traceback" not in program.said


@pytest.mark.parametrize("processes", ["1", "2"])
@real
def test_a_second_ctrl_c_does_not_wait_for_listeners(start, shop, client, processes):
    for queue_id in range(4):
        client.send(shop["TOPIC"], b"blocks", queue_id=queue_id)
    program = start("shop:blocking", "--processes", processes, "--log-level", "debug", **shop)
    program.until(lambda: program.notes)
    program.process.send_signal(signal.SIGINT)
    ends = {"1": "the consumer ends; its listeners get 30 s", "2": "SIGINT: the processes end; a second Ctrl-C kills"}
    program.until(lambda: ends[processes] in program.said)
    program.process.send_signal(signal.SIGTERM)  # that is no second Ctrl-C
    assert program.process.poll() is None

    def pressed_again() -> bool:
        """One that comes within a second is still the first; when it has been heard, that is enough."""
        if "is killed: a second Ctrl-C" in program.said or program.process.poll() is not None:
            return True
        program.process.send_signal(signal.SIGINT)
        return False

    program.until(pressed_again)
    assert program.end() == 130
    assert not any(exists(pid) for pid in program.pids().values())


@real
def test_listeners_get_no_longer_than_they_are_given(start, shop, client):
    client.send(shop["TOPIC"], b"blocks")
    program = start("shop:blocking", "--shutdown-timeout", "0.1", **shop)
    program.until(lambda: program.notes)
    assert program.end(signal.SIGTERM) == 0, program.said
    assert "listeners still run after 0.1 s; what they have not finished comes again" in program.said


# --- without one -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("processes", ["1", "2"])
@pytest.mark.parametrize(
    ("target", "problem"),
    [
        ("shop", "'shop' must be MODULE:CONSUMER, for example shop.billing:consumer"),
        ("shop:", "'shop:' must be MODULE:CONSUMER"),
        ("nowhere:consumer", "there is no module 'nowhere', neither in "),
        ("shop.nowhere:consumer", "there is no module 'shop.nowhere', neither in "),
        ("shop:nothing", "'shop:nothing': module 'shop' has no attribute 'nothing'"),
        ("shop:number", "'shop:number' is no PushConsumer, nor a function that returns one, but 42"),
        ("shop:handle", "'shop:handle' is no PushConsumer, nor a function without arguments that returns one, but"),
        ("shop:Quiet", "'shop:Quiet' is no PushConsumer, nor a function without arguments that returns one, but"),
        ("shop:mixed_up", "'shop:mixed_up' is an `async def`: it must return a rocketstream.aio.PushConsumer"),
        ("started:consumer", "'started:consumer' is RUNNING already: `rocketstream run` starts it"),
    ],
)
def test_a_wrong_target_is_wrong_usage(start, tmp_path, target, problem, processes):
    (tmp_path / "started.py").write_text(
        "import shop\nfrom rocketstream.cluster.client import ClientState\n"
        "consumer = shop.quiet\nconsumer.core.state = ClientState.RUNNING\n"
    )
    program = start(target, "--processes", processes, GROUP="g", TOPIC="t")
    assert program.end() == 2
    (sentence,) = program.said.splitlines()
    assert sentence.startswith(f"rocketstream: {problem}")


@pytest.mark.parametrize("arguments", [["--processes", "0"], ["--log-level", "loud"], ["--shutdown-timeout", "-1"]])
def test_a_wrong_option_is_wrong_usage(start, arguments):
    program = start("shop:quiet", *arguments)
    assert program.end() == 2
    assert f"Invalid value for '{arguments[0]}'" in program.said.replace("' /", "'").replace("'-p", "'--processes")


def test_a_mistake_of_the_program_is_shown_where_it_was_made(start, tmp_path):
    (tmp_path / "broken.py").write_text("import this_is_not_installed\n")
    program = start("broken:consumer")
    assert program.end() == 1
    assert 'broken.py", line 1' in program.said
    assert program.said.endswith("ModuleNotFoundError: No module named 'this_is_not_installed'\n")


@pytest.mark.parametrize("processes", ["1", "2"])
@pytest.mark.parametrize("target", ["shop:make", "shop:looping"])
def test_a_signal_breaks_off_a_start(start, target, processes):
    """The name server takes the connection, and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        silent.settimeout(PATIENCE)
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        program = start(target, "--processes", processes, NAMESRV_ADDR=address, GROUP="g", TOPIC="t")
        connection, _ = silent.accept()
        with connection:
            assert program.end(signal.SIGTERM) == 0, program.said
    assert "Traceback" not in program.said
    assert "never" not in program.said, "such as a coroutine that was never awaited"


def test_processes_end_with_their_parent(start):
    """Whatever it died of: they are told by the end of a socket."""
    program = start("shop:quiet", "--processes", "2", "--shutdown-timeout", "7")
    program.until(lambda: len(program.pids()) == 2)
    program.process.kill()
    program.until(lambda: not any(exists(pid) for pid in program.pids().values()))
    assert sorted(program.notes[2:]) == sorted((pid, "ended within 7.0") for pid in program.pids().values())


def test_who_ends_unasked_is_started_again(start):
    program = start("shop:quiet", "--processes", "2")
    program.until(lambda: len(program.pids()) == 2)
    first = program.pids()["1"]
    os.kill(first, signal.SIGTERM)
    program.until(lambda: program.pids()["1"] != first)
    assert f"process 1 (pid {first}) ended with code 0; started again in 1 s" in program.said
    assert program.end(signal.SIGINT) == 0
    assert not any(exists(pid) for pid in program.pids().values())
