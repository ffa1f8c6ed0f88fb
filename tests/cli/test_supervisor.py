"""When processes of `rocketstream run` are started again, and when that is given up."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from rocketstream.cli import _supervisor
from rocketstream.cli._supervisor import Restarts, Supervisor
from rocketstream.cli._worker import StopSignals
from rocketstream.clock import ManualClock
from tests.testing.processes import exists


def test_pauses_grow_to_half_a_minute():
    restarts = Restarts()
    assert [restarts.ended(1.0) for _ in range(8)] == [1, 2, 4, 8, 16, 30, 30, 30]
    assert restarts.fast_failures == 0


def test_a_minute_that_went_well_is_a_new_beginning():
    restarts = Restarts()
    assert [restarts.ended(up) for up in (1.0, 59.9, 60.0, 1.0)] == [1, 2, 1, 2]


def test_failures_at_the_start_are_counted_until_one_goes_well():
    restarts = Restarts()
    assert [restarts.ended(None) for _ in range(3)] == [1, 2, 4]
    assert restarts.fast_failures == 3
    restarts.ended(0.1)
    assert restarts.fast_failures == 0
    restarts.ended(None)
    assert restarts.fast_failures == 1


async def test_a_second_ctrl_c_is_not_the_first_one_that_came_twice():
    clock = ManualClock()
    stops = StopSignals(clock)
    assert stops.is_first()
    assert not stops.is_first()
    assert not stops.is_impatient(signal.SIGINT)
    await clock.advance(0.9)
    assert not stops.is_impatient(signal.SIGINT)
    await clock.advance(0.1)
    assert not stops.is_impatient(signal.SIGTERM)
    assert stops.is_impatient(signal.SIGINT)


@pytest.fixture
def supervised(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Run a module's `consumer` in processes, with hardly a pause; returns the code and what was said."""
    monkeypatch.chdir(tmp_path)

    async def supervised(program: str, processes: int = 2, shutdown_timeout: float = 1.0) -> tuple[int, list[str]]:
        (tmp_path / "program.py").write_text(program)
        said: list[str] = []
        supervisor = Supervisor(
            "program:consumer", processes, shutdown_timeout, None, said.append, restarts=lambda: Restarts(pause=0.001)
        )
        return await supervisor.run(), said

    return supervised


REFUSED = """
from rocketstream import PushConsumer
from rocketstream.errors import ClientStateError

class Refused(PushConsumer):
    def start(self):
        raise ClientStateError("the topic is not there")

consumer = Refused("g")
"""


@pytest.mark.slow(11, "starts five processes one after the other")
async def test_after_five_fast_failures_it_gives_up(supervised, capfd):
    code, said = await supervised(REFUSED)
    assert code == 1
    assert len(said) == 5, "the others wait for the first"
    assert all("could not start: the topic is not there; started again in 0.0" in line for line in said[:4])
    assert said[4].endswith("could not start: the topic is not there; after 5 attempts that is the end")
    assert "Traceback" not in capfd.readouterr().err


async def test_what_will_be_no_better_the_next_time_is_not_tried_again(supervised):
    code, said = await supervised("from rocketstream import PushConsumer\nconsumer = PushConsumer('a b')\n")
    assert code == 2
    assert len(said) == 1
    assert said[0].startswith("rocketstream: group='a b' has illegal characters")


ONE_OF_TWO = """
import os, signal, pathlib
from rocketstream import PushConsumer
from rocketstream.errors import ClientStateError

class OneOfTwo(PushConsumer):
    def start(self):
        tries = pathlib.Path("tries")
        with tries.open("a") as file:
            file.write("x")
        count = tries.stat().st_size
        if count > 1:
            if count > 8:
                os.kill(os.getppid(), signal.SIGTERM)
            raise ClientStateError("only one of us")

consumer = OneOfTwo("g")
"""


@pytest.mark.slow(12, "processes are started again with growing pauses")
async def test_it_does_not_give_up_while_another_works(supervised):
    code, said = await supervised(ONE_OF_TWO)
    assert code == 0
    assert sum("only one of us; started again" in line for line in said) >= 7
    assert not any("that is the end" in line for line in said)


HANGS = """
import os, signal, threading
from rocketstream import PushConsumer

class Hangs(PushConsumer):
    def start(self):
        pass

    def shutdown(self, timeout=None):
        threading.Event().wait()

consumer = Hangs("g")
threading.Timer(0.2, os.kill, (os.getppid(), signal.SIGTERM)).start()
"""


async def test_who_does_not_end_in_time_is_killed(supervised, monkeypatch):
    monkeypatch.setattr(_supervisor, "GRACE", 0.2)
    code, said = await supervised(HANGS, shutdown_timeout=0.1)
    assert code == 1
    killed = [line for line in said if "is killed: it has not ended in 0.3 s" in line]
    assert killed
    pids = [int(line.split("pid ")[1].split(")")[0]) for line in said if "pid " in line]
    assert not any(map(exists, pids))
