"""Groups: their members, what brokers tell and ask members, and their settings.

Heartbeats, locks and unlocks need no header: what they say is in the body. (5.x may route them by `bname`:
`RpcRequestHeader(bname=...)`.)
"""

from __future__ import annotations

from rocketstream.wire.headers.base import Header, RpcRequestHeader, TopicRequestHeader, header, named
from rocketstream.wire.java import Int32


@header
class GetConsumerListByGroupRequestHeader(RpcRequestHeader):
    """GET_CONSUMER_LIST_BY_GROUP."""

    consumer_group: str


@header
class NotifyConsumerIdsChangedRequestHeader(RpcRequestHeader):
    """NOTIFY_CONSUMER_IDS_CHANGED, from broker to client (REB-01)."""

    consumer_group: str


@header
class UnregisterClientRequestHeader(RpcRequestHeader):
    """UNREGISTER_CLIENT: leave a group at once instead of when heartbeats stay out (REB-10)."""

    client_id: str = named("clientID")
    producer_group: str | None = None
    consumer_group: str | None = None


@header
class GetConsumerStatusRequestHeader(TopicRequestHeader):
    """GET_CONSUMER_STATUS_FROM_CLIENT, and INVOKE_BROKER_TO_GET_CONSUMER_STATUS that leads to it."""

    topic: str
    group: str
    client_addr: str | None = None


@header
class GetConsumerRunningInfoRequestHeader(RpcRequestHeader):
    """GET_CONSUMER_RUNNING_INFO, asked by an operator through the broker."""

    consumer_group: str
    client_id: str
    jstack_enable: bool = False


@header
class ConsumeMessageDirectlyRequestHeader(TopicRequestHeader):
    """CONSUME_MESSAGE_DIRECTLY: an operator gives one message to one member's listener."""

    consumer_group: str
    client_id: str | None = None
    msg_id: str | None = None
    broker_name: str | None = None
    topic: str | None = None
    topic_sys_flag: Int32 | None = None
    group_sys_flag: Int32 | None = None


@header
class GetConsumerConnectionListRequestHeader(RpcRequestHeader):
    """GET_CONSUMER_CONNECTION_LIST."""

    consumer_group: str


@header
class GetProducerConnectionListRequestHeader(RpcRequestHeader):
    """GET_PRODUCER_CONNECTION_LIST."""

    producer_group: str


@header
class GetConsumeStatsRequestHeader(TopicRequestHeader):
    """GET_CONSUME_STATS: broker and group offsets of every queue; `topic_list` (";" between) is 5.x's."""

    consumer_group: str
    topic: str | None = None
    topic_list: str | None = None


@header
class GetBrokerConsumeStatsRequestHeader(Header):
    """GET_BROKER_CONSUME_STATS: the same of all groups of a broker."""

    is_order: bool


@header
class QueryTopicConsumeByWhoRequestHeader(TopicRequestHeader):
    """QUERY_TOPIC_CONSUME_BY_WHO: the groups of a topic."""

    topic: str


@header
class QueryTopicsByConsumerRequestHeader(RpcRequestHeader):
    """QUERY_TOPICS_BY_CONSUMER: the topics of a group."""

    group: str


@header
class QuerySubscriptionByConsumerRequestHeader(TopicRequestHeader):
    """QUERY_SUBSCRIPTION_BY_CONSUMER: what a group asked of a topic."""

    group: str
    topic: str | None = None


@header
class QueryConsumeTimeSpanRequestHeader(TopicRequestHeader):
    """QUERY_CONSUME_TIME_SPAN: how old the messages are that a group has yet to see."""

    topic: str
    group: str


@header
class GetSubscriptionGroupConfigRequestHeader(RpcRequestHeader):
    """GET_SUBSCRIPTIONGROUP_CONFIG (5.x; 4.9 only lists all groups)."""

    group: str


@header
class GetAllSubscriptionGroupRequestHeader(Header):
    """GET_ALL_SUBSCRIPTIONGROUP_CONFIG by pages (newest 5.x); others take no header and send all."""

    group_seq: Int32
    data_version: str | None = None
    max_group_num: Int32 | None = None


@header
class GetAllSubscriptionGroupResponseHeader(Header):
    """How many groups there are; absent from brokers that do not page."""

    total_group_num: Int32 | None = None


@header
class DeleteSubscriptionGroupRequestHeader(RpcRequestHeader):
    """DELETE_SUBSCRIPTIONGROUP. The two versions call the wish to delete offsets too by different names."""

    group_name: str
    clean_offset: bool = False  # 5.x
    remove_offset: bool = False  # 4.9


@header
class UpdateGroupForbiddenRequestHeader(TopicRequestHeader):
    """UPDATE_AND_GET_GROUP_FORBIDDEN; without `readable` it only asks."""

    group: str
    topic: str
    readable: bool | None = None
