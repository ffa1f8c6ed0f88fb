"""Sending: messages of all kinds, their answers, replies, recall, and giving a message back to the broker."""

from __future__ import annotations

from rocketstream.wire.headers.base import Header, RpcRequestHeader, TopicRequestHeader, header, named
from rocketstream.wire.java import Int32, Int64


@header
class SendMessageRequestHeader(TopicRequestHeader):
    """SEND_MESSAGE and SEND_REPLY_MESSAGE, with the names written out."""

    producer_group: str
    topic: str
    default_topic: str
    default_topic_queue_nums: Int32
    queue_id: Int32
    sys_flag: Int32
    born_timestamp: Int64
    flag: Int32
    properties: str | None = None
    reconsume_times: Int32 | None = None
    unit_mode: bool | None = None
    batch: bool | None = None
    max_reconsume_times: Int32 | None = None


@header
class SendMessageRequestHeaderV2(TopicRequestHeader):
    """SEND_MESSAGE_V2, SEND_BATCH_MESSAGE, SEND_REPLY_MESSAGE_V2: the same fields in one letter each."""

    producer_group: str = named("a")
    topic: str = named("b")
    default_topic: str = named("c")
    default_topic_queue_nums: Int32 = named("d")
    queue_id: Int32 = named("e")
    sys_flag: Int32 = named("f")
    born_timestamp: Int64 = named("g")
    flag: Int32 = named("h")
    properties: str | None = named("i", default=None)
    reconsume_times: Int32 | None = named("j", default=None)
    unit_mode: bool | None = named("k", default=None)
    max_reconsume_times: Int32 | None = named("l", default=None)
    batch: bool | None = named("m", default=None)
    broker_name: str | None = named("n", default=None)


@header
class SendMessageResponseHeader(Header):
    """Where a message was stored; `batch_uniq_id` and `recall_handle` are 5.x's."""

    msg_id: str
    queue_id: Int32
    queue_offset: Int64
    transaction_id: str | None = None
    batch_uniq_id: str | None = None
    recall_handle: str | None = None


@header
class ReplyMessageRequestHeader(TopicRequestHeader):
    """PUSH_REPLY_MESSAGE_TO_CLIENT: a broker hands a reply to the producer that asked."""

    producer_group: str
    topic: str
    default_topic: str
    default_topic_queue_nums: Int32
    queue_id: Int32
    sys_flag: Int32
    born_timestamp: Int64
    flag: Int32
    properties: str | None = None
    reconsume_times: Int32 | None = None
    unit_mode: bool = False
    born_host: str
    store_host: str
    store_timestamp: Int64


@header
class ConsumerSendMsgBackRequestHeader(RpcRequestHeader):
    """CONSUMER_SEND_MSG_BACK: a message that failed returns to its broker (CON-09)."""

    offset: Int64
    group: str
    delay_level: Int32
    origin_msg_id: str | None = None
    origin_topic: str | None = None
    unit_mode: bool = False
    max_reconsume_times: Int32 | None = None


@header
class RecallMessageRequestHeader(TopicRequestHeader):
    """RECALL_MESSAGE: take a timer message back before it is due (5.x)."""

    producer_group: str | None = None
    topic: str
    recall_handle: str


@header
class RecallMessageResponseHeader(Header):
    """The id of the message that was taken back."""

    msg_id: str
