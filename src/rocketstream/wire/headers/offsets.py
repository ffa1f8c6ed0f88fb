"""Offsets: a group's on a queue, a queue's own limits, and a group's reset."""

from __future__ import annotations

from rocketstream.wire.headers.base import Header, RpcRequestHeader, TopicRequestHeader, header
from rocketstream.wire.java import Int32, Int64


@header
class OffsetResponseHeader(Header):
    """One offset: the answer to a consumer offset, max offset, min offset and search by time."""

    offset: Int64


@header
class QueryConsumerOffsetRequestHeader(TopicRequestHeader):
    """QUERY_CONSUMER_OFFSET; `set_zero_if_not_found` is 5.x's."""

    consumer_group: str
    topic: str
    queue_id: Int32
    set_zero_if_not_found: bool | None = None


@header
class UpdateConsumerOffsetRequestHeader(TopicRequestHeader):
    """UPDATE_CONSUMER_OFFSET (OFF-03)."""

    consumer_group: str
    topic: str
    queue_id: Int32
    commit_offset: Int64


@header
class GetMaxOffsetRequestHeader(TopicRequestHeader):
    """GET_MAX_OFFSET; without `committed` a 5.x broker counts what is not yet replicated, 4.9 has no choice."""

    topic: str
    queue_id: Int32
    committed: bool = True


@header
class GetMinOffsetRequestHeader(TopicRequestHeader):
    """GET_MIN_OFFSET."""

    topic: str
    queue_id: Int32


@header
class SearchOffsetRequestHeader(TopicRequestHeader):
    """SEARCH_OFFSET_BY_TIMESTAMP; `boundary_type` is LOWER or UPPER (5.x) and says which of equal times."""

    topic: str
    queue_id: Int32
    timestamp: Int64
    boundary_type: str | None = None
    lite_topic: str | None = None


@header
class GetEarliestMsgStoretimeRequestHeader(TopicRequestHeader):
    """GET_EARLIEST_MSG_STORETIME."""

    topic: str
    queue_id: Int32


@header
class GetEarliestMsgStoretimeResponseHeader(Header):
    """When the oldest message of the queue was stored."""

    timestamp: Int64


@header
class ResetOffsetRequestHeader(TopicRequestHeader):
    """INVOKE_BROKER_TO_RESET_OFFSET, and RESET_CONSUMER_CLIENT_OFFSET from broker to client (OFF-05).

    4.9 requires `timestamp` and `isForce`; 5.x can also set one queue to one offset.
    """

    group: str
    topic: str
    timestamp: Int64
    is_force: bool
    queue_id: Int32 = -1
    offset: Int64 | None = None


@header
class CloneGroupOffsetRequestHeader(RpcRequestHeader):
    """CLONE_GROUP_OFFSET: one group's offsets become another's."""

    src_group: str
    dest_group: str
    topic: str | None = None
    offline: bool = False


@header
class QueryCorrectionOffsetRequestHeader(TopicRequestHeader):
    """QUERY_CORRECTION_OFFSET: the smallest offsets of other groups, to start a group from."""

    filter_groups: str | None = None
    compare_group: str
    topic: str
