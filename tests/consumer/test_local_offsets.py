"""Offsets in a file: never half written, never taken for empty."""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketstream.consumer.local_offsets import LocalFileOffsets, decode_offsets, encode_offsets
from rocketstream.consumer.offset_store import ReadFrom
from rocketstream.errors import OffsetStoreError
from rocketstream.message import MessageQueue

FIRST, SECOND = (MessageQueue("orders", "a", number) for number in (0, 1))

CORRUPT = [
    b"",
    b"{",
    b"[]",
    b"\xff\xfe",
    b"[" * 100_000,
    b"null",
    b'{"offsets": []}',
    b'{"version": 2, "offsets": []}',
    b'{"version": 1}',
    b'{"version": 1, "offsets": [3]}',
    b'{"version": 1, "offsets": [{"topic": "t", "broker_name": "a", "queue_id": 0}]}',
    b'{"version": 1, "offsets": [{"topic": "t", "broker_name": "a", "queue_id": 0, "offset": -1}]}',
    b'{"version": 1, "offsets": [{"topic": "t", "broker_name": "a", "queue_id": 0, "offset": true}]}',
    b'{"version": 1, "offsets": [{"topic": 1, "broker_name": "a", "queue_id": 0, "offset": 1}]}',
]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "client@1" / "g" / "offsets.json"


@pytest.fixture
def backup(file: Path) -> Path:
    return file.with_name("offsets.json.bak")


@pytest.fixture
def open_store(tmp_path: Path):
    return lambda: LocalFileOffsets(tmp_path, "client@1", "g")


async def written(store: LocalFileOffsets, *offsets: int) -> None:
    """Persist one offset of the first queue after the other."""
    for offset in offsets:
        store.update(FIRST, offset, increase_only=True)
        await store.persist_all([FIRST])


@pytest.mark.behaviour("OFF-01")
async def test_what_was_persisted_is_there_in_the_next_life(open_store, file):
    store = open_store()
    await store.load()
    assert store.snapshot() == {}
    assert await store.read(FIRST, ReadFrom.STORE) == -1, "there is no file: the store knows of none"
    store.update(FIRST, 7, increase_only=True)
    store.update(SECOND, 8, increase_only=True)
    await store.persist_all([FIRST, SECOND])
    assert store.path == file

    again = open_store()
    assert await again.read(FIRST, ReadFrom.MEMORY) == -1
    assert await again.read(FIRST, ReadFrom.MEMORY_THEN_STORE) == 7
    assert again.snapshot() == {FIRST: 7}
    await again.load()
    assert again.snapshot() == {FIRST: 7, SECOND: 8}


async def test_the_file_is_json_for_people(open_store, file):
    store = open_store()
    store.update(SECOND, 8, increase_only=True)
    store.update(FIRST, 7, increase_only=True)
    await store.persist_all([FIRST, SECOND])
    assert file.read_text() == (
        '{"version": 1, "offsets": [\n'
        '  {"topic": "orders", "broker_name": "a", "queue_id": 0, "offset": 7},\n'
        '  {"topic": "orders", "broker_name": "a", "queue_id": 1, "offset": 8}\n'
        "]}\n"
    )
    assert json.loads(file.read_text())["offsets"][0]["offset"] == 7
    assert os.listdir(file.parent) == ["offsets.json"], "nothing is left lying about"


@pytest.mark.behaviour("OFF-04")
async def test_the_file_before_is_kept_as_a_backup(open_store, file, backup):
    await written(open_store(), 1, 2, 3)
    assert decode_offsets(file.read_text()) == {FIRST: 3}
    assert decode_offsets(backup.read_text()) == {FIRST: 2}


@pytest.mark.behaviour("OFF-04")
@pytest.mark.parametrize("damage", CORRUPT)
async def test_a_corrupt_file_falls_back_to_its_backup(open_store, file, backup, damage, caplog):
    await written(open_store(), 1, 2)
    file.write_bytes(damage)
    store = open_store()
    await store.load()
    assert store.snapshot() == {FIRST: 1}
    assert str(file) in caplog.text
    # The damaged file must not take the place of the only sound one.
    await written(store, 5)
    assert decode_offsets(file.read_text()) == {FIRST: 5}
    assert decode_offsets(backup.read_text()) == {FIRST: 1}
    await written(store, 6)
    assert decode_offsets(backup.read_text()) == {FIRST: 5}


