"""The beginning and the end of a client for an event loop, whoever stops waiting for them.

The rule of this file: a call that is cancelled leaves the client as it was or ended, never half started, and nothing
running that nobody knows of. A start that is cancelled is taken back before the cancellation goes on. A shutdown goes
on without whoever waited for it, on the I/O thread, within its own time; the end of the process waits for it a while.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
from collections.abc import Callable, Coroutine
from typing import Any

from rocketstream.cluster.client import ClientCore, ClientState, Start


class Life:
    """The beginning and the end of one client."""

    def __init__(self, core: ClientCore) -> None:
        self._core = core
        self._ending: concurrent.futures.Future[None] | None = None

    def __repr__(self) -> str:
        return f"<Life of {self._core!r}{', ending' if self._ending is not None else ''}>"

    async def start(self) -> None:
        """Start, or raise; cancelled, give everything back first, so that it could be started again."""
        core = self._core
        start = Start(core)
        begun = core.io.submit(start.run(), core.what)
        try:
            await asyncio.shield(asyncio.wrap_future(begun))
        except asyncio.CancelledError:
            # A second cancellation must not leave it half taken back: that ends on the I/O thread by itself.
            await asyncio.shield(asyncio.wrap_future(core.io.submit(start.take_back(), core.what, lasting=True)))
            raise

    async def end(self, shutdown: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Shut down once, however often it is called, and wait until that is through."""
        core = self._core
        core.check_process()
        if self._ending is None and core.state is ClientState.RUNNING:
            self._ending = core.io.submit(shutdown(), core.what, lasting=True)
        if self._ending is not None:
            await asyncio.shield(asyncio.wrap_future(self._ending))
