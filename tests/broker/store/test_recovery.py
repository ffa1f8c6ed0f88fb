"""Opening what an earlier process left, in whatever state it left it."""

from __future__ import annotations

import logging
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from rocketstream.broker.store.directory_lock import DirectoryInUseError
from rocketstream.broker.store.log_store import LogStore
from rocketstream.broker.store.recovery import recover
from rocketstream.clock import ManualClock
from tests.broker.store.stores import OpenStore, bodies, message
from tests.broker.store.test_lookup import found

LOTS = 1 << 20


def segment_files(directory: Path) -> list[Path]:
    return sorted((directory / "log").glob("*.log"))


def fill(store: LogStore, count: int, start: int = 0) -> list[int]:
    """Append messages to three queues; returns the position of each."""
    return [
        store.append(
            message(
                str(number),
                queue_id=number % 3,
                properties={"TAGS": f"t{number % 2}", "KEYS": f"k{number}", "UNIQ_KEY": f"u{number}"},
            )
        ).position
        for number in range(start, start + count)
    ]


def state(store: LogStore) -> object:
    """Everything that can be asked of a store."""
    return [
        (
            topic,
            queue_id,
            store.min_offset(topic, queue_id),
            bodies(store, topic, queue_id),
            list(store.read(topic, queue_id, store.min_offset(topic, queue_id), 32, LOTS).offsets),
            list(store._index.topics[topic][queue_id].tags),
        )
        for topic in sorted(store.topics())
        for queue_id in store.queues(topic)
    ]


async def test_everything_is_there_after_a_restart(file_store: OpenStore, clock: ManualClock) -> None:
    store = file_store(segment_size=4096)
    fill(store, 200)
    await clock.advance(1)
    before, size, newest = state(store), store.size, [segment.newest for segment in store._log.segments]
    store = file_store(segment_size=4096)
    assert (state(store), store.size, [segment.newest for segment in store._log.segments]) == (before, size, newest)
    assert [found(store, key) for key in ("k0", "k199", "u77")] == [["0"], ["199"], ["77"]]
    fill(store, 200, 200)
    before = state(store)
    assert state(file_store()) == before


