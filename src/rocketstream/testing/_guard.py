"""Keeps a process from outliving the one that asked for it. Run as a script; it imports nothing of ours.

A test run can be killed in ways that leave it no time to clean up. So it does not start Java itself: it starts this
guard, which starts Java and then waits for one of two things. Java ends: the guard ends with the same code. The parent
ends, however that happened: its end of the lifeline pipe closes (or the guard gets a new parent, which also covers a
forked sibling that still holds the pipe); the guard kills Java and removes the parent's temporary directory.

The guard is a leader of its own session, so that neither Ctrl-C nor a kill of the parent's process group takes it
along.
Should the guard itself be killed, Linux kills Java for it (PR_SET_PDEATHSIG).
"""

from __future__ import annotations

import argparse
import os
import select
import shutil
import signal
import subprocess
import sys
import threading
import time

_PR_SET_PDEATHSIG = 1
_DISMISSED = b"q"


def _die_with_guard() -> None:
    if sys.platform == "linux":
        import ctypes

        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def _wait_for_parent(lifeline: int, parent: int) -> bool:
    """Return True when the parent is gone, False when it dismissed us."""
    while True:
        readable, _, _ = select.select([lifeline], [], [], 0.5)
        if readable:
            return os.read(lifeline, 1) != _DISMISSED
        if os.getppid() != parent:
            return True


def _remove(directory: str) -> None:
    # The other guards of the same parent are killing their processes right now: what these still wrote after our first
    # try has to go as well.
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        shutil.rmtree(directory, ignore_errors=True)
        time.sleep(0.3)
        if not os.path.exists(directory):
            return


def _exit_with(process: subprocess.Popen[bytes]) -> None:
    code = process.wait()
    os._exit(code if code >= 0 else 128 - code)


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--lifeline", type=int, required=True)
    parser.add_argument("--status", type=int)
    parser.add_argument("--parent", type=int, required=True)
    parser.add_argument("--remove", default="")
    parser.add_argument("command", nargs="*")
    options = parser.parse_args()

    process = None
    if options.command:
        # PDEATHSIG follows the *thread* that forks; it is this one, which lives as long as the guard.
        process = subprocess.Popen(options.command, preexec_fn=_die_with_guard)
        os.write(options.status, b"%d\n" % process.pid)
        os.close(options.status)
        threading.Thread(target=_exit_with, args=(process,), daemon=True).start()
    orphaned = _wait_for_parent(options.lifeline, options.parent)
    if process is not None:
        process.kill()
        process.wait()
    if orphaned and options.remove:
        _remove(options.remove)
    return 0


if __name__ == "__main__":
    sys.exit(main())
