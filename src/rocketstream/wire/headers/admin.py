"""What operators ask of a broker: messages by id and key, its settings, its statistics."""

from __future__ import annotations

from rocketstream.wire.headers.base import Header, TopicRequestHeader, header, named
from rocketstream.wire.java import Int32, Int64


@header
class QueryMessageRequestHeader(TopicRequestHeader):
    """QUERY_MESSAGE: by key, or by unique id with `unique_key_query`; the last two fields are 5.5's."""

    topic: str
    key: str
    max_num: Int32
    begin_timestamp: Int64
    end_timestamp: Int64
    unique_key_query: bool | None = named("_UNIQUE_KEY_QUERY", default=None)
    index_type: str | None = None
    last_key: str | None = None


@header
class QueryMessageResponseHeader(Header):
    """How far the index is; the messages found are the body."""

    index_last_update_timestamp: Int64
    index_last_update_phyoffset: Int64


@header
class ViewMessageRequestHeader(Header):
    """VIEW_MESSAGE_BY_ID, by commit-log offset; `topic` is 5.x's."""

    topic: str | None = None
    offset: Int64


@header
class QueryConsumeQueueRequestHeader(TopicRequestHeader):
    """QUERY_CONSUME_QUEUE: entries of a queue's index, with what a group's filter says of them."""

    topic: str
    queue_id: Int32
    index: Int64
    count: Int32
    consumer_group: str | None = None


@header
class GetBrokerConfigResponseHeader(Header):
    """The version of a broker's settings; the settings are the body, as a properties file."""

    version: str


@header
class ViewBrokerStatsDataRequestHeader(Header):
    """VIEW_BROKER_STATS_DATA: one counter over the last minute, hour and day."""

    stats_name: str
    stats_key: str
