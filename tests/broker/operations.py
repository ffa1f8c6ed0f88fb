"""Operations on topics, messages and queues, as values that can be put to any broker."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from rocketstream.wire.batch import BatchItem, encode_batch
from rocketstream.wire.bodies.stats import TopicStatsTable
from rocketstream.wire.bodies.topic import TopicConfig
from rocketstream.wire.codes import PullFlag, RequestCode, ResponseCode, code_name
from rocketstream.wire.command import Command
from rocketstream.wire.headers.admin import ViewMessageRequestHeader
from rocketstream.wire.headers.offsets import (
    OffsetResponseHeader,
    SearchOffsetRequestHeader,
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
from tests.broker.target import NOTHING_STORED, Answer, Operation, Target, answer, offset_answer

#: How many queues a sender asks for when its topic has to be made.
DEFAULT_QUEUES = 2
#: A delay level that no test lives long enough to see the end of.
LATE = 18


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
        return _sent(
            target, target.ask(RequestCode.SEND_BATCH_MESSAGE, header, encode_batch(items)), self.topic, numbers
        )


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
            origin_topic=target.named("t0"),  # it is only counted by it
            max_reconsume_times=self.most_tries,
        )
        dead_letters = f"%DLQ%{self.group}"
        before = target.offset_of(RequestCode.GET_MAX_OFFSET, dead_letters, 0)
        end = OffsetResponseHeader.from_fields(before.fields).offset + 1
        target.before_storing()
        told = target.ask(RequestCode.CONSUMER_SEND_MSG_BACK, header)
        if told.code == ResponseCode.SUCCESS and self.is_dead:
            record = decode_record(
                target.ask(RequestCode.VIEW_MESSAGE_BY_ID, ViewMessageRequestHeader(offset=position)).body
            )
            target.after_storing(dead_letters, 0, end, record.properties["UNIQ_KEY"])
        return answer(told)


@dataclass(frozen=True)
class SendAgain(Operation):
    """Store a message in a group's retry topic, as consumers do that could not give it back."""

    group: str
    tries: int
    most_tries: int | None

    def ask(self, target: Target) -> Answer:
        number = target.sent
        target.sent += 1
        target.before_storing()
        properties = encode_properties({"UNIQ_KEY": target.unique_key(number)})
        topic = f"%RETRY%{self.group}"
        header = replace(
            _send_header(target, topic, 0, properties, batch=False),
            reconsume_times=self.tries,
            max_reconsume_times=self.most_tries,
        )
        told = target.ask(RequestCode.SEND_MESSAGE_V2, header, b"%d" % number)
        if told.code != ResponseCode.SUCCESS:
            return answer(told)
        receipt = SendMessageResponseHeader.from_fields(told.fields)
        position = decode_offset_id(receipt.msg_id).commit_log_offset
        target.stored.append(position)
        record = decode_record(
            target.ask(RequestCode.VIEW_MESSAGE_BY_ID, ViewMessageRequestHeader(offset=position)).body
        )
        stored_in = target.label(record.topic)
        target.after_storing(stored_in, record.queue_id, receipt.queue_offset + 1, target.unique_key(number))
        return answer(told, stored_in, receipt.queue_id, receipt.queue_offset)


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
