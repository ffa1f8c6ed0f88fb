"""What a consumer asks of whoever has its listener called: threads of its own, or Spark."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from rocketstream.consumer.process_queue import ProcessQueue
from rocketstream.message import ReceivedMessage


class PoolSize(Protocol):
    """How many listeners may run, for whoever asks."""

    @property
    def size(self) -> int:
        """How many pieces of work may run at a time."""

    @property
    def backlog(self) -> int:
        """How much work waits."""


class ConsumeService(Protocol):
    """All methods belong to the I/O thread."""

    @property
    def pool(self) -> PoolSize:
        """Who runs the listener."""

    def submit(self, pq: ProcessQueue, messages: Sequence[ReceivedMessage], dispatch: bool = True) -> None:
        """Have messages consumed that were pulled; `dispatch` says whether nobody works on an ordered queue yet."""

    def settle(self) -> None:
        """Account for every call of the listener that has ended."""

    async def listener_ended(self, pq: ProcessQueue, timeout: float) -> bool:
        """Wait until no listener runs on a dropped queue, where that matters; False if one does after `timeout` s."""

    async def adjust(self, cached: int) -> None:
        """Let the pool grow or shrink with what is cached (CON-14)."""

    async def send_back_stale(self) -> None:
        """What a listener does not finish must not hold up its queue for ever (PQ-08)."""

    async def stop(self, timeout: float) -> bool:
        """Let running listeners end and their results count; False if some still run after `timeout` seconds."""
