"""Operations on a broker as values, and what a broker answers, without what differs from run to run.

An operation names topics, groups and clients by short labels ("t0", "g0", 0) and messages by the order in which they
were stored; `Target` gives them names that are fresh for each sequence and takes these out of the answers again. So the
same sequence can be put to a model, to the embedded broker and to a real one, and the answers are compared as they are.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

from rocketstream.message import MessageQueue, ReceivedMessage
from rocketstream.wire.batch import BatchItem, encode_batch
from rocketstream.wire.bodies.heartbeat import ConsumerData, HeartbeatData
from rocketstream.wire.bodies.lock import LockBatchRequestBody, LockBatchResponseBody, UnlockBatchRequestBody
from rocketstream.wire.bodies.members import ConsumerListByGroup
from rocketstream.wire.bodies.stats import ConsumeStats, TopicStatsTable
from rocketstream.wire.bodies.topic import TopicConfig
from rocketstream.wire.codes import PullFlag, RequestCode, ResponseCode, code_name
from rocketstream.wire.command import Command, request
from rocketstream.wire.headers.admin import QueryMessageRequestHeader, ViewMessageRequestHeader
from rocketstream.wire.headers.group import (
    GetConsumerListByGroupRequestHeader,
    GetConsumeStatsRequestHeader,
    UnregisterClientRequestHeader,
)
from rocketstream.wire.headers.offsets import (
    GetMaxOffsetRequestHeader,
    GetMinOffsetRequestHeader,
    OffsetResponseHeader,
    QueryConsumerOffsetRequestHeader,
    SearchOffsetRequestHeader,
    UpdateConsumerOffsetRequestHeader,
)
from rocketstream.wire.headers.pull import PullMessageRequestHeader, PullMessageResponseHeader
from rocketstream.wire.headers.send import (
    ConsumerSendMsgBackRequestHeader,
    SendMessageRequestHeaderV2,
    SendMessageResponseHeader,
)
from rocketstream.wire.headers.topic import (
    CreateTopicRequestHeader,
    DeleteTopicRequestHeader,
    GetTopicConfigRequestHeader,
    GetTopicStatsInfoRequestHeader,
)
from rocketstream.wire.lenient_json import loads
from rocketstream.wire.message_id import decode_offset_id
from rocketstream.wire.properties import encode_properties
from rocketstream.wire.record_decoder import decode_record, decode_records
from rocketstream.wire.subscription import subscription
from tests.bare_client import BareClient

#: The name of the response code, then what matters of the header and the body.
Answer: TypeAlias = tuple[Any, ...]

NOTHING_STORED: Answer = ("nothing is stored yet",)
#: How many queues a sender asks for when its topic has to be made.
DEFAULT_QUEUES = 2
#: A delay level that no test lives long enough to see the end of.
LATE = 18

_BROKER = "broker-a"
_OFFSET_HEADERS = {
    RequestCode.GET_MIN_OFFSET: GetMinOffsetRequestHeader,
    RequestCode.GET_MAX_OFFSET: GetMaxOffsetRequestHeader,
}
_FAR_FUTURE = 4_000_000_000_000
_TRIES = 100_000


class Seen(NamedTuple):
    """A message as a reader gets it."""

    number: int
    topic: str
    queue: int
    offset: int
    reconsume_times: int
    properties: dict[str, str]


class Target:
    """A broker, and two clients that put operations to it under names of a sequence's own."""

    def __init__(
        self,
        address: str,
        clients: Sequence[BareClient],
        sequence: str,
        *,
        pass_time: Callable[[], None] | None = None,
        lags: bool = False,
    ) -> None:
        self.address = address
        self.stored: list[int] = []
        """Commit-log offsets of what was sent, in the order of sending."""
        self.sent = 0
        self._clients = clients
        self._prefix = f"{sequence}-"
        self._pass_time = pass_time or self._await_another_time
        self._lags = lags
        self._latest = 0

    # --- names -------------------------------------------------------------------------------------------------

    def named(self, label: str) -> str:
        """The name of a topic or group in this sequence."""
        start = "%DLQ%" if label.startswith("%DLQ%") else ""
        return f"{start}{self._prefix}{label.removeprefix(start)}"

    def label(self, name: str) -> str:
        """The label behind a name, in whatever text it stands."""
        return name.replace(self._prefix, "")

    def client_id(self, client: int) -> str:
        """The id with which one of the clients introduces itself."""
        return f"{self._prefix}c{client}"

    def queues(self, topic: str, queues: Sequence[int]) -> frozenset[MessageQueue]:
        """Queues as bodies name them."""
        return frozenset(MessageQueue(self.named(topic), _BROKER, queue) for queue in queues)

    def unique_key(self, number: int) -> str:
        """The unique key of a message."""
        return f"{self._prefix}u{number}"

    # --- asking ------------------------------------------------------------------------------------------------

    def ask(self, code: int, header: Any = None, body: bytes = b"", client: int = 0) -> Command:
        """What the broker answers, whatever that is."""
        return self._clients[client].invoke(self.address, request(code, header, body))

    def offset_of(self, code: RequestCode, topic: str, queue: int) -> Command:
        """A queue's first or last offset."""
        return self.ask(code, _OFFSET_HEADERS[code](topic=self.named(topic), queue_id=queue))

    def position(self, message: int) -> int | None:
        """Where a message is in the commit log, counted among those that were stored; None before the first."""
        return self.stored[message % len(self.stored)] if self.stored else None

    def seen(self, messages: Sequence[ReceivedMessage]) -> list[Seen]:
        """Messages without what is different in every run."""
        return [self._seen(message) for message in messages]

    def _seen(self, message: ReceivedMessage) -> Seen:
        properties = {name: self.label(value) for name, value in message.properties.items()}
        origin = properties.get("ORIGIN_MESSAGE_ID")
        if origin is not None:
            position = decode_offset_id(origin).commit_log_offset
            properties["ORIGIN_MESSAGE_ID"] = f"message {self.stored.index(position)}"
        return Seen(
            int(message.body),
            self.label(message.topic),
            message.queue_id,
            message.queue_offset,
            message.reconsume_times,
            properties,
        )

    # --- what takes time in a real broker ----------------------------------------------------------------------

    def before_storing(self) -> None:
        """Let time pass, so that no two requests are stored in the same or the next millisecond."""
        self._pass_time()

    def _await_another_time(self) -> None:
        for _ in range(_TRIES):
            now = time.time_ns() // 1_000_000
            if now >= self._latest + 3:
                self._latest = now
                return
            self.ask(RequestCode.GET_MAX_OFFSET, GetMaxOffsetRequestHeader(topic="TBW102", queue_id=0))
        raise AssertionError("time stands still")

    def after_storing(self, topic: str, queue: int, end: int, unique_key: str) -> None:
        """Wait until queue and index have what was stored: RocketMQ writes them from the log a moment later."""
        self._latest = time.time_ns() // 1_000_000
        if not self._lags:
            return

        def arrived() -> bool:
            answer = self.offset_of(RequestCode.GET_MAX_OFFSET, topic, queue)
            if OffsetResponseHeader.from_fields(answer.fields).offset < end:
                return False
            return self.find(topic, unique_key, 1, unique=True).code == ResponseCode.SUCCESS

        if not any(arrived() for _ in range(_TRIES)):
            raise AssertionError(f"{topic} queue {queue} did not get its {end} messages")

    def find(self, topic: str, key: str, most: int, *, unique: bool) -> Command:
        """Messages by key."""
        header = QueryMessageRequestHeader(
            topic=self.named(topic),
            key=key,
            max_num=most,
            begin_timestamp=0,
            end_timestamp=_FAR_FUTURE,
            unique_key_query=unique,
        )
        return self.ask(RequestCode.QUERY_MESSAGE, header)


