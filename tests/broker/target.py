"""A broker to which operations are put, and what it answers, without what differs from run to run.

An operation names topics, groups and clients by short labels ("t0", "g0", 0) and messages by the order in which they
were stored; `Target` gives them names that are fresh for each sequence and takes these out of the answers again. So the
same sequence can be put to a model, to the embedded broker and to a real one, and the answers are compared as they are.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, TypeAlias

from rocketstream.message import MessageQueue, ReceivedMessage
from rocketstream.remoting.io_thread import IoThread
from rocketstream.wire.codes import RequestCode, ResponseCode, code_name
from rocketstream.wire.command import Command, request
from rocketstream.wire.headers.admin import QueryMessageRequestHeader
from rocketstream.wire.headers.offsets import (
    GetMaxOffsetRequestHeader,
    GetMinOffsetRequestHeader,
    OffsetResponseHeader,
)
from rocketstream.wire.message_id import decode_offset_id
from tests.bare_client import BareClient

#: The name of the response code, then what matters of the header and the body.
Answer: TypeAlias = tuple[Any, ...]

NOTHING_STORED: Answer = ("nothing is stored yet",)
_BROKER = "broker-a"
_OFFSET_HEADERS = {
    RequestCode.GET_MIN_OFFSET: GetMinOffsetRequestHeader,
    RequestCode.GET_MAX_OFFSET: GetMaxOffsetRequestHeader,
}
_FAR_FUTURE = 4_000_000_000_000
_TRIES = 100_000


class Seen(NamedTuple):
    """A message as a reader gets it."""

    number: int
    topic: str
    queue: int
    offset: int
    reconsume_times: int
    properties: dict[str, str]


class Target:
    """A broker, and two clients that put operations to it under names of a sequence's own."""

    def __init__(
        self,
        address: str,
        clients: Sequence[BareClient],
        sequence: str,
        *,
        pass_time: Callable[[], None] | None = None,
        lags: bool = False,
    ) -> None:
        self.address = address
        self.stored: list[int] = []
        """Commit-log offsets of what was sent, in the order of sending."""
        self.sent = 0
        self._clients = clients
        self._prefix = f"{sequence}-"
        self._pass_time = pass_time or self._await_another_time
        self._lags = lags
        self._latest = 0

    # --- names -------------------------------------------------------------------------------------------------

    def named(self, label: str) -> str:
        """The name of a topic or group in this sequence."""
        start = label[: label.rfind("%") + 1]
        return f"{start}{self._prefix}{label.removeprefix(start)}"

    def label(self, name: str) -> str:
        """The label behind a name, in whatever text it stands."""
        return name.replace(self._prefix, "")

    def client_id(self, client: int) -> str:
        """The id with which one of the clients introduces itself."""
        return f"{self._prefix}c{client}"

    def queues(self, topic: str, queues: Sequence[int]) -> frozenset[MessageQueue]:
        """Queues as bodies name them."""
        return frozenset(MessageQueue(self.named(topic), _BROKER, queue) for queue in queues)

    def unique_key(self, number: int) -> str:
        """The unique key of a message."""
        return f"{self._prefix}u{number}"

    # --- asking ------------------------------------------------------------------------------------------------

    def ask(self, code: int, header: Any = None, body: bytes = b"", client: int = 0) -> Command:
        """What the broker answers, whatever that is."""
        return self._clients[client].invoke(self.address, request(code, header, body))

    def offset_of(self, code: RequestCode, topic: str, queue: int) -> Command:
        """A queue's first or last offset."""
        return self.ask(code, _OFFSET_HEADERS[code](topic=self.named(topic), queue_id=queue))

    def position(self, message: int) -> int | None:
        """Where a message is in the commit log, counted among those that were stored; None before the first."""
        return self.stored[message % len(self.stored)] if self.stored else None

    def seen(self, messages: Sequence[ReceivedMessage]) -> list[Seen]:
        """Messages without what is different in every run."""
        return [self._seen(message) for message in messages]

    def _seen(self, message: ReceivedMessage) -> Seen:
        properties = {name: self.label(value) for name, value in message.properties.items()}
        origin = properties.get("ORIGIN_MESSAGE_ID")
        if origin is not None:
            position = decode_offset_id(origin).commit_log_offset
            properties["ORIGIN_MESSAGE_ID"] = f"message {self.stored.index(position)}"
        return Seen(
            int(message.body),
            self.label(message.topic),
            message.queue_id,
            message.queue_offset,
            message.reconsume_times,
            properties,
        )

    # --- what takes time in a real broker ----------------------------------------------------------------------

    def before_storing(self) -> None:
        """Let time pass, so that no two requests are stored in the same or the next millisecond."""
        self._pass_time()

    def _await_another_time(self) -> None:
        for _ in range(_TRIES):
            now = time.time_ns() // 1_000_000
            if now >= self._latest + 3:
                self._latest = now
                return
            self.ask(RequestCode.GET_MAX_OFFSET, GetMaxOffsetRequestHeader(topic="TBW102", queue_id=0))
        raise AssertionError("time stands still")

    def after_storing(self, topic: str, queue: int, end: int, unique_key: str) -> None:
        """Wait until queue and index have what was stored: RocketMQ writes them from the log a moment later."""
        self._latest = time.time_ns() // 1_000_000
        if not self._lags:
            return

        def arrived() -> bool:
            answer = self.offset_of(RequestCode.GET_MAX_OFFSET, topic, queue)
            if OffsetResponseHeader.from_fields(answer.fields).offset < end:
                return False
            return self.find(topic, unique_key, 1, unique=True).code == ResponseCode.SUCCESS

        if not any(arrived() for _ in range(_TRIES)):
            raise AssertionError(f"{topic} queue {queue} did not get its {end} messages")

    def find(self, topic: str, key: str, most: int, *, unique: bool) -> Command:
        """Messages by key."""
        header = QueryMessageRequestHeader(
            topic=self.named(topic),
            key=key,
            max_num=most,
            begin_timestamp=0,
            end_timestamp=_FAR_FUTURE,
            unique_key_query=unique,
        )
        return self.ask(RequestCode.QUERY_MESSAGE, header)


@contextlib.contextmanager
def bare_clients(name_servers: str, count: int = 2) -> Iterator[list[BareClient]]:
    """Clients that take no notice of what a broker tells them about their groups."""
    clients = [BareClient(name_servers, IoThread.shared()) for _ in range(count)]
    try:
        for client in clients:
            client.instance.remoting.register_processor(
                RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, lambda address, command: None
            )
        yield clients
    finally:
        for client in clients:
            client.close()


def answer(command: Command, *details: Any) -> Answer:
    """The code's name, and the details if it is a success."""
    name = code_name(command.code)
    return (name, *details) if command.code == ResponseCode.SUCCESS else (name,)


def offset_answer(command: Command) -> Answer:
    """The one offset of an answer."""
    if command.code != ResponseCode.SUCCESS:
        return answer(command)
    return answer(command, OffsetResponseHeader.from_fields(command.fields).offset)


class Operation:
    """Something to ask a broker."""

    def ask(self, target: Target) -> Answer:
        """Put it to a broker."""
        raise NotImplementedError
