"""The process's one I/O thread: an event loop of its own, so that heartbeats and time-outs wait for no user's code.

Every piece of mutable client state belongs to this thread. Other threads hand it coroutines and wait for their
results; an application's own event loop awaits them. The thread does not survive a fork: whatever was made before the
fork raises `ForkedClientError` in the child, and a new client in the child gets a new thread.
"""

from __future__ import annotations

import asyncio
import atexit
import concurrent.futures
import logging
import os
import threading
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from rocketstream.errors import ClientStateError, ForkedClientError

T = TypeVar("T")

log = logging.getLogger("rocketstream.remoting")

PATIENCE_AT_EXIT = 30.0
"""How long the end of the process waits for shutdowns that are under way; as long as a shutdown waits for listeners."""


def new_event_loop() -> asyncio.AbstractEventLoop:
    """uvloop's loop where it is installed, else asyncio's."""
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    loop: asyncio.AbstractEventLoop = uvloop.new_event_loop()
    return loop


class IoThread:
    """A daemon thread that runs an event loop and takes coroutines from other threads."""

    _shared: IoThread | None = None
    _shared_lock = threading.Lock()

    def __init__(self, name: str = "rocketstream-io") -> None:
        self._pid = os.getpid()
        self._loop = new_event_loop()
        self._stopped = False
        self._lasting: dict[concurrent.futures.Future[Any], str] = {}
        ready = threading.Event()
        self._thread = threading.Thread(target=self._main, args=(ready,), name=name, daemon=True)
        self._thread.start()
        ready.wait()

    @classmethod
    def shared(cls) -> IoThread:
        """The process's own, started when it is first asked for."""
        with cls._shared_lock:
            if cls._shared is None or cls._shared._stopped:
                cls._shared = cls()
            return cls._shared

    @classmethod
    def _forget_shared(cls) -> None:
        # In a forked child the lock may be held by a thread that does not exist there.
        cls._shared_lock = threading.Lock()
        cls._shared = None

    @classmethod
    def _stop_shared(cls) -> None:
        if cls._shared is not None and cls._shared._pid == os.getpid():
            cls._shared.wait_for_lasting(PATIENCE_AT_EXIT)
            cls._shared.stop()

    def __repr__(self) -> str:
        state = "stopped" if self._stopped else "running"
        return f"<IoThread {self._thread.name} of process {self._pid} {state}, {type(self._loop).__module__}>"

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """The loop; only its thread-safe methods are for other threads."""
        return self._loop

    @property
    def is_elsewhere(self) -> bool:
        """Whether this is a forked child of the process whose thread it is."""
        return os.getpid() != self._pid

    def check_process(self, what: str = "this client") -> None:
        """Raise in a forked child, before anything is touched that is the parent's: a lock, a socket, a state."""
        if os.getpid() != self._pid:
            raise ForkedClientError(what, self._pid, os.getpid())

    def check(self, what: str = "this client") -> None:
        """Raise where a call could only hang: in a forked child, after the end, on the I/O thread itself."""
        self.check_process(what)
        if self._stopped:
            raise ClientStateError(f"{what} cannot be used: the process's I/O thread has been stopped")

    def check_may_wait(self, what: str = "this client") -> None:
        """Raise where a blocking call would wait for itself: on the I/O thread."""
        if threading.get_ident() == self._thread.ident and os.getpid() == self._pid:
            raise ClientStateError(f"{what}: a blocking call on the I/O thread would wait for itself")

    def submit(
        self, coroutine: Coroutine[Any, Any, T], what: str = "this client", *, lasting: bool = False
    ) -> concurrent.futures.Future[T]:
        """Start a coroutine on the I/O thread and return a future of its result.

        The end of the process waits a while for what is `lasting`: a shutdown that nobody waits for any more.
        """
        try:
            self.check(what)
        except BaseException:
            coroutine.close()
            raise
        future = asyncio.run_coroutine_threadsafe(coroutine, self._loop)
        if lasting:
            self._lasting[future] = what
            future.add_done_callback(self._lasting.pop)
        return future

    def run(self, coroutine: Coroutine[Any, Any, T], what: str = "this client", timeout: float | None = None) -> T:
        """Run a coroutine on the I/O thread and wait for its result, from any other thread."""
        try:
            self.check_may_wait(what)
        except BaseException:
            coroutine.close()
            raise
        future = self.submit(coroutine, what)
        try:
            return future.result(timeout)
        except BaseException:
            # Ctrl-C in a waiting caller, or its own time-out: nobody waits for the answer any more.
            future.cancel()
            raise

    async def bridge(self, coroutine: Coroutine[Any, Any, T], what: str = "this client") -> T:
        """Await a coroutine of the I/O thread from another event loop; cancelling the wait cancels it."""
        return await asyncio.wrap_future(self.submit(coroutine, what))

    def call_soon(self, callback: Callable[..., Any], *args: Any) -> None:
        """Run a plain function on the I/O thread, soon."""
        self._loop.call_soon_threadsafe(callback, *args)

    def wait_for_lasting(self, timeout: float) -> None:
        """Let shutdowns end that are under way, and say which have not."""
        concurrent.futures.wait(list(self._lasting), timeout)
        for what in set(self._lasting.values()):
            log.warning(
                "%s had not ended after %g s, when the process did: what it did not finish comes again", what, timeout
            )

    def stop(self, timeout: float = 5.0) -> None:
        """End the thread: its tasks are cancelled, its loop closed."""
        if self._stopped:
            return
        self._stopped = True
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(timeout)

    def _main(self, ready: threading.Event) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.call_soon(ready.set)
        try:
            self._loop.run_forever()
        finally:
            try:
                tasks = asyncio.all_tasks(self._loop)
                for task in tasks:
                    task.cancel()
                if tasks:
                    self._loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))
                self._loop.run_until_complete(self._loop.shutdown_asyncgens())
            finally:
                asyncio.set_event_loop(None)
                self._loop.close()


os.register_at_fork(after_in_child=IoThread._forget_shared)
atexit.register(IoThread._stop_shared)
