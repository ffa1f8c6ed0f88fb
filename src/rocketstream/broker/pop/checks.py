"""What every request about popping is asked first: is there such a topic, may it be read, is there such a group."""

from __future__ import annotations

from typing import Final

from rocketstream.broker.groups import Groups
from rocketstream.broker.refusal import Refusal
from rocketstream.broker.settings import BrokerSettings
from rocketstream.broker.store.values import MessageStore
from rocketstream.broker.topics import Topics
from rocketstream.wire.bodies.topic import TopicConfig
from rocketstream.wire.codes import Permission, ResponseCode

#: What a RocketMQ answer says that has a header and was given a code but no remark.
NO_REMARK: Final = "not set any response code"

_READ: Final = int(Permission.READ)


def readable_topic(topics: Topics, groups: Groups, topic: str, group: str, queue_id: int, client: str) -> TopicConfig:
    """The topic that a group may read."""
    config = existing_topic(topics, topic)
    if not config.perm & _READ:
        raise Refusal(ResponseCode.NO_PERMISSION, f"the topic[{topic}] peeking message is forbidden")
    if queue_id >= config.read_queue_nums:
        raise Refusal(ResponseCode.INVALID_PARAMETER, _illegal_queue(config, queue_id, client))
    settings = groups.get(group)
    if settings is None:
        raise Refusal(
            ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
            f"subscription group [{group}] does not exist, See https://rocketmq.apache.org/docs/bestPractice/06FAQ"
            " for further details.",
        )
    if not settings.consume_enable:
        raise Refusal(ResponseCode.NO_PERMISSION, f"subscription group no permission, {group}")
    return config


def readable_broker(settings: BrokerSettings, doing: str) -> None:
    """Whether an operator lets this broker be read at all."""
    if not settings.permission & _READ:
        raise Refusal(ResponseCode.NO_PERMISSION, f"the broker[{settings.host}] {doing} message is forbidden")


def leased_topic(topics: Topics, topic: str, queue_id: int, client: str) -> TopicConfig:
    """The topic in which something popped lies."""
    config = existing_topic(topics, topic)
    if not 0 <= queue_id < config.read_queue_nums:
        raise Refusal(ResponseCode.MESSAGE_ILLEGAL, _illegal_queue(config, queue_id, client))
    return config


def existing_topic(topics: Topics, topic: str) -> TopicConfig:
    """A topic that is there."""
    config = topics.get(topic)
    if config is None:
        raise Refusal(
            ResponseCode.TOPIC_NOT_EXIST,
            f"topic[{topic}] not exist, apply first please! See https://rocketmq.apache.org/docs/bestPractice/06FAQ"
            " for further details.",
        )
    return config


def kept_range(store: MessageStore, topic: str, queue_id: int) -> tuple[int, int]:
    """The first offset that a queue keeps, and the one of its next message."""
    return store.min_offset(topic, queue_id), store.max_offset(topic, queue_id)


def _illegal_queue(config: TopicConfig, queue_id: int, client: str) -> str:
    return (
        f"queueId[{queue_id}] is illegal, topic:[{config.topic_name}]"
        f" topicConfig.readQueueNums:[{config.read_queue_nums}] consumer:[/{client}]"
    )
