from __future__ import annotations

import pytest

from rocketstream.broker.statistics import Statistics
from rocketstream.message import MessageQueue
from rocketstream.wire.bodies.group import GroupList
from rocketstream.wire.bodies.stats import (
    BrokerStatsData,
    ConsumeStats,
    ConsumeStatsList,
    KVTable,
    QueryConsumeTimeSpanBody,
    TopicStatsTable,
)
from rocketstream.wire.bodies.subscription import QuerySubscriptionResponseBody
from rocketstream.wire.bodies.topic import TopicList
from rocketstream.wire.codes import RequestCode, ResponseCode
from tests.broker.parts import Parts, ask, heartbeat, request, succeed


def queue(queue_id: int, topic: str = "t") -> MessageQueue:
    return MessageQueue(topic, "broker-a", queue_id)


@pytest.fixture
def parts() -> Parts:
    parts = Parts()
    parts.create_topic("t", 2)
    parts.groups.get("g")
    return parts


@pytest.fixture
def statistics(parts):
    statistics = Statistics(
        settings=parts.settings,
        clock=parts.clock,
        store=parts.store,
        topics=parts.topics,
        groups=parts.groups,
        members=parts.members,
        offsets=parts.offsets,
        address="127.0.0.1:10911",
    )
    statistics.start()
    yield statistics
    statistics.stop()
    assert parts.store.appended == []


async def told(parts: Parts, statistics: Statistics, code: RequestCode, **fields: str) -> bytes:
    return (await succeed(statistics, parts.connect(), request(code, fields))).body


# --- topics -----------------------------------------------------------------------------------------------------------


async def test_how_far_a_topic_is(parts, statistics):
    stored = [parts.append("t") for _ in range(3)]
    body = await told(parts, statistics, RequestCode.GET_TOPIC_STATS_INFO, topic="t")
    table = TopicStatsTable.decode(body).offset_table
    assert set(table) == {queue(0), queue(1)}
    first = table[queue(0)]
    assert (first.min_offset, first.max_offset, first.last_update_timestamp) == (0, 3, stored[-1].timestamp)
    assert (table[queue(1)].max_offset, table[queue(1)].last_update_timestamp) == (0, 0)
    answer = await ask(statistics, parts.connect(), request(RequestCode.GET_TOPIC_STATS_INFO, {"topic": "x"}))
    assert (answer.code, answer.remark) == (ResponseCode.TOPIC_NOT_EXIST, "topic[x] not exist")


async def test_how_fast_a_topic_grows(parts, statistics):
    for _ in range(6):
        for _ in range(20):
            parts.append("t")
        await parts.clock.advance(10.0)
    body = await told(parts, statistics, RequestCode.GET_TOPIC_STATS_INFO, topic="t")
    assert TopicStatsTable.decode(body).topic_put_tps == pytest.approx(2.0)
    body = await told(parts, statistics, RequestCode.VIEW_BROKER_STATS_DATA, statsName="TOPIC_PUT_NUMS", statsKey="t")
    minute = BrokerStatsData.decode(body).stats_minute
    assert (minute.sum, minute.tps) == (100, pytest.approx(2.0))
    wanted = {"statsName": "TOPIC_PUT_NUMS", "statsKey": "x"}
    answer = await ask(statistics, parts.connect(), request(RequestCode.VIEW_BROKER_STATS_DATA, wanted))
    assert (answer.code, answer.remark) == (ResponseCode.SYSTEM_ERROR, "The stats <TOPIC_PUT_NUMS> <x> not exist")


async def test_who_consumes_a_topic(parts, statistics):
    parts.offsets.commit("committed", "t", 0, 1)
    await succeed(parts.members, parts.connect(), heartbeat("c", {"online": ("t",)}))
    body = await told(parts, statistics, RequestCode.QUERY_TOPIC_CONSUME_BY_WHO, topic="t")
    assert GroupList.decode(body).group_list == {"committed", "online"}


# --- groups -----------------------------------------------------------------------------------------------------------


async def test_how_far_a_group_is(parts, statistics):
    stored = [parts.append("t") for _ in range(3)]
    parts.offsets.commit("g", "t", 0, 2)
    parts.offsets.note_pull("g", "t", 0, 3)
    body = await told(parts, statistics, RequestCode.GET_CONSUME_STATS, consumerGroup="g")
    table = ConsumeStats.decode(body).offset_table
    assert set(table) == {queue(0), queue(1)}
    first = table[queue(0)]
    assert (first.broker_offset, first.consumer_offset, first.pull_offset) == (3, 2, 3)
    assert first.last_timestamp == stored[1].timestamp
    assert (table[queue(1)].broker_offset, table[queue(1)].consumer_offset, table[queue(1)].last_timestamp) == (0, 0, 0)


