"""The trace of what was sent (or consumed) when and where, as messages of the trace topic.

A trace must never slow or fail what it traces: records wait in a bounded queue, leave in groups, and are dropped with a
warning where the trace topic cannot keep up. Everything here belongs to the I/O thread.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable

from rocketstream.clock import Clock, Timer
from rocketstream.errors import RocketStreamError
from rocketstream.message import Message
from rocketstream.producer.outgoing import Outgoing
from rocketstream.producer.receipt import SendReceipt, SendStatus
from rocketstream.wire.sysflag import TransactionType, transaction_type
from rocketstream.wire.trace import PublishTrace, Trace, TracedMessageType

log = logging.getLogger("rocketstream.producer")

MAX_WAITING = 2048
MAX_RECORDS = 100
MAX_BYTES = 128_000
MAX_DELAY = 0.5
_DEFAULT_REGION = "DefaultRegion"


def traced_type(out: Outgoing) -> TracedMessageType:
    """What a trace calls this kind of message."""
    message = out.message
    if transaction_type(int(out.fields["f"])) is TransactionType.PREPARED:
        return TracedMessageType.TRANSACTION_HALF
    if message.delay_level or message.delay is not None or message.deliver_at is not None:
        return TracedMessageType.DELAY
    return TracedMessageType.NORMAL


def publish_trace(
    out: Outgoing, address: str, receipt: SendReceipt, group: str, clock: Clock, begun: float
) -> PublishTrace:
    """The record of a send that has just ended."""
    cost_ms = round((clock.monotonic() - begun) * 1000)
    return PublishTrace(
        timestamp=clock.wall_ms() - cost_ms,
        region=_DEFAULT_REGION,
        group=group,
        topic=out.message.topic,
        message_id=receipt.message_id,
        tags=out.message.tags,
        keys=out.message.keys,
        store_host=address,
        body_length=len(out.message.body),
        cost_ms=cost_ms,
        message_type=traced_type(out),
        offset_message_id=receipt.offset_message_id,
        success=receipt.status is SendStatus.OK,
    )


class TraceDispatcher:
    """Gathers trace records and sends them."""

    def __init__(self, topic: str, clock: Clock, send: Callable[[Message], Awaitable[object]]) -> None:
        self.topic = topic
        self.dropped = 0
        self._clock = clock
        self._send = send
        self._waiting: deque[Trace] = deque()
        self._timer: Timer | None = None
        self._task: asyncio.Task[None] | None = None
        self._warned = False

    def __repr__(self) -> str:
        return f"<TraceDispatcher {self.topic}, {len(self._waiting)} waiting, {self.dropped} dropped>"

    def record(self, trace: Trace) -> None:
        """Take a record; never blocks, never raises."""
        if len(self._waiting) >= MAX_WAITING:
            self._drop(1, "too many are waiting")
            return
        self._waiting.append(trace)
        if len(self._waiting) >= MAX_RECORDS:
            self._start()
        elif self._timer is None:
            self._timer = self._clock.call_later(MAX_DELAY, self._start)

    async def flush(self) -> None:
        """Send what waits, for the end."""
        self._start()
        if self._task is not None:
            await asyncio.wait([self._task])

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
        texts: list[str] = []
        keys: set[str] = set()
        size = 0
        while self._waiting and len(texts) < MAX_RECORDS and size < MAX_BYTES:
            trace = self._waiting.popleft()
            text = trace.encode()
            texts.append(text)
            size += len(text)
            keys.add(trace.message_id)
            if trace.keys:
                keys.update(trace.keys.split(" "))
        try:
            await self._send(Message(self.topic, "".join(texts).encode(), keys=sorted(filter(None, keys))))
        except RocketStreamError as error:
            self._drop(len(texts), str(error))

    def _drop(self, count: int, reason: str) -> None:
        self.dropped += count
        if not self._warned:  # once: a trace that does not work would otherwise fill the log
            self._warned = True
            log.warning("traces for topic %r are dropped from now on: %s", self.topic, reason)
