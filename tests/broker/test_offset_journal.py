from __future__ import annotations

import asyncio
import logging
import os

import pytest

from rocketstream.broker import offset_journal
from rocketstream.broker.offset_journal import CommittedOffset, OffsetJournal, encode_line, read_journal
from rocketstream.wire.codes import RequestCode
from rocketstream.wire.headers.offsets import UpdateConsumerOffsetRequestHeader
from tests.broker.parts import Parts, request, succeed


class Changes:
    """What is to be written next."""

    def __init__(self) -> None:
        self.waiting: list[CommittedOffset] = []
        self.full = 0

    def take(self) -> list[CommittedOffset]:
        taken, self.waiting = self.waiting, []
        return taken

    def on_full(self) -> None:
        self.full += 1


def one(offset: int, queue_id: int = 0) -> CommittedOffset:
    return CommittedOffset("g", "t", queue_id, offset)


@pytest.fixture
def changes() -> Changes:
    return Changes()


@pytest.fixture
def journal(tmp_path, changes):
    journal = OffsetJournal(tmp_path, 0, changes=changes.take, full=changes.on_full)
    assert journal.open() == []
    yield journal
    journal.close()


async def test_what_was_flushed_is_read_back(journal, changes):
    changes.waiting = [one(5), CommittedOffset("gruppe-ä", "%RETRY%x", 3, 1 << 40)]
    await journal.flush()
    changes.waiting = [one(6)]
    await journal.flush()
    assert read_journal(journal.path) == [one(5), CommittedOffset("gruppe-ä", "%RETRY%x", 3, 1 << 40), one(6)]


async def test_many_who_wait_share_a_round(journal, changes, monkeypatch):
    rounds = []
    fsync = os.fsync
    monkeypatch.setattr(os, "fsync", lambda file: (rounds.append(file), fsync(file)))

    async def commit(offset: int) -> None:
        changes.waiting.append(one(offset, offset))
        await journal.flush()

    await asyncio.gather(*(commit(number) for number in range(100)))
    assert len(read_journal(journal.path)) == 100
    assert len(rounds) <= 2


@pytest.mark.parametrize("garbage", [b"0", b"00000000 [\n", b"xyz\n", b"\n", encode_line(one(9))[:-1]])
async def test_a_torn_end_is_cut_and_said_so(journal, changes, garbage, caplog):
    changes.waiting = [one(5)]
    await journal.flush()
    with journal.path.open("ab") as file:
        file.write(garbage)
    with caplog.at_level(logging.WARNING, "rocketstream.broker"):
        assert read_journal(journal.path) == [one(5)]
    assert f"cut {len(garbage)} bytes" in caplog.text
    caplog.clear()
    assert read_journal(journal.path) == [one(5)]
    assert caplog.text == ""


async def test_a_round_that_fails_is_told_to_who_waits_and_written_by_the_next(journal, changes, monkeypatch):
    fsync = os.fsync
    monkeypatch.setattr(os, "fsync", lambda file: (_ for _ in ()).throw(OSError("no space left")))
    changes.waiting = [one(5)]
    with pytest.raises(OSError, match="no space left"):
        await journal.flush()
    assert read_journal(journal.path) == []
    monkeypatch.setattr(os, "fsync", fsync)
    changes.waiting = [one(6)]
    await journal.flush()
    assert read_journal(journal.path) == [one(5), one(6)]


async def test_a_big_journal_asks_for_a_snapshot(journal, changes, monkeypatch):
    monkeypatch.setattr(offset_journal, "MAX_SIZE", 100)
    changes.waiting = [one(5)]
    await journal.flush()
    assert changes.full == 0
    changes.waiting = [one(number, number) for number in range(10)]
    await journal.flush()
    await asyncio.sleep(0)
    assert changes.full == 1


async def test_the_next_file_begins_empty_and_the_old_one_is_gone(journal, changes):
    changes.waiting = [one(5)]
    await journal.flush()
    old = journal.path
    journal.begin_next()
    assert not old.exists()
    assert journal.path.name == "offsets-1.journal"
    assert journal.size == 0
    assert repr(journal) == "<OffsetJournal offsets-1.journal 0 bytes>"


