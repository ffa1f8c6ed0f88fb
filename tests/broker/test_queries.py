from __future__ import annotations

import pytest

from rocketstream.broker.queries import Queries
from rocketstream.wire.bodies.stats import QueryConsumeQueueResponseBody
from rocketstream.wire.codes import RequestCode, ResponseCode
from rocketstream.wire.headers.admin import (
    QueryConsumeQueueRequestHeader,
    QueryMessageRequestHeader,
    ViewMessageRequestHeader,
)
from rocketstream.wire.java import java_string_hash
from rocketstream.wire.record_decoder import decode_records
from tests.broker.parts import Parts, ask, heartbeat, request, succeed


@pytest.fixture
def parts() -> Parts:
    return Parts()


@pytest.fixture
def queries(parts):
    queries = Queries(store=parts.store, members=parts.members)
    queries.start()
    yield queries
    queries.stop()
    assert parts.store.appended == []


async def by_key(parts: Parts, queries: Queries, key: str, begin: int = 0, end: int = 1 << 60, **others):
    header = QueryMessageRequestHeader(
        topic="t", key=key, max_num=others.pop("max_num", 64), begin_timestamp=begin, end_timestamp=end, **others
    )
    return await ask(queries, parts.connect(), request(RequestCode.QUERY_MESSAGE, header))


async def test_a_message_by_its_place(parts, queries):
    stored = parts.append("t", b"hello")
    header = ViewMessageRequestHeader(offset=stored.position)
    answer = await succeed(queries, parts.connect(), request(RequestCode.VIEW_MESSAGE_BY_ID, header))
    (message,) = decode_records(answer.body)[0]
    assert (message.body, message.topic) == (b"hello", "t")
    header = ViewMessageRequestHeader(offset=stored.position + 1)
    answer = await ask(queries, parts.connect(), request(RequestCode.VIEW_MESSAGE_BY_ID, header))
    assert (answer.code, answer.remark) == (
        ResponseCode.SYSTEM_ERROR,
        f"can not find message by the offset, {stored.position + 1}",
    )


async def test_messages_by_key(parts, queries):
    parts.append("t", b"1", KEYS="red green")
    last = parts.append("t", b"2", KEYS="green")
    parts.append("u", b"3", KEYS="green")
    answer = await by_key(parts, queries, "green")
    assert sorted(message.body for message in decode_records(answer.body)[0]) == [b"1", b"2"]
    assert int(answer.fields["indexLastUpdatePhyoffset"]) > last.position
    assert [message.body for message in decode_records((await by_key(parts, queries, "red")).body)[0]] == [b"1"]
    answer = await by_key(parts, queries, "green", max_num=1)
    assert len(list(decode_records(answer.body)[0])) == 1


async def test_a_message_by_its_unique_key(parts, queries):
    parts.append("t", b"1", UNIQ_KEY="0A0B")
    answer = await by_key(parts, queries, "0A0B", max_num=0, unique_key_query=True)
    assert [message.body for message in decode_records(answer.body)[0]] == [b"1"]


async def test_a_key_that_nobody_has_or_not_then_is_not_found(parts, queries):
    stored = parts.append("t", b"1", KEYS="red")
    answer = await by_key(parts, queries, "blue")
    assert answer.code == ResponseCode.QUERY_NOT_FOUND
    answer = await by_key(parts, queries, "red", begin=stored.timestamp + 1)
    assert (answer.code, answer.remark) == (
        ResponseCode.QUERY_NOT_FOUND,
        "can not find message, maybe time range not correct",
    )


async def test_what_a_queues_index_holds(parts, queries):
    stored = [parts.append("t", b"x" * number, TAGS="red") for number in range(3)]
    parts.append("t", b"y")
    await succeed(parts.members, parts.connect(), heartbeat("c", {"g": ("t",)}))

    async def index(first: int, count: int, queue_id: int = 0, group: str | None = None):
        header = QueryConsumeQueueRequestHeader(
            topic="t", queue_id=queue_id, index=first, count=count, consumer_group=group
        )
        return await ask(queries, parts.connect(), request(RequestCode.QUERY_CONSUME_QUEUE, header))

    shown = QueryConsumeQueueResponseBody.decode((await index(1, 2, group="g")).body)
    assert [(one.physic_offset, one.physic_size, one.tags_code) for one in shown.queue_data] == [
        (one.position, one.size, java_string_hash("red")) for one in stored[1:]
    ]
    assert (shown.min_queue_index, shown.max_queue_index) == (0, 4)
    assert shown.subscription_data.topic == "t"
    shown = QueryConsumeQueueResponseBody.decode((await index(3, 9, group="x")).body)
    assert [one.tags_code for one in shown.queue_data] == [0]
    assert shown.filter_data == "x@t is not online!"
    assert (await index(4, 1)).remark == "Index 4 of 0@t is not exist!"
    answer = await index(0, 1, queue_id=5)
    assert (answer.code, answer.remark) == (ResponseCode.SUCCESS, "Index 0 of 5@t is not exist!")
