"""The group's offsets at the brokers, and once more in a file of the driver's.

The rule of this file: a driver that starts again never goes behind what it has finished. What is finished is in the
file before a broker is told. When the driver starts, the larger of the two wins, and is written to the broker; a reset
to an earlier offset while the consumer runs is written to both. To go back while it does not run, delete the file too.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Final

from rocketstream.cluster.client_instance import ClientInstance
from rocketstream.consumer.broker_offsets import BrokerOffsets
from rocketstream.consumer.local_offsets import OffsetFile
from rocketstream.consumer.offset_store import MakeSure
from rocketstream.consumer.pull_request import PullRequest
from rocketstream.errors import ConfigurationError, OffsetStoreError
from rocketstream.message import MessageQueue

log = logging.getLogger("rocketstream.spark.listening")

_FILE_NAME: Final = "offsets.json"


def checkpoint_directory(given: object) -> Path | None:
    """The directory that a user names, or None; refused if it cannot be one of this machine's."""
    if given is None:
        return None
    if not isinstance(given, str | os.PathLike) or not str(os.fspath(given)).strip():
        raise ConfigurationError(f"checkpoint={given!r} must be the path of a directory, or None")
    text = str(os.fspath(given)).removeprefix("file://")
    if "://" in text:
        raise ConfigurationError(
            f"checkpoint={given!r} must be a directory that the driver can reach as a file, not a URL of another system"
        )
    path = Path(text).expanduser()
    if path.exists() and not path.is_dir():
        raise ConfigurationError(f"checkpoint={given!r} is a file: it must be a directory")
    return path


class CheckpointedOffsets(BrokerOffsets):
    """Offsets at the brokers and in `<directory>/<group>/offsets.json`."""

    def __init__(
        self,
        instance: ClientInstance,
        group: str,
        directory: Path,
        pull_of: Callable[[MessageQueue], PullRequest | None],
    ) -> None:
        super().__init__(instance, group, pull_of)
        self._file = OffsetFile(directory / group / _FILE_NAME)
        self._written: dict[MessageQueue, int] = {}
        self._to_compare: dict[MessageQueue, int] = {}
        self._one_at_a_time = asyncio.Lock()

    def __repr__(self) -> str:
        return f"<CheckpointedOffsets of group {self._group} in {self._file.path}, {len(self._offsets)} queues>"

    async def load(self) -> None:
        """Read the file; an error if it and its backup are damaged."""
        self._written = await asyncio.to_thread(self._file.read)
        self._to_compare = dict(self._written)
        await self._write_file({})  # a directory that cannot be written to is found now, not after the first messages

    async def _read_stored(self, queue: MessageQueue) -> int:
        stored = await super()._read_stored(queue)
        # Compared once: from then on the broker knows, and others may have gone on or have reset the group.
        ours = self._to_compare.get(queue, -1)
        if ours > stored:
            log.warning(
                "%s: the checkpoint %s has offset %d, the broker %d: it goes on with the larger",
                queue,
                self._file.path,
                ours,
                stored,
            )
            self._offsets[queue] = stored = ours
            await super().persist(queue)
        self._to_compare.pop(queue, None)
        return stored

    async def persist(self, queue: MessageQueue) -> None:
        """Write one offset to the file, then to the broker, and be sure of both."""
        await self._write_one_to_file(queue)
        await super().persist(queue)

    async def persist_last(self, queue: MessageQueue, patience: float) -> MakeSure | None:
        """The same, for a queue that is given up."""
        self._leaving.add(queue)  # the timer does not forget it meanwhile
        try:
            await self._write_one_to_file(queue)
            return await super().persist_last(queue, patience)
        finally:
            self._leaving.discard(queue)

    async def _write_one_to_file(self, queue: MessageQueue) -> None:
        offset = self._offsets.get(queue)
        if offset is not None:
            await self._write_file({queue: offset})

    async def persist_all(self, queues: Collection[MessageQueue]) -> None:
        """Write what has changed."""
        owned = frozenset(queues)
        try:
            await self._write_file({queue: offset for queue, offset in self._offsets.items() if queue in owned})
        except OffsetStoreError as error:
            log.warning("%s; its offsets are still written to the brokers", error)
        await super().persist_all(owned)

    async def write_checkpoint(self, offsets: dict[MessageQueue, int]) -> None:
        """Put these into the file, for many queues at once."""
        await self._write_file(offsets)

    async def _write_file(self, offsets: dict[MessageQueue, int]) -> None:
        async with self._one_at_a_time:
            merged = {**self._written, **offsets}
            if merged != self._written or not offsets:
                await asyncio.to_thread(self._file.write, merged)
                self._written = merged
