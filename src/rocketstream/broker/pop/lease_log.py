"""The lease log: leases and acknowledgements as messages of `rmq_sys_REVIVE_LOG_<cluster>`, in RocketMQ's own words.

Restart reads it again from the oldest lease that was open, which a small state file remembers. That place is only ever
too early, never too late: leases that are read twice are closed again by the acknowledgements that follow them.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any, Final

from rocketstream.broker.names import REVIVE_PREFIX
from rocketstream.broker.pop.lease import Lease, LeaseKey
from rocketstream.broker.records import read_record
from rocketstream.broker.settings import BrokerSettings
from rocketstream.broker.state import StateFiles
from rocketstream.broker.store.values import MessageStore, NewMessage, Stored
from rocketstream.broker.topics import REVIVE_QUEUES

_STATE: Final = "pop_leases"
_LEASE, _ACK = "ck", "bAck"


class LeaseLog:
    """Writes what happens to leases, and reads it again."""

    def __init__(self, *, settings: BrokerSettings, state: StateFiles, store: MessageStore) -> None:
        self.topic = REVIVE_PREFIX + settings.cluster_name
        self._broker_name = settings.broker_name
        self._state = state
        self._store = store
        self._next: tuple[int, dict[str, int]] | None = None

    # --- writing ----------------------------------------------------------------------------------------------------

    def leased(self, lease: Lease) -> Stored:
        """Messages were popped."""
        text = {
            "so": lease.start_offset,
            "pt": lease.pop_time,
            "it": lease.invisible_time,
            "bm": 0,
            "n": len(lease.offsets),
            "q": lease.queue_id,
            "t": lease.topic,
            "c": lease.group,
            "ro": 0,
            "d": [offset - lease.start_offset for offset in lease.offsets],
            "bn": self._broker_name,
            "rp": str(lease.renewals),
        }
        return self._write(_LEASE, lease.revive_queue_id, text)

    def acknowledged(self, lease: Lease, offsets: Iterable[int]) -> Stored:
        """Messages of a lease are done."""
        text = {
            "aol": list(offsets),
            "so": lease.start_offset,
            "c": lease.group,
            "t": lease.topic,
            "q": lease.queue_id,
            "pt": lease.pop_time,
            "bn": self._broker_name,
        }
        return self._write(_ACK, lease.revive_queue_id, text)

    def _write(self, tag: str, queue_id: int, text: dict[str, Any]) -> Stored:
        body = json.dumps(text, separators=(",", ":"), ensure_ascii=False).encode()
        return self._store.append(
            NewMessage(topic=self.topic, queue_id=queue_id, body=body, properties=f"TAGS\x01{tag}\x02")
        )

    # --- reading ----------------------------------------------------------------------------------------------------

    def open_leases(self) -> list[Lease]:
        """The leases that are not closed."""
        saved = self._state.load(_STATE) or {}
        found: list[Lease] = []
        for queue_id in range(REVIVE_QUEUES):
            start = int(saved.get(str(queue_id), 0))
            found += self._read_queue(queue_id, max(start, self._store.min_offset(self.topic, queue_id)))
        return found

    def _read_queue(self, queue_id: int, start: int) -> list[Lease]:
        live: dict[LeaseKey, Lease] = {}
        for offset, text in self._entries(queue_id, start):
            key = LeaseKey(text["t"], text["c"], text["q"], text["so"], text["pt"])
            if "aol" not in text:
                offsets = tuple(text["so"] + distance for distance in text["d"])
                live[key] = Lease(
                    **key._asdict(),
                    invisible_time=text["it"],
                    revive_queue_id=queue_id,
                    offsets=offsets,
                    open=set(offsets),
                    log_offset=offset,
                    renewals=int(text["rp"]),
                )
            elif key in live:
                live[key].open.difference_update(text["aol"])
                if not live[key].open:
                    del live[key]
        return list(live.values())

    def _entries(self, queue_id: int, start: int) -> Iterator[tuple[int, dict[str, Any]]]:
        for offset in range(start, self._store.max_offset(self.topic, queue_id)):
            record = self._store.record_at(self.topic, queue_id, offset)
            if record is not None:
                yield offset, json.loads(read_record(record).body)

    # --- where to begin next time -----------------------------------------------------------------------------------

    def save_start(self, leases: Iterable[Lease], last_position: int | None) -> None:
        """Remember where the oldest open lease is.

        Only once all that says that older ones are closed survives a crash; otherwise that is left to the next time.
        """
        if self._next is not None and self._is_durable(self._next[0]):
            self._state.save(_STATE, self._next[1])
        starts = {str(queue_id): self._store.max_offset(self.topic, queue_id) for queue_id in range(REVIVE_QUEUES)}
        for lease in leases:
            queue = str(lease.revive_queue_id)
            if 0 <= lease.log_offset < starts[queue]:
                starts[queue] = lease.log_offset
        if last_position is None or self._is_durable(last_position):
            self._state.save(_STATE, starts)
            self._next = None
        else:
            self._next = last_position, starts

    def _is_durable(self, position: int) -> bool:
        return self._store.durable(position) is None
