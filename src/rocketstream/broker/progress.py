"""How far a service has come with its queue, saved so that a crash repeats work but never skips it.

What such a service does is to store messages (a delayed message in its topic, a transaction's end). Its progress may
be written only once they survive a crash: the other way round, a crash in between would lose them.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable
from typing import Any

from rocketstream.broker.refusal import Refusal
from rocketstream.broker.state import StateFiles
from rocketstream.broker.store.values import MessageStore, Stored

log = logging.getLogger("rocketstream.broker")


class Progress:
    """One service's progress: a JSON value by name."""

    def __init__(self, *, state: StateFiles, store: MessageStore, name: str) -> None:
        self._state = state
        self._store = store
        self._name = name
        self._position: int | None = None
        self._saving: asyncio.Task[None] | None = None

    def load(self) -> Any | None:
        """What was saved last."""
        return self._state.load(self._name)

    def stored(self, stored: Stored) -> None:
        """The progress to be saved next rests on this message."""
        self._position = stored.position

    def save(self, value: Any) -> None:
        """Save as soon as everything that was stored survives a crash."""
        waiting = None if self._position is None else self._store.durable(self._position)
        if waiting is None:
            self._position = None
            self._state.save(self._name, value)
        elif self._saving is None or self._saving.done():
            self._saving = asyncio.ensure_future(self._save_after(waiting, value))

    async def _save_after(self, waiting: Awaitable[None], value: Any) -> None:
        try:
            await waiting
        except Refusal as refusal:  # the disk is broken: what was saved before stays
            log.warning("%s is not saved: %s", self._name, refusal.remark)
        else:
            self._state.save(self._name, value)

    def stop(self, value: Any) -> None:
        """Save for the last time, unless something is not durable yet: then it is found and done again."""
        if self._saving is not None:
            self._saving.cancel()
        try:
            waiting = None if self._position is None else self._store.durable(self._position)
        except Refusal:  # the disk is broken
            return
        if waiting is None:
            self._state.save(self._name, value)
