"""The trace of what is consumed: which message was given to a listener when, and how that ended (START-14).

A trace must never slow or fail what it traces, nor keep it from starting. The hook runs where the listener does, makes
its records and hands them over; `TraceDispatcher` on the I/O thread gathers them, sends them, and drops what the trace
topic does not take.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from contextlib import suppress
from typing import Final

from rocketstream.clock import Clock
from rocketstream.cluster.client_instance import ClientInstance
from rocketstream.cluster.names import with_namespace
from rocketstream.consumer.hooks import ConsumeHook, ConsumeHookContext
from rocketstream.consumer.inner_producer import InnerProducer
from rocketstream.consumer.settings import ConsumerSettings
from rocketstream.errors import RocketStreamError
from rocketstream.message import Message, ReceivedMessage
from rocketstream.producer.outgoing import process_ids
from rocketstream.producer.receipt import SendReceipt
from rocketstream.producer.trace import TraceDispatcher
from rocketstream.property_names import PropertyName
from rocketstream.wire.trace import TRACE_TOPIC, ConsumeBeginTrace, ConsumeEndTrace, ConsumeReturn, Trace

log = logging.getLogger("rocketstream.consumer")

_TIMEOUT: Final = 5.0

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


class ConsumeTrace:
    """The trace of one consumer, from its start to its end; on the I/O thread."""

    def __init__(self, settings: ConsumerSettings, instance: ClientInstance, inner_producer: InnerProducer) -> None:
        topic = TRACE_TOPIC if settings.trace is True else str(settings.trace)
        self._instance = instance
        self._inner_producer = inner_producer
        self._dispatcher = TraceDispatcher(with_namespace(settings.namespace, topic), instance.clock, self._send)
        self.hook = TraceHook(settings.group, instance.clock, self._dispatcher)

    async def start(self, what: str) -> None:
        """Look whether the trace topic is there; that nothing can be traced is no reason not to consume."""
        topic = self._dispatcher.topic
        try:
            await self._instance.routes.refresh(topic)
        except RocketStreamError as error:
            log.warning("%s starts without a trace, topic %r cannot be reached: %s", what, topic, error)

    async def end(self) -> None:
        """Send what is left, if that does not take long."""
        self.hook.take()
        with suppress(TimeoutError):
            await asyncio.wait_for(self._dispatcher.flush(), _TIMEOUT)

    async def _send(self, message: Message) -> SendReceipt:
        return await self._inner_producer.send(message, timeout=_TIMEOUT)
