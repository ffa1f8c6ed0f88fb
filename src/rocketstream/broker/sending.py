"""Sends: single messages, with what becomes of delayed, transactional and retried ones; batches are in `batches`.

The way of a plain message is kept short: every producer's throughput is decided here.
"""

from __future__ import annotations

import base64
import os
import random
from collections.abc import Awaitable, Mapping
from typing import Final

from rocketstream.broker.admission import Admission, SendHeader, queue_of, send_header
from rocketstream.broker.batches import store_batch
from rocketstream.broker.connection import ClientConnection
from rocketstream.broker.dispatch import Handler
from rocketstream.broker.groups import Groups
from rocketstream.broker.half_messages import half_message
from rocketstream.broker.intake import Intake, delay_level_of
from rocketstream.broker.locks import Locks
from rocketstream.broker.names import RETRY_PREFIX, TIMER_TOPIC, dlq_topic
from rocketstream.broker.records import encoded, property_of
from rocketstream.broker.refusal import Refusal
from rocketstream.broker.settings import BrokerSettings
from rocketstream.broker.store.values import NewMessage
from rocketstream.broker.topics import READ_WRITE, Topics
from rocketstream.clock import Clock
from rocketstream.errors import ConfigurationError
from rocketstream.property_names import PropertyName
from rocketstream.wire.bodies.topic import TopicConfig
from rocketstream.wire.codes import RequestCode, ResponseCode
from rocketstream.wire.command import Command, response
from rocketstream.wire.message_id import UniqueIds
from rocketstream.wire.properties import decode_properties
from rocketstream.wire.sysflag import MULTI_TAGS, transaction_type

_SUCCESS: Final = int(ResponseCode.SUCCESS)
#: Properties that the broker writes itself or lets nobody bring along: with one of them the string is read whole.
_OWN: Final = (
    f"{PropertyName.REGION}\x01",
    f"{PropertyName.CLUSTER}\x01",
    f"{PropertyName.POP_CHECK_POINT}\x01",
)
_TRANSACTIONAL: Final = f"{PropertyName.TRANSACTION_PREPARED}\x01"


