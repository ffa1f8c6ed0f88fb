"""The I/O thread: one per process, never waited for by itself, left behind by a fork."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading
import traceback
from collections.abc import Callable

import pytest

from rocketstream.errors import ClientStateError, ForkedClientError
from rocketstream.remoting.client import RemotingClient
from rocketstream.remoting.io_thread import IoThread
from rocketstream.wire.command import request


@pytest.fixture
def io():
    io = IoThread("test-io")
    yield io
    io.stop()


async def where() -> int:
    return threading.get_ident()


def in_fork(check: Callable[[], None]) -> str:
    """Run a check in a forked child; return what it printed ("" if it passed)."""
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(reading)
        text = ""
        try:
            check()
        except BaseException:
            text = traceback.format_exc()
        os.write(writing, text.encode())
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as pipe:
        text = pipe.read()
    os.waitpid(pid, 0)
    return text


def test_a_process_has_one_shared_io_thread():
    assert IoThread.shared() is IoThread.shared()
    assert IoThread.shared().run(where()) != threading.get_ident()
    assert IoThread.shared().run(where()) == IoThread.shared().run(where())


def test_uvloop_is_used_where_it_is_installed(io):
    uvloop = pytest.importorskip("uvloop")
    assert isinstance(io.loop, uvloop.Loop)
    assert "running, uvloop" in repr(io)


def test_results_and_errors_come_back_to_the_caller(io):
    async def fails() -> None:
        raise ValueError("as expected")

    assert io.run(asyncio.sleep(0, "done")) == "done"
    with pytest.raises(ValueError, match="as expected"):
        io.run(fails())


def test_another_loop_can_await_and_cancel(io):
    cancelled = threading.Event()

    async def wait_forever() -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.set()
            raise

    async def user() -> int:
        thread = await io.bridge(where())
        task = asyncio.ensure_future(io.bridge(wait_forever()))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        return thread

    assert asyncio.run(user()) != threading.get_ident()
    assert cancelled.wait(10)


def test_a_blocking_call_on_the_io_thread_is_refused_instead_of_hanging(io):
    async def blocks() -> None:
        io.run(where(), "the producer")

    with pytest.raises(ClientStateError, match="the producer: a blocking call on the I/O thread would wait for itself"):
        io.run(blocks())


def test_a_caller_that_gives_up_cancels_its_coroutine(io):
    cancelled = threading.Event()

    async def wait_forever() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()

    with pytest.raises(TimeoutError):
        io.run(wait_forever(), timeout=0.01)
    assert cancelled.wait(10)


def test_a_stopped_thread_says_so_and_is_replaced(io, monkeypatch):
    monkeypatch.setattr(IoThread, "_shared", None)  # other tests' connections live on the process's own
    io.stop()
    with pytest.raises(ClientStateError, match="I/O thread has been stopped"):
        io.run(where())
    first = IoThread.shared()
    first.stop()
    second = IoThread.shared()
    assert second is not first
    assert second.run(where())
    second.stop()


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # forking with threads is just what is tested
def test_a_client_used_after_a_fork_raises_instead_of_hanging():
    io = IoThread.shared()

    async def make() -> RemotingClient:
        client = RemotingClient()
        client.start()
        return client

    client = io.run(make())
    parent = os.getpid()

    def check() -> None:
        with pytest.raises(ForkedClientError) as caught:
            io.run(client.invoke("127.0.0.1:1", request(105), 3), "the producer of group 'g'")
        text = str(caught.value)
        assert f"the producer of group 'g' was made in process {parent}" in text
        assert "Create the client after the fork" in text

    assert in_fork(check) == ""
    io.run(client.close())


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_forked_child_gets_a_thread_of_its_own():
    io = IoThread.shared()

    def check() -> None:
        assert IoThread.shared() is not io
        assert IoThread.shared().run(where()) != threading.get_ident()

    assert in_fork(check) == ""
    assert io.run(where()), "and the parent's goes on"


def test_a_process_that_ends_without_closing_its_clients_ends_quietly():
    program = """
import asyncio
from rocketstream.remoting.client import RemotingClient
from rocketstream.remoting.io_thread import IoThread

async def make():
    client = RemotingClient()
    client.start()
    asyncio.ensure_future(asyncio.Event().wait())
    return client

client = IoThread.shared().run(make())
print("done")
"""
    ended = subprocess.run([sys.executable, "-X", "dev", "-c", program], capture_output=True, text=True, timeout=60)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "done\n", "")


def test_what_lasts_is_waited_for_and_named_if_it_takes_too_long(caplog):
    io = IoThread("lasting")
    try:
        gate = asyncio.Event()

        async def end() -> None:
            await gate.wait()

        io.submit(end(), "a question")
        ending = io.submit(end(), "consumer of group 'g'", lasting=True)
        io.wait_for_lasting(0.01)
        assert "consumer of group 'g' had not ended after 0.01 s, when the process did" in caplog.text
        assert "a question" not in caplog.text
        io.call_soon(gate.set)
        io.wait_for_lasting(30.0)
        assert ending.done()
        caplog.clear()
        io.wait_for_lasting(0.01)
        assert caplog.text == ""
    finally:
        io.stop()
