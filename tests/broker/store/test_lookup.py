"""Finding messages by time and by key; deleting topics; letting old segments go."""

from __future__ import annotations

import pytest

from rocketstream.broker.settings import BrokerSettings
from rocketstream.broker.store import open_store
from rocketstream.broker.store.indexed_properties import key_hash, key_seed_of, tags_code_of
from rocketstream.broker.store.log_store import LogStore
from rocketstream.broker.store.values import ReadStatus
from rocketstream.clock import ManualClock
from rocketstream.wire.record_decoder import decode_records
from tests.broker.store.stores import OpenStore, bodies, message

EVER = 1 << 62
LOTS = 1 << 20
#: Two keys with the same hash.
COLLIDING = ("e1a31e0316", "4640a9050e")


def found(
    store: LogStore, key: str, topic: str = "orders", count: int = 64, begin: int = 0, end: int = EVER
) -> list[str]:
    return [
        each.body.decode()
        for record in store.find(topic, key, count, begin, end)
        for each in decode_records(record).messages
    ]


# --- time -------------------------------------------------------------------------------------------------------


async def test_offsets_by_time(any_store: OpenStore, clock: ManualClock) -> None:
    store = any_store()
    start = clock.wall_ms()
    for number, milliseconds in enumerate((0, 10, 10, 10, 20, 30)):
        await clock.advance((start + milliseconds - clock.wall_ms()) / 1000)
        assert store.append(message(str(number))).timestamp == start + milliseconds
    asked = (-1, 0, 5, 10, 15, 20, 30, 31)
    assert [store.offset_by_time("orders", 0, start + at) for at in asked] == [0, 0, 1, 1, 4, 4, 5, 6]
    assert [store.offset_by_time("orders", 0, start + at, upper=True) for at in asked] == [0, 0, 0, 3, 3, 4, 5, 5]
    assert [store.timestamp_at("orders", 0, offset) - start for offset in range(6)] == [0, 10, 10, 10, 20, 30]
    assert store.timestamp_at("orders", 0, 6) == store.timestamp_at("orders", 0, -1) == -1


# --- keys -------------------------------------------------------------------------------------------------------


async def test_messages_are_found_by_each_key_and_the_unique_key(any_store: OpenStore) -> None:
    store = any_store()
    store.append(message("one", properties={"KEYS": "a b", "UNIQ_KEY": "u1"}))
    store.append(message("two", properties={"KEYS": "b  c", "UNIQ_KEY": "u2"}))
    store.append(message("other", topic="other", properties={"KEYS": "b"}))
    store.append(message("none", properties={"TAGS": "b", "XKEYS": "a"}))
    assert [found(store, key) for key in ("a", "b", "c", "u1", "u2", "", " ", "d")] == [
        ["one"],
        ["one", "two"],
        ["two"],
        ["one"],
        ["two"],
        [],
        [],
        [],
    ]
    assert found(store, "b", "other") == ["other"]
    assert found(store, "b", "nowhere") == []


async def test_the_newest_are_found_oldest_first(any_store: OpenStore, clock: ManualClock) -> None:
    store = any_store(segment_size=4096)
    start = clock.wall_ms()
    for number in range(200):
        store.append(message(str(number), properties={"KEYS": "k"}, queue_id=number % 3))
        await clock.advance(0.001)
    assert found(store, "k", count=3) == ["197", "198", "199"]
    assert found(store, "k", count=1000) == [str(number) for number in range(136, 200)]
    assert found(store, "k", begin=start + 10, end=start + 12) == ["10", "11", "12"]


async def test_a_key_that_only_has_the_same_hash_is_not_found(any_store: OpenStore) -> None:
    store = any_store()
    one, two = COLLIDING
    seed = key_seed_of("orders")
    assert key_hash(seed, one.encode()) == key_hash(seed, two.encode())
    store.append(message("one", properties={"KEYS": one}))
    store.append(message("two", properties={"KEYS": two}))
    assert (found(store, one), found(store, two)) == (["one"], ["two"])


async def test_an_empty_property_does_not_hide_an_earlier_one(any_store: OpenStore) -> None:
    store = any_store()
    text = "TAGS\x01t\x02KEYS\x01k\x02UNIQ_KEY\x01u\x02TAGS\x01\x02KEYS\x01\x02UNIQ_KEY\x01\x02"
    new = message("one")
    new.properties = text
    assert store.append(new).tags_code == tags_code_of(b"t")
    assert found(store, "k") == found(store, "u") == ["one"]


