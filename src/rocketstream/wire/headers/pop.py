"""Pop (5.x): messages leased for a while instead of queues owned.

QUERY_ASSIGNMENT, SET_MESSAGE_REQUEST_MODE and BATCH_ACK_MESSAGE need no header: what they say is in the body.
"""

from __future__ import annotations

from rocketstream.wire.headers.base import Header, TopicRequestHeader, header
from rocketstream.wire.java import Int32, Int64


@header
class PopMessageRequestHeader(TopicRequestHeader):
    """POP_MESSAGE; `queue_id` -1 is any queue, `init_mode` a `ConsumeInitMode`."""

    consumer_group: str
    topic: str
    queue_id: Int32
    max_msg_nums: Int32
    invisible_time: Int64
    poll_time: Int64
    born_time: Int64
    init_mode: Int32
    exp_type: str | None = None
    exp: str | None = None
    order: bool | None = None
    attempt_id: str | None = None


@header
class PopMessageResponseHeader(Header):
    """The lease; the three texts are what check points (`POP_CK`) are rebuilt from."""

    pop_time: Int64
    invisible_time: Int64
    revive_qid: Int32
    rest_num: Int64
    start_offset_info: str | None = None
    msg_offset_info: str | None = None
    order_count_info: str | None = None


@header
class AckMessageRequestHeader(TopicRequestHeader):
    """ACK_MESSAGE; `extra_info` is the message's check point."""

    consumer_group: str
    topic: str
    queue_id: Int32
    extra_info: str
    offset: Int64
    lite_topic: str | None = None


@header
class ChangeInvisibleTimeRequestHeader(TopicRequestHeader):
    """CHANGE_MESSAGE_INVISIBLETIME: lengthen or shorten a message's lease (POP-02)."""

    consumer_group: str
    topic: str
    queue_id: Int32
    extra_info: str
    offset: Int64
    invisible_time: Int64
    lite_topic: str | None = None
    suspend: bool | None = None


@header
class ChangeInvisibleTimeResponseHeader(Header):
    """The new lease, for the message's new check point."""

    pop_time: Int64
    invisible_time: Int64
    revive_qid: Int32


@header
class PeekMessageRequestHeader(TopicRequestHeader):
    """PEEK_MESSAGE: look at what a pop would give, without leasing it."""

    topic: str
    queue_id: Int32
    max_msg_nums: Int32
    consumer_group: str


@header
class NotificationRequestHeader(TopicRequestHeader):
    """NOTIFICATION: a long poll that says whether there is a message, without the message."""

    consumer_group: str
    topic: str
    queue_id: Int32
    poll_time: Int64
    born_time: Int64
    exp_type: str | None = None
    exp: str | None = None
    order: bool | None = None
    attempt_id: str | None = None


@header
class NotificationResponseHeader(Header):
    """Whether there is a message, or no room for another long poll."""

    has_msg: bool
    polling_full: bool = False


@header
class PollingInfoRequestHeader(TopicRequestHeader):
    """POLLING_INFO: how many long polls a queue has."""

    consumer_group: str
    topic: str
    queue_id: Int32


@header
class PollingInfoResponseHeader(Header):
    """The number of long polls."""

    polling_num: Int32