class Sending:
    """SEND_MESSAGE, SEND_MESSAGE_V2 and SEND_BATCH_MESSAGE."""

    def __init__(
        self,
        *,
        settings: BrokerSettings,
        clock: Clock,
        topics: Topics,
        groups: Groups,
        locks: Locks,
        intake: Intake,
    ) -> None:
        self._settings = settings
        self._clock = clock
        self._topics = topics
        self._groups = groups
        self._locks = locks
        self._intake = intake
        self._admission = Admission(settings=settings, topics=topics)
        self._unique_ids = _unique_ids(settings.host)

    def start(self) -> None:
        """Nothing runs by itself."""

    def stop(self) -> None:
        """Nothing is kept here."""

    def handlers(self) -> Mapping[int, Handler]:
        """The three ways to send."""
        return {
            RequestCode.SEND_MESSAGE: self._send,
            RequestCode.SEND_MESSAGE_V2: self._send,
            RequestCode.SEND_BATCH_MESSAGE: self._send,
        }

    def _send(self, connection: ClientConnection, command: Command) -> Command | Awaitable[Command]:
        header = send_header(command)
        try:
            if not command.body:
                raise Refusal(ResponseCode.SYSTEM_ERROR, "java.lang.NullPointerException: the message has no body")
            config = self._admission.topic_of(header, connection)
            if header.batch:
                return self._send_batch(connection, command, header, config)
            return self._send_one(connection, command, header, config)
        except Refusal as refusal:
            return response(command, refusal.code, refusal.remark, self._settings.region_fields)

    # --- one message ---------------------------------------------------------------------------------------------

    def _send_one(
        self, connection: ClientConnection, command: Command, header: SendHeader, config: TopicConfig
    ) -> Command | Awaitable[Command]:
        topic, queue_id = header.topic, queue_of(header, config)
        properties, unique_id = self._with_own(header.properties or "")
        message = NewMessage(
            topic=topic,
            queue_id=queue_id,
            body=command.body,
            properties=properties,
            flag=header.flag,
            sys_flag=header.sys_flag,
            born_timestamp=header.born_timestamp,
            born_host=connection.address,
            reconsume_times=header.reconsume_times or 0,
        )
        if topic.startswith(RETRY_PREFIX):
            config = self._retry_or_bury(header, message, config)
        if config.topic_filter_type == "MULTI_TAG":
            message.sys_flag |= MULTI_TAGS
        if config.attributes and config.attributes.get("cleanup.policy") == "COMPACTION":
            _need_a_key(properties)
        if _TRANSACTIONAL in properties and _is_half(message):
            message = half_message(message)
        stored = self._intake.put(message)
        fields = {
            "msgId": stored.message_id,
            "queueId": str(queue_id),
            "queueOffset": str(stored.queue_offset),
            "transactionId": unique_id,
            **self._settings.region_fields,
        }
        if stored.topic == TIMER_TOPIC and topic != TIMER_TOPIC and not topic.startswith(RETRY_PREFIX):
            fields["recallHandle"] = self._recall_handle(message, topic, unique_id)
        return self._intake.answer(stored, response(command, _SUCCESS, None, fields))

    def _with_own(self, text: str) -> tuple[str, str]:
        """The properties with the broker's own among them, and the message's unique id."""
        unique_id = property_of(text, PropertyName.UNIQUE_KEY)
        own = {**self._settings.region_fields, PropertyName.CLUSTER: self._settings.cluster_name}
        if unique_id and not any(name in text for name in _OWN):
            # Some clients leave out the separator at the end.
            return (text if text[-1] == "\x02" else f"{text}\x02") + encoded(own), unique_id
        properties = decode_properties(text)
        unique_id = properties.get(PropertyName.UNIQUE_KEY)
        if not unique_id:
            unique_id = self._unique_ids.next(self._clock.wall_ms())
            properties[PropertyName.UNIQUE_KEY] = unique_id
        properties.pop(PropertyName.POP_CHECK_POINT, None)
        properties |= own
        return encoded(properties), unique_id

    def _retry_or_bury(self, header: SendHeader, message: NewMessage, config: TopicConfig) -> TopicConfig:
        """A message for a retry topic goes to the group's dead letters once it was tried too often."""
        # A pop group's retry topics have the topic behind the group.
        group = header.topic.removeprefix(RETRY_PREFIX).partition("+")[0]
        settings = self._groups.get(group)
        if settings is None:
            raise Refusal(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, f"subscription group not exist, {group}")
        most = settings.retry_max_times if header.max_reconsume_times is None else header.max_reconsume_times
        # Who holds locks consumes in order: it sends a message back only to be rid of it.
        if (header.reconsume_times or 0) <= most and self._locks.all_expired(group):
            return config
        message.topic = dlq_topic(group)
        message.queue_id = 0
        message.properties = encoded(decode_properties(message.properties) | {PropertyName.DELAY_LEVEL: "-1"})
        return self._topics.for_send_back(message.topic, 1, READ_WRITE)

    def _recall_handle(self, message: NewMessage, topic: str, unique_id: str) -> str:
        due = int(property_of(message.properties, PropertyName.TIMER_OUT_MS) or 0) + 1
        return base64.urlsafe_b64encode(f"v1 {topic} {self._settings.broker_name} {due} {unique_id}".encode()).decode()

    # --- many ----------------------------------------------------------------------------------------------------

    def _send_batch(
        self, connection: ClientConnection, command: Command, header: SendHeader, config: TopicConfig
    ) -> Command | Awaitable[Command]:
        queue_id = queue_of(header, config)
        properties = decode_properties(header.properties or "")
        if delay_level_of(properties) > 0 or transaction_type(header.sys_flag):
            raise self._intake.illegal()
        stored = store_batch(
            self._intake,
            command.body,
            topic=header.topic,
            queue_id=queue_id,
            sys_flag=header.sys_flag | (MULTI_TAGS if config.topic_filter_type == "MULTI_TAG" else 0),
            born_timestamp=header.born_timestamp,
            born_host=connection.address,
            reconsume_times=header.reconsume_times or 0,
            max_size=self._settings.max_message_size,
        )
        fields = {
            "msgId": ",".join([one.message_id for one in stored]),
            "queueId": str(queue_id),
            "queueOffset": str(stored[0].queue_offset),
            **self._settings.region_fields,
        }
        unique_id = properties.get(PropertyName.UNIQUE_KEY)
        if unique_id:
            fields["transactionId"] = unique_id
        return self._intake.answer(stored[-1], response(command, _SUCCESS, None, fields))


def _is_half(message: NewMessage) -> bool:
    """Whether a transaction begins here. (Clients before 4.6.1 also give back delivered messages with the property.)"""
    properties = decode_properties(message.properties)
    if properties.get(PropertyName.TRANSACTION_PREPARED, "").lower() != "true":
        return False
    return not (message.reconsume_times > 0 and delay_level_of(properties) > 0)


def _need_a_key(properties: str) -> None:
    if not (property_of(properties, PropertyName.KEYS) or "").strip():
        raise Refusal(ResponseCode.MESSAGE_ILLEGAL, "Required message key is missing")


def _unique_ids(host: str) -> UniqueIds:
    pid, loader = os.getpid(), random.getrandbits(32)
    try:
        return UniqueIds(host, pid, loader)
    except ConfigurationError:  # a name, not an address
        return UniqueIds("127.0.0.1", pid, loader)
