"""Operations on groups: their settings, offsets, members and locks, as values that can be put to any broker."""

from __future__ import annotations

from dataclasses import dataclass

from rocketstream.wire.bodies.group import SubscriptionGroupConfig
from rocketstream.wire.bodies.heartbeat import ConsumerData, HeartbeatData
from rocketstream.wire.bodies.lock import LockBatchRequestBody, LockBatchResponseBody, UnlockBatchRequestBody
from rocketstream.wire.bodies.members import ConsumerListByGroup
from rocketstream.wire.bodies.offsets import ResetOffsetBody
from rocketstream.wire.bodies.stats import ConsumeStats
from rocketstream.wire.bodies.topic import TopicList
from rocketstream.wire.codes import MessageModel, RequestCode, ResponseCode
from rocketstream.wire.headers.group import (
    DeleteSubscriptionGroupRequestHeader,
    GetConsumerListByGroupRequestHeader,
    GetConsumeStatsRequestHeader,
    QueryTopicsByConsumerRequestHeader,
    UnregisterClientRequestHeader,
)
from rocketstream.wire.headers.offsets import (
    CloneGroupOffsetRequestHeader,
    QueryConsumerOffsetRequestHeader,
    ResetOffsetRequestHeader,
    UpdateConsumerOffsetRequestHeader,
)
from rocketstream.wire.subscription import subscription
from tests.broker.target import Answer, Operation, Target, answer, offset_answer

# --- settings ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class PutGroup(Operation):
    """Make a group, or change it."""

    group: str
    may_consume: bool
    may_broadcast: bool

    def ask(self, target: Target) -> Answer:
        config = SubscriptionGroupConfig(
            group_name=target.named(self.group),
            consume_enable=self.may_consume,
            consume_broadcast_enable=self.may_broadcast,
        )
        return answer(target.ask(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, None, config.encode()))


@dataclass(frozen=True)
class DeleteGroup(Operation):
    """Delete a group with its offsets.

    (Without them, 5.5.0 makes the group again at once: having deleted it, it asks what kind of group it is, and who
    asks for a group's settings makes the group. The embedded broker does not follow it there.)
    """

    group: str

    def ask(self, target: Target) -> Answer:
        header = DeleteSubscriptionGroupRequestHeader(group_name=target.named(self.group), clean_offset=True)
        return answer(target.ask(RequestCode.DELETE_SUBSCRIPTIONGROUP, header))


@dataclass(frozen=True)
class TopicsOf(Operation):
    """The topics in which a group has an offset."""

    group: str

    def ask(self, target: Target) -> Answer:
        header = QueryTopicsByConsumerRequestHeader(group=target.named(self.group))
        told = target.ask(RequestCode.QUERY_TOPICS_BY_CONSUMER, header)
        return answer(told, sorted(map(target.label, TopicList.decode(told.body).topic_list)))


# --- offsets -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class GroupOffset(Operation):
    group: str
    topic: str
    queue: int
    zero_if_none: bool | None

    def ask(self, target: Target) -> Answer:
        header = QueryConsumerOffsetRequestHeader(
            consumer_group=target.named(self.group),
            topic=target.named(self.topic),
            queue_id=self.queue,
            set_zero_if_not_found=self.zero_if_none,
        )
        return offset_answer(target.ask(RequestCode.QUERY_CONSUMER_OFFSET, header))


@dataclass(frozen=True)
class Commit(Operation):
    group: str
    topic: str
    queue: int
    offset: int

    def ask(self, target: Target) -> Answer:
        header = UpdateConsumerOffsetRequestHeader(
            consumer_group=target.named(self.group),
            topic=target.named(self.topic),
            queue_id=self.queue,
            commit_offset=self.offset,
        )
        return answer(target.ask(RequestCode.UPDATE_CONSUMER_OFFSET, header))


@dataclass(frozen=True)
class GroupStatistics(Operation):
    """How far a group is in a topic, or (None) in all that it has an offset in."""

    group: str
    topic: str | None

    def ask(self, target: Target) -> Answer:
        topic = None if self.topic is None else target.named(self.topic)
        header = GetConsumeStatsRequestHeader(consumer_group=target.named(self.group), topic=topic)
        told = target.ask(RequestCode.GET_CONSUME_STATS, header)
        if told.code != ResponseCode.SUCCESS:
            return answer(told)
        table = ConsumeStats.decode(told.body).offset_table
        return answer(
            told,
            {
                (target.label(queue.topic), queue.queue_id): (
                    one.broker_offset,
                    one.consumer_offset,
                    one.pull_offset,
                    one.last_timestamp > 0,
                )
                for queue, one in table.items()
            },
        )


