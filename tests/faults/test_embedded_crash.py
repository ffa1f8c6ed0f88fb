"""An embedded broker killed in the middle of its work: what it acknowledged is there after the next start, once.

The broker is the one of the command line, in a process of its own, and it is asked over the wire only.
"""

from __future__ import annotations

import contextlib
import json
import random
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from rocketstream import Message, MessageQueue, Producer
from rocketstream.errors import RocketStreamError
from rocketstream.remoting.io_thread import IoThread
from rocketstream.wire.codes import RequestCode
from rocketstream.wire.headers.group import GetSubscriptionGroupConfigRequestHeader
from rocketstream.wire.headers.offsets import (
    OffsetResponseHeader,
    QueryConsumerOffsetRequestHeader,
    UpdateConsumerOffsetRequestHeader,
)
from rocketstream.wire.record_decoder import decode_records
from tests.bare_client import BareClient

pytestmark = pytest.mark.xdist_group("machine")

TOPIC, GROUP = "crash", "consumer"
QUEUES = 4
SENDERS = 8
ROUNDS = 50
DAMAGED_ROUNDS = 20
#: At most so many messages are acknowledged before the kill.
MOST = 150


@dataclass
class Books:
    """Who was told what, over all rounds."""

    acknowledged: dict[tuple[int, int], str] = field(default_factory=dict)
    """The messages that were acknowledged, by queue and offset."""
    found: dict[tuple[int, int], str] = field(default_factory=dict)
    """The messages that were read after a start."""
    committed: dict[int, int] = field(default_factory=dict)
    """The last offset of each queue whose commit was answered."""
    tried: dict[int, int] = field(default_factory=dict)
    """The last offset of each queue that was to be committed."""


class Broker:
    """A broker's process, from its start to its kill, and who talks to it."""

    def __init__(self, process: subprocess.Popen[bytes], name_server: str, address: str) -> None:
        self.process = process
        self.name_server = name_server
        self.address = address
        self.client = BareClient(name_server, IoThread.shared())
        self._progress = threading.Condition()

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    # --- what it is asked ---------------------------------------------------------------------------------------

    def check(self, books: Books, *, may_lose: int = 0) -> None:
        """Read what came since the last start: all that was acknowledged is there, nothing twice, no offset is back."""
        lost = set()
        for queue_id in range(QUEUES):
            end = self.client.max_offset(TOPIC, queue_id)
            known = sum(1 for queue, _ in books.found if queue == queue_id)
            for offset, name in enumerate(self._messages(queue_id, known, end), known):
                books.found[queue_id, offset] = name
            lost |= {(queue, offset) for queue, offset in books.found if queue == queue_id and offset >= end}
        lost |= books.acknowledged.keys() - books.found.keys()
        assert len(lost) <= may_lose, f"lost {sorted(lost)}"
        for place in lost:
            books.found.pop(place, None)
            books.acknowledged.pop(place, None)
        assert books.acknowledged.items() <= books.found.items()
        assert len(set(books.found.values())) == len(books.found)
        for queue_id, offset in books.committed.items():
            header = QueryConsumerOffsetRequestHeader(consumer_group=GROUP, topic=TOPIC, queue_id=queue_id)
            answer = self.client.ask(self.address, RequestCode.QUERY_CONSUMER_OFFSET, header)
            assert offset <= OffsetResponseHeader.from_fields(answer.fields).offset <= books.tried[queue_id]

    def everything(self) -> dict[tuple[int, int], str]:
        """All messages that it has, from the first on."""
        return {
            (queue_id, offset): name
            for queue_id in range(QUEUES)
            for offset, name in enumerate(self._messages(queue_id, 0, self.client.max_offset(TOPIC, queue_id)))
        }

    def _messages(self, queue_id: int, start: int, end: int) -> Iterator[str]:
        while start < end:
            result = self.client.pull("reader", TOPIC, start, queue_id=queue_id)
            decoded = decode_records(result.body)
            assert not decoded.corrupt
            assert decoded.messages
            for message in decoded.messages:
                assert message.queue_offset == start
                yield message.body.decode()
                start += 1

    # --- what it is told, until it is killed --------------------------------------------------------------------

    def killed_at_work(self, books: Books, round_number: int, after: int) -> None:
        """Send and commit from several threads, kill it once so many messages are acknowledged, and end."""
        known = len(books.acknowledged)
        with Producer("sender", self.name_server, retries=0, heartbeat_interval=3600.0) as producer:
            threads = [
                threading.Thread(target=self._send, args=(producer, books, f"{round_number}-{number}", number % QUEUES))
                for number in range(SENDERS)
            ]
            threads.append(threading.Thread(target=self._commit, args=(books,)))
            for thread in threads:
                thread.start()
            with self._progress:
                self._progress.wait_for(lambda: len(books.acknowledged) - known >= after)
            self.kill()
            for thread in threads:
                thread.join()

    def _send(self, producer: Producer, books: Books, name: str, queue_id: int) -> None:
        queue = MessageQueue(TOPIC, "broker-a", queue_id)
        number = 0
        with contextlib.suppress(RocketStreamError):  # it was killed
            while True:
                text = f"{name}-{number}"
                result = producer.send(Message(TOPIC, text.encode()), queue=queue)
                with self._progress:
                    books.acknowledged[queue_id, result.queue_offset] = text
                    self._progress.notify_all()
                number += 1

    def _commit(self, books: Books) -> None:
        with contextlib.suppress(RocketStreamError):
            while True:
                for queue_id in range(QUEUES):
                    offset = books.tried[queue_id] = books.tried.get(queue_id, 0) + 1
                    header = UpdateConsumerOffsetRequestHeader(
                        consumer_group=GROUP, topic=TOPIC, queue_id=queue_id, commit_offset=offset
                    )
                    self.client.ask(self.address, RequestCode.UPDATE_CONSUMER_OFFSET, header)
                    books.committed[queue_id] = offset


