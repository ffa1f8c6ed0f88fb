"""What a transaction's message looks like on its way: half, asked about, ended. Values in, values out."""

from __future__ import annotations

from typing import Final

from rocketstream.broker.names import CHECK_MAX_TOPIC, HALF_TOPIC, OP_HALF_TOPIC
from rocketstream.broker.records import StoredRecord, encoded
from rocketstream.broker.store.values import NewMessage, Stored
from rocketstream.property_names import PropertyName
from rocketstream.wire.codes import RequestCode, RpcFlag
from rocketstream.wire.command import Command, request
from rocketstream.wire.headers.transaction import CheckTransactionStateRequestHeader
from rocketstream.wire.properties import decode_properties
from rocketstream.wire.record import encode_record
from rocketstream.wire.sysflag import TransactionType, with_transaction_type

#: The tag of a message that says which half messages are done with.
REMOVE_TAG: Final = "d"


def half_message(message: NewMessage) -> NewMessage:
    """A message as it is kept until its transaction ends: nobody subscribes to where it goes."""
    properties = decode_properties(message.properties)
    unique_id = properties.get(PropertyName.UNIQUE_KEY)
    if unique_id:
        properties[PropertyName.TRANSACTION_ID] = unique_id
    properties[PropertyName.REAL_TOPIC] = message.topic
    properties[PropertyName.REAL_QUEUE_ID] = str(message.queue_id)
    message.topic = HALF_TOPIC
    message.queue_id = 0
    message.properties = encoded(properties)
    message.sys_flag = with_transaction_type(message.sys_flag, TransactionType.NOT)
    return message


def committed_message(half: StoredRecord) -> NewMessage:
    """The message that a commit brings to its topic."""
    properties = decode_properties(half.properties)
    topic, queue_id = properties.pop(PropertyName.REAL_TOPIC), int(properties.pop(PropertyName.REAL_QUEUE_ID))
    message = half.renewed(topic, queue_id, encoded(properties))
    message.sys_flag = with_transaction_type(half.sys_flag, TransactionType.COMMIT)
    message.prepared_transaction_offset = half.position
    return message


def op_message(offsets: list[int], now: int) -> NewMessage:
    """The note that half messages are done with."""
    return NewMessage(
        topic=OP_HALF_TOPIC,
        queue_id=0,
        body="".join([f"{offset}," for offset in offsets]).encode(),
        properties=encoded({PropertyName.TAGS: REMOVE_TAG}),
        born_timestamp=now,
    )


def op_offsets(op: StoredRecord) -> list[int]:
    """The half messages that such a note names."""
    return [int(text) for text in op.body.decode("ascii", "replace").split(",") if text.isdecimal()]


def again(half: StoredRecord, properties: dict[str, str]) -> NewMessage:
    """A half message that was given up and is to be asked about again."""
    return half.renewed(HALF_TOPIC, 0, encoded(properties))


def behind(half: StoredRecord, properties: dict[str, str]) -> NewMessage:
    """A half message put behind the others, to be looked at once more; RocketMQ forgets its flag there."""
    message = half.renewed(HALF_TOPIC, 0, encoded(properties))
    message.flag = 0
    return message


def given_up(half: StoredRecord, properties: dict[str, str]) -> NewMessage:
    """A half message that was asked about too often."""
    return half.renewed(CHECK_MAX_TOPIC, 0, encoded(properties))


def question(half: StoredRecord, properties: dict[str, str], stored: Stored, broker_name: str) -> Command:
    """What a producer is asked: the half message with its own topic and queue, and where it is kept now."""
    unique_id = properties.get(PropertyName.UNIQUE_KEY)
    header = CheckTransactionStateRequestHeader(
        topic=HALF_TOPIC,
        tran_state_table_offset=stored.queue_offset,
        commit_log_offset=stored.position,
        msg_id=unique_id,
        transaction_id=unique_id,
        offset_msg_id=stored.message_id,
        bname=broker_name,
    )
    body = encode_record(
        topic=properties[PropertyName.REAL_TOPIC],
        queue_id=int(properties[PropertyName.REAL_QUEUE_ID]),
        body=half.body,
        properties=encoded(properties),
        queue_offset=stored.queue_offset,
        commit_log_offset=stored.position,
        flag=half.flag,
        sys_flag=half.sys_flag,
        born_timestamp=half.born_timestamp,
        born_host=half.born_host,
        store_timestamp=half.store_timestamp,
        store_host=half.store_host,
        reconsume_times=half.reconsume_times,
    )
    command = request(RequestCode.CHECK_TRANSACTION_STATE, header, body)
    command.flag = int(RpcFlag.ONE_WAY)
    return command