@dataclass(frozen=True)
class Reset(Operation):
    """Set a group's offset in a queue; its next pull is told so."""

    group: str
    topic: str
    queue: int
    offset: int

    def ask(self, target: Target) -> Answer:
        header = ResetOffsetRequestHeader(
            group=target.named(self.group),
            topic=target.named(self.topic),
            timestamp=0,
            is_force=True,
            queue_id=self.queue,
            offset=self.offset,
        )
        told = target.ask(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, header)
        if told.code != ResponseCode.SUCCESS:
            return answer(told)
        table = ResetOffsetBody.decode(told.body).offset_table
        return answer(told, {(target.label(queue.topic), queue.queue_id): offset for queue, offset in table.items()})


@dataclass(frozen=True)
class Clone(Operation):
    """Let a group be where another is in a topic.

    (Without a topic 5.5.0 means to do so for all of them, but looks for the offsets of none: nothing happens.)
    """

    source: str
    group: str
    topic: str

    def ask(self, target: Target) -> Answer:
        header = CloneGroupOffsetRequestHeader(
            src_group=target.named(self.source),
            dest_group=target.named(self.group),
            topic=target.named(self.topic),
            offline=True,
        )
        return answer(target.ask(RequestCode.CLONE_GROUP_OFFSET, header))


@dataclass(frozen=True)
class Lock(Operation):
    client: int
    group: str
    topic: str
    queues: frozenset[int]

    def ask(self, target: Target) -> Answer:
        body = LockBatchRequestBody(
            consumer_group=target.named(self.group),
            client_id=target.client_id(self.client),
            mq_set=target.queues(self.topic, sorted(self.queues)),
        )
        told = target.ask(RequestCode.LOCK_BATCH_MQ, None, body.encode(), self.client)
        got = LockBatchResponseBody.decode(told.body).lock_ok_mq_set
        return answer(told, {(target.label(queue.topic), queue.queue_id) for queue in got})


@dataclass(frozen=True)
class Unlock(Operation):
    client: int
    group: str
    topic: str
    queues: frozenset[int]

    def ask(self, target: Target) -> Answer:
        body = UnlockBatchRequestBody(
            consumer_group=target.named(self.group),
            client_id=target.client_id(self.client),
            mq_set=target.queues(self.topic, sorted(self.queues)),
        )
        return answer(target.ask(RequestCode.UNLOCK_BATCH_MQ, None, body.encode(), self.client))


@dataclass(frozen=True)
class Heartbeat(Operation):
    """A client is a member of a group that wants these topics, all by one expression."""

    client: int
    group: str
    topics: frozenset[str]
    expression: str
    version: int
    broadcasts: bool = False

    def ask(self, target: Target) -> Answer:
        wanted = tuple(
            subscription(target.named(topic), self.expression, version=self.version) for topic in sorted(self.topics)
        )
        model = MessageModel.BROADCASTING if self.broadcasts else MessageModel.CLUSTERING
        data = ConsumerData(group_name=target.named(self.group), message_model=model, subscription_data_set=wanted)
        body = HeartbeatData(client_id=target.client_id(self.client), consumer_data_set=(data,))
        return answer(target.ask(RequestCode.HEART_BEAT, None, body.encode(), self.client))


@dataclass(frozen=True)
class Leave(Operation):
    client: int
    group: str

    def ask(self, target: Target) -> Answer:
        header = UnregisterClientRequestHeader(
            client_id=target.client_id(self.client), consumer_group=target.named(self.group)
        )
        return answer(target.ask(RequestCode.UNREGISTER_CLIENT, header, b"", self.client))


@dataclass(frozen=True)
class MembersOf(Operation):
    group: str

    def ask(self, target: Target) -> Answer:
        header = GetConsumerListByGroupRequestHeader(consumer_group=target.named(self.group))
        told = target.ask(RequestCode.GET_CONSUMER_LIST_BY_GROUP, header)
        if told.code != ResponseCode.SUCCESS:
            return answer(told)
        # A hash table's order in RocketMQ; clients sort it before they share out queues.
        ids = ConsumerListByGroup.decode(told.body).consumer_id_list
        return answer(told, sorted(map(target.label, ids)))
