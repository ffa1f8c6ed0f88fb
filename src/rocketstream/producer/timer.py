"""Timer messages: delivered at any time, not only after one of 18 delays, and recalled before it. RocketMQ 5 only.

A 4.9 broker does not know the properties and would deliver such a message at once. So a broker's version is known
before a timer message leaves for it.
"""

from __future__ import annotations

import base64
import binascii
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from rocketstream.cluster.names import DLQ_PREFIX, RETRY_PREFIX, check_topic, with_namespace
from rocketstream.cluster.versions import V5_0_0, version_text
from rocketstream.errors import (
    AccessDeniedError,
    BrokerError,
    ConfigurationError,
    RecallFailedError,
    UnsupportedByBrokerError,
)
from rocketstream.message import Message, MessageQueue
from rocketstream.producer.introduction import introduce
from rocketstream.property_names import PropertyName
from rocketstream.wire.codes import RequestCode, ResponseCode
from rocketstream.wire.headers.send import RecallMessageRequestHeader, RecallMessageResponseHeader
from rocketstream.wire.trace import DEFAULT_REGION, RecallTrace

if TYPE_CHECKING:
    from rocketstream.cluster.client_instance import ClientInstance
    from rocketstream.producer.core import ProducerCore


def is_timer(message: Message) -> bool:
    """Whether a message is to be delivered at a time of its own."""
    return message.delay is not None or message.deliver_at is not None


async def check_timer_broker(instance: ClientInstance, queue: MessageQueue, address: str, timeout: float) -> None:
    """Refuse to send a timer message to a broker that would deliver it at once; a `BrokerCheck`."""
    version = await _version(instance, queue.broker_name, address, timeout)
    if version < V5_0_0:
        raise UnsupportedByBrokerError(
            f"timer messages (delay, deliver_at) need RocketMQ 5; broker {queue.broker_name} at {address} is"
            f" {version_text(version)}: use delay_level"
        )


async def _version(instance: ClientInstance, broker_name: str, address: str, timeout: float) -> int:
    for broker in instance.brokers:
        if (broker.broker_name, broker.address) == (broker_name, address) and broker.version is not None:
            return broker.version
    return await introduce(instance, broker_name, address, timeout)


@dataclass(frozen=True, slots=True)
class RecallHandle:
    """What a receipt's `recall_handle` says: base64 of its parts, separated by spaces (Java's `HandleV1`)."""

    topic: str
    """With the namespace, as the broker knows it."""
    broker_name: str
    due: int
    """Milliseconds since the epoch."""
    message_id: str

    @classmethod
    def parse(cls, text: str) -> RecallHandle:
        """Read a handle; what is none is refused."""
        try:
            version, topic, broker_name, due, message_id = base64.urlsafe_b64decode(text).decode().split(" ")[:5]
            if version != "v1":
                raise ValueError(version)
            return cls(topic, broker_name, int(due), message_id)
        except (TypeError, ValueError, AttributeError, binascii.Error):
            raise ConfigurationError(
                f"handle={text!r} is not a recall handle: take the recall_handle of the receipt of a timer message"
            ) from None


def check_recall(topic: str, handle: str, namespace: str | None) -> RecallHandle:
    """The parts of a handle; refused when it is none or is of another topic."""
    check_topic(topic)
    if topic.startswith((RETRY_PREFIX, DLQ_PREFIX)):
        raise ConfigurationError(f"topic={topic!r}: messages of retry and dead-letter topics cannot be recalled")
    parsed = RecallHandle.parse(handle)
    if parsed.topic != with_namespace(namespace, topic):
        raise ConfigurationError(f"topic={topic!r} does not fit the handle, which is of topic {parsed.topic!r}")
    return parsed


async def recall(core: ProducerCore, topic: str, handle: str, timeout: float | None = None) -> str:
    """Take a timer message back before it is due and return its id."""
    core.check_running()
    parsed = check_recall(topic, handle, core.producer.namespace)
    limit = core.producer.send_timeout if timeout is None else timeout
    deadline = core.clock.monotonic() + limit
    address = await core.address_of(MessageQueue(parsed.topic, parsed.broker_name, 0), deadline)
    version = await _version(core.instance, parsed.broker_name, address, limit)
    if version < V5_0_0:
        raise UnsupportedByBrokerError(
            f"recalling messages needs RocketMQ 5; broker {parsed.broker_name} at {address} is {version_text(version)}"
        )
    header = RecallMessageRequestHeader(
        producer_group=core.group, topic=parsed.topic, recall_handle=handle, bname=parsed.broker_name
    )
    left = deadline - core.clock.monotonic()
    try:
        answer = await core.instance.ask(address, RequestCode.RECALL_MESSAGE, header, timeout=left)
    except BrokerError as error:
        _note(core, topic, parsed, None, success=False)
        raise _explained(error, parsed, version) from error
    _note(core, topic, parsed, answer.fields.get(PropertyName.REGION), success=True)
    return RecallMessageResponseHeader.from_fields(answer.fields).msg_id


def _note(core: ProducerCore, topic: str, handle: RecallHandle, region: str | None, *, success: bool) -> None:
    core.note(
        lambda now_ms: RecallTrace(
            now_ms, region or DEFAULT_REGION, core.producer.group, topic, handle.message_id, success
        )
    )


def _explained(error: BrokerError, handle: RecallHandle, version: int) -> Exception:
    if error.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
        return UnsupportedByBrokerError(
            f"broker {handle.broker_name} at {error.address} is {version_text(version)}, which cannot recall messages"
            " yet: only later releases of RocketMQ 5 can"
        )
    if isinstance(error, AccessDeniedError):
        return error
    if error.code == ResponseCode.NO_PERMISSION:
        return UnsupportedByBrokerError(
            f"broker {handle.broker_name} at {error.address} does not recall messages unless recallMessageEnable=true"
            f" is in its configuration: {error.remark}"
        )
    why = error.remark or str(error)
    if error.code == ResponseCode.ILLEGAL_OPERATION and "timestamp invalid" in why:
        due = datetime.fromtimestamp(handle.due / 1000, UTC).isoformat(timespec="milliseconds")
        why = f"it was due at {due}, which is past (or further ahead than the broker allows)"
    return RecallFailedError(error.address, handle.message_id, why)
