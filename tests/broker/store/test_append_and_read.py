"""Appending and reading, in memory and in files."""

from __future__ import annotations

import sys

import pytest

from rocketstream.broker.refusal import Refusal
from rocketstream.broker.store.values import ReadStatus, Stored
from rocketstream.clock import ManualClock
from rocketstream.wire.codes import ResponseCode
from rocketstream.wire.java import java_string_hash
from rocketstream.wire.message_id import encode_offset_id
from rocketstream.wire.record import encode_record
from tests.broker.store.stores import OpenStore, bodies, message, messages

LOTS = 1 << 20


async def test_a_message_comes_back_as_it_was_appended(any_store: OpenStore, clock: ManualClock) -> None:
    store = any_store()
    store.append(message(b"before"))
    stored = store.append(
        message(
            b"body",
            properties={"TAGS": "a", "KEYS": "k"},
            flag=3,
            sys_flag=4,
            born_timestamp=5,
            born_host="10.0.0.9:77",
            reconsume_times=6,
            prepared_transaction_offset=7,
        )
    )
    assert stored[:3] == ("orders", 0, 1)
    assert stored.timestamp == clock.wall_ms()
    assert stored.tags_code == java_string_hash("a")
    assert stored.message_id == encode_offset_id("127.0.0.1:10911", stored.position)
    expected = encode_record(
        topic="orders",
        body=b"body",
        properties="TAGS\x01a\x02KEYS\x01k\x02",
        queue_offset=1,
        commit_log_offset=stored.position,
        flag=3,
        sys_flag=4,
        born_timestamp=5,
        born_host="10.0.0.9:77",
        store_timestamp=clock.wall_ms(),
        store_host="127.0.0.1:10911",
        reconsume_times=6,
        prepared_transaction_offset=7,
    )
    reading = store.read("orders", 0, 1, 32, LOTS)
    assert b"".join(reading.records) == expected
    assert len(expected) == stored.size
    assert store.record(stored.position) == store.record_at("orders", 0, 1) == expected


@pytest.mark.parametrize("topic", ["t", "t" * 127, "t" * 128, "t" * 300, "données"])
@pytest.mark.parametrize("born_host", ["127.0.0.1:1", "[2001:db8::1]:1"])
async def test_topics_and_hosts_of_every_size(any_store: OpenStore, topic: str, born_host: str) -> None:
    store = any_store()
    store.append(message(b"one", topic=topic, born_host=born_host, properties={"KEYS": "k"}))
    (found,) = messages(store.read(topic, 0, 0, 32, LOTS))
    assert (found.topic, found.body, found.born_host) == (topic, b"one", born_host)
    assert store.timestamp_at(topic, 0, 0) == found.store_timestamp
    assert len(store.find(topic, "k", 10, 0, 1 << 62)) == 1


async def test_a_lone_surrogate_becomes_a_question_mark_as_in_java(any_store: OpenStore) -> None:
    store = any_store()
    store.append(message(b"one", properties={"name": "\ud800"}))
    (found,) = messages(store.read("orders", 0, 0, 32, LOTS))
    assert found.properties["name"] == "?"


async def test_nothing_begins_between_records(any_store: OpenStore) -> None:
    store = any_store()
    begins = {store.append(message(b"x" * size)).position for size in range(3)}
    assert {position for position in range(-5, store.size + 5) if store.record(position) is not None} == begins


@pytest.mark.parametrize(
    ("offset", "status", "next_offset"),
    [
        (3, ReadStatus.OFFSET_OVERFLOW_ONE, 3),
        (4, ReadStatus.OFFSET_OVERFLOW_BADLY, 3),
        (-1, ReadStatus.OFFSET_TOO_SMALL, 0),
        (2, ReadStatus.FOUND, 3),
    ],
)
async def test_what_a_read_says_of_an_offset(
    any_store: OpenStore, offset: int, status: ReadStatus, next_offset: int
) -> None:
    store = any_store()
    for body in ("a", "b", "c"):
        store.append(message(body))
    reading = store.read("orders", 0, offset, 32, LOTS)
    assert (reading.status, reading.next_offset, reading.min_offset, reading.max_offset) == (status, next_offset, 0, 3)


