"""What users may give as a listener, and what becomes of it."""

from __future__ import annotations

import asyncio
import functools
import threading
from typing import Any

import pytest

from rocketstream.consumer.listener import is_async, is_its_own, make_listener
from rocketstream.consumer.results import ConsumeContext, ConsumeResult, OrderlyContext, OrderlyResult
from rocketstream.errors import ConfigurationError
from rocketstream.message import MessageQueue, ReceivedMessage

QUEUE = MessageQueue("t", "a", 0)
MESSAGES = [ReceivedMessage(topic, queue_offset=n) for n, topic in enumerate(["x", "y", "x"])]


def plain(*args: Any) -> ConsumeResult:
    return ConsumeResult.SUCCESS


async def asynchronous(*args: Any) -> ConsumeResult:
    return ConsumeResult.SUCCESS


class Plain:
    def __call__(self, *args: Any) -> None: ...

    def method(self, *args: Any) -> None: ...

    async def async_method(self, *args: Any) -> None: ...


class Asynchronous:
    async def __call__(self, *args: Any) -> None: ...


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        (plain, False),
        (asynchronous, True),
        (Plain(), False),
        (Asynchronous(), True),
        (Plain().method, False),
        (Plain().async_method, True),
        (functools.partial(plain, 1), False),
        (functools.partial(asynchronous, 1), True),
        (functools.partial(Asynchronous(), 1), True),
        (functools.partial(functools.partial(asynchronous, 1), 2), True),
        (lambda *args: None, False),
        (print, False),
    ],
)
def test_async_listeners_are_known_without_a_call(function: Any, expected: bool):
    assert is_async(function) is expected
    made = make_listener(function, {}, orderly=False)
    assert made is not None
    assert (made.call, made.is_async) == (function, expected)


def test_without_listener_and_handlers_there_is_none():
    assert make_listener(None, {}, orderly=False) is None


def test_what_cannot_be_called_is_refused():
    with pytest.raises(ConfigurationError, match=r"listener=5 must be a function"):
        make_listener(5, {}, orderly=False)  # type: ignore[arg-type]


def test_listener_and_handlers_are_not_mixed():
    with pytest.raises(ConfigurationError, match=r"a listener or handlers, not both.* x, y"):
        make_listener(plain, {"y": plain, "x": plain}, orderly=False)


@pytest.mark.parametrize(
    ("orderly", "success"),
    [(False, ConsumeResult.SUCCESS), (True, OrderlyResult.SUCCESS)],
    ids=["concurrent", "orderly"],
)
async def test_handlers_get_the_messages_of_their_topic_one_at_a_time_in_order(orderly: bool, success: object):
    heard: list[tuple[str, int]] = []
    handlers = {t: (lambda m, t=t: heard.append((t, m.queue_offset))) for t in ("x", "y")}
    made = make_listener(None, handlers, orderly=orderly)
    assert made is not None
    assert not made.is_async
    context = OrderlyContext(QUEUE) if orderly else ConsumeContext(QUEUE)
    assert made.call(MESSAGES, context) is success
    assert heard == [("x", 0), ("y", 1), ("x", 2)]


@pytest.mark.parametrize(
    ("orderly", "success"),
    [(False, ConsumeResult.SUCCESS), (True, OrderlyResult.SUCCESS)],
    ids=["concurrent", "orderly"],
)
async def test_one_async_handler_makes_the_listener_async_and_plain_ones_block_nobody(orderly: bool, success: object):
    heard: list[tuple[str, int, bool]] = []
    here = threading.current_thread()

    async def x(message: ReceivedMessage) -> None:
        await asyncio.sleep(0)
        heard.append(("x", message.queue_offset, threading.current_thread() is here))

    def y(message: ReceivedMessage) -> None:
        heard.append(("y", message.queue_offset, threading.current_thread() is here))

    made = make_listener(None, {"x": x, "y": y}, orderly=orderly)
    assert made is not None
    assert made.is_async
    assert await made.call(MESSAGES, ConsumeContext(QUEUE)) is success
    assert heard == [("x", 0, True), ("y", 1, False), ("x", 2, True)]


@pytest.mark.parametrize("kind", ["plain", "async"])
async def test_a_handler_that_raises_fails_the_call(kind: str):
    async def broken_async(message: ReceivedMessage) -> None:
        raise ValueError("no")

    def broken(message: ReceivedMessage) -> None:
        raise ValueError("no")

    made = make_listener(None, {"x": broken_async if kind == "async" else broken, "y": plain}, orderly=False)
    assert made is not None

    async def answer() -> object:
        answer = made.call(MESSAGES, ConsumeContext(QUEUE))
        return await answer if made.is_async else answer

    with pytest.raises(ValueError, match="no"):
        await answer()


async def test_a_cancellation_is_the_listeners_own_unless_its_task_is_cancelled():
    told: list[bool] = []

    async def work(ends: asyncio.Future[None]) -> None:
        try:
            await ends
        except asyncio.CancelledError as error:
            told.append(is_its_own(error))

    loop = asyncio.get_running_loop()
    inner: asyncio.Future[None] = loop.create_future()
    inner.cancel()
    await asyncio.create_task(work(inner))
    assert told == [True]

    task = asyncio.create_task(work(loop.create_future()))
    await asyncio.sleep(0)
    task.cancel()
    await task
    assert told == [True, False]


@pytest.mark.parametrize(
    ("error", "own"),
    [(ValueError(), True), (SystemExit(), True), (KeyboardInterrupt(), False), (GeneratorExit(), False)],
)
async def test_what_a_listener_raises_is_its_own_except_what_ends_the_program(error: BaseException, own: bool):
    assert is_its_own(error) is own