async def test_the_codes_of_very_many_tags_do_not_fill_the_memory() -> None:
    codes = {tags_code_of(str(number).encode()) for number in range(10_000)}
    assert len(codes) == 10_000
    assert tags_code_of(b"") == 0


# --- deleting ---------------------------------------------------------------------------------------------------


async def test_a_deleted_topic_begins_again(any_store: OpenStore) -> None:
    store = any_store()
    store.append(message("old", properties={"KEYS": "k"}))
    store.append(message("kept", topic="other", properties={"KEYS": "k"}))
    store.delete_topic("orders")
    store.delete_topic("never there")
    assert store.topics() == ["other"]
    assert store.read("orders", 0, 0, 32, LOTS).status is ReadStatus.NO_MESSAGE_IN_QUEUE
    assert found(store, "k") == ["old"]  # as RocketMQ: keys go with the log
    assert store.append(message("new", properties={"KEYS": "k"})).queue_offset == 0
    assert (bodies(store), found(store, "k"), found(store, "k", "other")) == ([b"new"], ["old", "new"], ["kept"])


# --- letting go -------------------------------------------------------------------------------------------------


async def test_memory_is_bounded(clock: ManualClock) -> None:
    store = open_store(BrokerSettings(max_memory=64 * 1024), clock, "127.0.0.1:10911")
    store.append(message("gone", topic="early", properties={"KEYS": "k"}))
    for number in range(2000):
        store.append(message(str(number), properties={"KEYS": "k"}))
        assert store.size <= 64 * 1024
    assert store.size > 48 * 1024
    first = store.min_offset("orders", 0)
    assert first > 0
    assert bodies(store) == [str(number).encode() for number in range(first, 2000)]
    reading = store.read("orders", 0, first - 1, 32, LOTS)
    assert (reading.status, reading.next_offset) == (ReadStatus.OFFSET_TOO_SMALL, first)
    assert found(store, "k", "early") == []
    # The queue is empty but goes on where it was.
    assert store.read("early", 0, 1, 32, LOTS)[:4] == (ReadStatus.OFFSET_OVERFLOW_ONE, (), 0, 1)
    assert store.read("early", 0, 0, 32, LOTS)[:4] == (ReadStatus.OFFSET_TOO_SMALL, (), 0, 1)
    assert store.offset_by_time("early", 0, 0) == store.offset_by_time("early", 0, 0, upper=True) == 1
    assert store.record(8) is None
    assert store.append(message(topic="early")).queue_offset == 1


async def test_what_a_reader_holds_stays_when_its_segment_goes(clock: ManualClock) -> None:
    store = open_store(BrokerSettings(max_memory=64 * 1024), clock, "127.0.0.1:10911")
    store.append(message("first"))
    held = store.read("orders", 0, 0, 32, LOTS)
    for _ in range(2000):
        store.append(message(b"x" * 100))
    assert store.min_offset("orders", 0) > 0
    (first,) = decode_records(b"".join(held.records)).messages
    assert first.body == b"first"


async def test_old_segments_go_and_the_last_one_stays(any_store: OpenStore, clock: ManualClock) -> None:
    store = any_store(segment_size=4096, retention_time=60.0)
    for number in range(100):
        stored = store.append(message(str(number)))
    waiting = store.durable(stored.position)
    if waiting is not None:
        await waiting
    store.expire()
    assert store.min_offset("orders", 0) == 0
    await clock.advance(59)
    kept_from = store._log.segments[-1].base
    store.append(message("late"))
    await clock.advance(2)
    store.expire()
    first = store.min_offset("orders", 0)
    assert 0 < first < 100
    assert [segment.base for segment in store._log.segments] == [kept_from]
    assert bodies(store)[-1] == b"late"


@pytest.mark.parametrize("retention", [10_000, 20_000])
async def test_the_oldest_segments_go_when_there_is_too_much(file_store: OpenStore, retention: int) -> None:
    store = file_store(segment_size=4096, retention_bytes=retention)
    for number in range(500):
        waiting = store.durable(store.append(message(str(number))).position)
        assert waiting is not None
        await waiting
    store.expire()
    assert retention - 4096 <= store.size <= retention
    kept = bodies(store)
    assert kept == [str(number).encode() for number in range(500 - len(kept), 500)]
