"""The commands on a terminal: what is drawn there, and what is left when it ends."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import socket
import struct
import subprocess
import termios
from collections.abc import Iterator

import pytest

from tests.bare_client import BareConsumer
from tests.cli.test_processes import PROGRAM, environment

# What is said on a terminal does not depend on the broker; the embedded one is shown by test_operate.
pytestmark = pytest.mark.rocketmq_real

ERASED_LINE = "\x1b[2K"
PATIENCE = 60.0
ENOUGH = 200_000


class Terminal:
    """A command on a terminal of ten lines, and everything that it has written there."""

    def __init__(self) -> None:
        self._master, self._slave = pty.openpty()
        self.process: subprocess.Popen[bytes] | None = None
        self.text = ""

    def run(self, *arguments: str, name_server: str, columns: int = 120) -> None:
        fcntl.ioctl(self._slave, termios.TIOCSWINSZ, struct.pack("HHHH", 10, columns, 0, 0))

        def own_terminal() -> None:
            os.setsid()
            fcntl.ioctl(0, termios.TIOCSCTTY, 0)  # so that Ctrl-C reaches it as from a keyboard

        self.process = subprocess.Popen(
            [*PROGRAM, *arguments],
            stdin=self._slave,
            stdout=self._slave,
            stderr=self._slave,
            preexec_fn=own_terminal,
            env=environment(NAMESRV_ADDR=name_server, TERM="xterm-256color"),
        )
        os.close(self._slave)

    def read_until(self, pattern: str) -> None:
        """Read on until something is to be seen; that it ends before, or goes on and on without, is a failure."""
        while not re.search(pattern, self.text):
            assert len(self.text) < ENOUGH, f"no {pattern!r} in {self.text[-2000:]!r}"
            assert self._read(), f"it ended without {pattern!r}: {self.text!r}"

    def press_ctrl_c(self) -> None:
        os.write(self._master, b"\x03")

    def end(self) -> int:
        """Read to the end and return the exit code."""
        assert self.process is not None
        while self._read():
            pass
        return self.process.wait(30)

    def close(self) -> None:
        os.close(self._master)
        if self.process is not None and self.process.poll() is None:
            self.process.kill()
            self.process.wait()

    def _read(self) -> bool:
        ready, _, _ = select.select([self._master], [], [], PATIENCE)
        assert ready, f"nothing came for {PATIENCE} s after {self.text!r}"
        try:
            self.text += os.read(self._master, 65536).decode(errors="replace")
        except OSError:  # nobody has the other end any more
            return False
        return True


@pytest.fixture
def terminal() -> Iterator[Terminal]:
    made = Terminal()
    yield made
    made.close()


def plain(text: str) -> str:
    """Without colours."""
    return re.sub(r"\x1b\[[0-9;]*m", "", text).replace("\r\n", "\n")


def test_ctrl_c_takes_the_bar_away_and_says_how_far_it_came(terminal, rocketmq_cluster, topic):
    address = rocketmq_cluster.name_server_address
    terminal.run("produce", topic, "--body", "x", "--count", "10000000", name_server=address)
    terminal.read_until(r"[1-9]\d*/10000000")
    terminal.press_ctrl_c()
    assert terminal.end() == 130
    drawn, remark = plain(terminal.text).rsplit(ERASED_LINE, 1)
    assert "sent" in drawn
    assert re.fullmatch(r"\d+ stored before it ended; what was under way may be stored too\n", remark)


def test_a_watch_has_the_sum_on_top_of_its_table(
    terminal, rocketmq_cluster, client, broker, unique_topic, unique_group
):
    """The table is longer than the terminal, which cuts it at its end."""
    client.create_topic(broker, unique_topic, queues=16)
    client.instance.register_consumer(BareConsumer(unique_group, unique_topic))
    client.run(client.instance.heartbeat())
    client.run(client.instance.unregister_consumer(unique_group))
    address = rocketmq_cluster.name_server_address
    moved = [*PROGRAM, "reset", unique_group, unique_topic, "--to", "earliest", "-n", address]
    subprocess.run(moved, env=environment(), stdout=subprocess.DEVNULL, check=True, timeout=60)
    terminal.run("lag", unique_group, "--watch", "--interval", "0.1", name_server=address)
    terminal.read_until(r"(?s)(lag 0.*){2}")
    terminal.press_ctrl_c()
    assert terminal.end() == 130
    drawn = plain(terminal.text)
    assert drawn.index(f"Group {unique_group}: lag 0, 0.0 messages/s; no member is online") < drawn.index("┃ topic")
    assert "Traceback" not in drawn


@pytest.mark.parametrize("arguments", [["lag", "g", "--watch"], ["messages", "t"], ["produce", "t", "--body", "x"]])
def test_a_failure_is_one_sentence_broken_between_words(terminal, arguments):
    with socket.create_server(("127.0.0.1", 0)) as once:
        nobody = f"127.0.0.1:{once.getsockname()[1]}"
    terminal.run(*arguments, name_server=nobody, columns=60)
    assert terminal.end() == 1
    lines = plain(terminal.text).rsplit(ERASED_LINE, 1)[-1].splitlines()
    assert len(lines) > 1
    assert lines[0].startswith("rocketstream: no name server ")
    assert " ".join(line.strip() for line in lines).endswith("Connection refused")
    assert all(len(line) <= 60 for line in lines)
