"""The trace of what was sent (or consumed) when and where, as messages of the trace topic.

A trace must never slow or fail what it traces: records wait in a bounded queue, leave in groups, and are dropped, with
a count and a warning a minute, where the trace topic cannot keep up. Everything here belongs to the I/O thread.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Final

from rocketstream.clock import Clock, Timer
from rocketstream.errors import RocketStreamError
from rocketstream.message import Message
from rocketstream.producer.outgoing import Outgoing
from rocketstream.producer.receipt import SendReceipt, SendStatus
from rocketstream.property_names import PropertyName
from rocketstream.wire.sysflag import TransactionType, transaction_type
from rocketstream.wire.trace import DEFAULT_REGION, PublishTrace, Trace, TracedMessageType

log = logging.getLogger("rocketstream.producer")

MAX_WAITING = 4096
MAX_RECORDS = 200
MAX_BYTES = 128_000
# A message's properties end at 32,767 bytes, and the keys are among them.
MAX_KEYS: Final = 16_000
MAX_DELAY = 0.5
FLUSH_TIMEOUT: Final = 5.0
_WARNING_INTERVAL: Final = 60.0


def traced_type(out: Outgoing) -> TracedMessageType:
    """What a trace calls this kind of message."""
    message = out.message
    if transaction_type(int(out.fields["f"])) is TransactionType.PREPARED:
        return TracedMessageType.TRANSACTION_HALF
    if message.delay_level or message.delay is not None or message.deliver_at is not None:
        return TracedMessageType.DELAY
    return TracedMessageType.NORMAL


def publish_traces(
    out: Outgoing,
    address: str,
    receipt: SendReceipt,
    answered: Mapping[str, str],
    group: str,
    clock: Clock,
    begun: float,
) -> Iterable[PublishTrace]:
    """The records of a send that has just ended: one, or one for each message of a batch, to be found by its own id.

    `answered` are the fields of the broker's answer: it names its region there, and may say that it wants no trace.
    """
    if answered.get(PropertyName.TRACE_SWITCH) == "false":
        return
    cost_ms = round((clock.monotonic() - begun) * 1000)
    message, ids = out.message, receipt.message_id.split(",")
    offset_ids = (receipt.offset_message_id or "").split(",")
    for number, message_id in enumerate(ids):
        yield PublishTrace(
            timestamp=clock.wall_ms() - cost_ms,
            region=answered.get(PropertyName.REGION) or DEFAULT_REGION,
            group=group,
            topic=message.topic,
            message_id=message_id,
            # Of a batch only the first message is at hand; what the others are found by is their id.
            tags=message.tags if out.count == 1 else None,
            keys=message.keys if out.count == 1 else None,
            store_host=address,
            body_length=len(message.body) if out.count == 1 else len(out.body) // out.count,
            cost_ms=cost_ms,
            message_type=traced_type(out),
            offset_message_id=offset_ids[number] if number < len(offset_ids) else None,
            success=receipt.status is SendStatus.OK,
        )


class TraceDispatcher:
    """Gathers trace records and sends them."""

    def __init__(self, topic: str, clock: Clock, send: Callable[[Message], Awaitable[object]]) -> None:
        self.topic = topic
        self.dropped = 0
        self.clock = clock
        self._send = send
        # Text, the message's id and keys, and how many records the text has.
        self._waiting: deque[tuple[str, str, str | None, int]] = deque()
        self._count = 0
        self._timer: Timer | None = None
        self._task: asyncio.Task[None] | None = None
        self._warned_at: float | None = None
        self._unsaid = 0
        self._ended = False

    def __repr__(self) -> str:
        return f"<TraceDispatcher {self.topic}, {self._count} waiting, {self.dropped} dropped>"

    @property
    def has_room(self) -> bool:
        """Whether it is worth while to make a record."""
        return self._count < MAX_WAITING and not self._ended

    @property
    def why_no_room(self) -> str:
        """Why records are dropped that are taken now."""
        return "their client has ended" if self._ended else f"{self._count} are waiting to be sent already"

    def record(self, trace: Trace) -> None:
        """Take a record; never blocks, never raises."""
        self.add(trace.encode(), trace.message_id, trace.keys)

    def add(self, text: str, message_id: str, keys: str | None, count: int = 1) -> None:
        """Take `count` records of one message that are written already."""
        if self._count >= MAX_WAITING or self._ended:
            self.drop(count, self.why_no_room)
            return
        self._waiting.append((text, message_id, keys, count))
        self._count += count
        if self._count >= MAX_RECORDS:
            self._start()
        elif self._timer is None:
            self._timer = self.clock.call_later(MAX_DELAY, self._start)

    def drop(self, count: int, reason: str) -> None:
        """So many records are lost."""
        self.dropped += count
        self._unsaid += count
        now = self.clock.monotonic()
        # Not each time: a trace that does not work would fill the log.
        if self._warned_at is None or now - self._warned_at >= _WARNING_INTERVAL:
            log.warning(
                "%d traces for topic %r were dropped (%d in all): %s", self._unsaid, self.topic, self.dropped, reason
            )
            self._warned_at, self._unsaid = now, 0

    async def end(self, timeout: float = FLUSH_TIMEOUT) -> None:
        """Send what waits and take no more; what is not sent after `timeout` seconds is dropped."""
        self._ended = True
        self._start()
        task = self._task
        if task is not None:
            timer = self.clock.call_later(timeout, task.cancel)
            await asyncio.wait([task])
            timer.cancel()
        if self._waiting:
            self.drop(self._count, f"they could not be sent within the {timeout:g} s that the end waits")
            self._waiting.clear()
            self._count = 0

    def _start(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._waiting and self._task is None:
            self._task = asyncio.ensure_future(self._run())

    async def _run(self) -> None:
        try:
            while self._waiting:
                await self._send_some()
        finally:
            self._task = None

    async def _send_some(self) -> None:
        text, keys, count = self._take_some()
        try:
            await self._send(Message(self.topic, text.encode(), keys=sorted(keys)))
        except RocketStreamError as error:
            self.drop(count, str(error))
        except asyncio.CancelledError:
            self.drop(count, "the end did not wait for them any longer")
            raise
        except Exception as error:  # whatever it is, the next ones are to be sent
            self.drop(count, f"{type(error).__name__}: {error}")

    def _take_some(self) -> tuple[str, set[str], int]:
        texts: list[str] = []
        keys: set[str] = set()
        count = size = key_size = 0
        waiting = self._waiting
        while waiting and count < MAX_RECORDS and size < MAX_BYTES and key_size < MAX_KEYS:
            text, message_id, own, records = waiting.popleft()
            texts.append(text)
            size += len(text)
            count += records
            if message_id not in keys and message_id:
                keys.add(message_id)
                key_size += len(message_id) + 1
            # Keys that do not fit anywhere are left out: it is still found by its id.
            if own and own not in keys and _key_size(own) <= MAX_KEYS // 2:
                more = {key for key in own.split(" ") if key} - keys
                keys |= more
                key_size += sum(map(_key_size, more))
        self._count -= count
        return "".join(texts), keys, count


def _key_size(key: str) -> int:
    return (len(key) if key.isascii() else 4 * len(key)) + 1
