"""The trace of what is consumed: which message was given to a listener when, and how that ended (START-14).

A trace must never slow or fail what it traces. The hook runs where the listener does, makes its records and hands them
over; `TraceDispatcher` on the I/O thread gathers them, sends them, and drops what the trace topic does not take.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from typing import Final

from rocketstream.clock import Clock
from rocketstream.consumer.hooks import ConsumeHook, ConsumeHookContext
from rocketstream.message import ReceivedMessage
from rocketstream.producer.outgoing import process_ids
from rocketstream.producer.trace import TraceDispatcher
from rocketstream.property_names import PropertyName
from rocketstream.wire.trace import ConsumeBeginTrace, ConsumeEndTrace, ConsumeReturn, Trace

log = logging.getLogger("rocketstream.consumer")

# What `before` leaves for `after`.
_REQUEST: Final = "trace.request"
_BEGAN: Final = "trace.began"


class TraceHook(ConsumeHook):
    """Makes the records of each call of a listener."""

    def __init__(self, group: str, clock: Clock, dispatcher: TraceDispatcher) -> None:
        self._group = group
        self._clock = clock
        self._dispatcher = dispatcher
        self._loop = asyncio.get_running_loop()
        self._made: deque[Trace] = deque()
        self._waking = False

    def __repr__(self) -> str:
        return f"<TraceHook of group {self._group}, {self._dispatcher!r}>"

    def before(self, context: ConsumeHookContext) -> None:
        """A record for each message that is to be traced."""
        messages = self._traced(context)
        if not messages:
            return
        now = self._clock.wall_ms()
        request = process_ids.next(now)
        context.properties[_REQUEST] = request
        context.properties[_BEGAN] = str(now)
        self._hand_over(
            [
                ConsumeBeginTrace(
                    timestamp=now,
                    region=message.properties.get(PropertyName.REGION),
                    group=self._group,
                    request_id=request,
                    message_id=message.message_id,
                    retry_times=message.reconsume_times,
                    keys=message.keys,
                )
                for message in messages
            ]
        )

    def after(self, context: ConsumeHookContext) -> None:
        """How that ended, for the same messages."""
        request = context.properties.get(_REQUEST)
        if request is None:
            return
        now = self._clock.wall_ms()
        cost = (now - int(context.properties[_BEGAN])) // len(context.messages)
        self._hand_over(
            [
                ConsumeEndTrace(
                    request_id=request,
                    message_id=message.message_id,
                    cost_ms=cost,
                    success=bool(context.success),
                    keys=message.keys,
                    returned=ConsumeReturn[context.return_type],
                    timestamp=now,
                    group=self._group,
                )
                for message in self._traced(context)
            ]
        )

    def _traced(self, context: ConsumeHookContext) -> list[ReceivedMessage]:
        """Without those whose sender wants no trace, and traces themselves: that would never end."""
        topic = self._dispatcher.topic
        return [
            message
            for message in context.messages
            if message.topic != topic and message.properties.get(PropertyName.TRACE_SWITCH) != "false"
        ]

    def _hand_over(self, records: list[Trace]) -> None:
        self._made.extend(records)
        if not self._waking:
            # Set by many, cleared by one before it looks: at worst the I/O thread looks once too often.
            self._waking = True
            try:
                self._loop.call_soon_threadsafe(self.take)
            except RuntimeError:
                log.debug("a listener of group %s ended after the process's I/O thread", self._group)

    def take(self) -> None:
        """Give the dispatcher what was made; on the I/O thread."""
        self._waking = False
        for _ in range(len(self._made)):
            self._dispatcher.record(self._made.popleft())
