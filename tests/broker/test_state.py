"""The broker's small files: the old or the new, never half of it."""

from __future__ import annotations

import logging
import os
from pathlib import Path

import pytest

from rocketstream.broker.state import StateFiles


def test_what_was_saved_is_there_for_the_next(tmp_path: Path) -> None:
    state = StateFiles(tmp_path)
    assert state.load("topics") is None
    state.save("topics", {"b": [1, None], "a": "é\ud800"})
    assert StateFiles(tmp_path).load("topics") == {"b": [1, None], "a": "é\ud800"}
    assert sorted(path.name for path in tmp_path.iterdir()) == ["topics.json"]


def test_memory_forgets_with_the_broker() -> None:
    state = StateFiles(None)
    kept = {"a": [1]}
    state.save("topics", kept)
    kept["a"].append(2)
    assert state.load("topics") == {"a": [1]}
    assert StateFiles(None).load("topics") is None


def test_what_has_not_changed_is_not_written(tmp_path: Path) -> None:
    state = StateFiles(tmp_path)
    state.save("topics", {"a": 1, "b": 2})
    before = (tmp_path / "topics.json").stat().st_ino
    state.save("topics", {"b": 2, "a": 1})
    assert (tmp_path / "topics.json").stat().st_ino == before
    again = StateFiles(tmp_path)
    again.load("topics")
    again.save("topics", {"a": 1, "b": 2})
    assert (tmp_path / "topics.json").stat().st_ino == before
    state.save("topics", {"a": 3})
    assert StateFiles(tmp_path).load("topics") == {"a": 3}


@pytest.mark.parametrize("broken", [b"{", b"", b"\xff\xfe"])
def test_a_file_that_cannot_be_read_is_set_aside_and_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, broken: bytes
) -> None:
    (tmp_path / "topics.json").write_bytes(broken)
    state = StateFiles(tmp_path)
    assert state.load("topics") is None
    (told,) = caplog.records
    assert told.levelno == logging.WARNING
    assert str(tmp_path / "topics.json") in told.getMessage()
    assert (tmp_path / "topics.json.broken").read_bytes() == broken
    state.save("topics", [])
    assert StateFiles(tmp_path).load("topics") == []


def test_a_crash_while_writing_leaves_the_old(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    state = StateFiles(tmp_path)
    state.save("topics", "old")

    def crash(file: int) -> None:
        raise OSError("no space")

    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", crash)
        with pytest.raises(OSError, match="no space"):
            state.save("topics", "new")
    assert StateFiles(tmp_path).load("topics") == "old"
    state.save("topics", "new")
    assert StateFiles(tmp_path).load("topics") == "new"


def test_it_is_synced_before_it_takes_the_old_ones_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[str] = []
    fsync, replace = os.fsync, os.replace
    monkeypatch.setattr(os, "fsync", lambda file: (done.append("sync"), fsync(file)))
    monkeypatch.setattr(os, "replace", lambda old, new: (done.append("replace"), replace(old, new)))
    StateFiles(tmp_path).save("topics", 1)
    assert done == ["sync", "replace", "sync"]


def test_a_frozen_one_saves_nothing(tmp_path: Path) -> None:
    state = StateFiles(tmp_path)
    state.save("topics", "old")
    state.freeze()
    state.save("topics", "new")
    assert state.frozen
    assert StateFiles(tmp_path).load("topics") == "old"