@pytest.mark.behaviour("OFF-04", "OFF-01")
@pytest.mark.parametrize("damage", CORRUPT)
async def test_both_corrupt_is_an_error_that_says_what_to_do(open_store, file, backup, damage):
    await written(open_store(), 1, 2)
    file.write_bytes(damage)
    backup.write_bytes(damage)
    store = open_store()
    with pytest.raises(OffsetStoreError, match="Repair one of them, or delete both") as caught:
        await store.load()
    assert str(file) in str(caught.value)
    assert str(backup) in str(caught.value)
    for where in (ReadFrom.STORE, ReadFrom.MEMORY_THEN_STORE):
        with pytest.raises(OffsetStoreError):
            await store.read(FIRST, where)
    store.update(FIRST, 9, increase_only=True)
    with pytest.raises(OffsetStoreError):
        await store.persist(FIRST)
    assert file.read_bytes() == damage, "a person may still save something out of it"


@pytest.mark.behaviour("OFF-04")
async def test_corrupt_and_without_a_backup_is_an_error_too(open_store, file):
    await written(open_store(), 1)
    file.write_bytes(b"{")
    with pytest.raises(OffsetStoreError):
        await open_store().load()


@pytest.mark.behaviour("OFF-04")
@pytest.mark.parametrize("crash_at", range(4))
async def test_a_crash_while_writing_loses_no_more_than_that_write(open_store, file, monkeypatch, crash_at):
    await written(open_store(), 1, 2)
    store = open_store()
    await store.load()
    steps = 0

    class Crash(BaseException): ...

    def crashing(real):
        def step(*args):
            nonlocal steps
            if steps == crash_at:
                raise Crash
            steps += 1
            return real(*args)

        return step

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", crashing(os.fsync))
        patch.setattr(os, "replace", crashing(os.replace))
        with pytest.raises(Crash):
            await written(store, 3)
    again = open_store()
    await again.load()
    assert again.snapshot() == {FIRST: 3 if crash_at == 3 else 2}
    await written(again, 4)
    assert await open_store().read(FIRST, ReadFrom.STORE) == 4


async def test_only_the_given_queues_are_written_and_others_stay_in_the_file(open_store, file):
    store = open_store()
    store.update(FIRST, 1, increase_only=True)
    store.update(SECOND, 2, increase_only=True)
    await store.persist(SECOND)
    assert decode_offsets(file.read_text()) == {SECOND: 2}
    await store.persist_all([FIRST])
    assert decode_offsets(file.read_text()) == {FIRST: 1, SECOND: 2}
    store.remove(SECOND)
    assert store.read_memory(SECOND) == -1
    await store.persist(SECOND)
    fresh = open_store()  # not loaded
    fresh.update(FIRST, 5, increase_only=True)
    await fresh.persist_all([FIRST])
    assert decode_offsets(file.read_text()) == {FIRST: 5, SECOND: 2}


async def test_nothing_is_written_when_nothing_has_changed(open_store, file):
    store = open_store()
    await written(store, 1)
    before = file.stat().st_ino
    await store.persist_all([FIRST, SECOND])
    await store.persist(FIRST)
    assert file.stat().st_ino == before


async def test_a_file_that_somebody_deleted_is_written_again(open_store, file):
    store = open_store()
    await written(store, 1)
    file.unlink()
    await written(store, 2)
    assert decode_offsets(file.read_text()) == {FIRST: 2}


async def test_a_directory_that_cannot_be_written_is_an_error(tmp_path):
    (tmp_path / "file").write_text("")
    store = LocalFileOffsets(tmp_path / "file", "c", "g")
    store.update(FIRST, 1, increase_only=True)
    with pytest.raises(OffsetStoreError, match=r"offsets\.json"):
        await store.persist(FIRST)


async def test_many_at_once_leave_a_sound_file(open_store, file):
    store = open_store()
    queues = [MessageQueue("orders", "a", number) for number in range(20)]
    for queue in queues:
        store.update(queue, queue.queue_id, increase_only=True)
    await asyncio.gather(*(store.persist(queue) for queue in queues), store.persist_all(queues[:10]))
    assert decode_offsets(file.read_text()) == {queue: queue.queue_id for queue in queues}
    assert repr(store) == f"<LocalFileOffsets {file}, 20 queues>"


queues = st.builds(MessageQueue, st.text(), st.text(), st.integers(0, 2**31 - 1))


@given(st.dictionaries(queues, st.integers(0, 2**63 - 1)))
def test_any_offsets_come_back_from_their_text(offsets):
    assert decode_offsets(encode_offsets(offsets)) == offsets


@given(st.dictionaries(queues, st.integers(0, 2**63 - 1), min_size=1), st.data())
def test_a_text_that_was_cut_off_is_never_taken_for_whole(offsets, data):
    text = encode_offsets(offsets).rstrip()
    cut = text[: data.draw(st.integers(0, len(text) - 1))]
    with pytest.raises(ValueError):  # noqa: PT011 - any says enough
        decode_offsets(cut)