@contextlib.contextmanager
def started(directory: Path) -> Iterator[Broker]:
    """A broker on the directory, that is there when it says so; what it has to say goes into `said`."""
    command = [sys.executable, "-m", "rocketstream", "broker", "--data", directory, "--port", "0", "--json"]
    with (
        (directory / "said").open("wb") as said,
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=said) as process,
    ):
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            assert line, (directory / "said").read_text()
            places = json.loads(line)
            broker = Broker(process, places["name_server"], places["broker"])
            try:
                yield broker
            finally:
                broker.client.close()
        finally:
            process.kill()


def first_start(directory: Path) -> None:
    """Make the topic and the group."""
    with started(directory) as broker:
        broker.client.create_topic(broker.address, TOPIC, QUEUES)
        header = GetSubscriptionGroupConfigRequestHeader(group=GROUP)
        broker.client.ask(broker.address, RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG, header)


@pytest.mark.parametrize(
    "rounds", [5, pytest.param(ROUNDS, marks=pytest.mark.long(60, f"kills a broker {ROUNDS} times"))]
)
def test_nothing_acknowledged_is_lost_or_doubled_by_a_kill(tmp_path: Path, rounds: int) -> None:
    dice = random.Random(6)
    books = Books()
    first_start(tmp_path)
    for number in range(rounds):
        with started(tmp_path) as broker:
            broker.check(books)
            broker.killed_at_work(books, number, dice.randrange(MOST))
    with started(tmp_path) as broker:
        broker.check(books)
        assert broker.everything() == books.found
    assert len(books.acknowledged) > rounds * SENDERS
    assert min(books.committed.values()) > rounds


@pytest.mark.parametrize("how", ["cut", "garbled", "garbage"])
@pytest.mark.long(20, "kills a broker 20 times and damages its store")
def test_a_damaged_tail_is_cut_and_told(tmp_path: Path, how: str) -> None:
    dice = random.Random(how)
    books = Books()
    first_start(tmp_path)
    size = None
    for number in range(-(-DAMAGED_ROUNDS // 3)):
        with started(tmp_path) as broker:
            broker.check(books, may_lose=0 if how == "garbage" else 1)
            check_what_was_said(tmp_path, size)
            broker.killed_at_work(books, number, 10 + dice.randrange(MOST))
        size = damage(tmp_path, how, dice)
    with started(tmp_path) as broker:
        broker.check(books, may_lose=0 if how == "garbage" else 1)
        check_what_was_said(tmp_path, size)
        assert broker.everything() == books.found
    assert len(books.acknowledged) > DAMAGED_ROUNDS


def damage(directory: Path, how: str, dice: random.Random) -> int:
    """Damage the last record of the log, or what comes behind it; the log's new size."""
    last = max((directory / "log").glob("*.log"))
    raw = last.read_bytes()
    at = len(raw) - 1 - dice.randrange(100)
    damaged = {
        "cut": raw[:at],
        "garbled": raw[:at] + bytes([raw[at] ^ (1 << dice.randrange(8))]) + raw[at + 1 :],
        "garbage": raw + dice.randbytes(dice.randrange(1, 1000)),
    }[how]
    last.write_bytes(damaged)
    return len(damaged)


def check_what_was_said(directory: Path, size: int | None) -> None:
    """The broker has told what it cut off a log of that size, and nothing else."""
    # The console breaks long lines.
    said = " ".join((directory / "said").read_text().split())
    if size is None:
        assert said == ""
        return
    cuts = re.findall(r"cut (\d+) bytes at (\d+)", said)
    assert [int(count) + int(start) for count, start in cuts] == [size], said
