"""The one way by which anything is stored: a send, a message given back, the end of a transaction, a revival.

What is to be delivered later is put into the system topic of its kind (RocketMQ's `HookUtils.handleScheduleMessage`):
delay levels into SCHEDULE_TOPIC_XXXX, timers into rmq_sys_wheel_timer, with topic and queue kept as properties.
"""

from __future__ import annotations

from collections.abc import Awaitable, Mapping
from typing import Final

from rocketstream.broker.names import SCHEDULE_TOPIC, TIMER_TOPIC
from rocketstream.broker.records import encoded
from rocketstream.broker.refusal import Refusal
from rocketstream.broker.settings import BrokerSettings
from rocketstream.broker.store.values import MessageStore, NewMessage, Stored
from rocketstream.clock import Clock
from rocketstream.property_names import PropertyName
from rocketstream.wire.codes import ResponseCode
from rocketstream.wire.command import Command
from rocketstream.wire.properties import decode_properties
from rocketstream.wire.sysflag import INNER_BATCH, TransactionType, transaction_type

#: RocketMQ's timerPrecisionMs: a timer's messages come in the second after the one that they are kept for.
TIMER_PRECISION_MS: Final = 1000

_TIMER_PROPERTIES: Final = (
    PropertyName.TIMER_DELIVER_MS,
    PropertyName.TIMER_DELAY_SECONDS,
    PropertyName.TIMER_DELAY_MS,
)


class Intake:
    """Stores messages, now or for later."""

    def __init__(self, *, settings: BrokerSettings, clock: Clock, store: MessageStore) -> None:
        self._settings = settings
        self._clock = clock
        self._store = store

    def put(self, message: NewMessage) -> Stored:
        """Store a message, or keep it until it is due; `message` then shows where it went. `Refusal` if it can't be."""
        properties = message.properties
        # Nearly every message is neither: two searches in a short text are all that it pays for this.
        if "DELAY" in properties or "TIMER_DELIVER_MS" in properties:
            self._schedule(message)
        # Queues whose entries are whole batches (BatchCQ) do not exist here, so nothing may claim to be one.
        if message.sys_flag & INNER_BATCH or f"{PropertyName.INNER_NUM}\x01" in properties:
            raise self.illegal()
        return self.append(message)

    def append(self, message: NewMessage) -> Stored:
        """Store a message as it is: its time has come, or it never had one."""
        return self._store.append(message)

    def answer(self, stored: Stored, response: Command) -> Command | Awaitable[Command]:
        """The response once the message survives a crash."""
        waiting = self._store.durable(stored.position)
        return response if waiting is None else _after(waiting, response)

    def illegal(self) -> Refusal:
        """What a message is told that is too large."""
        return Refusal(
            ResponseCode.MESSAGE_ILLEGAL,
            "the message is illegal, maybe msg body or properties length not matched. msg body length limit"
            f" {self._settings.max_message_size}B, msg properties length limit 32KB.",
        )

    # --- later ---------------------------------------------------------------------------------------------------

    def _schedule(self, message: NewMessage) -> None:
        if transaction_type(message.sys_flag) not in (TransactionType.NOT, TransactionType.COMMIT):
            return
        properties = decode_properties(message.properties)
        level = delay_level_of(properties)
        if level > 0:
            # Who names a level and a time has named a level.
            for name in _TIMER_PROPERTIES:
                properties.pop(name, None)
            level = min(level, len(self._settings.delay_levels))
            properties[PropertyName.DELAY_LEVEL] = str(level)
            _redirect(message, properties, SCHEDULE_TOPIC, level - 1)
        elif message.topic != TIMER_TOPIC and PropertyName.TIMER_OUT_MS not in properties:
            deliver_at = self._deliver_at(properties)
            if deliver_at is not None:
                self._keep_until(message, properties, deliver_at)

    def _deliver_at(self, properties: dict[str, str]) -> int | None:
        """When the message is due in milliseconds, by the first of its properties that says so."""
        seconds = properties.get(PropertyName.TIMER_DELAY_SECONDS)
        milliseconds = properties.get(PropertyName.TIMER_DELAY_MS)
        at = properties.get(PropertyName.TIMER_DELIVER_MS)
        try:
            if seconds is not None:
                return self._clock.wall_ms() + int(seconds) * 1000
            if milliseconds is not None:
                return self._clock.wall_ms() + int(milliseconds)
            return None if at is None else int(at)
        except ValueError:
            raise self._timer_illegal() from None

    def _keep_until(self, message: NewMessage, properties: dict[str, str], deliver_at: int) -> None:
        left = deliver_at - self._clock.wall_ms()
        if left <= 0:
            if PropertyName.TIMER_DELETE_UNIQUE_KEY in properties:
                raise self._timer_illegal()
            return
        if left > self._settings.max_timer_delay * 1000:
            raise self._timer_illegal()
        # A time on the second belongs to the second before, so that it is not delivered late.
        out = (deliver_at - 1) // TIMER_PRECISION_MS * TIMER_PRECISION_MS
        properties[PropertyName.TIMER_OUT_MS] = str(out)
        _redirect(message, properties, TIMER_TOPIC, 0)

    def _timer_illegal(self) -> Refusal:
        return Refusal(
            ResponseCode.MESSAGE_ILLEGAL,
            "timer message illegal, the delay time should not be bigger than the max delay"
            f" {round(self._settings.max_timer_delay * 1000)}ms; or if set del msg, the delay time should be bigger"
            " than the current time",
        )


def _redirect(message: NewMessage, properties: dict[str, str], topic: str, queue_id: int) -> None:
    properties[PropertyName.REAL_TOPIC] = message.topic
    properties[PropertyName.REAL_QUEUE_ID] = str(message.queue_id)
    message.properties = encoded(properties)
    message.topic = topic
    message.queue_id = queue_id


def delay_level_of(properties: Mapping[str, str]) -> int:
    """The level that a message names; 0 for none."""
    text = properties.get(PropertyName.DELAY_LEVEL, "0")
    try:
        return int(text)
    except ValueError:
        remark = f'java.lang.NumberFormatException: For input string: "{text}"'
        raise Refusal(ResponseCode.SYSTEM_ERROR, remark) from None


async def _after(waiting: Awaitable[None], response: Command) -> Command:
    await waiting
    return response
