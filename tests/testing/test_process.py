"""A guarded process never outlives us; a detached one does, and is found again."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from rocketstream.testing.process import DetachedProcess, DirectoryGuard, GuardedProcess, ProcessError
from tests.testing.processes import eventually, exists

SLEEP = [sys.executable, "-c", "import time; time.sleep(600)"]

PARENT = """
import os, sys, time
from pathlib import Path
from rocketstream.testing.process import DirectoryGuard, GuardedProcess
directory = Path(sys.argv[1])
guard = DirectoryGuard(directory)
process = GuardedProcess([sys.executable, "-c", "import time; time.sleep(600)"])
sibling = 0
if sys.argv[2] == "forked":
    sibling = os.fork()
    if sibling == 0:
        time.sleep(600)
print(process.pid, sibling, flush=True)
time.sleep(600)
"""


@pytest.mark.parametrize("sibling", ["alone", "forked"])
def test_dies_with_a_parent_that_is_killed(tmp_path: Path, sibling: str) -> None:
    """With a forked sibling too, which holds copies of all our pipes and so keeps them open."""
    directory = tmp_path / "temporary"
    directory.mkdir()
    (directory / "file").write_text("x")
    parent = subprocess.Popen([sys.executable, "-c", PARENT, str(directory), sibling], stdout=subprocess.PIPE)
    assert parent.stdout is not None
    with parent.stdout as answers:
        pid, sibling_pid = map(int, answers.readline().split())
        try:
            assert exists(pid)
            parent.kill()
            parent.wait()
            assert eventually(lambda: not exists(pid))
            assert eventually(lambda: not directory.exists())
            assert not sibling_pid or exists(sibling_pid)
        finally:
            if sibling_pid:
                os.kill(sibling_pid, signal.SIGKILL)


@pytest.mark.skipif(sys.platform != "linux", reason="PR_SET_PDEATHSIG is Linux's")
def test_dies_with_its_guard() -> None:
    process = GuardedProcess(SLEEP)
    os.kill(process._guard.pid, signal.SIGKILL)
    assert eventually(lambda: not exists(process.pid))
    process.close()


def test_ends_with_the_code_of_its_process() -> None:
    process = GuardedProcess([sys.executable, "-c", "raise SystemExit(7)"])
    assert process.wait(15)
    assert (process.alive, process.exit_code) == (False, 7)
    process.close()


def test_is_killed_and_terminated() -> None:
    for end, code in ((GuardedProcess.kill, 137), (GuardedProcess.terminate, 143)):
        process = GuardedProcess(SLEEP)
        assert process.alive
        assert not process.wait(0.0)
        end(process)
        assert process.wait(15)
        assert process.exit_code == code
        assert not exists(process.pid)
        process.close()


def test_closing_kills_it() -> None:
    process = GuardedProcess(SLEEP)
    process.close()
    assert not exists(process.pid)


def test_its_output_goes_to_the_file(tmp_path: Path) -> None:
    with (tmp_path / "log").open("wb") as log:
        process = GuardedProcess(
            [sys.executable, "-c", "import sys; print('out'); sys.stdout.flush(); print('err', file=sys.stderr)"],
            output=log,
        )
    assert process.wait(15)
    process.close()
    assert (tmp_path / "log").read_text() == "out\nerr\n"


def test_what_can_not_be_started_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ProcessError, match="could not start /nowhere/java"), (tmp_path / "log").open("wb") as log:
        GuardedProcess(["/nowhere/java"], output=log)


def test_a_dismissed_directory_guard_leaves_the_directory(tmp_path: Path) -> None:
    DirectoryGuard(tmp_path).dismiss()
    assert tmp_path.exists()


def test_a_detached_process_is_known_by_its_token(tmp_path: Path) -> None:
    with (tmp_path / "log").open("wb") as log:
        started = DetachedProcess.start([*SLEEP, "token-1"], "token-1", environment=dict(os.environ), output=log)
    try:
        # (Linux tells the command line a moment after exec.)
        assert eventually(lambda: DetachedProcess(started.pid, "token-1").alive)
        stranger = DetachedProcess(started.pid, "token-2")
        assert not stranger.alive
        stranger.kill()
        assert started.alive, "a process that is not ours was killed"
    finally:
        started.kill()
    assert started.wait(15)
    assert started.exit_code == 137
    assert not DetachedProcess(started.pid, "token-1").alive
