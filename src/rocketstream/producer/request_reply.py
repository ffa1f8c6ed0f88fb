"""Request and reply over topics: a message that waits for an answer, and the answer to such a message.

A request carries an id of its own (CORRELATION_ID) and the client that waits (REPLY_TO_CLIENT). Whoever consumes it
sends the reply to the cluster's reply topic; the broker stores it there and hands it, with
PUSH_REPLY_MESSAGE_TO_CLIENT, to that client over the connection on which it heard the client's heartbeats.
"""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rocketstream.errors import (
    BrokerError,
    ClientStateError,
    ConfigurationError,
    ReplyTimeoutError,
    RocketStreamError,
    SendFailedError,
    TooManyRequestsError,
)
from rocketstream.message import Message, MessageHeader, MessageQueue, ReceivedMessage
from rocketstream.producer.outgoing import Outgoing
from rocketstream.producer.receipt import SendReceipt
from rocketstream.producer.validation import check_message
from rocketstream.property_names import PropertyName
from rocketstream.remoting.deadline import done_before
from rocketstream.wire.codes import RequestCode, ResponseCode
from rocketstream.wire.command import Command, response
from rocketstream.wire.compression import decompress
from rocketstream.wire.headers.send import ReplyMessageRequestHeader
from rocketstream.wire.properties import decode_properties
from rocketstream.wire.sysflag import codec_of, is_compressed

if TYPE_CHECKING:
    from rocketstream.cluster.client_instance import ClientInstance
    from rocketstream.producer.core import ProducerCore

log = logging.getLogger("rocketstream.producer")

REPLY = "reply"
"""The MSG_TYPE of replies."""

DEFAULT_TIMEOUT = 3.0


# --- asking ---------------------------------------------------------------------------------------------------------


class PendingRequests:
    """Requests that wait for their replies, by correlation id; touched on the I/O thread only."""

    __slots__ = ("_limit", "_waiting")

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._waiting: dict[str, asyncio.Future[ReceivedMessage]] = {}

    def __len__(self) -> int:
        return len(self._waiting)

    def __repr__(self) -> str:
        return f"<PendingRequests {len(self._waiting)} of {self._limit}>"

    def expect(self, correlation_id: str) -> asyncio.Future[ReceivedMessage]:
        """A future of the reply; pair with one `forget`."""
        if len(self._waiting) >= self._limit:
            raise TooManyRequestsError(
                "request",
                f"{len(self._waiting)} requests already wait for their replies (max_async_messages={self._limit})",
            )
        future: asyncio.Future[ReceivedMessage] = asyncio.get_running_loop().create_future()
        self._waiting[correlation_id] = future
        return future

    def forget(self, correlation_id: str) -> None:
        """Nobody waits for this reply any more."""
        self._waiting.pop(correlation_id, None)

    def complete(self, correlation_id: str, outcome: ReceivedMessage | Exception) -> bool:
        """A reply has arrived; tell whether somebody waited for it."""
        future = self._waiting.pop(correlation_id, None)
        if future is None or future.done():
            return False
        if isinstance(outcome, Exception):
            future.set_exception(outcome)
        else:
            future.set_result(outcome)
        return True

    def close(self, what: str) -> None:
        """Fail whoever still waits: the replies would come to nobody."""
        for correlation_id in list(self._waiting):
            self.complete(
                correlation_id, ClientStateError(f"{what} was shut down while a request waited for its reply")
            )


def prepare_request(core: ProducerCore, message: Message, timeout: float) -> tuple[Outgoing, str]:
    """A checked message made ready as a request, and its correlation id."""
    correlation_id = str(uuid.uuid4())
    out = core.preparation.single(
        message,
        {
            PropertyName.CORRELATION_ID: correlation_id,
            PropertyName.REPLY_TO_CLIENT: core.client_id,
            PropertyName.TTL: str(round(timeout * 1000)),
        },
    )
    out.check = core.introductions.make_sure
    return out, correlation_id


async def request(
    core: ProducerCore, out: Outgoing, correlation_id: str, *, timeout: float, **choice: Any
) -> ReceivedMessage:
    """Send what `prepare_request` made and return the reply; sending and waiting share one budget of time."""
    core.check_running()
    # Each producer of a client sets the same processor: it finds out by itself whose reply it is.
    core.instance.remoting.register_processor(
        RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT, ReplyProcessor(core.instance, asyncio.get_running_loop())
    )
    deadline = core.clock.monotonic() + timeout
    reply = core.requests.expect(correlation_id)
    sending = asyncio.ensure_future(core.send(out, timeout=timeout, **choice))
    try:
        # A reply may overtake the answer to the send, or come although that answer was lost.
        both: list[asyncio.Future[Any]] = [sending, reply]
        await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
        if not reply.done():
            await sending
            if not await done_before(core.clock, reply, deadline):
                raise ReplyTimeoutError(out.message.topic, out.message_id, timeout)
        return reply.result()
    finally:
        core.requests.forget(correlation_id)
        reply.cancel()
        _let_go(sending)


def _let_go(sending: asyncio.Future[SendReceipt]) -> None:
    if sending.done():
        if not sending.cancelled():
            sending.exception()  # looked at: what it says is either raised or does not matter any more
    else:
        sending.cancel()


# --- receiving replies ----------------------------------------------------------------------------------------------