def answer(command: Command, *details: Any) -> Answer:
    """The code's name, and the details if it is a success."""
    name = code_name(command.code)
    return (name, *details) if command.code == ResponseCode.SUCCESS else (name,)


def offset_answer(command: Command) -> Answer:
    """The one offset of an answer."""
    if command.code != ResponseCode.SUCCESS:
        return answer(command)
    return answer(command, OffsetResponseHeader.from_fields(command.fields).offset)


class Operation:
    """Something to ask a broker."""

    def ask(self, target: Target) -> Answer:
        """Put it to a broker."""
        raise NotImplementedError


# --- topics ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class PutTopic(Operation):
    """Make a topic, or change it."""

    topic: str
    read_queues: int
    write_queues: int
    permission: int

    def ask(self, target: Target) -> Answer:
        header = CreateTopicRequestHeader(
            topic=target.named(self.topic),
            default_topic="TBW102",
            read_queue_nums=self.read_queues,
            write_queue_nums=self.write_queues,
            perm=self.permission,
        )
        return answer(target.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, header))


@dataclass(frozen=True)
class DeleteTopic(Operation):
    topic: str

    def ask(self, target: Target) -> Answer:
        header = DeleteTopicRequestHeader(topic=target.named(self.topic))
        return answer(target.ask(RequestCode.DELETE_TOPIC_IN_BROKER, header))


