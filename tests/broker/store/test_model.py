"""The store against a list: whatever is done to both, both say the same."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from rocketstream.broker.settings import BrokerSettings
from rocketstream.broker.store import open_store
from rocketstream.broker.store.log_store import LogStore
from rocketstream.broker.store.values import ReadStatus
from rocketstream.clock import ManualClock
from tests.broker.store.stores import message, messages

TOPICS = st.sampled_from(["a", "b"])
QUEUES = st.integers(0, 1)
OFFSETS = st.integers(-1, 40)
TAGS = ("", "x", "y")


class StoreAndModel(RuleBasedStateMachine):
    """Messages go into a store and into lists; then both are asked."""

    files = False

    def __init__(self) -> None:
        super().__init__()
        self.clock = ManualClock()
        self.model: dict[tuple[str, int], list[tuple[bytes, str, str, int, int]]] = {}
        self.directory: tempfile.TemporaryDirectory[str] | None = None
        self.by_keys: dict[tuple[str, str], list[bytes]] = {}
        self.count = 0
        self.store: LogStore

    @initialize()
    def begin(self) -> None:
        if self.files:
            self.directory = tempfile.TemporaryDirectory()
        self.store = self.opened()

    def opened(self) -> LogStore:
        data = Path(self.directory.name) if self.directory else None
        return open_store(
            BrokerSettings(data=data, max_pull_messages=7, max_pull_bytes=2000), self.clock, "127.0.0.1:10911"
        )

    def teardown(self) -> None:
        self.store.close()
        if self.directory is not None:
            self.directory.cleanup()

    def queue(self, topic: str, queue_id: int) -> list[tuple[bytes, str, str, int, int]]:
        return self.model.get((topic, queue_id), [])

    @rule(topic=TOPICS, queue_id=QUEUES, size=st.integers(0, 500), tag=st.sampled_from(TAGS), key=st.sampled_from("kl"))
    def append(self, topic: str, queue_id: int, size: int, tag: str, key: str) -> None:
        self.count += 1
        body = str(self.count).encode().ljust(size)
        properties = {"KEYS": key} | ({"TAGS": tag} if tag else {})
        stored = self.store.append(message(body, topic=topic, queue_id=queue_id, properties=properties))
        queue = self.model.setdefault((topic, queue_id), [])
        assert stored.queue_offset == len(queue)
        queue.append((body, tag, key, self.clock.wall_ms(), stored.size))
        self.by_keys.setdefault((topic, key), []).append(body)

    @rule(milliseconds=st.integers(1, 5))
    def pass_time(self, milliseconds: int) -> None:
        self.clock._now += milliseconds / 1000

    @rule(topic=TOPICS)
    def delete(self, topic: str) -> None:
        self.store.delete_topic(topic)
        self.model = {queue: kept for queue, kept in self.model.items() if queue[0] != topic}

    @rule()
    def reopen(self) -> None:
        if self.files:
            self.store.close()
            self.store = self.opened()

    @rule(
        topic=TOPICS,
        queue_id=QUEUES,
        offset=OFFSETS,
        max_count=st.integers(1, 10),
        max_bytes=st.integers(1, 3000),
        tag=st.sampled_from((None, *TAGS)),
    )
    def read(self, topic: str, queue_id: int, offset: int, max_count: int, max_bytes: int, tag: str | None) -> None:
        queue = self.queue(topic, queue_id)
        wanted = None if tag is None else (lambda code, record: code == (ord(tag) if tag else 0))
        reading = self.store.read(topic, queue_id, offset, max_count, max_bytes, wanted)
        assert (reading.min_offset, reading.max_offset) == (0, len(queue))
        if not queue:
            expected: tuple[Any, ...] = (ReadStatus.NO_MESSAGE_IN_QUEUE, 0)
        elif offset < 0:
            expected = (ReadStatus.OFFSET_TOO_SMALL, 0)
        elif offset == len(queue):
            expected = (ReadStatus.OFFSET_OVERFLOW_ONE, offset)
        elif offset > len(queue):
            expected = (ReadStatus.OFFSET_OVERFLOW_BADLY, len(queue))
        else:
            taken: list[bytes] = []
            room, after = min(max(max_bytes, 100), 2000), offset
            for body, its_tag, _, _, size in queue[offset:]:
                if taken and (len(taken) >= min(max_count, 7) or size > room):
                    break
                after += 1
                if tag is None or tag == its_tag:
                    taken.append(body)
                    room -= size
            expected = (ReadStatus.FOUND if taken else ReadStatus.NO_MATCHED_MESSAGE, after)
            assert [each.body for each in messages(reading)] == taken
            assert len(reading.offsets) == reading.found == len(taken)
        assert (reading.status, reading.next_offset) == expected

    @rule(topic=TOPICS, queue_id=QUEUES, ago=st.integers(-2, 30), upper=st.booleans())
    def by_time(self, topic: str, queue_id: int, ago: int, upper: bool) -> None:
        moment = self.clock.wall_ms() - ago
        times = [time for _, _, _, time, _ in self.queue(topic, queue_id)]
        expected = sum(time <= moment for time in times) - 1 if upper else sum(time < moment for time in times)
        assert self.store.offset_by_time(topic, queue_id, moment, upper=upper) == max(expected, 0)

    @rule(topic=TOPICS, key=st.sampled_from("klm"), count=st.integers(1, 5))
    def by_key(self, topic: str, key: str, count: int) -> None:
        # Whether the topic was deleted since or not.
        having = self.by_keys.get((topic, key), [])
        found = self.store.find(topic, key, count, 0, 1 << 62)
        assert [body_of(record) for record in found] == having[-count:]

    @invariant()
    def has_the_same_queues(self) -> None:
        assert {(topic, queue) for topic in self.store.topics() for queue in self.store.queues(topic)} == set(
            self.model
        )


def body_of(record: bytes) -> bytes:
    size = int.from_bytes(record[84:88], "big")
    return record[88 : 88 + size]


class FilesAndModel(StoreAndModel):
    """The same with files, opened again and again."""

    files = True


TestMemory = StoreAndModel.TestCase
TestMemory.settings = settings(max_examples=60, stateful_step_count=60, deadline=None)
TestFiles = FilesAndModel.TestCase
TestFiles.settings = settings(
    max_examples=20, stateful_step_count=60, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
