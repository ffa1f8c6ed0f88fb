"""Faults on order, for tests of what a client does about them: answer with a code, hold, drop, cut.

    broker.faults.answer("PULL_MESSAGE", ResponseCode.SYSTEM_BUSY, times=3)
    with broker.faults.hold("UPDATE_CONSUMER_OFFSET") as held:
        held.wait_for(1)                                     # a request is there, and gets no answer
    ...                                                      # now it does

Orders may be given from any thread. A request meets the first one that fits it and has not had its fill.
"""

from __future__ import annotations

import asyncio
import dataclasses
import difflib
import logging
import threading
from types import TracebackType
from typing import Any, Literal, Self

from rocketstream.broker.connection import ClientConnection
from rocketstream.broker.dispatch import Dispatcher, Gate
from rocketstream.errors import ConfigurationError
from rocketstream.wire.codes import RequestCode, ResponseCode, RpcFlag, request_name
from rocketstream.wire.command import Command, response

log = logging.getLogger("rocketstream.broker")

_TOPIC_FIELDS = ("topic", "b", "originTopic")
_GROUP_FIELDS = ("consumerGroup", "producerGroup", "group", "a")
#: Clients have several requests for what is one thing to people.
_SAME = {
    RequestCode.SEND_MESSAGE: (
        RequestCode.SEND_MESSAGE,
        RequestCode.SEND_MESSAGE_V2,
        RequestCode.SEND_BATCH_MESSAGE,
    ),
    RequestCode.SEND_REPLY_MESSAGE: (RequestCode.SEND_REPLY_MESSAGE, RequestCode.SEND_REPLY_MESSAGE_V2),
    RequestCode.PULL_MESSAGE: (RequestCode.PULL_MESSAGE, RequestCode.LITE_PULL_MESSAGE),
}

_Kind = Literal["answer", "hold", "drop", "cut"]


class Fault:
    """One order. As a context manager it ends with the block: what is still held is let go."""

    def __init__(
        self,
        owner: Faults,
        kind: _Kind,
        codes: frozenset[int],
        *,
        times: int | None,
        after: int,
        topic: str | None,
        group: str | None,
        carried_out: bool = False,
        answer: tuple[int, str] | None = None,
    ) -> None:
        self.caught = 0
        """How many requests it has met so far."""
        self._owner = owner
        self._kind = kind
        self._codes = codes
        self._times = times
        self._after = after
        self._topic = topic
        self._group = group
        self._carried_out = carried_out
        self._answer = answer
        self._held: list[tuple[Dispatcher, ClientConnection, Command]] = []
        self._met = threading.Condition()

    def __repr__(self) -> str:
        names = "/".join(sorted(request_name(code) for code in self._codes)) or "everything"
        left = "for good" if self._times is None else f"{max(0, self._times - self.caught)} more times"
        return f"<Fault {self._kind} {names}, met {self.caught}, {left}, holding {len(self._held)}>"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.end()

    def wait_for(self, count: int, timeout: float = 30.0) -> None:
        """Wait until it has met so many requests; TimeoutError otherwise. From another thread than the broker's."""
        with self._met:
            if not self._met.wait_for(lambda: self.caught >= count, timeout):
                raise TimeoutError(f"{self!r} has not met {count} requests within {timeout:g} s")

    def release(self) -> None:
        """Let go what it holds: it is carried out now."""
        self._owner._on_loop(self._release)

    def end(self) -> None:
        """Meet no more requests, and let go what it holds."""
        self._owner._remove(self)
        self.release()

    # --- on the broker's loop ------------------------------------------------------------------------------------

    def _fits(self, command: Command) -> bool:
        if self._codes and command.code not in self._codes:
            return False
        if not _has(command, _TOPIC_FIELDS, self._topic) or not _has(command, _GROUP_FIELDS, self._group):
            return False
        if self._times is not None and self.caught >= self._times:
            return False
        if self._after > 0:
            self._after -= 1
            return False
        return True

    def _meet(self, dispatcher: Dispatcher, connection: ClientConnection, command: Command) -> None:
        if self._kind == "hold":
            self._held.append((dispatcher, connection, command))
        elif self._kind == "answer":
            assert self._answer is not None
            code, remark = self._answer
            if not command.is_one_way:
                connection.send(response(command, code, remark))
        else:
            if self._carried_out:
                # A one-way request is carried out and never answered.
                dispatcher.handle(connection, dataclasses.replace(command, flag=command.flag | RpcFlag.ONE_WAY))
            if self._kind == "cut":
                connection.cut()
        with self._met:
            self.caught += 1
            self._met.notify_all()

    def _release(self) -> None:
        held, self._held = self._held, []
        for dispatcher, connection, command in held:
            if not connection.closed:
                dispatcher.handle(connection, command)


