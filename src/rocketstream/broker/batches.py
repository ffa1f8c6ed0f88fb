"""A batch: many messages in one request, each stored as a record of its own, one behind the other."""

from __future__ import annotations

from rocketstream.broker.intake import Intake
from rocketstream.broker.names import RETRY_PREFIX
from rocketstream.broker.refusal import Refusal
from rocketstream.broker.store.values import NewMessage, Stored
from rocketstream.errors import CorruptMessageError
from rocketstream.wire.batch import decode_batch
from rocketstream.wire.codes import ResponseCode

_MAX_TOPIC = 127


def store_batch(
    intake: Intake,
    body: bytes,
    *,
    topic: str,
    queue_id: int,
    sys_flag: int,
    born_timestamp: int,
    born_host: str,
    reconsume_times: int,
    max_size: int,
) -> list[Stored]:
    """Store all messages of a batch, or refuse all of them."""
    if len(topic) > _MAX_TOPIC:
        raise Refusal(ResponseCode.MESSAGE_ILLEGAL, f"message topic length too long {len(topic)}")
    if topic.startswith(RETRY_PREFIX):
        raise Refusal(ResponseCode.MESSAGE_ILLEGAL, f"batch request does not support retry group {topic}")
    if len(body) > max_size:
        raise Refusal(
            ResponseCode.SYSTEM_ERROR,
            f"java.lang.RuntimeException: message body size exceeded: {len(body)} bytes, {max_size} are allowed",
        )
    try:
        items = decode_batch(body)
    except CorruptMessageError as error:
        raise Refusal(ResponseCode.SYSTEM_ERROR, f"java.nio.BufferUnderflowException: {error}") from None
    # What a message of a batch says of a delay does not count: RocketMQ looks at the request's own properties only.
    return [
        intake.append(
            NewMessage(
                topic=topic,
                queue_id=queue_id,
                body=item.body,
                properties=item.properties,
                flag=item.flag,
                sys_flag=sys_flag,
                born_timestamp=born_timestamp,
                born_host=born_host,
                reconsume_times=reconsume_times,
            )
        )
        for item in items
    ]
