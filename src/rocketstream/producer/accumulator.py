"""`auto_batch`: single messages that leave together.

A message of `send_async` waits for others of its topic until they fill a request (`batch_max_bytes`) or the first of
them has waited long enough (`batch_max_delay`); the broker stores them as if each had come alone, and each caller gets
its own receipt. What cannot share a request (a chosen queue or key, a delay, a body that is worth compressing) is sent
alone. Everything here belongs to the I/O thread.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from rocketstream.clock import Clock, Timer
from rocketstream.message import Message
from rocketstream.producer.dispatch import Send
from rocketstream.producer.outgoing import Outgoing, Preparation
from rocketstream.producer.receipt import SendReceipt
from rocketstream.producer.settings import ProducerSettings


def can_share(message: Message, settings: ProducerSettings) -> bool:
    """Whether a message may leave in one request with others."""
    return (
        message.sharding_key is None
        and not message.delay_level
        and message.delay is None
        and message.deliver_at is None
        and len(message.body) < settings.compress_over
        and not message.topic.startswith("%")
    )


@dataclass(slots=True)
class _Waiting:
    """The messages of a topic that wait for company."""

    sends: list[Send] = field(default_factory=list)
    size: int = 0
    timer: Timer | None = None


class Accumulator:
    """Gathers sends by topic and starts them as batches."""

    def __init__(
        self, settings: ProducerSettings, preparation: Preparation, clock: Clock, start: Callable[[Send], None]
    ) -> None:
        self._settings = settings
        self._preparation = preparation
        self._clock = clock
        self._start = start
        self._waiting: dict[str, _Waiting] = {}

    def __repr__(self) -> str:
        waiting = {topic: len(group.sends) for topic, group in self._waiting.items()}
        return f"<Accumulator {waiting}>"

    def add(self, send: Send) -> None:
        """Let a send wait for company; one that would not fit any more leaves with what is there."""
        group = self._waiting.get(send.out.topic)
        if group is None:
            group = self._waiting[send.out.topic] = _Waiting()
            group.timer = self._clock.call_later(self._settings.batch_max_delay, self.flush, send.out.topic)
        group.sends.append(send)
        group.size += send.out.batch_size
        if group.size >= self._settings.batch_max_bytes:
            self.flush(send.out.topic)

    def flush(self, topic: str) -> None:
        """Send what waits of a topic."""
        group = self._waiting.pop(topic, None)
        if group is None:
            return
        if group.timer is not None:
            group.timer.cancel()
        if len(group.sends) == 1:
            self._start(group.sends[0])
            return
        sends = group.sends
        out = self._preparation.joined([send.out for send in sends])
        first = sends[0]
        timeout = max(send.begun + send.timeout for send in sends) - first.begun
        self._start(replace(first, out=out, outcome=_Shared(sends), timeout=timeout))

    def flush_all(self) -> None:
        """Send whatever waits."""
        for topic in list(self._waiting):
            self.flush(topic)


class _Shared:
    """The outcome of a batch: gives each caller its own part (an `Outcome`)."""

    __slots__ = ("_sends",)

    def __init__(self, sends: list[Send]) -> None:
        self._sends = sends

    def cancelled(self) -> bool:
        """Never: a caller that has gone away does not speak for the others."""
        return False

    def cancel(self) -> bool:
        """There is none for anybody."""
        for send in self._sends:
            send.outcome.cancel()
        return True

    def conclude(self, outcome: SendReceipt | BaseException) -> None:
        """Share it out."""
        if isinstance(outcome, BaseException):
            for send in self._sends:
                send.outcome.conclude(outcome)
            return
        offset_ids = outcome.offset_message_id.split(",")
        for index, send in enumerate(self._sends):
            send.outcome.conclude(_part(outcome, send.out, index, offset_ids))


def _part(receipt: SendReceipt, out: Outgoing, index: int, offset_ids: list[str]) -> SendReceipt:
    return SendReceipt(
        status=receipt.status,
        message_id=out.message_id,
        offset_message_id=offset_ids[index] if index < len(offset_ids) else "",
        queue=receipt.queue,
        queue_offset=receipt.queue_offset + index,
        transaction_id=None,
    )
