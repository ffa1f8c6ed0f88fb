"""A failed message goes back to the broker, which delivers it again later or puts it among the dead letters.

First the broker that it came from is asked to do that with its own copy (CON-09); if it does not, the message is sent
to the group's retry topic like any other, through whichever broker takes it (CON-10).
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final, TypeAlias

from rocketstream.cluster.client_instance import ClientInstance
from rocketstream.cluster.names import retry_topic
from rocketstream.cluster.route import is_logical
from rocketstream.consumer.settings import ConsumerSettings
from rocketstream.consumer.topic_names import TopicNames
from rocketstream.errors import BrokerNotFoundError
from rocketstream.message import MessageQueue, ReceivedMessage
from rocketstream.property_names import PropertyName
from rocketstream.wire.codes import RequestCode
from rocketstream.wire.headers.send import ConsumerSendMsgBackRequestHeader

log = logging.getLogger("rocketstream.consumer")

_TIMEOUT: Final = 5.0
# The first two delay levels, 1 s and 5 s, are too short for whatever made a message fail.
_FIRST_RETRY_LEVEL: Final = 3


@dataclass(frozen=True, slots=True)
class RetryCopy:
    """What has to be sent to a retry topic.

    `RECONSUME_TIME` and `MAX_RECONSUME_TIMES` are among the properties, as Java hands them to its producer; like
    Java's, ours sends them as fields of the request's header instead, since that is where a broker looks.
    """

    topic: str
    body: bytes
    flag: int
    properties: dict[str, str]


SendInner: TypeAlias = Callable[[RetryCopy], Awaitable[object]]


def send_back_header(
    message: ReceivedMessage, group: str, delay_level: int, max_reconsume: int, unit_mode: bool, origin_topic: str
) -> ConsumerSendMsgBackRequestHeader:
    """The order to deliver a message again: delay level 0 leaves the delay to the broker, -1 makes it a dead letter."""
    return ConsumerSendMsgBackRequestHeader(
        offset=message.commit_log_offset,
        group=group,
        delay_level=delay_level,
        origin_msg_id=message.message_id,
        origin_topic=origin_topic,
        unit_mode=unit_mode,
        max_reconsume_times=max_reconsume,
        bname=message.broker_name or None,
    )


def retry_copy(
    message: ReceivedMessage,
    group: str,
    max_reconsume: int,
    original_topic: str,
    *,
    reconsume_times: int | None = None,
) -> RetryCopy:
    """A message once more, for the group's retry topic; the message itself stays as it is.

    `group` and `original_topic` are the names that brokers know. `reconsume_times` is one more than the message has,
    unless told otherwise: an orderly consumer has counted already.
    """
    times = message.reconsume_times
    properties = dict(message.properties)
    # None of a half message's flags: it would wait for a commit that never comes.
    properties.pop(PropertyName.TRANSACTION_PREPARED, None)
    origin = properties.get(PropertyName.ORIGIN_MESSAGE_ID, "")
    properties[PropertyName.ORIGIN_MESSAGE_ID] = origin if origin.strip() else message.message_id
    properties[PropertyName.RETRY_TOPIC] = original_topic
    properties[PropertyName.RECONSUME_TIME] = str(times + 1 if reconsume_times is None else reconsume_times)
    properties[PropertyName.MAX_RECONSUME_TIMES] = str(max_reconsume)
    properties[PropertyName.DELAY_LEVEL] = str(_FIRST_RETRY_LEVEL + times)
    return RetryCopy(retry_topic(group), message.body, message.flag, properties)


class SendBack:
    """Gives the failed messages of a group back.

    `group` is the name that brokers know; the topics of messages may be their users' names.
    """

    def __init__(
        self,
        instance: ClientInstance,
        settings: ConsumerSettings,
        group: str,
        names: TopicNames,
        send_inner: SendInner,
    ) -> None:
        self._instance = instance
        self._settings = settings
        self._group = group
        self._names = names
        self._send_inner = send_inner

    async def send_back(self, message: ReceivedMessage, queue: MessageQueue, delay_level: int) -> None:
        """Give one message back; what the last way raised is raised, and then the message is still ours (CON-11)."""
        topic = self._names.real_topic(message.topic)
        maximum = self._settings.max_reconsume_times_concurrent
        broker_name = message.broker_name or queue.broker_name
        # The broker name of a static topic's queues stands for no broker: nobody could find the message by its offset.
        if not (is_logical(broker_name) or is_logical(queue.broker_name)):
            header = send_back_header(message, self._group, delay_level, maximum, self._settings.unit_mode, topic)
            try:
                await self._to_its_broker(broker_name, header)
            except Exception as error:
                log.warning(
                    "message %s of topic %s was not taken back by %s, it is sent to the retry topic of group %s: %s",
                    message.message_id,
                    topic,
                    broker_name,
                    self._group,
                    error,
                )
            else:
                return
        await self._send_inner(retry_copy(message, self._group, maximum, topic))

    async def _to_its_broker(self, broker_name: str, header: ConsumerSendMsgBackRequestHeader) -> None:
        # The table only: if the master is gone, the other way looks for routes by itself.
        master = self._instance.brokers.master(broker_name)
        if master is None:
            raise BrokerNotFoundError(f"broker {broker_name!r} has no master")
        await self._instance.ask(master.address, RequestCode.CONSUMER_SEND_MSG_BACK, header, timeout=_TIMEOUT)
