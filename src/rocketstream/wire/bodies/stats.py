"""How far brokers and groups are: statistics of topics, groups and brokers."""

from __future__ import annotations

from collections.abc import Mapping

from rocketstream.message import MessageQueue
from rocketstream.wire.bodies.base import Body, body, mapping
from rocketstream.wire.bodies.subscription import SubscriptionData
from rocketstream.wire.java import Int32, Int64


@body
class OffsetWrapper(Body):
    """A queue's end, a group's place in it and when it was stored there; `pull_offset` is 5.x's."""

    broker_offset: Int64
    consumer_offset: Int64
    pull_offset: Int64 | None = None
    last_timestamp: Int64 = 0


@body
class ConsumeStats(Body):
    """GET_CONSUME_STATS's answer."""

    offset_table: Mapping[MessageQueue, OffsetWrapper] = mapping()
    consume_tps: float = 0.0


@body
class ConsumeStatsList(Body):
    """GET_BROKER_CONSUME_STATS's answer: group -> its statistics, one entry for each topic."""

    consume_stats_list: tuple[Mapping[str, tuple[ConsumeStats, ...]], ...] = ()
    broker_addr: str | None = None
    total_diff: Int64 = 0
    total_inflight_diff: Int64 | None = None


@body
class TopicOffset(Body):
    """A queue's limits and when it last got a message."""

    min_offset: Int64
    max_offset: Int64
    last_update_timestamp: Int64 = 0


@body
class TopicStatsTable(Body):
    """GET_TOPIC_STATS_INFO's answer; `topic_put_tps` is 5.x's."""

    offset_table: Mapping[MessageQueue, TopicOffset] = mapping()
    topic_put_tps: float | None = None


@body
class QueueTimeSpan(Body):
    """How old the messages of a queue are, and the next one that a group will see."""

    message_queue: MessageQueue
    min_time_stamp: Int64 = 0
    max_time_stamp: Int64 = 0
    consume_time_stamp: Int64 = 0
    delay_time: Int64 = 0


@body
class QueryConsumeTimeSpanBody(Body):
    """QUERY_CONSUME_TIME_SPAN's answer."""

    consume_time_span_set: tuple[QueueTimeSpan, ...] = ()


@body
class ConsumeQueueData(Body):
    """One entry of a queue's index."""

    physic_offset: Int64 = 0
    physic_size: Int32 = 0
    tags_code: Int64 = 0
    extend_data_json: str | None = None
    bit_map: str | None = None
    eval: bool = False
    msg: str | None = None


@body
class QueryConsumeQueueResponseBody(Body):
    """QUERY_CONSUME_QUEUE's answer."""

    subscription_data: SubscriptionData | None = None
    filter_data: str | None = None
    queue_data: tuple[ConsumeQueueData, ...] = ()
    max_queue_index: Int64 = 0
    min_queue_index: Int64 = 0


@body
class BrokerStatsItem(Body):
    """A counter over one span of time."""

    sum: Int64 = 0
    tps: float = 0.0
    avgpt: float = 0.0


@body
class BrokerStatsData(Body):
    """VIEW_BROKER_STATS_DATA's answer."""

    stats_minute: BrokerStatsItem | None = None
    stats_hour: BrokerStatsItem | None = None
    stats_day: BrokerStatsItem | None = None


@body
class KVTable(Body):
    """Names and values: GET_BROKER_RUNTIME_INFO and GET_KVLIST_BY_NAMESPACE."""

    table: Mapping[str, str] = mapping()