async def test_topics_that_a_group_does_not_want_any_more_are_left_out(parts, statistics):
    parts.create_topic("u")
    for topic in ("t", "u"):
        parts.offsets.commit("g", topic, 0, 0)

    async def topics(**fields: str) -> set[str]:
        body = await told(parts, statistics, RequestCode.GET_CONSUME_STATS, consumerGroup="g", **fields)
        return {one.topic for one in ConsumeStats.decode(body).offset_table}

    assert await topics() == {"t", "u"}
    await succeed(parts.members, parts.connect(), heartbeat("c", {"g": ("u",)}))
    assert await topics() == {"u"}
    assert await topics(topic="t") == set()
    assert await topics(topicList="t;u;gone") == {"t", "u"}


async def test_how_fast_a_group_is(parts, statistics):
    parts.offsets.commit("g", "t", 0, 1000)
    await parts.clock.advance(10.0)
    for step in range(1, 7):
        parts.offsets.commit("g", "t", 0, 1000 + 30 * step)
        await parts.clock.advance(10.0)
    body = await told(parts, statistics, RequestCode.GET_CONSUME_STATS, consumerGroup="g")
    assert ConsumeStats.decode(body).consume_tps == pytest.approx(3.0), "where it began does not count"
    parts.offsets.commit("g", "t", 0, 0)
    await parts.clock.advance(10.0)
    body = await told(parts, statistics, RequestCode.GET_CONSUME_STATS, consumerGroup="g")
    assert ConsumeStats.decode(body).consume_tps == 0.0, "a reset is no speed"


async def test_all_groups_of_the_broker(parts, statistics):
    parts.create_topic("ordered", order=True)
    for _ in range(3):
        parts.append("t")
    for topic in ("t", "ordered"):
        parts.offsets.commit("g", topic, 0, 1)

    async def stats(is_order: str) -> ConsumeStatsList:
        body = await told(parts, statistics, RequestCode.GET_BROKER_CONSUME_STATS, isOrder=is_order)
        return ConsumeStatsList.decode(body)

    shown = await stats("false")
    (of_group,) = (one["g"] for one in shown.consume_stats_list if "g" in one)
    assert {next(iter(one.offset_table)).topic for one in of_group} == {"t", "ordered"}
    assert (shown.broker_addr, shown.total_diff, shown.total_inflight_diff) == ("127.0.0.1:10911", 1, 0)
    (of_group,) = (one["g"] for one in (await stats("true")).consume_stats_list if "g" in one)
    assert {next(iter(one.offset_table)).topic for one in of_group} == {"ordered"}


async def test_what_a_group_wants(parts, statistics):
    parts.offsets.commit("g", "t", 0, 1)
    body = await told(parts, statistics, RequestCode.QUERY_TOPICS_BY_CONSUMER, group="g")
    assert TopicList.decode(body).topic_list == {"t"}
    await succeed(parts.members, parts.connect(), heartbeat("c", {"g": ("t",)}))
    for topic in ("t", "x"):
        body = await told(parts, statistics, RequestCode.QUERY_SUBSCRIPTION_BY_CONSUMER, group="g", topic=topic)
        found = QuerySubscriptionResponseBody.decode(body).subscription_data
        assert (found is not None) == (topic == "t")


async def test_how_old_the_messages_are_that_a_group_has_yet_to_see(parts, statistics):
    times = []
    for _ in range(3):
        times.append(parts.append("t").timestamp)
        await parts.clock.advance(1.0)
    parts.offsets.commit("g", "t", 0, 1)
    body = await told(parts, statistics, RequestCode.QUERY_CONSUME_TIME_SPAN, group="g", topic="t")
    first, second = QueryConsumeTimeSpanBody.decode(body).consume_time_span_set
    assert (first.min_time_stamp, first.max_time_stamp, first.consume_time_stamp) == (times[0], times[2], times[0])
    assert first.delay_time == parts.clock.wall_ms() - times[1]
    assert (second.min_time_stamp, second.max_time_stamp) == (-1, -1)


# --- the broker -------------------------------------------------------------------------------------------------------


async def test_how_the_broker_is(parts, statistics):
    first = parts.append("t")
    for _ in range(19):
        parts.append("t")
    await parts.clock.advance(10.0)
    parts.offsets.commit("g", "t", 0, 0)
    await parts.clock.advance(10.0)
    parts.offsets.commit("g", "t", 0, 10)
    await parts.clock.advance(10.0)
    table = KVTable.decode(await told(parts, statistics, RequestCode.GET_BROKER_RUNTIME_INFO)).table
    assert table["brokerVersionDesc"] == "V5_5_0"
    assert [float(one) for one in table["putTps"].split()] == pytest.approx([0.0, 20 / 30, 20 / 30])
    assert [float(one) for one in table["getTransferredTps"].split()] == pytest.approx([1.0, 10 / 30, 10 / 30])
    assert (table["msgPutTotalTodayNow"], table["msgGetTotalTodayNow"]) == ("20", "10")
    assert table["earliestMessageTimeStamp"] == str(first.timestamp)
    assert table["runtime"] == "[ 0 days, 0 hours, 0 minutes, 30 seconds ]"
    await parts.clock.advance(86_400.0)
    table = KVTable.decode(await told(parts, statistics, RequestCode.GET_BROKER_RUNTIME_INFO)).table
    assert (table["msgPutTotalTodayMorning"], table["msgPutTotalYesterdayMorning"]) == ("20", "0")
