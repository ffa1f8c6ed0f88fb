"""What a broker said to a send."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from rocketstream.errors import ProtocolError
from rocketstream.message import MessageQueue
from rocketstream.wire.codes import ResponseCode
from rocketstream.wire.command import Command
from rocketstream.wire.headers.send import SendMessageResponseHeader


class SendStatus(Enum):
    """How safe a stored message is. All of these are stored; only OK is stored as safely as the broker was told to."""

    OK = "SEND_OK"
    FLUSH_DISK_TIMEOUT = "FLUSH_DISK_TIMEOUT"
    FLUSH_SLAVE_TIMEOUT = "FLUSH_SLAVE_TIMEOUT"
    SLAVE_NOT_AVAILABLE = "SLAVE_NOT_AVAILABLE"


class TransactionState(Enum):
    """What became of the local part of a transaction; UNKNOWN has the broker ask again later."""

    COMMIT = "COMMIT_MESSAGE"
    ROLLBACK = "ROLLBACK_MESSAGE"
    UNKNOWN = "UNKNOW"


@dataclass(frozen=True, slots=True)
class SendReceipt:
    """The broker has stored a message (or the messages of one batch)."""

    status: SendStatus
    message_id: str
    """The producer's unique id; of a batch: those of its messages, joined by commas."""
    offset_message_id: str
    queue: MessageQueue
    queue_offset: int
    transaction_id: str | None = None
    recall_handle: str | None = None
    """With which a timer message can be recalled before its time (5.x)."""
    transaction_state: TransactionState | None = None
    """What the local part of a transaction came to; None for an ordinary send."""


STATUS_BY_CODE = {
    int(ResponseCode.SUCCESS): SendStatus.OK,
    int(ResponseCode.FLUSH_DISK_TIMEOUT): SendStatus.FLUSH_DISK_TIMEOUT,
    int(ResponseCode.FLUSH_SLAVE_TIMEOUT): SendStatus.FLUSH_SLAVE_TIMEOUT,
    int(ResponseCode.SLAVE_NOT_AVAILABLE): SendStatus.SLAVE_NOT_AVAILABLE,
}


def read_receipt(response: Command, message_id: str, queue: MessageQueue) -> SendReceipt:
    """The receipt in a response whose code is one of `STATUS_BY_CODE`."""
    header = SendMessageResponseHeader.from_fields(response.fields)
    if header.queue_id < 0:
        raise ProtocolError(f"a broker stored a message in queue {header.queue_id} of {queue.topic!r}")
    stored = queue if header.queue_id == queue.queue_id else queue._replace(queue_id=header.queue_id)
    return SendReceipt(
        status=STATUS_BY_CODE[response.code],
        message_id=message_id,
        offset_message_id=header.msg_id,
        queue=stored,
        queue_offset=header.queue_offset,
        transaction_id=header.transaction_id,
        recall_handle=header.recall_handle,
    )