@dataclass(frozen=True)
class TopicSettings(Operation):
    topic: str

    def ask(self, target: Target) -> Answer:
        header = GetTopicConfigRequestHeader(topic=target.named(self.topic))
        told = target.ask(RequestCode.GET_TOPIC_CONFIG, header)
        if told.code != ResponseCode.SUCCESS:
            return answer(told)
        config = TopicConfig.from_json(loads(told.body))
        return answer(told, config.read_queue_nums, config.write_queue_nums, config.perm, config.order)


@dataclass(frozen=True)
class TopicStatistics(Operation):
    topic: str

    def ask(self, target: Target) -> Answer:
        header = GetTopicStatsInfoRequestHeader(topic=target.named(self.topic))
        told = target.ask(RequestCode.GET_TOPIC_STATS_INFO, header)
        if told.code != ResponseCode.SUCCESS:
            return answer(told)
        table = TopicStatsTable.decode(told.body).offset_table
        return answer(
            told,
            {
                (target.label(queue.topic), queue.queue_id): (
                    one.min_offset,
                    one.max_offset,
                    one.last_update_timestamp > 0,
                )
                for queue, one in table.items()
            },
        )


# --- sending -----------------------------------------------------------------------------------------------------


def _send_header(target: Target, topic: str, queue: int, properties: str, *, batch: bool) -> SendMessageRequestHeaderV2:
    return SendMessageRequestHeaderV2(
        producer_group="sequence",
        topic=target.named(topic),
        default_topic="TBW102",
        default_topic_queue_nums=DEFAULT_QUEUES,
        queue_id=queue,
        sys_flag=0,
        born_timestamp=1_700_000_000_000,
        flag=0,
        properties=properties,
        reconsume_times=0,
        unit_mode=False,
        batch=batch,
    )


def _sent(target: Target, told: Command, topic: str, numbers: range) -> Answer:
    if told.code != ResponseCode.SUCCESS:
        return answer(told)
    receipt = SendMessageResponseHeader.from_fields(told.fields)
    ids = receipt.msg_id.split(",")
    target.stored += [decode_offset_id(one).commit_log_offset for one in ids]
    end = receipt.queue_offset + len(ids)
    target.after_storing(topic, receipt.queue_id, end, target.unique_key(numbers[-1]))
    unique_key = None if receipt.transaction_id is None else target.label(receipt.transaction_id)
    return answer(told, receipt.queue_id, receipt.queue_offset, len(ids), unique_key)


