"""Replies: a consumer's answer to a request goes straight to the client that asked (Java's ReplyMessageProcessor)."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Mapping
from typing import Final

from rocketstream.broker.admission import Admission, SendHeader, queue_of, send_header
from rocketstream.broker.connection import ClientConnection
from rocketstream.broker.dispatch import Handler
from rocketstream.broker.intake import Intake
from rocketstream.broker.members import Members
from rocketstream.broker.records import encoded
from rocketstream.broker.refusal import Refusal
from rocketstream.broker.settings import BrokerSettings
from rocketstream.broker.store.values import NewMessage
from rocketstream.broker.topics import Topics
from rocketstream.clock import Clock
from rocketstream.property_names import PropertyName
from rocketstream.wire.codes import RequestCode, ResponseCode
from rocketstream.wire.command import Command, request, response
from rocketstream.wire.headers.send import ReplyMessageRequestHeader
from rocketstream.wire.properties import decode_properties

log = logging.getLogger("rocketstream.broker")

#: How long a client has to take a reply.
_PUSH_SECONDS: Final = 10.0


class Replies:
    """SEND_REPLY_MESSAGE and SEND_REPLY_MESSAGE_V2."""

    def __init__(
        self,
        *,
        settings: BrokerSettings,
        clock: Clock,
        topics: Topics,
        members: Members,
        intake: Intake,
        address: str,
    ) -> None:
        self._settings = settings
        self._clock = clock
        self._members = members
        self._intake = intake
        self._address = address
        self._admission = Admission(settings=settings, topics=topics)

    def start(self) -> None:
        """Nothing runs by itself."""

    def stop(self) -> None:
        """Nothing is kept here."""

    def handlers(self) -> Mapping[int, Handler]:
        """Both spellings of the request."""
        return {
            RequestCode.SEND_REPLY_MESSAGE: self._reply,
            RequestCode.SEND_REPLY_MESSAGE_V2: self._reply,
        }

    def _reply(self, connection: ClientConnection, command: Command) -> Command | Awaitable[Command]:
        header = send_header(command)
        try:
            config = self._admission.topic_of(header, connection)
            queue_id = queue_of(header, config)
        except Refusal as refusal:
            return response(command, refusal.code, refusal.remark, self._settings.region_fields)
        return self._push_and_store(connection, command, header, queue_id)

    async def _push_and_store(
        self, connection: ClientConnection, command: Command, header: SendHeader, queue_id: int
    ) -> Command:
        properties = decode_properties(header.properties or "") | self._settings.region_fields
        failure = await self._push(connection, command, header, properties)
        fields = {**self._settings.region_fields, "msgId": "0", "queueId": str(queue_id), "queueOffset": "0"}
        message = NewMessage(
            topic=header.topic,
            queue_id=queue_id,
            body=command.body,
            properties=encoded(properties),
            flag=header.flag,
            born_timestamp=header.born_timestamp,
            born_host=connection.address,
            reconsume_times=header.reconsume_times or 0,
        )
        try:
            # For whoever looks for it afterwards: the requester has it already, and nobody waits for the disk.
            stored = self._intake.put(message)
            fields |= {"msgId": stored.message_id, "queueOffset": str(stored.queue_offset)}
        except Refusal as refusal:
            log.warning("a reply was not stored: %s", refusal.remark)
        code = ResponseCode.SUCCESS if failure is None else ResponseCode.SYSTEM_ERROR
        return response(command, code, failure, fields)

    async def _push(
        self, connection: ClientConnection, command: Command, header: SendHeader, properties: dict[str, str]
    ) -> str | None:
        """Hand the reply to who asked; why it could not be, or None."""
        client_id = properties.get(PropertyName.REPLY_TO_CLIENT)
        if client_id is None:
            return f"reply message properties[{PropertyName.REPLY_TO_CLIENT}] is null"
        asker = self._members.connection_of(client_id)
        if asker is None:
            return f"push reply message fail, channel of <{client_id}> not found."
        now = self._clock.wall_ms()
        pushed = ReplyMessageRequestHeader(
            producer_group=header.producer_group,
            topic=header.topic,
            default_topic=header.default_topic,
            default_topic_queue_nums=header.default_topic_queue_nums,
            queue_id=header.queue_id,
            sys_flag=header.sys_flag,
            born_timestamp=header.born_timestamp,
            flag=header.flag,
            properties=encoded({**properties, PropertyName.PUSH_REPLY_TIME: str(now)}),
            reconsume_times=header.reconsume_times,
            unit_mode=bool(header.unit_mode),
            born_host=connection.address,
            store_host=self._address,
            store_timestamp=now,
        )
        try:
            answer = await asker.invoke(
                request(RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT, pushed, command.body), _PUSH_SECONDS
            )
        except (OSError, TimeoutError) as error:
            log.warning("a reply could not be pushed to %s: %s", client_id, error)
            return f"push reply message to {client_id}fail."
        if answer.code != ResponseCode.SUCCESS:
            log.warning("%s did not take a reply: %s", client_id, answer.remark)
            return f"push reply message to {client_id}fail."
        return None
