"""Killed in the middle of it: what was acknowledged is there, once; a damaged tail is cut, and said so."""

from __future__ import annotations

import itertools
import random
import re
import subprocess
import sys
from pathlib import Path

import pytest

from rocketstream.broker.settings import BrokerSettings
from rocketstream.broker.store import open_store
from rocketstream.broker.store.log_store import LogStore
from rocketstream.clock import ManualClock
from rocketstream.wire.record_decoder import decode_records
from tests.broker.crash_sender import QUEUES, SEGMENT_SIZE, TOPIC

PROGRAM = Path(__file__).with_name("crash_sender.py")
ROUNDS = 50
DAMAGED_ROUNDS = 20


def killed_round(directory: Path, number: int, after: int) -> dict[tuple[int, int], str]:
    """Run senders, kill them once so many messages were acknowledged; which were, by queue and offset."""
    with subprocess.Popen([sys.executable, PROGRAM, directory, str(number)], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        lines = [process.stdout.readline() for _ in range(after + 1)]
        process.kill()
        lines += process.stdout.read().splitlines(keepends=True)
    assert lines[0] == b"open\n"
    acknowledged: dict[tuple[int, int], str] = {}
    for line in lines[1:]:
        name, queue_id, offset = line.decode().split()
        acknowledged[int(queue_id), int(offset)] = name
    assert len(acknowledged) == len(lines) - 1 >= after
    return acknowledged


def opened(directory: Path) -> LogStore:
    return open_store(BrokerSettings(data=directory, segment_size=SEGMENT_SIZE), ManualClock(), "127.0.0.1:10911")


def everything(directory: Path) -> dict[tuple[int, int], str]:
    """What the store has, by queue and offset; offsets without a gap, nothing twice."""
    store = opened(directory)
    try:
        found: dict[tuple[int, int], str] = {}
        for queue_id in range(QUEUES):
            offset = 0
            while offset < store.max_offset(TOPIC, queue_id):
                reading = store.read(TOPIC, queue_id, offset, 32, 1 << 20)
                for message in decode_records(b"".join(reading.records)).messages:
                    assert message.queue_offset == offset
                    found[queue_id, offset] = message.body.decode()
                    offset += 1
        assert len(set(found.values())) == len(found)
        return found
    finally:
        store.close()


@pytest.mark.long(30, "kills a broker many times")
def test_no_acknowledged_message_is_lost_or_doubled_by_a_kill(tmp_path: Path) -> None:
    dice = random.Random(6)
    acknowledged: dict[tuple[int, int], str] = {}
    before: dict[tuple[int, int], str] = {}
    for number in range(ROUNDS):
        acknowledged |= killed_round(tmp_path, number, dice.randrange(200))
        found = everything(tmp_path)
        assert acknowledged.items() <= found.items()
        # What was once seen in the store stays, acknowledged or not.
        assert before.items() <= found.items()
        before = found
    assert len(acknowledged) > ROUNDS * 8
    assert len(list((tmp_path / "log").glob("*.log"))) > 5


@pytest.mark.parametrize("how", ["cut", "garbled", "garbage"])
@pytest.mark.slow(10, "starts a broker many times")
def test_a_damaged_tail_is_cut_and_told(tmp_path: Path, caplog: pytest.LogCaptureFixture, how: str) -> None:
    dice, damages = random.Random(how), 0
    for number in itertools.count():
        if damages > DAMAGED_ROUNDS // 3:
            break
        killed_round(tmp_path, number, 20 + dice.randrange(100))
        before = everything(tmp_path)
        last = sorted((tmp_path / "log").glob("*.log"))[-1]
        raw = last.read_bytes()
        if not raw:  # it was killed just when it had begun a file
            continue
        damages += 1
        at = len(raw) - 1 - dice.randrange(min(100, len(raw)))
        damaged = {
            "cut": raw[:at],
            "garbled": raw[:at] + bytes([raw[at] ^ (1 << dice.randrange(8))]) + raw[at + 1 :],
            "garbage": raw + dice.randbytes(at % 1000 + 1),
        }[how]
        last.write_bytes(damaged)
        caplog.clear()
        found = everything(tmp_path)
        (said,) = [record.getMessage() for record in caplog.records]
        cut = re.fullmatch(rf"{re.escape(str(last))}: cut (\d+) bytes at (\d+): .*", said)
        assert cut is not None, said
        assert int(cut[1]) + int(cut[2]) == len(damaged)
        assert last.stat().st_size == int(cut[2])
        # All of it was in the last record, so at most that is gone.
        assert found.items() <= before.items()
        assert len(before) - len(found) == (how != "garbage")
        assert everything(tmp_path) == found
