"""Topics: routes, settings, statistics."""

from __future__ import annotations

from rocketstream.wire.headers.base import Header, TopicRequestHeader, header
from rocketstream.wire.java import Int32


@header
class GetRouteInfoRequestHeader(TopicRequestHeader):
    """GET_ROUTEINFO_BY_TOPIC; with `accept_standard_json_only` the answer is JSON as the world knows it."""

    topic: str
    accept_standard_json_only: bool | None = None


@header
class CreateTopicRequestHeader(TopicRequestHeader):
    """UPDATE_AND_CREATE_TOPIC; `attributes` ("+name=value,...") and `force` are 5.x's."""

    topic: str
    default_topic: str
    read_queue_nums: Int32
    write_queue_nums: Int32
    perm: Int32
    topic_filter_type: str = "SINGLE_TAG"
    topic_sys_flag: Int32 | None = None
    order: bool = False
    attributes: str | None = None
    force: bool | None = None


@header
class DeleteTopicRequestHeader(TopicRequestHeader):
    """DELETE_TOPIC_IN_BROKER."""

    topic: str


@header
class DeleteTopicFromNamesrvRequestHeader(TopicRequestHeader):
    """DELETE_TOPIC_IN_NAMESRV; `cluster_name` is 5.x's."""

    topic: str
    cluster_name: str | None = None


@header
class RegisterTopicRequestHeader(TopicRequestHeader):
    """REGISTER_TOPIC_IN_NAMESRV; the route is the body (5.x)."""

    topic: str


@header
class GetTopicConfigRequestHeader(TopicRequestHeader):
    """GET_TOPIC_CONFIG (5.x)."""

    topic: str


@header
class GetAllTopicConfigRequestHeader(Header):
    """GET_ALL_TOPIC_CONFIG by pages (newest 5.x); others take no header and send all."""

    topic_seq: Int32
    data_version: str | None = None
    max_topic_num: Int32 | None = None


@header
class GetAllTopicConfigResponseHeader(Header):
    """How many topics there are; absent from brokers that do not page."""

    total_topic_num: Int32 | None = None


@header
class GetTopicStatsInfoRequestHeader(TopicRequestHeader):
    """GET_TOPIC_STATS_INFO: minimum and maximum offset and last store time of every queue."""

    topic: str


@header
class GetTopicsByClusterRequestHeader(Header):
    """GET_TOPICS_BY_CLUSTER."""

    cluster: str