# --- in a broker ------------------------------------------------------------------------------------------------------


def commit(offset: int, queue_id: int = 0, *, one_way: bool = False):
    header = UpdateConsumerOffsetRequestHeader(consumer_group="g", topic="t", queue_id=queue_id, commit_offset=offset)
    return request(RequestCode.UPDATE_CONSUMER_OFFSET, header, one_way=one_way)


def begin(tmp_path) -> Parts:
    parts = Parts(tmp_path)
    parts.create_topic("t")
    parts.groups.get("g")
    parts.offsets.start()
    return parts


def crash(parts: Parts) -> None:
    parts.state.freeze()
    parts.offsets.stop()


async def test_an_offset_whose_commit_was_answered_survives_a_crash(tmp_path):
    parts = begin(tmp_path)
    for offset in (3, 7, 5):
        await succeed(parts.offsets, parts.connect(), commit(offset))
    crash(parts)
    parts = begin(tmp_path)
    assert parts.offsets.get("g", "t", 0) == 5
    parts.offsets.stop()


async def test_an_offset_in_passing_is_written_after_a_while(tmp_path):
    parts = begin(tmp_path)
    connection = parts.connect()
    await succeed(parts.offsets, connection, commit(7, one_way=True))
    parts.offsets.commit("g", "t", 1, 8)
    assert read_journal(tmp_path / "offsets-0.journal") == []
    await parts.clock.advance(parts.settings.persist_interval)
    await parts.offsets.durable()
    crash(parts)
    parts = begin(tmp_path)
    assert parts.offsets.of_group("g") == {"t": {0: 7, 1: 8}}
    parts.offsets.stop()


async def test_what_was_forgotten_does_not_come_back(tmp_path):
    parts = begin(tmp_path)
    await succeed(parts.offsets, parts.connect(), commit(7))
    parts.offsets.forget_topic("t")
    await parts.offsets.durable()
    crash(parts)
    parts = begin(tmp_path)
    assert parts.offsets.get("g", "t", 0) == -1
    assert parts.offsets.topics_of("g") == []
    parts.offsets.stop()


async def test_a_stop_leaves_a_snapshot_and_no_journal_that_counts(tmp_path):
    parts = begin(tmp_path)
    await succeed(parts.offsets, parts.connect(), commit(7))
    parts.offsets.commit("g", "t", 1, 8)
    parts.offsets.stop()
    parts = begin(tmp_path)
    assert parts.offsets.of_group("g") == {"t": {0: 7, 1: 8}}
    assert [path.name for path in tmp_path.glob("*.journal")] == ["offsets-1.journal"]
    parts.offsets.stop()


async def test_a_crash_after_a_snapshot_loses_nothing(tmp_path, monkeypatch):
    monkeypatch.setattr(offset_journal, "MAX_SIZE", 200)
    parts = begin(tmp_path)
    for offset in range(50):
        await succeed(parts.offsets, parts.connect(), commit(offset, offset % 3))
    assert not (tmp_path / "offsets-0.journal").exists(), "several journals were filled"
    crash(parts)
    parts = begin(tmp_path)
    assert parts.offsets.of_group("g") == {"t": {0: 48, 1: 49, 2: 47}}
    parts.offsets.stop()


async def test_a_snapshot_that_is_broken_leaves_what_the_journal_holds(tmp_path):
    parts = begin(tmp_path)
    await succeed(parts.offsets, parts.connect(), commit(7))
    parts.offsets.stop()
    parts = begin(tmp_path)
    await succeed(parts.offsets, parts.connect(), commit(9))
    crash(parts)
    (tmp_path / "offsets.json").write_text("{")
    parts = begin(tmp_path)
    assert parts.offsets.get("g", "t", 0) == 9
    parts.offsets.stop()


async def test_async_flush_waits_for_nothing(tmp_path):
    parts = begin(tmp_path)
    parts.settings.flush = "async"
    assert parts.offsets.durable() is None
    parts.offsets.stop()
