"""Rows as requests: every row once, in batches that fit, and in order where a key says so."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketstream.clock import SystemClock
from rocketstream.message import MessageQueue
from rocketstream.producer.outgoing import Preparation
from rocketstream.producer.queue_choice import queue_for_key
from rocketstream.property_names import PropertyName
from rocketstream.spark.row_ids import ROW_ID, TaskId, parse_row_id
from rocketstream.spark.write_columns import BadRowError
from rocketstream.spark.write_options import WriteOptions
from rocketstream.spark.write_requests import Request, RequestMaker
from rocketstream.wire.batch import decode_batch
from rocketstream.wire.codes import RequestCode
from rocketstream.wire.compression import decompress
from rocketstream.wire.properties import decode_properties
from rocketstream.wire.sysflag import Codec

TASK = TaskId("q", 1, 0)
COUNTS = {"t": 3, "u": 5, "ns%t": 3}
TYPES = {"delay_level": pa.int32(), "properties": pa.map_(pa.string(), pa.string()), "body": pa.binary()}


def queues_of(topic: str) -> list[MessageQueue]:
    return [MessageQueue(topic, "b", number) for number in range(COUNTS[topic])]


def maker(**options: str) -> RequestMaker:
    given = {"nameservers": "127.0.0.1:9876", "topic": "t", **{name.lower(): value for name, value in options.items()}}
    parsed = WriteOptions.parse(given)
    clock = SystemClock()
    return RequestMaker(parsed, TASK, Preparation(parsed.producer_settings(), clock), queues_of, clock.wall_ms)


def batch(rows: list[dict[str, Any]]) -> pa.RecordBatch:
    names = dict.fromkeys(name for row in rows for name in row)
    return pa.record_batch(
        {name: pa.array([row.get(name) for row in rows], TYPES.get(name, pa.string())) for name in names}
    )


def requests_of(made: RequestMaker, *batches: list[dict[str, Any]]) -> list[Request]:
    found = [request for rows in batches for request in made.take(batch(rows))]
    return [*found, *made.rest()]


def messages_of(request: Request) -> list[tuple[bytes, dict[str, str]]]:
    """Bodies and properties, as a broker would store them."""
    out = request.out
    if out.code == RequestCode.SEND_BATCH_MESSAGE:
        items = [(item.body, decode_properties(item.properties)) for item in decode_batch(out.body)]
        assert out.count == len(items)
        return items
    body = decompress(out.body, Codec.ZLIB) if int(out.fields["f"]) & 1 else out.body
    return [(body, decode_properties(out.fields["i"]))]


texts = st.text(st.characters(codec="utf-8", exclude_characters="\x01\x02|"), max_size=8) | st.none()
row = st.fixed_dictionaries(
    {
        "body": st.binary(min_size=1, max_size=40),
        "tags": texts,
        "keys": texts,
        "topic": st.sampled_from(["t", "u", None]),
    },
    optional={
        "sharding_key": st.sampled_from(["a", "b", "ü", "dd", "e" * 9]) | st.none(),
        "delay_level": st.sampled_from([None, 0, 0, 3]),
        "properties": st.dictionaries(st.sampled_from(["x", "ü", "zz"]), texts.filter(bool)).map(lambda d: [*d.items()])
        | st.none(),
    },
)


@given(
    st.lists(st.lists(row, max_size=12), max_size=4),
    st.integers(1, 9),
    st.integers(120, 900),
    st.integers(1, 60),
)
def test_what_a_broker_gets_are_the_rows(batches, batch_size, batch_bytes, compress_over):
    made = maker(batchSize=str(batch_size), batchBytes=str(batch_bytes), compressOver=str(compress_over))
    requests = requests_of(made, *(rows for rows in batches if rows))
    rows = [one for rows in batches for one in rows]
    assert made.taken == len(rows)
    found: dict[int, tuple[Request, bytes, dict[str, str]]] = {}
    in_queue: dict[MessageQueue | None, list[int]] = defaultdict(list)
    for request in requests:
        messages = messages_of(request)
        assert len(messages) == len(request.rows) <= batch_size
        assert request.size <= batch_bytes or len(messages) == 1
        assert request.first_id == messages[0][1][ROW_ID]
        in_queue[request.queue] += request.rows.tolist()
        for position, (body, properties) in zip(request.rows.tolist(), messages, strict=True):
            assert position not in found
            found[position] = request, body, properties
    assert sorted(found) == list(range(len(rows)))
    for position, expected in enumerate(rows):
        assert_carries(expected, *found[position], compress_over)
    for queue, positions in in_queue.items():
        if queue is not None:
            assert positions == sorted(positions), "rows of one queue stay in order"
    assert len({properties[ROW_ID] for _, _, properties in found.values()}) == len(rows)
    assert len({properties[PropertyName.UNIQUE_KEY] for _, _, properties in found.values()}) == len(rows)


@given(st.lists(row, min_size=1, max_size=12), st.integers(1, 11), st.randoms())
def test_a_row_has_the_same_id_whatever_rows_it_comes_with(rows, cut, random):
    names = ("body", "topic", "tags", "keys", "sharding_key", "delay_level", "properties")
    rows = [{name: one.get(name) for name in names} for one in rows]  # the columns of a query do not change
    shuffled = random.sample(rows, len(rows))
    assert ids_of(shuffled[:cut], shuffled[cut:]) == ids_of(rows)


def ids_of(*batches: list[dict[str, Any]]) -> dict[str, bytes]:
    requests = requests_of(maker(), *(rows for rows in batches if rows))
    return {properties[ROW_ID]: body for request in requests for body, properties in messages_of(request)}


def assert_carries(
    expected: dict[str, Any], request: Request, body: bytes, properties: dict[str, str], over: int
) -> None:
    topic, key = expected["topic"] or "t", expected.get("sharding_key")
    assert body == expected["body"]
    assert request.out.topic == topic
    assert request.queue == (queue_for_key(queues_of(topic), key) if key else None)
    level = expected.get("delay_level") or 0
    named = {
        "TAGS": expected["tags"],
        "KEYS": expected["keys"],
        "__SHARDINGKEY": key,
        "DELAY": str(level) if level else None,
    }
    wanted = {name: value for name, value in named.items() if value} | dict(expected.get("properties") or [])
    own = {name: properties.pop(name) for name in (ROW_ID, PropertyName.UNIQUE_KEY, PropertyName.WAIT_STORE_OK)}
    assert properties == wanted
    assert own[PropertyName.WAIT_STORE_OK] == "true"
    assert parse_row_id(own[ROW_ID])[:3] == ("q", 1, 0)
    properties.update(own)
    alone = level > 0 or len(body) >= over
    assert (request.out.code == RequestCode.SEND_MESSAGE_V2) == alone
    assert request.out.message_id.split(",")[0] in own.values() or len(request.rows) > 1


def test_a_body_is_compressed_as_the_producer_does_it():
    (single, rest) = requests_of(maker(), [{"body": b"x" * 4096}, {"body": b"x" * 4095}])
    assert (single.rows.tolist(), rest.rows.tolist()) == ([0], [1])
    assert single.size < 100
    assert messages_of(single)[0][0] == b"x" * 4096
    (plain,) = requests_of(maker(compression="none"), [{"body": b"x" * 4096}, {"body": b"x" * 4095}])
    assert plain.size > 8191


def test_a_namespace_is_around_topics_and_groups():
    (one, two) = requests_of(maker(namespace="ns"), [{"body": b"a"}, {"body": b"b", "delay_level": 1}])[::-1]
    for request in (one, two):
        assert request.out.topic == "ns%t"
        assert request.out.fields["a"] == "ns%rocketstream-spark-sink"
        assert decode_properties(request.out.fields["i"])["INSTANCE_ID"] == "ns"


def test_more_than_a_batch_of_one_row_leaves_by_itself():
    rows = [{"body": b"a"}, {"body": b"b", "properties": [("p", "v" * 3000)]}, {"body": b"c"}]
    requests = requests_of(maker(batchBytes="500"), rows)
    assert [request.rows.tolist() for request in requests] == [[0], [1], [2]]


def test_properties_that_no_record_has_room_for_are_refused_with_their_row():
    made = maker()
    assert list(made.take(batch([{"body": b"a"}] * 5))) == []
    with pytest.raises(
        BadRowError, match="row 6 of the partition cannot be sent: tags, keys and properties take 32864 bytes"
    ):
        list(made.take(batch([{"body": b"a", "keys": "k"}, {"body": b"a", "keys": "k" * 32_768}])))


def test_what_waits_for_company_is_bounded():
    # 64 queues that each wait for a batch of 4 MiB would be 256 MiB.
    COUNTS["wide"] = 64
    made = maker(
        topic="wide", maxInFlightBytes="20000", batchBytes="4000000", batchSize="100000", maxMessageSize="4194304"
    )
    waiting = 0
    for number in range(50):
        rows = [{"body": b"x" * 100, "sharding_key": f"{number}-{key}"} for key in range(20)]
        given = sum(request.size for request in made.take(batch(rows)))
        waiting = waiting + 20 * 300 - given if given == 0 else 0
        assert waiting < 40_000
    assert made.taken == 1000


def test_large_batches_are_worked_on_in_parts():
    # More ids than a millisecond has would not be unique.
    rows = pa.record_batch({"body": pa.array([b"%d" % number for number in range(150_000)], pa.binary())})
    made = maker(batchSize="100000", batchBytes="4000000")
    requests = [*made.take(rows), *made.rest()]
    assert sum(len(request.rows) for request in requests) == 150_000
    ids = [properties[PropertyName.UNIQUE_KEY] for request in requests for _, properties in messages_of(request)]
    assert len(set(ids)) == 150_000


def test_a_row_that_leaves_alone_leaves_behind_its_queue():
    rows = [{"body": b"%d" % number, "sharding_key": "k", "delay_level": int(number == 2)} for number in range(5)]
    requests = requests_of(maker(), rows)
    assert [request.rows.tolist() for request in requests] == [[0, 1], [2], [3, 4]]
    unkeyed = [{"body": row["body"], "delay_level": row["delay_level"]} for row in rows]
    assert [request.rows.tolist() for request in requests_of(maker(), unkeyed)] == [[2], [0, 1, 3, 4]]
