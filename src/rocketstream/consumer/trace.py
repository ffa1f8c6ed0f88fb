"""The trace of what is consumed: which message was given to a listener when, and how that ended (START-14).

A trace must never slow or fail what it traces, nor keep it from starting. So the thread that runs a listener only notes
the call, and the I/O thread writes the records, in groups. Writing gets a small share of the time that the process
computes, and more of the time that it idles (`Allowance`); calls beyond that are not traced, but counted as dropped.
`TraceDispatcher` sends what was written, and drops what the trace topic does not take.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final

from rocketstream.clock import Clock, Timer
from rocketstream.cluster.client_instance import ClientInstance
from rocketstream.cluster.names import AUTO_CREATE_TOPIC, with_namespace
from rocketstream.consumer.inner_producer import InnerProducer
from rocketstream.consumer.settings import ConsumerSettings
from rocketstream.errors import RocketStreamError
from rocketstream.message import Message, ReceivedMessage
from rocketstream.producer.allowance import Allowance
from rocketstream.producer.outgoing import process_ids
from rocketstream.producer.receipt import SendReceipt
from rocketstream.producer.trace import TraceDispatcher
from rocketstream.property_names import PropertyName
from rocketstream.wire.trace import DEFAULT_REGION, TRACE_TOPIC, ConsumeReturn, begin_text, end_text

log = logging.getLogger("rocketstream.consumer")

MAX_CALLS: Final = 2048
"""How many calls may wait to be written."""
_TIMEOUT: Final = 5.0
# Who is woken later than this waits for others that want the processor.
_LATE: Final = 0.002
# Of the time that the process has nothing to do: listeners that wait are not held up by it.
_IDLE_SHARE: Final = 0.5
# Noting calls and sending records takes about half as long as writing them.
_WHOLE: Final = 1.5
_LOOK_AGAIN: Final = 0.1
# So many messages' records are written in one turn of the loop, a few milliseconds.
_PER_TURN: Final = 1000


class TracedCall:
    """One call of a listener, from `begin` to `end`."""

    __slots__ = ("began", "ended", "found_by", "messages", "request_id", "returned", "success")

    def __init__(self, messages: Sequence[ReceivedMessage], began: int) -> None:
        self.messages = messages
        self.began = began
        self.ended = 0
        self.success = False
        self.returned: ConsumeReturn | None = None
        """Set last, by `end`: the I/O thread looks at the others once it is there."""
        self.request_id = ""
        self.found_by: list[tuple[str, str | None]] | None = None
        """The ids and keys of the messages that are traced, once the begin is written; empty once the end is."""


class ConsumeTrace:
    """The trace of one consumer, from its start to its end; on the I/O thread, but for `begin` and `end`."""

    def __init__(self, settings: ConsumerSettings, instance: ClientInstance, inner_producer: InnerProducer) -> None:
        topic = TRACE_TOPIC if settings.trace is True else str(settings.trace)
        self._instance = instance
        self._inner_producer = inner_producer
        dispatcher = TraceDispatcher(with_namespace(settings.namespace, topic), instance.clock, self._send)
        self.calls = CallTrace(settings.group, instance.clock, dispatcher, shown_topic=topic)

    def __repr__(self) -> str:
        return f"<ConsumeTrace {self.calls!r}>"

    @property
    def dropped(self) -> int:
        """How many records the trace topic has not got."""
        return self.calls.dropped

    async def start(self, what: str) -> None:
        """Look whether the trace topic is there; that nothing can be traced is no reason not to consume."""
        topic = self.calls.dispatcher.topic
        routes = self._instance.routes
        try:
            await routes.refresh(topic)
        except RocketStreamError as error:
            try:
                await routes.refresh(AUTO_CREATE_TOPIC)
            except RocketStreamError:
                log.warning("%s starts without a trace, topic %r cannot be reached: %s", what, topic, error)
            else:
                log.info("%s: the trace topic %r is made with the first trace", what, topic)

    async def end(self) -> None:
        """Send what is left, if that does not take long."""
        await self.calls.end()

    async def _send(self, message: Message) -> SendReceipt:
        return await self._inner_producer.send(message, timeout=_TIMEOUT)


class CallTrace:
    """Notes the calls of a listener and writes their records."""

    def __init__(
        self,
        group: str,
        clock: Clock,
        dispatcher: TraceDispatcher,
        *,
        shown_topic: str | None = None,
        cpu: Callable[[], float] = time.process_time,
    ) -> None:
        self.dispatcher = dispatcher
        self._group = group
        self._clock = clock
        # Traces of traces would never end; consumers know their topic without the namespace.
        self._own_topics = {dispatcher.topic, shown_topic}
        self._loop = asyncio.get_running_loop()
        self._open = True
        self._noted: deque[TracedCall] = deque()
        self._missed: deque[int] = deque()
        self._why_closed = ""
        self._waking = False
        self._rang_at = 0.0
        self._cpu = cpu
        self._allowance = Allowance(clock.monotonic(), cpu(), idle_share=_IDLE_SHARE)
        self._timer: Timer | None = None

    def __repr__(self) -> str:
        return f"<CallTrace of group {self._group}, {'open' if self._open else 'closed'}, {self.dispatcher!r}>"

    @property
    def dropped(self) -> int:
        """How many records are lost so far, as far as they are counted."""
        return self.dispatcher.dropped

    # --- on a worker ------------------------------------------------------------------------------------------------

    def begin(self, messages: Sequence[ReceivedMessage]) -> TracedCall | None:
        """The listener is about to be called; None: there is no time to trace it."""
        if not self._open:
            self._missed.append(len(messages))
            return None
        call = TracedCall(messages, self._clock.wall_ms())
        self._note(call)
        return call

    def end_call(self, call: TracedCall, returned: str, success: bool) -> None:
        """The listener has come back, as `return_type` says."""
        call.ended = self._clock.wall_ms()
        call.success = success
        call.returned = ConsumeReturn[returned]
        self._note(call)

    def _note(self, call: TracedCall) -> None:
        noted = self._noted
        noted.append(call)
        if len(noted) >= MAX_CALLS:
            self._open = False  # the I/O thread opens it again when it has written these
        if not self._waking:
            # Set by many, cleared by one before it looks: at worst the I/O thread looks once too often.
            self._waking = True
            self._rang_at = self._clock.monotonic()
            try:
                self._loop.call_soon_threadsafe(self.take)
            except RuntimeError:
                log.debug("a listener of group %s ended after the process's I/O thread", self._group)

    # --- on the I/O thread ------------------------------------------------------------------------------------------

    def take(self) -> None:
        """Write what was noted, and see whether there is time for more."""
        self._waking = False
        began = self._clock.monotonic()
        late = began - self._rang_at > _LATE
        self._write_some()
        now = self._clock.monotonic()
        pause = self._allowance.spend((now - began) * _WHOLE, now, self._cpu(), late=late)
        if not self.dispatcher.has_room:
            self._close(_LOOK_AGAIN, self.dispatcher.why_no_room)
        elif pause:
            self._close(pause, "the consumer is too busy to trace everything")
        elif self._timer is None:
            self._open_again()

    def _write_some(self) -> None:
        noted, written = self._noted, 0
        for _ in range(len(noted)):
            if written >= _PER_TURN:
                self._waking = True
                self._loop.call_soon(self.take)
                return
            call = noted.popleft()
            if call.found_by is None:
                self._write_begin(call)
            elif call.found_by:
                self._write_end(call)
            else:  # both records were written when it was seen before
                continue
            written += len(call.messages)

    def _write_begin(self, call: TracedCall) -> None:
        """The begin, and the end as well if it is there by now."""
        call.found_by = []
        returned, group, add = call.returned, self._group, self.dispatcher.add
        if not self.dispatcher.has_room:
            self.dispatcher.drop(2 * len(call.messages), self.dispatcher.why_no_room)
            return
        cost = 0 if returned is None else self._cost(call)
        for message in call.messages:
            properties = message.properties
            if properties.get(PropertyName.TRACE_SWITCH) == "false" or message.topic in self._own_topics:
                continue
            request_id = call.request_id = call.request_id or process_ids.next(call.began)
            message_id = properties.get(PropertyName.UNIQUE_KEY) or message.message_id
            keys = properties.get(PropertyName.KEYS)
            region = properties.get(PropertyName.REGION) or DEFAULT_REGION
            text = begin_text(call.began, region, group, request_id, message_id, message.reconsume_times, keys)
            if returned is None:
                add(text, message_id, keys)
                call.found_by.append((message_id, keys))
            else:
                end = end_text(request_id, message_id, cost, call.success, keys, returned, call.ended, group)
                add(text + end, message_id, keys, 2)

    def _write_end(self, call: TracedCall) -> None:
        if call.returned is None or call.found_by is None:
            return
        cost = self._cost(call)
        for message_id, keys in call.found_by:
            text = end_text(
                call.request_id, message_id, cost, call.success, keys, call.returned, call.ended, self._group
            )
            self.dispatcher.add(text, message_id, keys)
        call.found_by = []

    @staticmethod
    def _cost(call: TracedCall) -> int:
        return max(call.ended - call.began, 0) // max(len(call.messages), 1)  # shared by its messages, as Java does it

    def _close(self, seconds: float, why: str) -> None:
        self._open = False
        self._why_closed = why
        if self._timer is None:
            self._timer = self._clock.call_later(seconds, self._look_again)

    def _look_again(self) -> None:
        self._timer = None
        self._count_missed()  # it may stay closed for long
        self.take()

    def _open_again(self) -> None:
        """Trace everything from now on."""
        self._count_missed()
        self._open, self._why_closed = True, ""

    def _count_missed(self) -> None:
        """What was not noted is lost: two records for each message."""
        missed = sum(self._missed.popleft() for _ in range(len(self._missed)))
        if missed:
            self.dispatcher.drop(2 * missed, self._why_closed or f"{MAX_CALLS} calls waited to be written")

    async def end(self) -> None:
        """Send what is left, if that does not take long, and trace no more."""
        self._stop_timer()
        while self._noted:
            self.take()
        self._open_again()
        self._open = False
        self._stop_timer()
        await self.dispatcher.end(_TIMEOUT)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
