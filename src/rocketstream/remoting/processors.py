"""What brokers ask of us: requests that arrive on our connections, answered off the I/O thread.

A processor is registered by request code. It gets the peer's address and the request and returns the response, or
None for none, or a future of the response: what takes its time must not keep a processor's thread. A code without a
processor is answered REQUEST_CODE_NOT_SUPPORTED; a processor that raises is answered SYSTEM_ERROR with its words; a
one-way request is never answered.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from concurrent.futures import Executor, Future
from typing import TypeAlias

from rocketstream.wire.codes import ResponseCode
from rocketstream.wire.command import Command, response

log = logging.getLogger("rocketstream.remoting")

Processor: TypeAlias = Callable[[str, Command], Command | Future[Command] | None]


class Processors:
    """The table of processors and the threads that run them."""

    __slots__ = ("_executor", "_table")

    def __init__(self, executor: Executor) -> None:
        self._executor = executor
        self._table: dict[int, Processor] = {}

    def register(self, code: int, processor: Processor) -> None:
        """Answer requests of this code with that processor, from now on."""
        self._table[int(code)] = processor

    def handle(self, address: str, request: Command, answer: Callable[[Command], None]) -> None:
        """Have a request processed; `answer` is called from a processor's thread, at most once."""
        processor = self._table.get(request.code)
        if processor is None:
            log.warning("%s asked for %s, which this client does not do", address, request.name)
            if not request.is_one_way:
                answer(
                    response(
                        request,
                        ResponseCode.REQUEST_CODE_NOT_SUPPORTED,
                        f"request type {request.code} not supported",
                    )
                )
            return
        try:
            self._executor.submit(self._run, processor, address, request, answer)
        except RuntimeError:  # the executor was shut down: so was the client
            log.debug("%s from %s came after the client was closed", request.name, address)

    def _run(self, processor: Processor, address: str, request: Command, answer: Callable[[Command], None]) -> None:
        result: Command | Future[Command] | None
        try:
            result = processor(address, request)
        except Exception as error:
            result = _failed(address, request, error)
        if isinstance(result, Future):
            result.add_done_callback(lambda future: _answer_later(address, request, future, answer))
        elif result is not None:
            _give(request, result, answer)


def _answer_later(address: str, request: Command, future: Future[Command], answer: Callable[[Command], None]) -> None:
    if future.cancelled():
        log.debug("%s from %s is not answered: the client was closed", request.name, address)
        return
    error = future.exception()
    try:
        _give(request, future.result() if error is None else _failed(address, request, error), answer)
    except RuntimeError:  # the loop is closed: so is the client
        log.debug("%s from %s was answered after the client was closed", request.name, address)


def _failed(address: str, request: Command, error: BaseException) -> Command:
    log.error("the processor of %s from %s raised", request.name, address, exc_info=error)
    return response(request, ResponseCode.SYSTEM_ERROR, f"{type(error).__name__}: {error}")


def _give(request: Command, result: Command, answer: Callable[[Command], None]) -> None:
    if not request.is_one_way:
        result.opaque = request.opaque
        result.serialize_type = request.serialize_type
        answer(result)