async def test_a_store_that_was_never_closed_is_read_from_its_log(
    file_store: OpenStore, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store = file_store(segment_size=4096)
    for position in fill(store, 100):
        waiting = store.durable(position)
        if waiting is not None:
            await waiting
    before = state(store)
    copied = tmp_path / "copied"
    shutil.copytree(tmp_path / "log", copied / "log")
    with caplog.at_level(logging.WARNING):
        assert state(file_store(close=False, data=copied)) == before
    assert not caplog.records


@pytest.mark.parametrize("how", ["gone", "garbled", "of another size", "cut", "not an index"])
async def test_an_index_that_cannot_be_trusted_is_made_again(file_store: OpenStore, tmp_path: Path, how: str) -> None:
    store = file_store(segment_size=4096)
    fill(store, 100)
    before = state(store)
    store.close()
    indexes = sorted((tmp_path / "log").glob("*.index"))
    assert len(indexes) == len(segment_files(tmp_path)) - 1 > 2
    raw = indexes[1].read_bytes()
    if how == "gone":
        indexes[1].unlink()
    else:
        changed = {
            "garbled": raw[:-1] + bytes([raw[-1] ^ 1]),
            "of another size": indexes[0].read_bytes(),
            "cut": raw[:10],
            "not an index": bytes(100),
        }
        indexes[1].write_bytes(changed[how])
    store = file_store(segment_size=4096)
    assert state(store) == before
    assert found(store, "k50") == ["50"]


async def test_an_index_is_used_when_it_can_be_trusted(file_store: OpenStore, monkeypatch: pytest.MonkeyPatch) -> None:
    store = file_store(segment_size=4096)
    fill(store, 100)
    before, last = state(store), store._log.segments[-1].base
    scanned: list[int] = []

    def watched(segment, index):  # type: ignore[no-untyped-def]
        scanned.append(segment.base)
        return recover(segment, index)

    monkeypatch.setattr("rocketstream.broker.store.files.recover", watched)
    assert state(file_store(segment_size=4096)) == before
    assert scanned == [last]


async def test_a_record_that_was_cut_anywhere_is_cut_off(
    file_store: OpenStore, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store = file_store()
    fill(store, 5)
    kept = state(store)
    end = store.size
    fill(store, 1, 5)
    store.close()
    (path,) = segment_files(tmp_path)
    raw = path.read_bytes()
    for cut in range(end, len(raw)):
        path.write_bytes(raw[:cut])
        caplog.clear()
        store = file_store()
        assert state(store) == kept
        assert (store.size, path.stat().st_size) == (end, end)
        warnings = [record.getMessage() for record in caplog.records]
        if cut == end:
            assert not warnings
        else:
            (warning,) = warnings
            assert warning.startswith(f"{path}: cut {cut - end} bytes at {end}: ")
        store.close()
    store = file_store()
    fill(store, 1, 5)
    store.close()
    assert path.read_bytes() == raw


async def test_a_garbled_byte_anywhere_in_the_last_record_cuts_it(
    file_store: OpenStore, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store = file_store()
    fill(store, 5)
    kept, end = state(store), store.size
    fill(store, 1, 5)
    store.close()
    (path,) = segment_files(tmp_path)
    raw = path.read_bytes()
    for at in range(end, len(raw)):
        path.write_bytes(raw[:at] + bytes([raw[at] ^ 0x40]) + raw[at + 1 :])
        caplog.clear()
        store = file_store()
        assert (state(store), store.size) == (kept, end)
        assert f"cut {len(raw) - end} bytes at {end}" in caplog.text
        store.close()


async def test_zeros_and_rubbish_after_the_last_record_are_cut(
    file_store: OpenStore, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store = file_store(segment_size=4096)
    fill(store, 5)
    kept, end = state(store), store.size
    store.close()
    (path,) = segment_files(tmp_path)
    raw = path.read_bytes()
    # The last is a record of ours, but from another place.
    for tail in (bytes(1), bytes(100), bytes(10_000), os.urandom(5000), raw[: end // 5]):
        path.write_bytes(raw + tail)
        caplog.clear()
        store = file_store(segment_size=4096)
        assert (state(store), path.stat().st_size) == (kept, end)
        assert f"cut {len(tail)} bytes at {end}" in caplog.text
        fill(store, 3, 5)
        assert sum(len(bodies(store, "orders", queue_id)) for queue_id in range(3)) == 8
        store.close()
    assert path.read_bytes()[: len(raw)] == raw


async def test_damage_in_the_middle_is_skipped_and_told(
    file_store: OpenStore, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store = file_store()
    positions = fill(store, 12)
    store.close()
    (path,) = segment_files(tmp_path)
    raw = bytearray(path.read_bytes())
    raw[positions[4] + 20] ^= 1
    raw[positions[5] - 8] ^= 1  # its envelope: its size is wrong
    path.write_bytes(raw)
    store = file_store()
    assert [bodies(store, "orders", queue_id) for queue_id in range(3)] == [
        [b"0", b"3", b"6", b"9"],
        [b"1", b"7", b"10"],
        [b"2", b"8", b"11"],
    ]
    (told,) = [record.getMessage() for record in caplog.records if record.levelno == logging.ERROR]
    assert f"{positions[6] - positions[4]} bytes at {positions[4] - 8} " in told
    assert str(path) in told
    # The hole keeps its offset.
    assert store.read("orders", 1, 1, 1, LOTS).next_offset == 3
    assert list(store.read("orders", 1, 0, 32, LOTS).offsets) == [0, 2, 3]
    assert store.record_at("orders", 1, 1) is None
    assert store.timestamp_at("orders", 1, 1) == -1
    assert store.append(message("12", queue_id=0)).queue_offset == 4
    assert path.stat().st_size == len(raw)


async def test_a_read_that_meets_only_a_hole_says_so(file_store: OpenStore, tmp_path: Path) -> None:
    store = file_store()
    positions = fill(store, 6)
    store.close()
    (path,) = segment_files(tmp_path)
    raw = bytearray(path.read_bytes())
    raw[positions[3]] ^= 1
    path.write_bytes(raw)
    store = file_store()
    # The queue's last message is missing: its offset is given again, for nothing after it tells that it was there.
    assert store.max_offset("orders", 0) == 1
    fill(store, 1, 6)
    assert bodies(store, "orders", 0) == [b"0", b"6"]


async def test_damage_at_the_end_of_an_earlier_segment_is_told(
    file_store: OpenStore, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store = file_store(segment_size=4096)
    fill(store, 60)
    store.close()
    paths = segment_files(tmp_path)
    raw = bytearray(paths[0].read_bytes())
    raw[-1] ^= 1
    paths[0].write_bytes(raw)
    paths[0].with_suffix(".index").unlink()
    store = file_store(segment_size=4096)
    assert "is damaged" in caplog.text
    assert paths[0].stat().st_size == len(raw)
    assert sum(len(bodies(store, "orders", queue_id)) for queue_id in range(3)) == 59


async def test_a_missing_segment_is_told(
    file_store: OpenStore, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store = file_store(segment_size=4096)
    fill(store, 100)
    store.close()
    paths = segment_files(tmp_path)
    paths[1].unlink()
    store = file_store(segment_size=4096)
    assert f"the log lacks {int(paths[1].stem)} to {int(paths[2].stem)}" in caplog.text
    assert store.max_offset("orders", 0) == 34
    assert b"99" in bodies(store, "orders", 0)


async def test_a_deleted_topic_stays_deleted(file_store: OpenStore, tmp_path: Path) -> None:
    store = file_store(segment_size=4096)
    fill(store, 100)
    store.append(message("kept", topic="other"))
    store.delete_topic("orders")
    store = file_store(segment_size=4096)
    assert store.topics() == ["other"]
    before = found(store, "k7")
    assert before == ["7"]
    assert store.append(message("again", properties={"KEYS": "k7"})).queue_offset == 0
    for index in (tmp_path / "log").glob("*.index"):
        index.unlink()
    store = file_store(segment_size=4096)
    assert (bodies(store), found(store, "k7")) == ([b"again"], ["7", "again"])


async def test_a_deletion_that_outlived_the_log_it_was_about_hides_nothing_new(
    file_store: OpenStore, tmp_path: Path
) -> None:
    store = file_store()
    fill(store, 10)
    store.delete_topic("orders")
    store.close()
    (path,) = segment_files(tmp_path)
    path.write_bytes(b"")  # as after a crash before anything was synced
    store = file_store()
    fill(store, 1)
    assert bodies(file_store()) == [b"0"]


async def test_a_lost_catalog_lets_the_later_messages_of_a_queue_win(
    file_store: OpenStore, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store = file_store()
    fill(store, 3)
    store.delete_topic("orders")
    fill(store, 1, 30)
    store.close()
    (tmp_path / "log" / "catalog.json").unlink()
    assert bodies(file_store()) == [b"30"]
    assert "has the offset 0 twice" in caplog.text


async def test_offsets_go_on_when_all_messages_of_a_queue_were_dropped(
    file_store: OpenStore, tmp_path: Path, clock: ManualClock
) -> None:
    store = file_store(segment_size=4096, retention_time=60.0)
    for _ in range(7):
        store.append(message(topic="rare"))
    positions = fill(store, 100)
    waiting = store.durable(positions[-1])
    assert waiting is not None
    await waiting
    await clock.advance(100)
    store.expire()
    assert (store.min_offset("rare", 0), store.max_offset("rare", 0)) == (7, 7)
    kept = state(store)
    assert len(segment_files(tmp_path)) == 1
    assert not list((tmp_path / "log").glob("*.index"))
    store = file_store(segment_size=4096, retention_time=60.0)
    assert state(store) == kept
    assert store.append(message(topic="rare")).queue_offset == 7
    assert file_store().min_offset("rare", 0) == 7


async def test_dropped_segments_that_a_crash_left_are_removed(file_store: OpenStore, tmp_path: Path) -> None:
    store = file_store(segment_size=4096, retention_bytes=8192)
    waiting = store.durable(fill(store, 100)[-1])
    assert waiting is not None
    await waiting
    first = segment_files(tmp_path)[0]
    raw = first.read_bytes()
    store.expire()
    assert not first.exists()
    before = state(store)
    store.close()
    first.write_bytes(raw)
    assert state(file_store(segment_size=4096)) == before
    assert not first.exists()


async def test_a_second_store_in_the_same_directory_is_refused(file_store: OpenStore, tmp_path: Path) -> None:
    file_store()
    with pytest.raises(DirectoryInUseError, match="in use") as refused:
        file_store(close=False)
    assert str(tmp_path) in str(refused.value)
    assert f"process {os.getpid()}" in str(refused.value)
    assert file_store().size == 0


def test_a_second_process_in_the_same_directory_is_refused(file_store: OpenStore, tmp_path: Path) -> None:
    file_store()
    program = (
        "import sys; from pathlib import Path; from rocketstream.broker.store.directory_lock import DirectoryLock;"
        "DirectoryLock(Path(sys.argv[1]))"
    )
    run = subprocess.run([sys.executable, "-c", program, tmp_path], capture_output=True, text=True, check=False)
    assert run.returncode == 1
    assert f"process {os.getpid()}" in run.stderr


async def test_damage_in_a_segment_with_an_index_is_told_when_it_is_read(
    file_store: OpenStore, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store = file_store(segment_size=4096)
    positions = fill(store, 60)
    store.close()
    path = segment_files(tmp_path)[0]
    raw = bytearray(path.read_bytes())
    raw[positions[3] + 90] ^= 1
    path.write_bytes(raw)
    store = file_store(segment_size=4096)
    assert not caplog.records
    assert store.record(positions[3]) is None
    assert store.read("orders", 0, 1, 1, LOTS).offsets == [2]
    (told,) = [record.getMessage() for record in caplog.records]
    assert f"{path} is damaged" in told
    assert "orders@0 offset 1" in told
    assert bodies(store, "orders", 0)[:2] == [b"0", b"6"]
    assert len(caplog.records) == 1


async def test_a_damaged_segment_is_told_of_at_every_start_and_a_sound_one_is_indexed_again(
    file_store: OpenStore, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store = file_store(segment_size=4096)
    positions = fill(store, 60)
    store.close()
    first, second = segment_files(tmp_path)[:2]
    raw = bytearray(first.read_bytes())
    raw[positions[3]] ^= 1
    first.write_bytes(raw)
    for path in (first, second):
        path.with_suffix(".index").unlink()
    for _ in range(2):
        caplog.clear()
        file_store(segment_size=4096)
        (told,) = [record.getMessage() for record in caplog.records]
        assert told.startswith(f"{first} is damaged")
        assert not first.with_suffix(".index").exists()
        assert second.with_suffix(".index").exists()
