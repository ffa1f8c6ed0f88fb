"""What the Java program tells, as values."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class JavaReceipt:
    """What the Java producer got for one send (of a message, or of a batch: then ids and offset are its messages')."""

    status: str
    message_id: str
    offset_message_id: str
    broker_name: str
    queue_id: int
    queue_offset: int
    recall_handle: str | None = None
    """Of a timer message, from RocketMQ 5."""


@dataclass(frozen=True, slots=True)
class JavaMessage:
    """A message with every field that the Java consumer's `MessageExt` has."""

    topic: str
    broker_name: str
    queue_id: int
    queue_offset: int
    message_id: str
    offset_message_id: str
    tags: str | None
    keys: str | None
    properties: Mapping[str, str]
    body: bytes
    body_crc: int
    born_timestamp: int
    store_timestamp: int
    born_host: str
    store_host: str
    reconsume_times: int
    sys_flag: int
    flag: int
    commit_log_offset: int
    store_size: int
    prepared_transaction_offset: int
    consumed_timestamp: int
    """When the listener got it; not a field of `MessageExt`."""


@dataclass(frozen=True, slots=True)
class JavaReply:
    """What the Java producer's `request` returned."""

    body: bytes
    properties: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class JavaTransactions:
    """What the Java producer got for its transactional messages, and what it was asked about."""

    receipts: list[JavaReceipt]
    asked: list[JavaMessage]


@dataclass(frozen=True, slots=True)
class JavaSends:
    """How fast a Java client was: a producer from the first send to the last answer, a lite pull from first to last."""

    messages: int
    seconds: float
    cpu_seconds: float


@dataclass(frozen=True, slots=True)
class JavaCount:
    """How fast the Java consumer was: wall and CPU seconds from the first message to the last, and since its start."""

    complete: bool
    messages: int
    seconds: float
    cpu_seconds: float
    seconds_since_start: float
    cpu_seconds_since_start: float


def read_receipt(fields: Mapping[str, Any]) -> JavaReceipt:
    """A receipt as the program tells it."""
    return JavaReceipt(
        status=fields["status"],
        message_id=fields["msgId"],
        offset_message_id=fields.get("offsetMsgId", ""),  # a transaction's result has none
        broker_name=fields["brokerName"],
        queue_id=fields["queueId"],
        queue_offset=fields["queueOffset"],
        recall_handle=fields.get("recallHandle"),
    )


def read_messages(answer: Mapping[str, Any]) -> list[JavaMessage]:
    """The messages of an answer."""
    return [read_message(fields) for fields in answer["messages"]]


def read_message(fields: Mapping[str, Any]) -> JavaMessage:
    """A message as the program tells it."""
    return JavaMessage(
        topic=fields["topic"],
        broker_name=fields.get("brokerName", ""),  # what a producer is asked about has none
        queue_id=fields["queueId"],
        queue_offset=fields["queueOffset"],
        message_id=fields["msgId"],
        offset_message_id=fields["offsetMsgId"],
        tags=fields.get("tags"),
        keys=fields.get("keys"),
        properties=fields["properties"],
        body=base64.b64decode(fields["body"]),
        body_crc=fields["bodyCRC"],
        born_timestamp=fields["bornTimestamp"],
        store_timestamp=fields["storeTimestamp"],
        born_host=fields["bornHost"],
        store_host=fields["storeHost"],
        reconsume_times=fields["reconsumeTimes"],
        sys_flag=fields["sysFlag"],
        flag=fields["flag"],
        commit_log_offset=fields["commitLogOffset"],
        store_size=fields["storeSize"],
        prepared_transaction_offset=fields["preparedTransactionOffset"],
        consumed_timestamp=fields["consumedTimestamp"],
    )