@dataclass(frozen=True)
class Send(Operation):
    """Store a message; `size` is the least size of its body."""

    topic: str
    queue: int
    properties: Mapping[str, str]
    size: int = 0

    def ask(self, target: Target) -> Answer:
        number = target.sent
        target.sent += 1
        target.before_storing()
        properties = encode_properties({**self.properties, "UNIQ_KEY": target.unique_key(number)})
        header = _send_header(target, self.topic, self.queue, properties, batch=False)
        body = (b"%d" % number).ljust(self.size)
        told = target.ask(RequestCode.SEND_MESSAGE_V2, header, body)
        return _sent(target, told, self.topic, range(number, number + 1))


@dataclass(frozen=True)
class SendBatch(Operation):
    """Store messages in one request."""

    topic: str
    queue: int
    messages: tuple[Mapping[str, str], ...]

    def ask(self, target: Target) -> Answer:
        numbers = range(target.sent, target.sent + len(self.messages))
        target.sent = numbers.stop
        target.before_storing()
        items = [
            BatchItem(b"%d" % number, encode_properties({**properties, "UNIQ_KEY": target.unique_key(number)}))
            for number, properties in zip(numbers, self.messages, strict=True)
        ]
        header = _send_header(target, self.topic, self.queue, "", batch=True)
        return _sent(target, target.ask(RequestCode.SEND_BATCH_MESSAGE, header, encode_batch(items)), self.topic, numbers)


@dataclass(frozen=True)
class SendBack(Operation):
    """Give a message back: to the dead letters (level below 0, or no tries left), or for a retry that never comes."""

    group: str
    message: int
    level: int
    most_tries: int | None

    @property
    def is_dead(self) -> bool:
        """Whether it goes to the dead letters, where it can be seen at once."""
        return self.level < 0 or self.most_tries == 0

    def ask(self, target: Target) -> Answer:
        position = target.position(self.message)
        if position is None:
            return NOTHING_STORED
        header = ConsumerSendMsgBackRequestHeader(
            offset=position,
            group=target.named(self.group),
            delay_level=self.level,
            max_reconsume_times=self.most_tries,
        )
        dead_letters = f"%DLQ%{self.group}"
        before = target.offset_of(RequestCode.GET_MAX_OFFSET, dead_letters, 0)
        end = OffsetResponseHeader.from_fields(before.fields).offset + 1
        target.before_storing()
        told = target.ask(RequestCode.CONSUMER_SEND_MSG_BACK, header)
        if told.code == ResponseCode.SUCCESS and self.is_dead:
            record = decode_record(target.ask(RequestCode.VIEW_MESSAGE_BY_ID, ViewMessageRequestHeader(offset=position)).body)
            target.after_storing(dead_letters, 0, end, record.properties["UNIQ_KEY"])
        return answer(told)


# --- reading -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Pull(Operation):
    """Messages of a queue, by the request's own expression or (`expression` None) by the group's subscription."""

    group: str
    topic: str
    queue: int
    offset: int
    most: int
    expression: str | None
    kind: str = "TAG"
    version: int = 1
    commit: int | None = None

    def ask(self, target: Target) -> Answer:
        flags = PullFlag.SUBSCRIPTION if self.expression is not None else PullFlag(0)
        if self.commit is not None:
            flags |= PullFlag.COMMIT_OFFSET
        header = PullMessageRequestHeader(
            consumer_group=target.named(self.group),
            topic=target.named(self.topic),
            queue_id=self.queue,
            queue_offset=self.offset,
            max_msg_nums=self.most,
            sys_flag=int(flags),
            commit_offset=self.commit or 0,
            suspend_timeout_millis=0,
            subscription=self.expression,
            sub_version=self.version,
            expression_type=self.kind,
        )
        told = target.ask(RequestCode.PULL_MESSAGE, header)
        if "nextBeginOffset" not in told.fields or not told.fields.get("maxOffset"):
            return (code_name(told.code),)
        if told.code in (ResponseCode.SUCCESS, *_PULL_CODES):
            limits = PullMessageResponseHeader.from_fields(told.fields)
            decoded = decode_records(told.body)
            assert not decoded.corrupt
            return (
                code_name(told.code),
                told.remark,
                limits.next_begin_offset,
                limits.min_offset,
                limits.max_offset,
                target.seen(decoded.messages),
            )
        return (code_name(told.code),)


