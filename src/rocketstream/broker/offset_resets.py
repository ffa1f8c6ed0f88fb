"""Resetting a group to a moment, in both of RocketMQ's ways.

The broker's way (5.x): new offsets are set here and every queue's next pull is sent there. The members' way (4.9, and
5.x with useServerSideResetOffset=false): members are told the offsets and move by themselves.
"""

from __future__ import annotations

from collections.abc import Awaitable, Mapping
from typing import Protocol

from rocketstream.broker.connection import ClientConnection
from rocketstream.broker.dispatch import Handler
from rocketstream.broker.groups import Groups
from rocketstream.broker.members import Members
from rocketstream.broker.refusal import Refusal
from rocketstream.broker.settings import BrokerSettings
from rocketstream.broker.store.values import MessageStore
from rocketstream.broker.topics import Topics
from rocketstream.message import MessageQueue
from rocketstream.wire.bodies.base import write_queue
from rocketstream.wire.bodies.offsets import ResetOffsetBody
from rocketstream.wire.codes import LanguageCode, RequestCode, ResponseCode, RpcFlag
from rocketstream.wire.command import Command, request, response
from rocketstream.wire.headers.offsets import ResetOffsetRequestHeader
from rocketstream.wire.lenient_json import JsonValue, dumps

#: RocketMQ asks nothing of clients older than this (V3_0_7_SNAPSHOT).
_OLDEST_VERSION = 28


class ResettableOffsets(Protocol):
    """What a reset needs of the offsets."""

    def get(self, group: str, topic: str, queue_id: int) -> int:
        """Where a group is; -1 when that is not known."""

    def reset(self, group: str, topic: str, queue_id: int, offset: int) -> None:
        """Set an offset that the group's next pull brings to it."""

    def answer(self, command: Command, answer: Command) -> Command | Awaitable[Command]:
        """An answer that is given once the offsets are on the disk."""


class OffsetResets:
    """Answers INVOKE_BROKER_TO_RESET_OFFSET."""

    def __init__(
        self,
        offsets: ResettableOffsets,
        settings: BrokerSettings,
        store: MessageStore,
        topics: Topics,
        groups: Groups,
        members: Members,
    ) -> None:
        self._offsets = offsets
        self._settings = settings
        self._store = store
        self._topics = topics
        self._groups = groups
        self._members = members

    def handlers(self) -> Mapping[int, Handler]:
        """The one request."""
        return {RequestCode.INVOKE_BROKER_TO_RESET_OFFSET: self._reset}

    def _reset(self, connection: ClientConnection, command: Command) -> Command | Awaitable[Command]:
        wanted = ResetOffsetRequestHeader.from_fields(command.fields)
        if self._settings.server_side_reset:
            return self._reset_here(command, wanted)
        return self._reset_by_members(command, wanted)

    # --- the broker's way ---------------------------------------------------------------------------------------

    def _reset_here(self, command: Command, wanted: ResetOffsetRequestHeader) -> Command | Awaitable[Command]:
        config = self._topics.get(wanted.topic)
        if config is None:
            raise Refusal(ResponseCode.TOPIC_NOT_EXIST, f"Topic {wanted.topic} does not exist")
        if wanted.group not in self._groups:
            raise Refusal(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, f"Group {wanted.group} does not exist")
        if wanted.queue_id >= 0:
            table = {wanted.queue_id: self._of_one_queue(wanted)}
        else:
            table = {queue_id: self._at(wanted, queue_id) for queue_id in range(config.read_queue_nums)}
        if not table:
            raise Refusal(ResponseCode.SYSTEM_ERROR, "No queues to reset.")
        for queue_id, offset in table.items():
            self._offsets.reset(wanted.group, wanted.topic, queue_id, offset)
        body = ResetOffsetBody(
            offset_table={self._queue(wanted.topic, queue_id): offset for queue_id, offset in table.items()}
        )
        return self._offsets.answer(command, response(command, ResponseCode.SUCCESS, body=body.encode()))

    def _of_one_queue(self, wanted: ResetOffsetRequestHeader) -> int:
        if wanted.offset is None or wanted.offset == -1:
            return self._at(wanted, wanted.queue_id)
        first = self._store.min_offset(wanted.topic, wanted.queue_id)
        last = self._store.max_offset(wanted.topic, wanted.queue_id)
        if wanted.offset < first or wanted.offset > last + 1:
            raise Refusal(
                ResponseCode.SYSTEM_ERROR,
                f"Target offset {wanted.offset} not in consume queue range [{first}-{last}]",
            )
        return wanted.offset

    def _at(self, wanted: ResetOffsetRequestHeader, queue_id: int) -> int:
        if wanted.timestamp < 0:
            return self._store.max_offset(wanted.topic, queue_id)
        return self._store.offset_by_time(wanted.topic, queue_id, wanted.timestamp)

    def _queue(self, topic: str, queue_id: int) -> MessageQueue:
        return MessageQueue(topic, self._settings.broker_name, queue_id)

    # --- the members' way ---------------------------------------------------------------------------------------

    def _reset_by_members(self, command: Command, wanted: ResetOffsetRequestHeader) -> Command:
        table = self._targets(wanted)
        group = self._members.consumers(wanted.group)
        if group is None:
            raise Refusal(
                ResponseCode.CONSUMER_NOT_ONLINE,
                f"Consumer not online, so can not reset offset, Group: {wanted.group} Topic: {wanted.topic}"
                f" Timestamp: {wanted.timestamp}",
            )
        told = ResetOffsetRequestHeader(
            group=wanted.group, topic=wanted.topic, timestamp=wanted.timestamp, is_force=False
        )
        body = ResetOffsetBody(offset_table=table).encode()
        told_body = _body_for_cpp(table) if command.language == LanguageCode.CPP else body
        for member in group.members():
            if member.version < _OLDEST_VERSION:
                raise Refusal(
                    ResponseCode.SYSTEM_ERROR,
                    f"the client does not support this feature. version={member.version}",
                )
            notice = request(RequestCode.RESET_CONSUMER_CLIENT_OFFSET, told, told_body)
            notice.flag |= RpcFlag.ONE_WAY
            member.connection.send(notice)
        return response(command, ResponseCode.SUCCESS, body=body)

    def _targets(self, wanted: ResetOffsetRequestHeader) -> dict[MessageQueue, int]:
        config = self._topics.get(wanted.topic)
        if config is None:
            raise Refusal(
                ResponseCode.TOPIC_NOT_EXIST,
                f"[reset-offset] reset offset failed, no topic in this broker. topic={wanted.topic}",
            )
        table = {}
        for queue_id in range(config.write_queue_nums):
            current = self._offsets.get(wanted.group, wanted.topic, queue_id)
            if current == -1:
                raise Refusal(ResponseCode.SYSTEM_ERROR, f"THe consumer group <{wanted.group}> not exist")
            target = max(0, self._at(wanted, queue_id))
            table[self._queue(wanted.topic, queue_id)] = target if wanted.is_force else min(target, current)
        return table


def _body_for_cpp(table: Mapping[MessageQueue, int]) -> bytes:
    """Asked by a tool in C++, a broker tells members in C++'s form: a list."""
    entries: list[JsonValue] = []
    for queue, offset in table.items():
        entry = write_queue(queue)
        assert isinstance(entry, dict)
        entries.append({**entry, "offset": offset})
    return dumps({"offsetTable": entries})
