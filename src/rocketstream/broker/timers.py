"""Timer messages: kept in rmq_sys_wheel_timer until the second that they are for is over (5.x's TimerMessageStore).

All that wait are in one heap by time, with one timer for the first. After a start it is filled from the queue again,
from the oldest message that had not been delivered when progress was last saved.
"""

from __future__ import annotations

import heapq
import logging
from collections.abc import Mapping
from typing import Any, Final

from rocketstream.broker.delays import was_delivered
from rocketstream.broker.dispatch import Handler
from rocketstream.broker.intake import TIMER_PRECISION_MS, Intake
from rocketstream.broker.names import TIMER_TOPIC
from rocketstream.broker.periodic import Periodic
from rocketstream.broker.progress import Progress
from rocketstream.broker.records import StoredRecord, encoded, property_of, read_record
from rocketstream.broker.refusal import Refusal
from rocketstream.broker.settings import BrokerSettings
from rocketstream.broker.state import StateFiles
from rocketstream.broker.store.values import MessageStore, Stored
from rocketstream.clock import Clock, Timer
from rocketstream.property_names import PropertyName
from rocketstream.wire.properties import decode_properties

log = logging.getLogger("rocketstream.broker")

_RETRY_SECONDS: Final = 1.0


class Timers:
    """Delivers timer messages when they are due, except those that were recalled."""

    def __init__(
        self, *, settings: BrokerSettings, clock: Clock, state: StateFiles, store: MessageStore, intake: Intake
    ) -> None:
        self._clock = clock
        self._store = store
        self._intake = intake
        self._progress = Progress(state=state, store=store, name="timers")
        self._waiting: list[tuple[int, int]] = []
        """(due, offset): a heap."""
        self._end = 0
        """The queue's offsets before this one have been looked at."""
        self._recovered = 0
        self._passed = 0
        """Everything that was due until then has been delivered."""
        self._timer: Timer | None = None
        self._armed_for = 0
        self._persist = Periodic(clock, lambda: settings.persist_interval, lambda: self._progress.save(self._saved()))

    def __repr__(self) -> str:
        return f"<Timers {len(self._waiting)} messages wait>"

    def start(self) -> None:
        """Find what waits."""
        saved = self._progress.load() or {}
        self._passed, seen = saved.get("passed", 0), saved.get("end", 0)
        first = max(saved.get("first", 0), self._store.min_offset(TIMER_TOPIC, 0))
        self._recovered = self._end = self._store.max_offset(TIMER_TOPIC, 0)
        for offset in range(first, self._end):
            due = self._due(offset)
            if due is not None and (offset >= seen or due > self._passed):
                self._waiting.append((due, offset))
        heapq.heapify(self._waiting)
        self._store.appended.append(self._appended)
        self._arm()
        self._persist.start()

    def stop(self) -> None:
        """Save how far it came."""
        self._persist.stop()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._appended in self._store.appended:
            self._store.appended.remove(self._appended)
            self._progress.stop(self._saved())

    def handlers(self) -> Mapping[int, Handler]:
        """It answers nothing: sends and recalls come by way of the store."""
        return {}

    def _saved(self) -> dict[str, Any]:
        first = min((offset for _, offset in self._waiting), default=self._end)
        return {"first": first, "end": self._end, "passed": self._passed}

    # --- waiting -------------------------------------------------------------------------------------------------

    def _appended(self, stored: Stored) -> None:
        if stored.topic != TIMER_TOPIC:
            return
        self._end = stored.queue_offset + 1
        self._progress.stored(stored)
        due = self._due(stored.queue_offset)
        if due is not None:
            heapq.heappush(self._waiting, (due, stored.queue_offset))
            self._arm()

    def _due(self, offset: int) -> int | None:
        """When the message is delivered: at the end of its second."""
        raw = self._store.record_at(TIMER_TOPIC, 0, offset)
        out = None if raw is None else property_of(read_record(raw).properties, PropertyName.TIMER_OUT_MS)
        return None if out is None else int(out) + TIMER_PRECISION_MS

    def _arm(self) -> None:
        if not self._waiting:
            return
        due = self._waiting[0][0]
        if self._timer is not None:
            if self._armed_for <= due:
                return
            self._timer.cancel()
        self._armed_for = due
        self._timer = self._clock.call_later(max(due - self._clock.wall_ms(), 0) / 1000, self._fire)

    # --- delivering ----------------------------------------------------------------------------------------------

    def _fire(self) -> None:
        self._timer = None
        if self._waiting and self._waiting[0][0] <= self._clock.wall_ms():
            try:
                self._deliver_first_second()
            except Refusal as refusal:
                log.warning("a timer message can't be stored now: %s", refusal.remark)
                self._armed_for = 0
                self._timer = self._clock.call_later(_RETRY_SECONDS, self._fire)
                return
        self._arm()

    def _deliver_first_second(self) -> None:
        """Deliver everything that is due at the same time as the first, without what was recalled."""
        due = self._waiting[0][0]
        offsets = []
        while self._waiting and self._waiting[0][0] == due:
            offsets.append(heapq.heappop(self._waiting)[1])
        raws = ((offset, self._store.record_at(TIMER_TOPIC, 0, offset)) for offset in offsets)
        records = {offset: read_record(raw) for offset, raw in raws if raw is not None}
        recalled = {property_of(record.properties, PropertyName.TIMER_DELETE_UNIQUE_KEY) for record in records.values()}
        for offset in offsets:
            record = records.get(offset)
            try:
                if record is not None:
                    self._deliver(offset, record, recalled)
            except Refusal:
                for left in offsets[offsets.index(offset) :]:
                    heapq.heappush(self._waiting, (due, left))
                raise
        self._passed = max(self._passed, due)

    def _deliver(self, offset: int, record: StoredRecord, recalled: set[str | None]) -> None:
        properties = decode_properties(record.properties)
        topic = properties.get(PropertyName.REAL_TOPIC)
        key = f"{topic}+{properties.get(PropertyName.UNIQUE_KEY)}"
        if topic is None or PropertyName.TIMER_DELETE_UNIQUE_KEY in properties or key in recalled:
            return
        now = self._clock.wall_ms()
        if offset < self._recovered and was_delivered(self._store, record, topic, now):
            return
        enqueued = record.store_timestamp // TIMER_PRECISION_MS * TIMER_PRECISION_MS
        properties[PropertyName.TIMER_ENQUEUE_MS] = str(enqueued)
        properties[PropertyName.TIMER_DEQUEUE_MS] = str(now)
        queue_id = int(properties.get(PropertyName.REAL_QUEUE_ID, "0"))
        self._progress.stored(self._intake.append(record.renewed(topic, queue_id, encoded(properties))))
