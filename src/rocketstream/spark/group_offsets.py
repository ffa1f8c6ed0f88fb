"""A group's offsets at the brokers, written while a stream runs: what operators see as its progress and lag.

The rule of this file: it writes only what Spark has finished, and never stops a stream: Spark's checkpoint is what
counts, and offsets that could not be written are written with the next batch's.
"""

from __future__ import annotations

import concurrent.futures
import logging
from collections.abc import Mapping

from rocketstream.errors import RocketStreamError
from rocketstream.message import MessageQueue
from rocketstream.spark.link import Link
from rocketstream.spark.offsets import Offsets

log = logging.getLogger("rocketstream.spark")

_WAIT = 5.0


class GroupOffsets:
    """The offsets of one group, as far as a stream has finished; one write at a time, the newest wins."""

    def __init__(self, link: Link, group: str) -> None:
        self._link = link
        self._group = group
        self._finished: Offsets = {}
        self._written: Offsets = {}
        self._writing: concurrent.futures.Future[None] | None = None

    def __repr__(self) -> str:
        behind = sum(self._written.get(queue) != offset for queue, offset in self._finished.items())
        return f"<GroupOffsets of {self._group}, {behind} of {len(self._finished)} queues to be written>"

    def finished(self, offsets: Mapping[MessageQueue, int]) -> None:
        """Everything before these offsets is finished: have it written, without waiting."""
        self._finished = dict(offsets)
        if self._writing is None or self._writing.done():
            self._begin()

    def flush(self) -> None:
        """Wait until what is finished is written, for a few seconds at most."""
        for _ in range(2):  # the write under way, and one for what was finished since
            if self._writing is None:
                return
            try:
                self._writing.result(_WAIT)
            except (RocketStreamError, TimeoutError, concurrent.futures.CancelledError) as error:
                log.warning("offsets of group %s are not written yet: %s", self._group, error or "no answer")
                return
            self._begin()

    def _begin(self) -> None:
        self._writing = None
        changed = {queue: offset for queue, offset in self._finished.items() if self._written.get(queue) != offset}
        if not changed:
            return

        async def write() -> None:
            try:
                await self._link.commit_async(self._group, changed)
            except RocketStreamError as error:
                log.warning("offsets of group %s are not written yet: %s", self._group, error)
                return
            self._written.update(changed)

        self._writing = self._link.io.submit(write(), repr(self))
