"""Pulling messages of a queue."""

from __future__ import annotations

from rocketstream.wire.headers.base import Header, TopicRequestHeader, header, named
from rocketstream.wire.java import Int32, Int64


@header
class PullMessageRequestHeader(TopicRequestHeader):
    """PULL_MESSAGE and LITE_PULL_MESSAGE (PULL-15)."""

    consumer_group: str
    topic: str
    queue_id: Int32
    queue_offset: Int64
    max_msg_nums: Int32
    sys_flag: Int32
    commit_offset: Int64
    suspend_timeout_millis: Int64
    subscription: str | None = None
    sub_version: Int64
    expression_type: str | None = None
    max_msg_bytes: Int32 | None = None
    request_source: Int32 | None = None
    lite_topic: str | None = None
    proxy_forward_client_id: str | None = named("proxyFrowardClientId", default=None)  # Java's spelling


@header
class PullMessageResponseHeader(Header):
    """What a broker says of the queue with every answer to a pull; the optional fields are 5.x's."""

    suggest_which_broker_id: Int64
    next_begin_offset: Int64
    min_offset: Int64
    max_offset: Int64
    offset_delta: Int64 | None = None
    topic_sys_flag: Int32 | None = None
    group_sys_flag: Int32 | None = None
    forbidden_type: Int32 | None = None
