"""What an operator asks of a client through the broker: the request goes on to the client, its answer comes back."""

from __future__ import annotations

from collections.abc import Awaitable, Mapping
from typing import Final

from rocketstream.broker.connection import ClientConnection
from rocketstream.broker.consumer_group import Member
from rocketstream.broker.dispatch import Handler
from rocketstream.broker.groups import Groups
from rocketstream.broker.members import Members
from rocketstream.broker.refusal import Refusal
from rocketstream.broker.settings import BrokerSettings
from rocketstream.broker.store.values import MessageStore
from rocketstream.broker.topics import Topics
from rocketstream.errors import ProtocolError
from rocketstream.wire.bodies.offsets import GetConsumerStatusBody
from rocketstream.wire.codes import RequestCode, ResponseCode
from rocketstream.wire.command import Command, request, response
from rocketstream.wire.headers.group import (
    ConsumeMessageDirectlyRequestHeader,
    GetConsumerRunningInfoRequestHeader,
    GetConsumerStatusRequestHeader,
)
from rocketstream.wire.message_id import decode_offset_id

_TIMEOUT: Final = 10.0
_STATUS_TIMEOUT: Final = 5.0
#: RocketMQ asks nothing of clients older than these (V3_1_8_SNAPSHOT, V3_0_7_SNAPSHOT).
_OLDEST_VERSION: Final = 62
_OLDEST_FOR_STATUS: Final = 28


class ClientRequests:
    """Passes requests on to members of groups."""

    def __init__(
        self, *, settings: BrokerSettings, store: MessageStore, topics: Topics, groups: Groups, members: Members
    ) -> None:
        self._settings = settings
        self._store = store
        self._topics = topics
        self._groups = groups
        self._members = members

    def start(self) -> None:
        """Nothing runs by itself."""

    def stop(self) -> None:
        """Nothing is kept."""

    def handlers(self) -> Mapping[int, Handler]:
        """The requests that clients answer."""
        return {
            RequestCode.GET_CONSUMER_RUNNING_INFO: self._running_info,
            RequestCode.CONSUME_MESSAGE_DIRECTLY: self._consume_directly,
            RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS: self._status,
        }

    def _running_info(self, connection: ClientConnection, command: Command) -> Awaitable[Command]:
        wanted = GetConsumerRunningInfoRequestHeader.from_fields(command.fields)
        return self._ask(command, wanted.consumer_group, wanted.client_id, command.fields, command.body)

    def _consume_directly(self, connection: ClientConnection, command: Command) -> Awaitable[Command]:
        wanted = ConsumeMessageDirectlyRequestHeader.from_fields(command.fields)
        fields = {**command.fields, "brokerName": self._settings.broker_name}
        topic = None if not wanted.topic else self._topics.get(wanted.topic)
        if topic is not None:
            fields["topicSysFlag"] = str(topic.topic_sys_flag)
        group = self._groups.get(wanted.consumer_group)
        if group is not None:
            fields["groupSysFlag"] = str(group.group_sys_flag)
        return self._ask(command, wanted.consumer_group, wanted.client_id or "", fields, self._message(wanted))

    def _message(self, wanted: ConsumeMessageDirectlyRequestHeader) -> bytes:
        position = decode_offset_id(wanted.msg_id or "").commit_log_offset
        record = self._store.record(position)
        if record is None:
            raise Refusal(ResponseCode.SYSTEM_ERROR, f"can not find message by the offset, {position}")
        return record

    async def _ask(
        self, command: Command, group: str, client_id: str, fields: Mapping[str, str], body: bytes
    ) -> Command:
        member = self._member(group, client_id)
        try:
            answer = await member.connection.invoke(request(command.code, fields, body), _TIMEOUT)
        except TimeoutError as error:
            raise Refusal(
                ResponseCode.CONSUME_MSG_TIMEOUT, f"consumer <{group}> <{client_id}> Timeout: {error}"
            ) from None
        except ConnectionError as error:
            raise Refusal(
                ResponseCode.SYSTEM_ERROR, f"invoke consumer <{group}> <{client_id}> Exception: {error}"
            ) from None
        return response(command, answer.code, answer.remark, answer.fields, answer.body)

    def _member(self, group: str, client_id: str) -> Member:
        members = self._members.consumers(group)
        member = None if members is None else members.member(client_id)
        if member is None:
            raise Refusal(ResponseCode.SYSTEM_ERROR, f"The Consumer <{group}> <{client_id}> not online")
        if member.version < _OLDEST_VERSION:
            raise Refusal(
                ResponseCode.SYSTEM_ERROR,
                f"The Consumer <{client_id}> Version <{member.version}> too low to finish, please upgrade it to"
                " V3_1_8_SNAPSHOT",
            )
        return member

    async def _status(self, connection: ClientConnection, command: Command) -> Command:
        wanted = GetConsumerStatusRequestHeader.from_fields(command.fields)
        group = self._members.consumers(wanted.group)
        if group is None:
            raise Refusal(ResponseCode.SYSTEM_ERROR, f"No Any Consumer online in the consumer group: [{wanted.group}]")
        told = GetConsumerStatusRequestHeader(topic=wanted.topic, group=wanted.group)
        table = {}
        for member in group.members():
            if member.version < _OLDEST_FOR_STATUS:
                raise Refusal(
                    ResponseCode.SYSTEM_ERROR,
                    f"the client does not support this feature. version={member.version}",
                )
            if wanted.client_addr and wanted.client_addr.strip() and wanted.client_addr != member.client_id:
                continue
            try:
                answer = await member.connection.invoke(
                    request(RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT, told), _STATUS_TIMEOUT
                )
                if answer.code == ResponseCode.SUCCESS and answer.body:
                    table[member.client_id] = GetConsumerStatusBody.decode(answer.body).message_queue_table
            except (TimeoutError, ConnectionError, ProtocolError):
                # Who does not answer is left out, as RocketMQ does it.
                continue
        body = GetConsumerStatusBody(message_queue_table={}, consumer_table=table)
        return response(command, ResponseCode.SUCCESS, body=body.encode())
