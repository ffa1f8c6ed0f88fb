"""The property names that RocketMQ itself gives a meaning.

The rule of this file: a name here is a name on the wire, spelt exactly as Java's `MessageConst` spells it.
"""

from __future__ import annotations

from typing import Final

#: Joins several keys of one message in its `KEYS` property; the broker indexes each of them.
KEY_SEPARATOR: Final = " "

#: Properties that start so are for the broker's hooks: it does not store them.
TRANSIENT_PREFIX: Final = "__RMQ.TRANSIENT."


class PropertyName:
    """Constants, not an enum: they are keys of plain `dict[str, str]` properties."""

    KEYS: Final = "KEYS"
    TAGS: Final = "TAGS"
    WAIT_STORE_OK: Final = "WAIT"
    DELAY_LEVEL: Final = "DELAY"
    RETRY_TOPIC: Final = "RETRY_TOPIC"
    REAL_TOPIC: Final = "REAL_TOPIC"
    REAL_QUEUE_ID: Final = "REAL_QID"
    TRANSACTION_PREPARED: Final = "TRAN_MSG"
    PRODUCER_GROUP: Final = "PGROUP"
    MIN_OFFSET: Final = "MIN_OFFSET"
    MAX_OFFSET: Final = "MAX_OFFSET"
    BUYER_ID: Final = "BUYER_ID"
    ORIGIN_MESSAGE_ID: Final = "ORIGIN_MESSAGE_ID"
    TRANSFER_FLAG: Final = "TRANSFER_FLAG"
    CORRECTION_FLAG: Final = "CORRECTION_FLAG"
    MQ2_FLAG: Final = "MQ2_FLAG"
    RECONSUME_TIME: Final = "RECONSUME_TIME"
    REGION: Final = "MSG_REGION"
    TRACE_SWITCH: Final = "TRACE_ON"
    UNIQUE_KEY: Final = "UNIQ_KEY"
    EXTEND_UNIQUE_INFO: Final = "EXTEND_UNIQ_INFO"
    MAX_RECONSUME_TIMES: Final = "MAX_RECONSUME_TIMES"
    CONSUME_START_TIME: Final = "CONSUME_START_TIME"
    INNER_NUM: Final = "INNER_NUM"
    INNER_BASE: Final = "INNER_BASE"
    DUP_INFO: Final = "DUP_INFO"
    CHECK_IMMUNITY_TIME: Final = "CHECK_IMMUNITY_TIME_IN_SECONDS"
    TRANSACTION_PREPARED_QUEUE_OFFSET: Final = "TRAN_PREPARED_QUEUE_OFFSET"
    TRANSACTION_ID: Final = "__transactionId__"
    TRANSACTION_CHECK_TIMES: Final = "TRANSACTION_CHECK_TIMES"
    INSTANCE_ID: Final = "INSTANCE_ID"
    CORRELATION_ID: Final = "CORRELATION_ID"
    REPLY_TO_CLIENT: Final = "REPLY_TO_CLIENT"
    TTL: Final = "TTL"
    REPLY_ARRIVE_TIME: Final = "ARRIVE_TIME"
    PUSH_REPLY_TIME: Final = "PUSH_REPLY_TIME"
    CLUSTER: Final = "CLUSTER"
    MESSAGE_TYPE: Final = "MSG_TYPE"
    POP_CHECK_POINT: Final = "POP_CK"
    POP_CHECK_POINT_OFFSET: Final = "POP_CK_OFFSET"
    FIRST_POP_TIME: Final = "1ST_POP_TIME"
    SHARDING_KEY: Final = "__SHARDINGKEY"
    FORWARD_QUEUE_ID: Final = "PROPERTY_FORWARD_QUEUE_ID"
    REDIRECT: Final = "REDIRECT"
    INNER_MULTI_DISPATCH: Final = "INNER_MULTI_DISPATCH"
    INNER_MULTI_QUEUE_OFFSET: Final = "INNER_MULTI_QUEUE_OFFSET"
    TRACE_CONTEXT: Final = "TRACE_CONTEXT"
    BORN_HOST: Final = "__BORNHOST"
    BORN_TIMESTAMP: Final = "BORN_TIMESTAMP"
    TIMER_DELAY_SECONDS: Final = "TIMER_DELAY_SEC"
    TIMER_DELAY_MS: Final = "TIMER_DELAY_MS"
    TIMER_DELIVER_MS: Final = "TIMER_DELIVER_MS"
    TIMER_ENQUEUE_MS: Final = "TIMER_ENQUEUE_MS"
    TIMER_DEQUEUE_MS: Final = "TIMER_DEQUEUE_MS"
    TIMER_ROLL_TIMES: Final = "TIMER_ROLL_TIMES"
    TIMER_OUT_MS: Final = "TIMER_OUT_MS"
    TIMER_DELETE_UNIQUE_KEY: Final = "TIMER_DEL_UNIQKEY"
    TIMER_DELAY_LEVEL: Final = "TIMER_DELAY_LEVEL"
    CRC32: Final = "__CRC32#"
    DLQ_ORIGIN_TOPIC: Final = "DLQ_ORIGIN_TOPIC"
    DLQ_ORIGIN_MESSAGE_ID: Final = "DLQ_ORIGIN_MESSAGE_ID"


