"""Typed JSON bodies of every request and response the project uses, by concept; all of them are also named here."""

from __future__ import annotations

from rocketstream.wire.bodies.assignment import (
    MessageQueueAssignment,
    MessageRequestModeSerializeWrapper,
    QueryAssignmentRequestBody,
    QueryAssignmentResponseBody,
    SetMessageRequestModeRequestBody,
)
from rocketstream.wire.bodies.base import (
    Body,
)
from rocketstream.wire.bodies.data_version import (
    DataVersion,
)
from rocketstream.wire.bodies.group import (
    CustomizedRetryPolicy,
    ExponentialRetryPolicy,
    GroupForbidden,
    GroupList,
    GroupRetryPolicy,
    SimpleSubscriptionData,
    SubscriptionGroupConfig,
    SubscriptionGroupList,
    SubscriptionGroupWrapper,
)
from rocketstream.wire.bodies.heartbeat import (
    ConsumerData,
    HeartbeatData,
    ProducerData,
)
from rocketstream.wire.bodies.lock import (
    LockBatchRequestBody,
    LockBatchResponseBody,
    UnlockBatchRequestBody,
)
from rocketstream.wire.bodies.members import (
    Connection,
    ConsumerConnection,
    ConsumerListByGroup,
    ProducerConnection,
    ProducerInfo,
    ProducerTableInfo,
)
from rocketstream.wire.bodies.offsets import (
    ConsumerOffsetSerializeWrapper,
    GetConsumerStatusBody,
    QueryCorrectionOffsetBody,
    ResetOffsetBody,
)
from rocketstream.wire.bodies.pop import (
    BatchAck,
    BatchAckMessageRequestBody,
)
from rocketstream.wire.bodies.route import (
    BrokerData,
    ClusterInfo,
    QueueData,
    TopicQueueMappingInfo,
    TopicRouteData,
)
from rocketstream.wire.bodies.running_info import (
    ConsumeMessageDirectlyResult,
    ConsumerRunningInfo,
    ConsumeStatus,
    PopProcessQueueInfo,
    ProcessQueueInfo,
)
from rocketstream.wire.bodies.stats import (
    BrokerStatsData,
    BrokerStatsItem,
    ConsumeQueueData,
    ConsumeStats,
    ConsumeStatsList,
    KVTable,
    OffsetWrapper,
    QueryConsumeQueueResponseBody,
    QueryConsumeTimeSpanBody,
    QueueTimeSpan,
    TopicOffset,
    TopicStatsTable,
)
from rocketstream.wire.bodies.subscription import (
    CheckClientRequestBody,
    QuerySubscriptionResponseBody,
    SubscriptionData,
)
from rocketstream.wire.bodies.topic import (
    CreateTopicListRequestBody,
    RegisterBrokerBody,
    TopicConfig,
    TopicConfigSerializeWrapper,
    TopicList,
)

__all__ = [
    "BatchAck",
    "BatchAckMessageRequestBody",
    "Body",
    "BrokerData",
    "BrokerStatsData",
    "BrokerStatsItem",
    "CheckClientRequestBody",
    "ClusterInfo",
    "Connection",
    "ConsumeMessageDirectlyResult",
    "ConsumeQueueData",
    "ConsumeStats",
    "ConsumeStatsList",
    "ConsumeStatus",
    "ConsumerConnection",
    "ConsumerData",
    "ConsumerListByGroup",
    "ConsumerOffsetSerializeWrapper",
    "ConsumerRunningInfo",
    "CreateTopicListRequestBody",
    "CustomizedRetryPolicy",
    "DataVersion",
    "ExponentialRetryPolicy",
    "GetConsumerStatusBody",
    "GroupForbidden",
    "GroupList",
    "GroupRetryPolicy",
    "HeartbeatData",
    "KVTable",
    "LockBatchRequestBody",
    "LockBatchResponseBody",
    "MessageQueueAssignment",
    "MessageRequestModeSerializeWrapper",
    "OffsetWrapper",
    "PopProcessQueueInfo",
    "ProcessQueueInfo",
    "ProducerConnection",
    "ProducerData",
    "ProducerInfo",
    "ProducerTableInfo",
    "QueryAssignmentRequestBody",
    "QueryAssignmentResponseBody",
    "QueryConsumeQueueResponseBody",
    "QueryConsumeTimeSpanBody",
    "QueryCorrectionOffsetBody",
    "QuerySubscriptionResponseBody",
    "QueueData",
    "QueueTimeSpan",
    "RegisterBrokerBody",
    "ResetOffsetBody",
    "SetMessageRequestModeRequestBody",
    "SimpleSubscriptionData",
    "SubscriptionData",
    "SubscriptionGroupConfig",
    "SubscriptionGroupList",
    "SubscriptionGroupWrapper",
    "TopicConfig",
    "TopicConfigSerializeWrapper",
    "TopicList",
    "TopicOffset",
    "TopicQueueMappingInfo",
    "TopicRouteData",
    "TopicStatsTable",
    "UnlockBatchRequestBody",
]
