"""Delay levels: one queue of SCHEDULE_TOPIC_XXXX for each, whose messages are due in the order of their arrival.

A level has one timer, for its first message. After a crash a level begins again where its progress was last saved;
what was delivered since then is found by its unique key and not delivered twice.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from typing import Final

from rocketstream.broker.connection import ClientConnection
from rocketstream.broker.dispatch import Handler
from rocketstream.broker.intake import Intake
from rocketstream.broker.names import HALF_TOPIC, SCHEDULE_TOPIC
from rocketstream.broker.periodic import Periodic
from rocketstream.broker.progress import Progress
from rocketstream.broker.records import StoredRecord, property_of, read_record
from rocketstream.broker.refusal import Refusal
from rocketstream.broker.settings import BrokerSettings
from rocketstream.broker.state import StateFiles
from rocketstream.broker.store.values import MessageStore, Stored
from rocketstream.clock import Clock, Timer
from rocketstream.property_names import PropertyName
from rocketstream.wire.codes import RequestCode, ResponseCode
from rocketstream.wire.command import Command, response

log = logging.getLogger("rocketstream.broker")

#: How many messages are delivered before others get their turn.
_AT_ONCE: Final = 200
#: After a message could not be stored.
_RETRY_SECONDS: Final = 1.0


class Delays:
    """Delivers delayed messages when they are due."""

    def __init__(
        self, *, settings: BrokerSettings, clock: Clock, state: StateFiles, store: MessageStore, intake: Intake
    ) -> None:
        self._settings = settings
        self._clock = clock
        self._store = store
        self._intake = intake
        self._progress = Progress(state=state, store=store, name="delay_offsets")
        self._offsets: dict[int, int] = {}
        self._timers: dict[int, Timer] = {}
        self._recovered: dict[int, int] = {}
        """Before which offset of a level a message may have been delivered by the broker's life before."""
        self._persist = Periodic(clock, lambda: settings.persist_interval, lambda: self._progress.save(self._saved()))

    def start(self) -> None:
        """Go on where the last life stopped."""
        saved = self._progress.load() or {}
        for level in range(1, len(self._settings.delay_levels) + 1):
            first = self._store.min_offset(SCHEDULE_TOPIC, level - 1)
            end = self._store.max_offset(SCHEDULE_TOPIC, level - 1)
            self._offsets[level] = min(max(int(saved.get(str(level), 0)), first), end)
            self._recovered[level] = end
            self._arm(level)
        self._store.appended.append(self._appended)
        self._persist.start()

    def stop(self) -> None:
        """Save how far it came."""
        self._persist.stop()
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()
        if self._appended in self._store.appended:
            self._store.appended.remove(self._appended)
            self._progress.stop(self._saved())

    def handlers(self) -> Mapping[int, Handler]:
        """How far each level has come."""
        return {RequestCode.GET_ALL_DELAY_OFFSET: self._all_offsets}

    def _all_offsets(self, connection: ClientConnection, command: Command) -> Command:
        body = json.dumps({"offsetTable": self._saved()}).encode()
        return response(command, ResponseCode.SUCCESS, body=body)

    def _saved(self) -> dict[str, int]:
        return {str(level): offset for level, offset in self._offsets.items()}

    # --- waiting -------------------------------------------------------------------------------------------------

    def _appended(self, stored: Stored) -> None:
        if stored.topic == SCHEDULE_TOPIC and stored.queue_id + 1 not in self._timers:
            self._arm(stored.queue_id + 1)

    def _arm(self, level: int) -> None:
        """Set the timer for the first message of a level."""
        left = self._time_left(level)
        if left is not None:
            self._timers[level] = self._clock.call_later(max(left, 0) / 1000, self._fire, level)

    def _time_left(self, level: int) -> int | None:
        """Milliseconds until the first message of a level is due; None without one."""
        offset = self._offsets.get(level, 0)
        if offset >= self._store.max_offset(SCHEDULE_TOPIC, level - 1):
            return None
        delay = self._delay(level)
        left = self._store.timestamp_at(SCHEDULE_TOPIC, level - 1, offset) + delay - self._clock.wall_ms()
        # More than the whole delay: the clock was set back, and nobody is to wait for it.
        return 0 if left > delay else left

    def _delay(self, level: int) -> int:
        levels = self._settings.delay_levels
        return int(levels[min(level, len(levels)) - 1] * 1000)

    # --- delivering ----------------------------------------------------------------------------------------------

    def _fire(self, level: int) -> None:
        del self._timers[level]
        for _ in range(_AT_ONCE):
            left = self._time_left(level)
            if left is None or left > 0:
                break
            offset = self._offsets[level]
            try:
                self._deliver(level, offset)
            except Refusal as refusal:
                log.warning("a delayed message of level %d can't be stored now: %s", level, refusal.remark)
                self._timers[level] = self._clock.call_later(_RETRY_SECONDS, self._fire, level)
                return
            self._offsets[level] = offset + 1
        self._arm(level)

    def _deliver(self, level: int, offset: int) -> None:
        raw = self._store.record_at(SCHEDULE_TOPIC, level - 1, offset)
        if raw is None:
            return
        record = read_record(raw)
        topic = property_of(record.properties, PropertyName.REAL_TOPIC)
        queue_id = property_of(record.properties, PropertyName.REAL_QUEUE_ID)
        if topic is None or queue_id is None or topic == HALF_TOPIC:
            log.error("a delayed message of level %d at %d is for %s: discarded", level, offset, topic)
            return
        if offset < self._recovered[level] and was_delivered(self._store, record, topic, self._clock.wall_ms()):
            return
        # Its properties stay as they are, DELAY and REAL_TOPIC too: that is how RocketMQ's consumers see them.
        stored = self._intake.append(record.renewed(topic, int(queue_id), record.properties))
        self._progress.stored(stored)


def was_delivered(store: MessageStore, record: StoredRecord, topic: str, now: int) -> bool:
    """Whether what was kept for later is in its topic already: stored after it, with the same key and try."""
    key = property_of(record.properties, PropertyName.UNIQUE_KEY)
    if not key:
        return False
    found = map(read_record, store.find(topic, key, 64, record.store_timestamp, now))
    return any(one.position > record.position and one.reconsume_times == record.reconsume_times for one in found)
