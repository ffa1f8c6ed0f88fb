"""Pulls: messages of a queue from an offset on, at once or as soon as there are any (RocketMQ's PullMessageProcessor).

The way of a pull that finds messages is kept short: every consumer's throughput is decided here.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Awaitable, Mapping
from functools import partial
from typing import Final, NamedTuple

from rocketstream.broker.connection import ClientConnection
from rocketstream.broker.dispatch import Handler
from rocketstream.broker.filters import ExpressionError, is_tag_type, request_match, subscription_match
from rocketstream.broker.groups import Groups
from rocketstream.broker.long_polls import LongPolls
from rocketstream.broker.members import Members
from rocketstream.broker.offsets import Offsets
from rocketstream.broker.refusal import Refusal
from rocketstream.broker.settings import BrokerSettings
from rocketstream.broker.store.values import Match, MessageStore, ReadStatus
from rocketstream.broker.topics import Topics
from rocketstream.errors import ProtocolError
from rocketstream.wire.bodies.group import SubscriptionGroupConfig
from rocketstream.wire.bodies.topic import TopicConfig
from rocketstream.wire.codes import MessageModel, Permission, PullFlag, RequestCode, ResponseCode
from rocketstream.wire.command import Command, response
from rocketstream.wire.headers.pull import PullMessageRequestHeader

#: Seconds; what a client asks for may be more than a timer can take.
_LONGEST_POLL: Final = 86400.0
_SIZE_AND_POSITION: Final = struct.Struct(">I24xq")
_READ: Final = int(Permission.READ)
_COMMIT_OFFSET: Final = int(PullFlag.COMMIT_OFFSET)
_SUSPEND: Final = int(PullFlag.SUSPEND)
_SUBSCRIPTION: Final = int(PullFlag.SUBSCRIPTION)

_SUCCESS: Final = int(ResponseCode.SUCCESS)
_NOT_FOUND: Final = int(ResponseCode.PULL_NOT_FOUND)
_OFFSET_MOVED: Final = int(ResponseCode.PULL_OFFSET_MOVED)
_EMPTY: Final = (ReadStatus.NO_MATCHED_LOGIC_QUEUE, ReadStatus.NO_MESSAGE_IN_QUEUE)
_CODES: Final = {
    ReadStatus.FOUND: _SUCCESS,
    ReadStatus.MESSAGE_WAS_REMOVING: int(ResponseCode.PULL_RETRY_IMMEDIATELY),
    ReadStatus.NO_MATCHED_MESSAGE: int(ResponseCode.PULL_RETRY_IMMEDIATELY),
    ReadStatus.NO_MATCHED_LOGIC_QUEUE: _NOT_FOUND,
    ReadStatus.NO_MESSAGE_IN_QUEUE: _NOT_FOUND,
    ReadStatus.OFFSET_FOUND_NULL: _NOT_FOUND,
    ReadStatus.OFFSET_OVERFLOW_ONE: _NOT_FOUND,
    ReadStatus.OFFSET_OVERFLOW_BADLY: _OFFSET_MOVED,
    ReadStatus.OFFSET_TOO_SMALL: _OFFSET_MOVED,
}

#: Why a pull is forbidden (`ForbiddenType.java`), in the header of the refusal.
_BY_BROKER, _BY_GROUP, _BY_TOPIC, _BY_BROADCASTING, _BY_SUBSCRIPTION = range(1, 6)


class Forbidden(Refusal):
    """NO_PERMISSION, with the reason that the header names."""

    def __init__(self, reason: int, remark: str) -> None:
        super().__init__(ResponseCode.NO_PERMISSION, remark)
        self.reason = reason


class _Wanted(NamedTuple):
    """A pull that may be answered."""

    header: PullMessageRequestHeader
    group: SubscriptionGroupConfig
    topic: TopicConfig
    match: Match | None


class Pulling:
    """PULL_MESSAGE and LITE_PULL_MESSAGE."""

    def __init__(
        self,
        *,
        settings: BrokerSettings,
        store: MessageStore,
        topics: Topics,
        groups: Groups,
        members: Members,
        offsets: Offsets,
        polls: LongPolls,
    ) -> None:
        self._settings = settings
        self._store = store
        self._topics = topics
        self._groups = groups
        self._members = members
        self._offsets = offsets
        self._polls = polls
        self._sending: set[asyncio.Task[None]] = set()

    def start(self) -> None:
        """Nothing runs by itself."""

    def stop(self) -> None:
        """Answers that still wait have nobody to go to."""
        for task in self._sending:
            task.cancel()

    def handlers(self) -> Mapping[int, Handler]:
        """Both kinds of pull; they differ in name only."""
        return {RequestCode.PULL_MESSAGE: self._pull, RequestCode.LITE_PULL_MESSAGE: self._pull}

    def _pull(self, connection: ClientConnection, command: Command) -> Command | Awaitable[Command] | None:
        try:
            return self._answer(connection, command, may_wait=True)
        except Refusal as refusal:
            return _refused(command, refusal)

    def _woken(self, connection: ClientConnection, command: Command) -> None:
        """Answer a pull that was held, whatever there is now."""
        try:
            answer = self._answer(connection, command, may_wait=False)
        except Refusal as refusal:
            answer = _refused(command, refusal)
        except ProtocolError as error:
            answer = response(command, ResponseCode.SYSTEM_ERROR, str(error))
        if command.is_one_way or answer is None:
            return
        if isinstance(answer, Command):
            connection.send(answer)
            return
        task = asyncio.ensure_future(_send_later(connection, command, answer))
        self._sending.add(task)
        task.add_done_callback(self._sending.discard)

    # --- answering -----------------------------------------------------------------------------------------------

    def _answer(
        self, connection: ClientConnection, command: Command, *, may_wait: bool
    ) -> Command | Awaitable[Command] | None:
        wanted = self._wanted(connection, command)
        header = wanted.header
        group, topic, queue_id, offset = header.consumer_group, header.topic, header.queue_id, header.queue_offset
        settings, offsets = self._settings, self._offsets
        if settings.server_side_reset:
            reset = offsets.take_reset(group, topic, queue_id)
            if reset is not None:
                self._note(connection, header, reset, may_wait=may_wait)
                return self._reset(command, wanted, reset)
        reading = self._store.read(topic, queue_id, offset, header.max_msg_nums, settings.max_pull_bytes, wanted.match)
        status = reading.status
        code = _CODES[status]
        if offset and status in _EMPTY:
            code = _OFFSET_MOVED
        self._note(connection, header, reading.next_offset, may_wait=may_wait)
        if code == _NOT_FOUND and may_wait and header.sys_flag & _SUSPEND:
            self._polls.hold(
                topic,
                queue_id,
                offset,
                wanted.match,
                min(max(header.suspend_timeout_millis / 1000, 0.0), _LONGEST_POLL),
                connection,
                partial(self._woken, connection, command),
            )
            return None
        fields = _fields(wanted, reading.next_offset, reading.min_offset, reading.max_offset)
        answer = response(command, code, status._value_, fields, b"".join(reading.records))
        if not reading.records:
            return answer
        # Nobody sees what a crash could take back: its offset would be given to another message, which whoever had
        # consumed this one would never see.
        waiting = self._store.durable(_last_position(reading.records[-1]))
        return answer if waiting is None else _after(waiting, answer)

    def _note(
        self, connection: ClientConnection, header: PullMessageRequestHeader, next_offset: int, *, may_wait: bool
    ) -> None:
        """Remember how far the group is; what it commits counts once, not again when a held pull is answered."""
        group, topic, queue_id = header.consumer_group, header.topic, header.queue_id
        self._offsets.note_pull(group, topic, queue_id, next_offset)
        if may_wait and header.sys_flag & _COMMIT_OFFSET:
            self._offsets.commit(group, topic, queue_id, header.commit_offset, connection.address)

    def _reset(self, command: Command, wanted: _Wanted, offset: int) -> Command:
        """An operator has moved the group: it is told where it goes on."""
        queue = wanted.header.topic, wanted.header.queue_id
        fields = _fields(wanted, offset, self._store.min_offset(*queue), self._store.max_offset(*queue))
        return response(command, _OFFSET_MOVED, "OFFSET_RESET", fields)

    # --- what is asked, and whether it may be ---------------------------------------------------------------------

    def _wanted(self, connection: ClientConnection, command: Command) -> _Wanted:
        header = PullMessageRequestHeader.from_fields(command.fields)
        if not self._settings.permission & _READ:
            raise Forbidden(_BY_BROKER, f"the broker[{self._settings.host}] pulling message is forbidden")
        group = self._groups.get(header.consumer_group)
        if group is None:
            raise Refusal(
                ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
                f"subscription group [{header.consumer_group}] does not exist",
            )
        if not group.consume_enable:
            raise Forbidden(_BY_GROUP, f"subscription group no permission, {header.consumer_group}")
        topic = self._topics.get(header.topic)
        if topic is None:
            raise Refusal(ResponseCode.TOPIC_NOT_EXIST, f"topic[{header.topic}] not exist, apply first please!")
        if not topic.perm & _READ:
            raise Forbidden(_BY_TOPIC, f"the topic[{header.topic}] pulling message is forbidden")
        if not 0 <= header.queue_id < topic.read_queue_nums:
            raise Refusal(
                ResponseCode.INVALID_PARAMETER,
                f"queueId[{header.queue_id}] is illegal, topic:[{header.topic}] topicConfig.readQueueNums:"
                f"[{topic.read_queue_nums}] consumer:[{connection.address}]",
            )
        match = self._own_match(header) if header.sys_flag & _SUBSCRIPTION else self._group_match(header, group)
        return _Wanted(header, group, topic, match)

    def _own_match(self, header: PullMessageRequestHeader) -> Match | None:
        """The filter that the request brings along."""
        try:
            match = request_match(header.subscription, header.expression_type)
        except ExpressionError as error:
            raise Refusal(
                ResponseCode.SUBSCRIPTION_PARSE_FAILED, f"parse the consumer's subscription failed: {error}"
            ) from error
        self._members.note_pull(header.consumer_group, header.topic)
        self._check_type(header.expression_type)
        return match

    def _group_match(self, header: PullMessageRequestHeader, config: SubscriptionGroupConfig) -> Match | None:
        """The filter that the group's heartbeats have told."""
        name, topic = header.consumer_group, header.topic
        group = self._members.consumers(name)
        if group is None:
            raise Refusal(ResponseCode.SUBSCRIPTION_NOT_EXIST, f"the consumer's group info not exist: {name}")
        if not config.consume_broadcast_enable and group.message_model == MessageModel.BROADCASTING:
            raise Forbidden(_BY_BROADCASTING, f"the consumer group[{name}] can not consume by broadcast way")
        if not self._groups.may_read(name, topic):
            raise Forbidden(_BY_SUBSCRIPTION, f"the consumer group[{name}] is forbidden for topic[{topic}]")
        subscription = group.subscription(topic)
        if subscription is None:
            raise Refusal(
                ResponseCode.SUBSCRIPTION_NOT_EXIST, f"the consumer's subscription not exist: {name}, {topic}"
            )
        if subscription.sub_version < header.sub_version:
            raise Refusal(ResponseCode.SUBSCRIPTION_NOT_LATEST, "the consumer's subscription not latest")
        if is_tag_type(subscription.expression_type):
            return subscription_match(subscription)
        try:
            match = subscription_match(subscription)
        except ExpressionError as error:
            raise Refusal(
                ResponseCode.FILTER_DATA_NOT_EXIST,
                f"The broker's consumer filter data is not exist!Your expression may be wrong! {error}",
            ) from error
        self._check_type(subscription.expression_type)
        return match

    def _check_type(self, expression_type: str | None) -> None:
        if not self._settings.sql_filter and not is_tag_type(expression_type):
            raise Refusal(
                ResponseCode.SYSTEM_ERROR,
                f"The broker does not support consumer to filter message by {expression_type}",
            )


