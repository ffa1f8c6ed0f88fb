"""From a request to the service that answers it.

A service offers `handlers()`: request code -> function of the connection and the command. The function returns the
response, or an awaitable of it (a long poll, an append that is not durable yet), or None for no answer; it raises
`Refusal` to answer with a code. Anything else that it raises is a mistake of ours: logged, and answered SYSTEM_ERROR.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from functools import partial
from typing import Any, Protocol, TypeAlias

from rocketstream.broker.connection import ClientConnection
from rocketstream.broker.refusal import Refusal
from rocketstream.errors import ProtocolError
from rocketstream.wire.codes import ResponseCode
from rocketstream.wire.command import Command, response

log = logging.getLogger("rocketstream.broker")

Answer: TypeAlias = "Command | Awaitable[Command | None] | None"
Handler: TypeAlias = Callable[[ClientConnection, Command], "Command | Awaitable[Command | None] | None"]
#: May take a request before its service sees it: True when it has dealt with it (ACL refused it, a fault holds it).
Gate: TypeAlias = Callable[[ClientConnection, Command], bool]


class Service(Protocol):
    """A part of the broker: it answers some requests, and may have timers between `start` and `stop`."""

    def handlers(self) -> Mapping[int, Handler]:
        """The requests that it answers."""

    def start(self) -> None:
        """Begin what runs by itself; called on the event loop, after the store is open."""

    def stop(self) -> None:
        """End it, and save what is to be kept."""


class Dispatcher:
    """Takes commands from connections, has them answered, and tells everybody who cares of connections that end."""

    def __init__(self) -> None:
        self.connections: set[ClientConnection] = set()
        self.gates: list[Gate] = []
        self.when_closed: list[Callable[[ClientConnection], None]] = []
        self._handlers: dict[int, Handler] = {}
        self._waiting: set[asyncio.Task[None]] = set()
        self._closed = False
        self._emptied: asyncio.Future[None] | None = None

    def add(self, handlers: Mapping[int, Handler]) -> None:
        """Let a service answer these codes."""
        for code, handler in handlers.items():
            if int(code) in self._handlers:
                raise ValueError(f"two services want to answer request {code}")
            self._handlers[int(code)] = handler

    # --- what connections tell us -------------------------------------------------------------------------------

    def on_connected(self, connection: ClientConnection) -> None:
        """Somebody has connected."""
        self.connections.add(connection)
        if self._closed:
            connection.cut()  # it was accepted while the door was being shut

    def on_closed(self, connection: ClientConnection) -> None:
        """A connection is gone."""
        self.connections.discard(connection)
        for callback in self.when_closed:
            callback(connection)
        if self._emptied is not None and not self.connections and not self._emptied.done():
            self._emptied.set_result(None)

    def on_command(self, connection: ClientConnection, command: Command) -> None:
        """Answer a request."""
        for gate in self.gates:
            if gate(connection, command):
                return
        self.handle(connection, command)

    def handle(self, connection: ClientConnection, command: Command) -> None:
        """Have a request answered by its service, whatever the gates say."""
        handler = self._handlers.get(command.code)
        if handler is None:
            answer: Answer = response(
                command, ResponseCode.REQUEST_CODE_NOT_SUPPORTED, f" request type {command.code} not supported"
            )
        else:
            try:
                answer = handler(connection, command)
            except Exception as error:
                answer = _failed(command, error)
        if answer is None or isinstance(answer, Command):
            _answer(connection, command, answer)
            return
        task = asyncio.ensure_future(self._finish(connection, command, answer))
        self._waiting.add(task)
        task.add_done_callback(self._waiting.discard)
        if isinstance(answer, Coroutine):
            # What is cancelled before its first step has not begun to wait for it, and Python would complain.
            task.add_done_callback(partial(_close, answer))

    async def _finish(self, connection: ClientConnection, command: Command, awaited: Awaitable[Command | None]) -> None:
        try:
            answer = await awaited
        except Exception as error:
            answer = _failed(command, error)
        _answer(connection, command, answer)

    async def close(self) -> None:
        """End what still waits, and every connection; returns when they are gone."""
        self._closed = True
        for task in list(self._waiting):
            task.cancel()
        await asyncio.gather(*self._waiting, return_exceptions=True)
        if not self.connections:
            return
        self._emptied = asyncio.get_running_loop().create_future()
        for connection in list(self.connections):
            connection.cut()
        await self._emptied


def _close(answer: Coroutine[Any, Any, Command | None], _: object) -> None:
    answer.close()


def _answer(connection: ClientConnection, command: Command, answer: Command | None) -> None:
    if answer is not None and not command.is_one_way:
        connection.send(answer)


def _failed(command: Command, error: Exception) -> Command:
    if isinstance(error, Refusal):
        return response(command, error.code, error.remark)
    if isinstance(error, ProtocolError):
        return response(command, ResponseCode.SYSTEM_ERROR, str(error))
    log.error("answering %s failed", command.name, exc_info=error)
    return response(command, ResponseCode.SYSTEM_ERROR, f"{type(error).__name__}: {error}")
