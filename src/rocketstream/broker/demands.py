"""What a request asks to do with which topic, group or cluster: the demands that a user's permissions must cover.

The rule of this file: values in, values out, and as RocketMQ 5.5 has it (`DefaultAuthorizationContextBuilder` and the
annotations of its headers). What is not listed there is asked of nobody but that he is who he says.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from rocketstream.cluster.names import RETRY_PREFIX
from rocketstream.wire.bodies.heartbeat import HeartbeatData
from rocketstream.wire.bodies.lock import LockBatchRequestBody, UnlockBatchRequestBody
from rocketstream.wire.codes import RequestCode
from rocketstream.wire.command import Command

TOPIC, GROUP, CLUSTER = "Topic", "Group", "Cluster"


@dataclass(frozen=True, slots=True)
class Demand:
    """One thing that a request wants: any of these actions with that resource."""

    kind: str
    name: str
    actions: tuple[str, ...]

    @property
    def resource(self) -> str:
        """As RocketMQ writes it."""
        return f"{self.kind}:{self.name}"


def _topic(name: str, *actions: str) -> Demand:
    """A topic; a group's retry topic is its group's."""
    if name.startswith(RETRY_PREFIX):
        return _group(name, *actions)
    return Demand(TOPIC, name, actions)


def _group(name: str, *actions: str) -> Demand:
    return Demand(GROUP, name.removeprefix(RETRY_PREFIX), actions)


#: Requests whose header says it all: (kind, field) of what they want, and the actions.
_BY_HEADER: Final[dict[int, tuple[tuple[tuple[str, str], ...], tuple[str, ...]]]] = {
    int(code): (wanted, actions)
    for code, wanted, actions in (
        (RequestCode.RECALL_MESSAGE, ((TOPIC, "topic"),), ("PUB",)),
        (RequestCode.END_TRANSACTION, ((TOPIC, "topic"),), ("PUB",)),
        (RequestCode.QUERY_MESSAGE, ((TOPIC, "topic"),), ("SUB", "GET")),
        (RequestCode.CONSUMER_SEND_MSG_BACK, ((GROUP, "group"),), ("SUB",)),
        (RequestCode.UNREGISTER_CLIENT, ((GROUP, "consumerGroup"),), ("SUB",)),
        (RequestCode.GET_CONSUMER_LIST_BY_GROUP, ((GROUP, "consumerGroup"),), ("SUB", "GET")),
        (RequestCode.POP_MESSAGE, ((GROUP, "consumerGroup"), (TOPIC, "topic")), ("SUB",)),
        (RequestCode.ACK_MESSAGE, ((GROUP, "consumerGroup"), (TOPIC, "topic")), ("SUB",)),
        (RequestCode.CHANGE_MESSAGE_INVISIBLETIME, ((GROUP, "consumerGroup"), (TOPIC, "topic")), ("SUB",)),
        (RequestCode.NOTIFICATION, ((GROUP, "consumerGroup"), (TOPIC, "topic")), ("SUB",)),
        (RequestCode.PEEK_MESSAGE, ((TOPIC, "topic"), (GROUP, "consumerGroup")), ("SUB",)),
        (RequestCode.CONSUME_MESSAGE_DIRECTLY, ((GROUP, "consumerGroup"), (TOPIC, "topic")), ("SUB",)),
        (RequestCode.GET_MAX_OFFSET, ((TOPIC, "topic"),), ("GET",)),
        (RequestCode.GET_MIN_OFFSET, ((TOPIC, "topic"),), ("GET",)),
        (RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, ((TOPIC, "topic"),), ("GET",)),
        (RequestCode.GET_EARLIEST_MSG_STORETIME, ((TOPIC, "topic"),), ("GET",)),
        (RequestCode.GET_TOPIC_STATS_INFO, ((TOPIC, "topic"),), ("GET",)),
        (RequestCode.GET_TOPIC_CONFIG, ((TOPIC, "topic"),), ("GET",)),
        (RequestCode.VIEW_MESSAGE_BY_ID, ((TOPIC, "topic"),), ("GET",)),
        (RequestCode.QUERY_TOPIC_CONSUME_BY_WHO, ((TOPIC, "topic"),), ("GET",)),
        (RequestCode.QUERY_TOPICS_BY_CONSUMER, ((GROUP, "group"),), ("GET",)),
        (RequestCode.QUERY_SUBSCRIPTION_BY_CONSUMER, ((GROUP, "group"), (TOPIC, "topic")), ("GET",)),
        (RequestCode.QUERY_CONSUME_TIME_SPAN, ((TOPIC, "topic"), (GROUP, "group")), ("GET",)),
        (RequestCode.QUERY_CONSUME_QUEUE, ((TOPIC, "topic"), (GROUP, "consumerGroup")), ("GET",)),
        (RequestCode.GET_CONSUMER_CONNECTION_LIST, ((GROUP, "consumerGroup"),), ("GET",)),
        (RequestCode.GET_CONSUMER_RUNNING_INFO, ((GROUP, "consumerGroup"),), ("GET",)),
        (RequestCode.GET_CONSUME_STATS, ((GROUP, "consumerGroup"), (TOPIC, "topic")), ("GET",)),
        (RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS, ((TOPIC, "topic"), (GROUP, "group")), ("GET",)),
        (RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, ((GROUP, "group"), (TOPIC, "topic")), ("UPDATE",)),
        (RequestCode.UPDATE_AND_CREATE_TOPIC, ((TOPIC, "topic"),), ("CREATE",)),
        (RequestCode.DELETE_TOPIC_IN_BROKER, ((TOPIC, "topic"),), ("DELETE",)),
        (RequestCode.DELETE_SUBSCRIPTIONGROUP, ((GROUP, "groupName"),), ("DELETE",)),
    )
}
#: Requests that are about the whole cluster.
_OF_CLUSTER: Final[dict[int, tuple[str, ...]]] = {
    int(code): (action,)
    for code, action in (
        (RequestCode.GET_PRODUCER_CONNECTION_LIST, "GET"),
        (RequestCode.GET_BROKER_CONSUME_STATS, "GET"),
        (RequestCode.VIEW_BROKER_STATS_DATA, "GET"),
        (RequestCode.AUTH_CREATE_USER, "UPDATE"),
        (RequestCode.AUTH_CREATE_ACL, "UPDATE"),
    )
}
_SENDS: Final = {
    int(RequestCode.SEND_MESSAGE): ("topic", "producerGroup"),
    int(RequestCode.SEND_MESSAGE_V2): ("b", "a"),
    int(RequestCode.SEND_BATCH_MESSAGE): ("b", "a"),
}
_OFFSETS: Final = {
    int(RequestCode.QUERY_CONSUMER_OFFSET): ("SUB", "GET"),
    int(RequestCode.UPDATE_CONSUMER_OFFSET): ("SUB", "UPDATE"),
}


def demands_of(command: Command, cluster_name: str) -> Iterator[Demand]:
    """What a request wants, in the order in which RocketMQ looks; a body that can't be read is a `ProtocolError`."""
    code, fields = command.code, command.fields
    if code in _SENDS:
        topic, group = (fields.get(name, "") for name in _SENDS[code])
        if topic.startswith(RETRY_PREFIX):  # a failed message that goes back by itself
            yield _group(group or topic, "SUB")
        else:
            yield _topic(topic, "PUB")
    elif code == RequestCode.PULL_MESSAGE:
        yield from _topic_and_group(fields, "SUB")
    elif code in _OFFSETS:
        yield from _topic_and_group(fields, *_OFFSETS[code])
    elif code == RequestCode.HEART_BEAT:
        for consumer in HeartbeatData.decode(command.body).consumer_data_set:
            yield _group(consumer.group_name, "SUB")
            for sub in consumer.subscription_data_set:
                if not sub.topic.startswith(RETRY_PREFIX):
                    yield _topic(sub.topic, "SUB")
    elif code in (RequestCode.LOCK_BATCH_MQ, RequestCode.UNLOCK_BATCH_MQ):
        kind = LockBatchRequestBody if code == RequestCode.LOCK_BATCH_MQ else UnlockBatchRequestBody
        asked = kind.decode(command.body)
        yield _group(asked.consumer_group, "SUB")
        for topic in sorted({queue.topic for queue in asked.mq_set}):
            if not topic.startswith(RETRY_PREFIX):
                yield _topic(topic, "SUB")
    elif code in _OF_CLUSTER:
        yield Demand(CLUSTER, cluster_name, _OF_CLUSTER[code])
    elif code in _BY_HEADER:
        wanted, actions = _BY_HEADER[code]
        for kind_of, field in wanted:
            name = fields.get(field)
            if name:
                yield _topic(name, *actions) if kind_of == TOPIC else _group(name, *actions)


def _topic_and_group(fields: dict[str, str], *actions: str) -> Iterator[Demand]:
    topic = fields.get("topic", "")
    if not topic.startswith(RETRY_PREFIX):
        yield _topic(topic, *actions)
    yield _group(fields.get("consumerGroup", ""), *actions)