_PULL_CODES = (
    ResponseCode.PULL_NOT_FOUND,
    ResponseCode.PULL_RETRY_IMMEDIATELY,
    ResponseCode.PULL_OFFSET_MOVED,
)


@dataclass(frozen=True)
class View(Operation):
    """A message by where it is stored; None asks for a place where nothing can be."""

    message: int | None

    def ask(self, target: Target) -> Answer:
        position = 1 << 60 if self.message is None else target.position(self.message)
        if position is None:
            return NOTHING_STORED
        told = target.ask(RequestCode.VIEW_MESSAGE_BY_ID, ViewMessageRequestHeader(offset=position))
        if told.code != ResponseCode.SUCCESS:
            return answer(told)
        return answer(told, target.seen([decode_record(told.body)]))


@dataclass(frozen=True)
class FindByKey(Operation):
    topic: str
    key: str
    most: int

    def ask(self, target: Target) -> Answer:
        told = target.find(self.topic, self.key, self.most, unique=False)
        if told.code != ResponseCode.SUCCESS:
            return answer(told)
        return answer(told, target.seen(decode_records(told.body).messages))


@dataclass(frozen=True)
class FindByUniqueKey(Operation):
    topic: str
    number: int

    def ask(self, target: Target) -> Answer:
        told = target.find(self.topic, target.unique_key(self.number), 32, unique=True)
        if told.code != ResponseCode.SUCCESS:
            return answer(told)
        return answer(told, target.seen(decode_records(told.body).messages))


# --- offsets -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class FirstOffset(Operation):
    topic: str
    queue: int

    def ask(self, target: Target) -> Answer:
        return offset_answer(target.offset_of(RequestCode.GET_MIN_OFFSET, self.topic, self.queue))


@dataclass(frozen=True)
class LastOffset(Operation):
    topic: str
    queue: int

    def ask(self, target: Target) -> Answer:
        return offset_answer(target.offset_of(RequestCode.GET_MAX_OFFSET, self.topic, self.queue))


@dataclass(frozen=True)
class OffsetByTime(Operation):
    """The offset of the time of a message, some milliseconds before or after."""

    topic: str
    queue: int
    message: int
    shift: int
    boundary: str | None

    def ask(self, target: Target) -> Answer:
        position = target.position(self.message)
        if position is None:
            return NOTHING_STORED
        found = target.ask(RequestCode.VIEW_MESSAGE_BY_ID, ViewMessageRequestHeader(offset=position))
        header = SearchOffsetRequestHeader(
            topic=target.named(self.topic),
            queue_id=self.queue,
            timestamp=decode_record(found.body).store_timestamp + self.shift,
            boundary_type=self.boundary,
        )
        return offset_answer(target.ask(RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, header))


@dataclass(frozen=True)
class GroupOffset(Operation):
    group: str
    topic: str
    queue: int
    zero_if_none: bool | None

    def ask(self, target: Target) -> Answer:
        header = QueryConsumerOffsetRequestHeader(
            consumer_group=target.named(self.group),
            topic=target.named(self.topic),
            queue_id=self.queue,
            set_zero_if_not_found=self.zero_if_none,
        )
        return offset_answer(target.ask(RequestCode.QUERY_CONSUMER_OFFSET, header))


