"""Things of the test bed that live on an event loop: the caller's own (`async with`), or one in a thread (`with`)."""

from __future__ import annotations

import asyncio
import concurrent.futures
from abc import ABC, abstractmethod
from collections.abc import Callable
from types import TracebackType
from typing import Self, TypeVar

from rocketstream.remoting.io_thread import IoThread

T = TypeVar("T")


class OnLoop(ABC):
    """`with` runs it on a loop in a thread of its own, `async with` on the running loop; never both."""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: IoThread | None = None

    @abstractmethod
    async def start(self) -> None:
        """Begin, on the running loop."""

    @abstractmethod
    async def close(self) -> None:
        """End, on the loop on which it was started."""

    @abstractmethod
    def raise_hook_error(self) -> None:
        """Raise what a user's hook has raised meanwhile, where the user sees it."""

    def on_loop(self, change: Callable[[], T]) -> T:
        """Run a change where the state belongs, and return when it is done; from any thread."""
        loop = self._loop
        if loop is None or loop is _running_loop():
            return change()  # not started, or already there
        done: concurrent.futures.Future[T] = concurrent.futures.Future()

        def run() -> None:
            try:
                done.set_result(change())
            except BaseException as error:
                done.set_exception(error)

        loop.call_soon_threadsafe(run)
        return done.result()

    async def _start(self) -> None:
        self._loop = asyncio.get_running_loop()
        await self.start()

    async def _close(self) -> None:
        await self.close()
        self._loop = None

    def __enter__(self) -> Self:
        self._thread = IoThread(type(self).__name__)
        try:
            self._thread.run(self._start(), repr(self))
        except BaseException:
            self._thread.stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._thread is not None
        try:
            self._thread.run(self._close(), repr(self))
        finally:
            self._thread.stop()
        if error is None:
            self.raise_hook_error()

    async def __aenter__(self) -> Self:
        await self._start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._close()
        if error is None:
            self.raise_hook_error()


def _running_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None