def _fields(wanted: _Wanted, next_offset: int, min_offset: int, max_offset: int) -> dict[str, str]:
    return {
        "suggestWhichBrokerId": "0",
        "nextBeginOffset": str(next_offset),
        "minOffset": str(min_offset),
        "maxOffset": str(max_offset),
        "topicSysFlag": str(wanted.topic.topic_sys_flag),
        "groupSysFlag": str(wanted.group.group_sys_flag),
    }


def _refused(command: Command, refusal: Refusal) -> Command:
    fields = {"forbiddenType": str(refusal.reason)} if isinstance(refusal, Forbidden) else {}
    return response(command, refusal.code, refusal.remark, fields)


def _last_position(piece: bytes | memoryview) -> int:
    """The commit-log offset of the last record of a piece."""
    at, end = 0, len(piece)
    while True:
        size, position = _SIZE_AND_POSITION.unpack_from(piece, at)
        at += size
        if at >= end or not size:
            return int(position)


async def _after(waiting: Awaitable[None], answer: Command) -> Command:
    await waiting
    return answer


async def _send_later(connection: ClientConnection, command: Command, awaited: Awaitable[Command]) -> None:
    try:
        answer = await awaited
    except Refusal as refusal:
        answer = response(command, refusal.code, refusal.remark)
    connection.send(answer)