class ReplyProcessor:
    """Takes the replies that brokers hand to a client instance; runs on a processor's thread."""

    __slots__ = ("_instance", "_loop")

    def __init__(self, instance: ClientInstance, loop: asyncio.AbstractEventLoop) -> None:
        self._instance = instance
        self._loop = loop

    def __call__(self, address: str, command: Command) -> Command:
        """Decode a reply and hand it to whoever waits. Like Java, it is taken even if nobody does any more."""
        header = ReplyMessageRequestHeader.from_fields(command.fields)
        properties = decode_properties(header.properties or "")
        outcome: ReceivedMessage | Exception
        try:
            outcome = read_reply(header, properties, command.body, self._instance.clock.wall_ms())
        except RocketStreamError as error:  # an unreadable body is the answer that the caller gets
            outcome = error
        correlation_id = properties.get(PropertyName.CORRELATION_ID, "")
        self._loop.call_soon_threadsafe(self._deliver, address, correlation_id, outcome)
        return response(command, ResponseCode.SUCCESS)

    def _deliver(self, address: str, correlation_id: str, outcome: ReceivedMessage | Exception) -> None:
        for member in self._instance.producers:
            requests = getattr(member, "requests", None)
            if isinstance(requests, PendingRequests) and requests.complete(correlation_id, outcome):
                return
        log.warning("%s handed over a reply to request %r, which nobody waits for (any more)", address, correlation_id)


def read_reply(
    header: ReplyMessageRequestHeader, properties: dict[str, str], body: bytes, arrived: int
) -> ReceivedMessage:
    """The message that a broker handed over; `arrived` is milliseconds since the epoch."""
    if is_compressed(header.sys_flag):
        body = decompress(body, codec_of(header.sys_flag))
    return ReceivedMessage(
        header.topic,
        body,
        properties={**properties, PropertyName.REPLY_ARRIVE_TIME: str(arrived)},
        broker_name=header.bname or "",
        queue_id=header.queue_id,
        sys_flag=header.sys_flag,
        header=MessageHeader(
            flag=header.flag,
            born_timestamp=header.born_timestamp,
            born_host=header.born_host,
            store_timestamp=header.store_timestamp,
            store_host=header.store_host,
            reconsume_times=header.reconsume_times or 0,
        ),
    )


# --- replying -------------------------------------------------------------------------------------------------------


def reply_topic(cluster: str) -> str:
    """The topic of a cluster through which replies go; every broker has it."""
    return f"{cluster}_REPLY_TOPIC"


def prepare_reply(
    core: ProducerCore,
    received: ReceivedMessage,
    body: bytes,
    *,
    tags: str | None = None,
    keys: str | None = None,
    properties: Mapping[str, str] | None = None,
) -> Outgoing:
    """The reply to a message that was sent as a request; refused when it was not."""
    if not isinstance(received, ReceivedMessage):
        raise ConfigurationError(f"expected the ReceivedMessage to reply to, got {type(received).__name__}")
    asked = received.properties
    cluster = asked.get(PropertyName.CLUSTER)
    carried: dict[str, str] = {
        name: asked[name]
        for name in (PropertyName.CORRELATION_ID, PropertyName.REPLY_TO_CLIENT, PropertyName.TTL)
        if name in asked
    }
    if not cluster or PropertyName.CORRELATION_ID not in carried or PropertyName.REPLY_TO_CLIENT not in carried:
        missing = [
            name
            for name in (PropertyName.CLUSTER, PropertyName.CORRELATION_ID, PropertyName.REPLY_TO_CLIENT)
            if not asked.get(name)
        ]
        raise ConfigurationError(
            f"message {received.message_id} of topic {received.topic!r} cannot be replied to: it has no property"
            f" {', '.join(missing)}, so it was not sent with request()"
        )
    topic = reply_topic(cluster)
    message = Message(topic, body, tags=tags, keys=keys, properties=properties)
    check_message(message, core.producer)
    out = core.preparation.single(message, {**carried, PropertyName.MESSAGE_TYPE: REPLY})
    # The topic is the broker's own and in no namespace.
    out.topic = out.fields["b"] = topic
    out.code = int(RequestCode.SEND_REPLY_MESSAGE_V2)
    return out


async def reply(core: ProducerCore, out: Outgoing, broker_name: str, timeout: float | None = None) -> SendReceipt:
    """Send what `prepare_reply` made.

    First through the broker that the request came from: it has heard of the client that waits. Should that fail,
    through any other.
    """
    core.check_running()
    deadline = core.clock.monotonic() + (core.producer.send_timeout if timeout is None else timeout)
    if any(queue.broker_name == broker_name for queue in await core.queues(out.topic, deadline)):
        left = max(deadline - core.clock.monotonic(), 0.001)
        try:
            return await core.send(out, timeout=left, selector=_of_broker, arg=broker_name)
        except (SendFailedError, BrokerError):
            if core.clock.monotonic() >= deadline or len(_brokers(await core.queues(out.topic, deadline))) == 1:
                raise
    left = max(deadline - core.clock.monotonic(), 0.001)
    return await core.send(out, timeout=left)


def _of_broker(queues: Sequence[MessageQueue], message: Message, broker_name: str) -> MessageQueue:
    return next(queue for queue in queues if queue.broker_name == broker_name)


def _brokers(queues: tuple[MessageQueue, ...]) -> set[str]:
    return {queue.broker_name for queue in queues}
