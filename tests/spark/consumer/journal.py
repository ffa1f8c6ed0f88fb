"""Listeners for tests of `SparkConsumer`: pickled, run in other processes, noting in a file what they got."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from rocketstream import ConsumeResult, OrderlyResult
from rocketstream.message import ReceivedMessage


class Noted(NamedTuple):
    """One message as a listener got it."""

    body: str
    times: int
    topic: str
    queue_id: int
    batch: int
    """How many messages the call had."""
    pid: int


class Journal:
    """A file to which any process may add lines; each is written at once and whole."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def add(self, messages: Sequence[ReceivedMessage], context: Any) -> None:
        lines = [
            Noted(
                message.body.decode(),
                message.reconsume_times,
                message.topic,
                context.queue.queue_id,
                len(messages),
                os.getpid(),
            )
            for message in messages
        ]
        self.write(*lines)

    def write(self, *lines: Any) -> None:
        descriptor = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        try:
            os.write(descriptor, "".join(json.dumps(line) + "\n" for line in lines).encode())
        finally:
            os.close(descriptor)

    def lines(self) -> list[Noted]:
        if not self.path.exists():
            return []
        return [Noted(*json.loads(line)) for line in self.path.read_text().splitlines()]

    def bodies(self) -> list[str]:
        return [line.body for line in self.lines()]

    def count(self, body: str) -> int:
        return self.bodies().count(body)


class Concurrent:
    """What a message's body says happens: `ok-…`, `fail2-…` (fails twice), `raise1-…`, `none1-…`, `always-…`, `dead-…`.

    In a batch, messages from the first that fails on have failed. Retried ones come after a second.
    """

    def __init__(self, journal: Journal) -> None:
        self.journal = journal

    def __call__(self, messages: Sequence[ReceivedMessage], context: Any) -> Any:
        self.journal.add(messages, context)
        context.delay_level_when_next_consume = 1
        for index, message in enumerate(messages):
            kind, failures = self._kind(message.body.decode())
            if kind == "dead":
                context.delay_level_when_next_consume = -1
                return ConsumeResult.RECONSUME_LATER
            if kind == "ok" or message.reconsume_times >= failures:
                continue
            if kind == "raise":
                raise ValueError(f"cannot do {message.body!r}")
            if kind == "none":
                return None
            if kind == "partial":
                context.ack_index = index - 1
                return ConsumeResult.SUCCESS
            return ConsumeResult.RECONSUME_LATER
        return ConsumeResult.SUCCESS

    @staticmethod
    def _kind(body: str) -> tuple[str, int]:
        name = body.partition("-")[0]
        kind = name.rstrip("0123456789")
        return kind, int(name[len(kind) :] or 1 << 30)


class Orderly:
    """The same in order: `ok-…`, `suspend2-…`, `raise1-…`, `none1-…`, `always-…`; and with own commits also
    `keep-…` (SUCCESS), `commit-…`, `rollback1-…` (the first time), `ok-…` then commits too."""

    def __init__(self, journal: Journal, auto_commit: bool = True, pause: float = 0.1) -> None:
        self.journal = journal
        self.auto_commit = auto_commit
        self.pause = pause

    def __call__(self, messages: Sequence[ReceivedMessage], context: Any) -> Any:
        context.auto_commit = self.auto_commit
        context.suspend_current_queue_time = self.pause
        (message,) = messages
        body = message.body.decode()
        before = self.journal.count(body)
        self.journal.add(messages, context)
        kind, times = Concurrent._kind(body)
        if kind == "rollback":
            return OrderlyResult.ROLLBACK if before < times else OrderlyResult.COMMIT
        if kind == "keep":
            return OrderlyResult.SUCCESS
        if kind in ("ok", "commit") or message.reconsume_times >= times:
            return OrderlyResult.SUCCESS if self.auto_commit else OrderlyResult.COMMIT
        if kind == "raise":
            raise ValueError(f"cannot do {body}")
        return None if kind == "none" else OrderlyResult.SUSPEND