#: What a user may not set as a property of their own (Java's `MessageConst.STRING_HASH_SET`): the broker or the
#: client would read it as an order. Names that Java leaves free, such as the sharding key, are free here too.
RESERVED_PROPERTIES: Final = frozenset(
    {
        PropertyName.TRACE_SWITCH,
        PropertyName.REGION,
        PropertyName.KEYS,
        PropertyName.TAGS,
        PropertyName.WAIT_STORE_OK,
        PropertyName.DELAY_LEVEL,
        PropertyName.RETRY_TOPIC,
        PropertyName.REAL_TOPIC,
        PropertyName.REAL_QUEUE_ID,
        PropertyName.TRANSACTION_PREPARED,
        PropertyName.PRODUCER_GROUP,
        PropertyName.MIN_OFFSET,
        PropertyName.MAX_OFFSET,
        PropertyName.BUYER_ID,
        PropertyName.ORIGIN_MESSAGE_ID,
        PropertyName.TRANSFER_FLAG,
        PropertyName.CORRECTION_FLAG,
        PropertyName.MQ2_FLAG,
        PropertyName.RECONSUME_TIME,
        PropertyName.UNIQUE_KEY,
        PropertyName.MAX_RECONSUME_TIMES,
        PropertyName.CONSUME_START_TIME,
        PropertyName.POP_CHECK_POINT,
        PropertyName.POP_CHECK_POINT_OFFSET,
        PropertyName.FIRST_POP_TIME,
        PropertyName.TRANSACTION_PREPARED_QUEUE_OFFSET,
        PropertyName.DUP_INFO,
        PropertyName.EXTEND_UNIQUE_INFO,
        PropertyName.INSTANCE_ID,
        PropertyName.CORRELATION_ID,
        PropertyName.REPLY_TO_CLIENT,
        PropertyName.TTL,
        PropertyName.REPLY_ARRIVE_TIME,
        PropertyName.PUSH_REPLY_TIME,
        PropertyName.CLUSTER,
        PropertyName.MESSAGE_TYPE,
        PropertyName.INNER_MULTI_QUEUE_OFFSET,
        PropertyName.TIMER_DELAY_MS,
        PropertyName.TIMER_DELAY_SECONDS,
        PropertyName.TIMER_DELIVER_MS,
        PropertyName.TIMER_ENQUEUE_MS,
        PropertyName.TIMER_DEQUEUE_MS,
        PropertyName.TIMER_ROLL_TIMES,
        PropertyName.TIMER_OUT_MS,
        PropertyName.TIMER_DELETE_UNIQUE_KEY,
        PropertyName.TIMER_DELAY_LEVEL,
        PropertyName.BORN_HOST,
        PropertyName.BORN_TIMESTAMP,
        PropertyName.DLQ_ORIGIN_TOPIC,
        PropertyName.DLQ_ORIGIN_MESSAGE_ID,
        PropertyName.CRC32,
    }
)
