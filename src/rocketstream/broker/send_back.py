"""Messages that a consumer gives back: tried again later, or laid to the dead letters (Java's consumerSendMsgBack)."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Mapping

from rocketstream.broker.connection import ClientConnection
from rocketstream.broker.dispatch import Handler
from rocketstream.broker.groups import Groups
from rocketstream.broker.intake import Intake
from rocketstream.broker.names import dlq_topic, retry_topic
from rocketstream.broker.records import StoredRecord, encoded, read_record
from rocketstream.broker.refusal import Refusal
from rocketstream.broker.settings import BrokerSettings
from rocketstream.broker.store.values import MessageStore, NewMessage
from rocketstream.broker.topics import READ_WRITE, Topics
from rocketstream.property_names import PropertyName
from rocketstream.wire.bodies.group import SubscriptionGroupConfig
from rocketstream.wire.codes import Permission, RequestCode, ResponseCode
from rocketstream.wire.command import Command, response
from rocketstream.wire.headers.send import ConsumerSendMsgBackRequestHeader
from rocketstream.wire.properties import decode_properties

_WRITE = int(Permission.WRITE)
_UNIT_SUBSCRIPTION = 2
#: The first retry waits for this level, each further one a level more.
_FIRST_LEVEL = 3


class SendBack:
    """CONSUMER_SEND_MSG_BACK."""

    def __init__(
        self, *, settings: BrokerSettings, store: MessageStore, topics: Topics, groups: Groups, intake: Intake
    ) -> None:
        self._settings = settings
        self._store = store
        self._topics = topics
        self._groups = groups
        self._intake = intake

    def start(self) -> None:
        """Nothing runs by itself."""

    def stop(self) -> None:
        """Nothing is kept here."""

    def handlers(self) -> Mapping[int, Handler]:
        """The one request."""
        return {RequestCode.CONSUMER_SEND_MSG_BACK: self._send_back}

    def _send_back(self, connection: ClientConnection, command: Command) -> Command | Awaitable[Command]:
        header = ConsumerSendMsgBackRequestHeader.from_fields(command.fields)
        group = self._groups.get(header.group)
        if group is None:
            raise Refusal(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, f"subscription group not exist, {header.group}")
        if not self._settings.permission & _WRITE:
            raise Refusal(ResponseCode.NO_PERMISSION, f"the broker[{self._settings.host}] sending message is forbidden")
        if group.retry_queue_nums <= 0:
            return response(command, ResponseCode.SUCCESS)
        topic = retry_topic(header.group)
        sys_flag = _UNIT_SUBSCRIPTION if header.unit_mode else 0
        config = self._topics.for_send_back(topic, group.retry_queue_nums, READ_WRITE, sys_flag)
        if not config.perm & _WRITE:
            raise Refusal(ResponseCode.NO_PERMISSION, f"the topic[{topic}] sending message is forbidden")
        raw = self._store.record(header.offset)
        if raw is None:
            raise Refusal(ResponseCode.SYSTEM_ERROR, f"look message by offset failed, {header.offset}")
        stored = self._intake.put(self._again(read_record(raw), header, group))
        return self._intake.answer(stored, response(command, ResponseCode.SUCCESS))

    def _again(
        self, record: StoredRecord, header: ConsumerSendMsgBackRequestHeader, group: SubscriptionGroupConfig
    ) -> NewMessage:
        properties = decode_properties(record.properties)
        properties.setdefault(PropertyName.RETRY_TOPIC, record.topic)
        properties[PropertyName.WAIT_STORE_OK] = "false"
        most = group.retry_max_times if header.max_reconsume_times is None else header.max_reconsume_times
        level = header.delay_level
        if record.reconsume_times >= most or level < 0:
            topic, queue_id, level = dlq_topic(header.group), 0, 0
            self._topics.for_send_back(topic, 1, READ_WRITE)
        else:
            topic, queue_id = retry_topic(header.group), random.randrange(group.retry_queue_nums)
            level = level or _FIRST_LEVEL + record.reconsume_times
        properties[PropertyName.DELAY_LEVEL] = str(level)
        if not properties.get(PropertyName.ORIGIN_MESSAGE_ID, "").strip():
            properties[PropertyName.ORIGIN_MESSAGE_ID] = record.message_id
        message = record.renewed(topic, queue_id, encoded(properties))
        message.reconsume_times += 1
        return message
