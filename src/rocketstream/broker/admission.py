"""May this be sent here? RocketMQ's `msgCheck`: the topic's name, whether it is there or can be made, the queue."""

from __future__ import annotations

import random
from typing import Final, TypeAlias

from rocketstream.broker.connection import ClientConnection
from rocketstream.broker.names import RETRY_PREFIX, UNSENDABLE_TOPICS, check_topic
from rocketstream.broker.refusal import Refusal
from rocketstream.broker.settings import BrokerSettings
from rocketstream.broker.topics import Topics
from rocketstream.wire.bodies.topic import TopicConfig
from rocketstream.wire.codes import Permission, RequestCode, ResponseCode
from rocketstream.wire.command import Command
from rocketstream.wire.headers.send import SendMessageRequestHeader, SendMessageRequestHeaderV2

SendHeader: TypeAlias = SendMessageRequestHeader | SendMessageRequestHeaderV2

_WRITE: Final = int(Permission.WRITE)
_UNIT: Final = 1
_UNIT_SUBSCRIPTION: Final = 2
_LONG_NAMES: Final = frozenset({int(RequestCode.SEND_MESSAGE), int(RequestCode.SEND_REPLY_MESSAGE)})


def send_header(command: Command) -> SendHeader:
    """The header of any request that sends."""
    if command.code in _LONG_NAMES:
        return SendMessageRequestHeader.from_fields(command.fields)
    return SendMessageRequestHeaderV2.from_fields(command.fields)


class Admission:
    """Decides about sends."""

    def __init__(self, *, settings: BrokerSettings, topics: Topics) -> None:
        self._settings = settings
        self._topics = topics

    def topic_of(self, header: SendHeader, connection: ClientConnection) -> TopicConfig:
        """The topic to send to, made if that is allowed; or a `Refusal`."""
        topic = header.topic
        config = self._topics.get(topic)
        if config is None or topic in UNSENDABLE_TOPICS or not self._settings.permission & _WRITE:
            config = self._look_closer(header, config, connection)
        queue_id = header.queue_id
        if queue_id >= config.write_queue_nums and queue_id >= config.read_queue_nums:
            raise Refusal(
                ResponseCode.INVALID_PARAMETER,
                f"request queueId[{queue_id}] is illegal, TopicConfig [topicName={topic},"
                f" readQueueNums={config.read_queue_nums}, writeQueueNums={config.write_queue_nums}]"
                f" Producer: {connection.address}",
            )
        return config

    def _look_closer(self, header: SendHeader, config: TopicConfig | None, connection: ClientConnection) -> TopicConfig:
        topic = header.topic
        if not self._settings.permission & _WRITE and config is not None and config.order:
            raise Refusal(ResponseCode.NO_PERMISSION, f"the broker[{self._settings.host}] sending message is forbidden")
        check_topic(topic)
        if topic in UNSENDABLE_TOPICS:
            raise Refusal(ResponseCode.NO_PERMISSION, f"Sending message to topic[{topic}] is forbidden.")
        if config is not None:
            return config
        sys_flag = 0
        if header.unit_mode:
            sys_flag = _UNIT_SUBSCRIPTION if topic.startswith(RETRY_PREFIX) else _UNIT
        return self._topics.for_send(
            topic, header.default_topic, header.default_topic_queue_nums, sys_flag, connection.address
        )


def queue_of(header: SendHeader, config: TopicConfig) -> int:
    """The queue that was asked for; any, if none was."""
    if header.queue_id >= 0:
        return header.queue_id
    if config.write_queue_nums <= 0:
        raise Refusal(ResponseCode.SYSTEM_ERROR, f"topic[{config.topic_name}] has no queue to write to")
    return random.randrange(config.write_queue_nums)
