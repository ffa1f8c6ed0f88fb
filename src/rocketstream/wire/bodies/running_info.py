"""What a running consumer tells operators: its queues, its speed, and how its listener takes one message."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from rocketstream.message import MessageQueue
from rocketstream.wire.bodies.base import AnyText, Body, body, mapping, named
from rocketstream.wire.bodies.subscription import SubscriptionData
from rocketstream.wire.codes import CMResult
from rocketstream.wire.java import Int32, Int64

# Names of `ConsumerRunningInfo.properties` that tools and the dashboard read.
PROP_NAMESERVER_ADDR: Final = "PROP_NAMESERVER_ADDR"
PROP_THREADPOOL_CORE_SIZE: Final = "PROP_THREADPOOL_CORE_SIZE"
PROP_CONSUME_ORDERLY: Final = "PROP_CONSUMEORDERLY"
PROP_CONSUME_TYPE: Final = "PROP_CONSUME_TYPE"
PROP_CLIENT_VERSION: Final = "PROP_CLIENT_VERSION"
PROP_CONSUMER_START_TIMESTAMP: Final = "PROP_CONSUMER_START_TIMESTAMP"


@body
class ProcessQueueInfo(Body):
    """One queue that is pulled ("droped" is Java's spelling)."""

    commit_offset: Int64 = 0
    cached_msg_min_offset: Int64 = 0
    cached_msg_max_offset: Int64 = 0
    cached_msg_count: Int32 = 0
    cached_msg_size_in_mib: Int32 = named("cachedMsgSizeInMiB", default=0)
    transaction_msg_min_offset: Int64 = 0
    transaction_msg_max_offset: Int64 = 0
    transaction_msg_count: Int32 = 0
    locked: bool = False
    try_unlock_times: Int64 = 0
    last_lock_timestamp: Int64 = 0
    dropped: bool = named("droped", default=False)
    last_pull_timestamp: Int64 = 0
    last_consume_timestamp: Int64 = 0


@body
class PopProcessQueueInfo(Body):
    """One queue that is popped (5.x)."""

    wait_ack_count: Int32 = 0
    dropped: bool = named("droped", default=False)
    last_pop_timestamp: Int64 = 0


@body
class ConsumeStatus(Body):
    """A topic's speed in this consumer: times in ms, messages per second, failures of the last hour."""

    pull_rt: float = named("pullRT", default=0.0)
    pull_tps: float = named("pullTPS", default=0.0)
    consume_rt: float = named("consumeRT", default=0.0)
    consume_ok_tps: float = named("consumeOKTPS", default=0.0)
    consume_failed_tps: float = named("consumeFailedTPS", default=0.0)
    consume_failed_msgs: Int64 = 0


@body
class ConsumerRunningInfo(Body):
    """GET_CONSUMER_RUNNING_INFO's answer; the pop table and `user_consumer_info` are 5.x's."""

    properties: Mapping[str, AnyText] = mapping()
    subscription_set: tuple[SubscriptionData, ...] = ()
    mq_table: Mapping[MessageQueue, ProcessQueueInfo] = mapping()
    mq_pop_table: Mapping[MessageQueue, PopProcessQueueInfo] = mapping()
    status_table: Mapping[str, ConsumeStatus] = mapping()
    user_consumer_info: Mapping[str, str] = mapping()
    jstack: str | None = None


@body
class ConsumeMessageDirectlyResult(Body):
    """CONSUME_MESSAGE_DIRECTLY's answer."""

    order: bool = False
    auto_commit: bool = True
    consume_result: CMResult | None = None
    remark: str | None = None
    spent_time_mills: Int64 = 0