class Faults:
    """What is to go wrong in a broker. `clear()` ends it all."""

    def __init__(self) -> None:
        self._orders: tuple[Fault, ...] = ()
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None

    def __repr__(self) -> str:
        return f"<Faults {list(self._orders)}>"

    def answer(
        self,
        request: RequestCode | int | str,
        code: ResponseCode | int,
        remark: str = "a fault on order",
        *,
        times: int | None = 1,
        after: int = 0,
        topic: str | None = None,
        group: str | None = None,
    ) -> Fault:
        """Answer requests with a code instead of carrying them out."""
        return self._add("answer", request, times, after, topic, group, answer=(int(code), remark))

    def hold(
        self,
        request: RequestCode | int | str,
        *,
        times: int | None = None,
        after: int = 0,
        topic: str | None = None,
        group: str | None = None,
    ) -> Fault:
        """Keep requests until `release()`, then carry them out."""
        return self._add("hold", request, times, after, topic, group)

    def drop(
        self,
        request: RequestCode | int | str,
        *,
        carried_out: bool = False,
        times: int | None = 1,
        after: int = 0,
        topic: str | None = None,
        group: str | None = None,
    ) -> Fault:
        """Never answer requests; with `carried_out` only the answer is lost."""
        return self._add("drop", request, times, after, topic, group, carried_out=carried_out)

    def cut(
        self,
        request: RequestCode | int | str,
        *,
        carried_out: bool = False,
        times: int | None = 1,
        after: int = 0,
        topic: str | None = None,
        group: str | None = None,
    ) -> Fault:
        """Cut the connection on which a request comes; with `carried_out` after doing what it asks."""
        return self._add("cut", request, times, after, topic, group, carried_out=carried_out)

    def clear(self) -> None:
        """End every order; what is held is carried out."""
        for order in self._orders:
            order.end()

    def _add(
        self,
        kind: _Kind,
        request: RequestCode | int | str,
        times: int | None,
        after: int,
        topic: str | None,
        group: str | None,
        **more: Any,
    ) -> Fault:
        order = Fault(self, kind, _codes(request), times=times, after=after, topic=topic, group=group, **more)
        with self._lock:
            self._orders = (*self._orders, order)
        return order

    def _remove(self, order: Fault) -> None:
        with self._lock:
            self._orders = tuple(one for one in self._orders if one is not order)

    # --- on the broker's loop ------------------------------------------------------------------------------------

    def attach(self, loop: asyncio.AbstractEventLoop | None) -> None:
        """The loop on which requests come; None when there is none any more."""
        self._loop = loop

    def gate(self, dispatcher: Dispatcher) -> Gate:
        """The gate for one of the broker's doors."""

        def gate(connection: ClientConnection, command: Command) -> bool:
            for order in self._orders:
                if order._fits(command):
                    order._meet(dispatcher, connection, command)
                    return True
            return False

        return gate

    def _on_loop(self, work: Any) -> None:
        loop = self._loop
        if loop is not None and not loop.is_closed():
            loop.call_soon_threadsafe(work)


def _has(command: Command, names: tuple[str, ...], wanted: str | None) -> bool:
    return wanted is None or any(command.fields.get(name) == wanted for name in names)


def _codes(request: RequestCode | int | str) -> frozenset[int]:
    if isinstance(request, str):
        if request == "*":
            return frozenset()
        name = request.upper()
        if name not in RequestCode.__members__:
            close = difflib.get_close_matches(name, RequestCode.__members__)
            raise ConfigurationError(
                f"request={request!r} is no request of RocketMQ's"
                + (f": did you mean {' or '.join(close)}?" if close else ' (see RequestCode; "*" is every request)')
            )
        request = RequestCode[name]
    return frozenset(int(code) for code in _SAME.get(request, (request,)))  # type: ignore[call-overload]
