"""Groups: names and settings."""

from __future__ import annotations

from collections.abc import Mapping

from rocketstream.wire.bodies.base import Body, body, mapping
from rocketstream.wire.bodies.data_version import DataVersion
from rocketstream.wire.java import Int32, Int64


@body
class GroupList(Body):
    """Names of groups."""

    group_list: frozenset[str] = frozenset()


@body
class ExponentialRetryPolicy(Body):
    """Times between retries that grow; milliseconds."""

    initial: Int64
    max: Int64
    multiplier: Int64


@body
class CustomizedRetryPolicy(Body):
    """Times between retries as listed; milliseconds."""

    next: tuple[Int64, ...]


@body
class GroupRetryPolicy(Body):
    """When a message that failed comes again (5.x)."""

    type: str = "CUSTOMIZED"
    exponential_retry_policy: ExponentialRetryPolicy | None = None
    customized_retry_policy: CustomizedRetryPolicy | None = None


@body
class SimpleSubscriptionData(Body):
    """A subscription that a group must have (5.x)."""

    topic: str
    expression_type: str
    expression: str
    version: Int64 = 0


@body
class SubscriptionGroupConfig(Body):
    """A group's settings on one broker; what 4.9 does not have is left out unless set."""

    group_name: str
    consume_enable: bool = True
    consume_from_min_enable: bool = True
    consume_broadcast_enable: bool = True
    consume_message_orderly: bool = False
    retry_queue_nums: Int32 = 1
    retry_max_times: Int32 = 16
    group_retry_policy: GroupRetryPolicy | None = None
    broker_id: Int64 = 0
    which_broker_when_consume_slowly: Int64 = 1
    notify_consumer_ids_changed_enable: bool = True
    group_sys_flag: Int32 = 0
    consume_timeout_minute: Int32 = 15
    subscription_data_set: tuple[SimpleSubscriptionData, ...] | None = None
    attributes: Mapping[str, str] | None = None


@body
class SubscriptionGroupWrapper(Body):
    """GET_ALL_SUBSCRIPTIONGROUP_CONFIG's answer; `forbidden_table` is 5.x's."""

    subscription_group_table: Mapping[str, SubscriptionGroupConfig] = mapping()
    forbidden_table: Mapping[str, Mapping[str, Int32]] | None = None
    data_version: DataVersion | None = None


@body
class SubscriptionGroupList(Body):
    """UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST (5.x)."""

    group_config_list: tuple[SubscriptionGroupConfig, ...] = ()


@body
class GroupForbidden(Body):
    """UPDATE_AND_GET_GROUP_FORBIDDEN's answer: whether a group may read a topic."""

    topic: str
    group: str
    readable: bool