async def test_a_queue_without_messages_has_no_message(any_store: OpenStore) -> None:
    store = any_store()
    store.append(message())
    for topic, queue_id, offset in (("orders", 1, 0), ("orders", 1, 7), ("other", 0, 0)):
        assert store.read(topic, queue_id, offset, 32, LOTS) == (ReadStatus.NO_MESSAGE_IN_QUEUE, (), 0, 0, 0, 0, ())
        assert store.min_offset(topic, queue_id) == store.max_offset(topic, queue_id) == 0
        assert store.record_at(topic, queue_id, offset) is None
        assert store.timestamp_at(topic, queue_id, offset) == -1
        assert store.offset_by_time(topic, queue_id, 1) == 0
    assert (store.topics(), store.queues("orders"), store.queues("other")) == (["orders"], [0], [])


async def test_a_read_ends_at_the_count(any_store: OpenStore) -> None:
    store = any_store(max_pull_messages=5)
    for number in range(10):
        store.append(message(str(number)))
    assert [store.read("orders", 0, 0, count, LOTS).found for count in (0, 1, 3, 5, 6, 100)] == [1, 1, 3, 5, 5, 5]
    reading = store.read("orders", 0, 8, 5, LOTS)
    assert (reading.found, list(reading.offsets), reading.next_offset) == (2, [8, 9], 10)


async def test_a_read_ends_at_the_bytes_but_has_one_message(any_store: OpenStore) -> None:
    store = any_store(max_pull_bytes=1000)
    size = store.append(message(b"x" * 200)).size
    for _ in range(9):
        store.append(message(b"x" * 200))
    wanted = [1, 100, 2 * size - 1, 2 * size, 3 * size, 100_000]
    assert [store.read("orders", 0, 0, 32, limit).found for limit in wanted] == [1, 1, 1, 2, 3, 1000 // size]


async def test_a_filter_is_asked_with_the_tags_code_and_the_record(any_store: OpenStore) -> None:
    store = any_store()
    for number in range(6):
        store.append(message(str(number), properties={"TAGS": "odd" if number % 2 else "even"}))
    odd = java_string_hash("odd")
    reading = store.read("orders", 0, 0, 32, LOTS, lambda code, record: code == odd)
    assert (reading.status, list(reading.offsets), reading.next_offset) == (ReadStatus.FOUND, [1, 3, 5], 6)
    third = store.record_at("orders", 0, 3)
    reading = store.read("orders", 0, 0, 32, LOTS, lambda code, record: record() == third)
    assert [each.body for each in messages(reading)] == [b"3"]


async def test_a_filter_that_matches_nothing_goes_on_after_800_entries(any_store: OpenStore) -> None:
    store = any_store()
    for _ in range(1000):
        store.append(message())
    reading = store.read("orders", 0, 10, 32, LOTS, lambda code, record: False)
    assert (reading.status, reading.found, reading.next_offset) == (ReadStatus.NO_MATCHED_MESSAGE, 0, 810)
    assert store.read("orders", 0, 810, 32, LOTS, lambda code, record: False).next_offset == 1000


async def test_who_wants_to_know_is_told_when_it_can_be_read(any_store: OpenStore) -> None:
    store = any_store()
    seen: list[tuple[Stored, ReadStatus]] = []
    store.appended.append(lambda stored: seen.append((stored, store.read("orders", 0, 0, 1, LOTS).status)))
    stored = store.append(message())
    assert seen == [(stored, ReadStatus.FOUND)]


@pytest.mark.parametrize("fields", [{"body": b"x" * 101}, {"properties": {"a": "b" * 32767}}, {"topic": "t" * 32768}])
async def test_what_is_too_big_is_illegal(any_store: OpenStore, fields: dict[str, object]) -> None:
    store = any_store(max_message_size=100)
    with pytest.raises(Refusal, match="msg body length limit 100B") as refused:
        store.append(message(**fields))  # type: ignore[arg-type]
    assert refused.value.code == ResponseCode.MESSAGE_ILLEGAL
    assert store.size == 0
    assert not store.topics()


async def test_a_record_that_is_bigger_than_a_segment_has_one_of_its_own(any_store: OpenStore) -> None:
    store = any_store(segment_size=4096)
    sent = [bytes([number]) * size for number, size in enumerate((10, 3000, 10_000, 5, 4096, 1))]
    for body in sent:
        store.append(message(body))
    assert bodies(store) == sent


async def test_an_index_entry_takes_less_than_48_bytes(any_store: OpenStore) -> None:
    store = any_store()
    for number in range(20_000):
        store.append(message(properties={"UNIQ_KEY": f"7F00{number:028X}", "KEYS": f"order-{number}", "TAGS": "a"}))
    queue = store._index.topics["orders"][0]
    columns = [queue.positions, queue.sizes, queue.tags]
    for segment in store._log.segments:
        columns += [segment.key_hashes, segment.key_places]
    assert sum(map(sys.getsizeof, columns)) / 20_000 <= 48