@dataclass(frozen=True)
class Commit(Operation):
    group: str
    topic: str
    queue: int
    offset: int

    def ask(self, target: Target) -> Answer:
        header = UpdateConsumerOffsetRequestHeader(
            consumer_group=target.named(self.group),
            topic=target.named(self.topic),
            queue_id=self.queue,
            commit_offset=self.offset,
        )
        return answer(target.ask(RequestCode.UPDATE_CONSUMER_OFFSET, header))


@dataclass(frozen=True)
class GroupStatistics(Operation):
    """How far a group is in a topic, or (None) in all that it has an offset in."""

    group: str
    topic: str | None

    def ask(self, target: Target) -> Answer:
        topic = None if self.topic is None else target.named(self.topic)
        header = GetConsumeStatsRequestHeader(consumer_group=target.named(self.group), topic=topic)
        told = target.ask(RequestCode.GET_CONSUME_STATS, header)
        if told.code != ResponseCode.SUCCESS:
            return answer(told)
        table = ConsumeStats.decode(told.body).offset_table
        return answer(
            told,
            {
                (target.label(queue.topic), queue.queue_id): (
                    one.broker_offset,
                    one.consumer_offset,
                    one.pull_offset,
                    one.last_timestamp > 0,
                )
                for queue, one in table.items()
            },
        )


# --- locks and members -------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Lock(Operation):
    client: int
    group: str
    topic: str
    queues: frozenset[int]

    def ask(self, target: Target) -> Answer:
        body = LockBatchRequestBody(
            consumer_group=target.named(self.group),
            client_id=target.client_id(self.client),
            mq_set=target.queues(self.topic, sorted(self.queues)),
        )
        told = target.ask(RequestCode.LOCK_BATCH_MQ, None, body.encode(), self.client)
        got = LockBatchResponseBody.decode(told.body).lock_ok_mq_set
        return answer(told, {(target.label(queue.topic), queue.queue_id) for queue in got})


@dataclass(frozen=True)
class Unlock(Operation):
    client: int
    group: str
    topic: str
    queues: frozenset[int]

    def ask(self, target: Target) -> Answer:
        body = UnlockBatchRequestBody(
            consumer_group=target.named(self.group),
            client_id=target.client_id(self.client),
            mq_set=target.queues(self.topic, sorted(self.queues)),
        )
        return answer(target.ask(RequestCode.UNLOCK_BATCH_MQ, None, body.encode(), self.client))


@dataclass(frozen=True)
class Heartbeat(Operation):
    """A client is a member of a group that wants these topics, all by one expression."""

    client: int
    group: str
    topics: frozenset[str]
    expression: str
    version: int

    def ask(self, target: Target) -> Answer:
        wanted = tuple(
            subscription(target.named(topic), self.expression, version=self.version) for topic in sorted(self.topics)
        )
        data = ConsumerData(group_name=target.named(self.group), subscription_data_set=wanted)
        body = HeartbeatData(client_id=target.client_id(self.client), consumer_data_set=(data,))
        return answer(target.ask(RequestCode.HEART_BEAT, None, body.encode(), self.client))


@dataclass(frozen=True)
class Leave(Operation):
    client: int
    group: str

    def ask(self, target: Target) -> Answer:
        header = UnregisterClientRequestHeader(
            client_id=target.client_id(self.client), consumer_group=target.named(self.group)
        )
        return answer(target.ask(RequestCode.UNREGISTER_CLIENT, header, b"", self.client))


@dataclass(frozen=True)
class MembersOf(Operation):
    group: str

    def ask(self, target: Target) -> Answer:
        header = GetConsumerListByGroupRequestHeader(consumer_group=target.named(self.group))
        told = target.ask(RequestCode.GET_CONSUMER_LIST_BY_GROUP, header)
        if told.code != ResponseCode.SUCCESS:
            return answer(told)
        # A hash table's order in RocketMQ; clients sort it before they share out queues.
        ids = ConsumerListByGroup.decode(told.body).consumer_id_list
        return answer(told, sorted(map(target.label, ids)))
