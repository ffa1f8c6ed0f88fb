"""From what a user gives as a listener to one shape: a function of (messages, context), plain or `async`.

The rule of this file: nothing is run here. What can be said about a listener without calling it (that it cannot be
called, that two handlers want one topic) is said before the consumer starts.
"""

from __future__ import annotations

import asyncio
import inspect
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from rocketstream.consumer.results import ConsumeContext, ConsumeResult, OrderlyContext, OrderlyResult
from rocketstream.errors import ConfigurationError
from rocketstream.message import ReceivedMessage

ListenerFunction: TypeAlias = Callable[[Sequence[ReceivedMessage], Any], Any]
_PROJECT = re.compile("%PROJECT_[^%]+%$")
HandlerFunction: TypeAlias = Callable[[ReceivedMessage], Any]
Context: TypeAlias = ConsumeContext | OrderlyContext


@dataclass(frozen=True, slots=True)
class Listener:
    """A listener that can be called, and how."""

    call: ListenerFunction
    is_async: bool


def is_async(function: object) -> bool:
    """Whether calling it gives something to await: an `async def`, or an object whose `__call__` is one."""
    call = getattr(function, "func", function)  # functools.partial
    return inspect.iscoroutinefunction(call) or inspect.iscoroutinefunction(getattr(call, "__call__", None))  # noqa: B004


def is_its_own(error: BaseException) -> bool:
    """Whether an `async` listener raised this itself: not if the task that runs it is being ended from outside."""
    if isinstance(error, asyncio.CancelledError):
        task = asyncio.current_task()
        return task is not None and not task.cancelling()
    return isinstance(error, Exception | SystemExit)


def make_listener(
    function: ListenerFunction | None, handlers: Mapping[str, HandlerFunction], *, orderly: bool
) -> Listener | None:
    """The listener of a consumer: the one that was given, or one that spreads messages over the handlers."""
    if function is not None:
        if not callable(function):
            raise ConfigurationError(f"listener={function!r} must be a function of (messages, context)")
        if handlers:
            raise ConfigurationError(
                f"a consumer has a listener or handlers, not both: listener={function!r} and handlers of"
                f" {', '.join(sorted(handlers))}"
            )
        return Listener(function, is_async(function))
    if not handlers:
        return None
    # Where the machine belongs to a project, its messages are shown under the name without it (RES-05).
    handlers = {**{_PROJECT.sub("", topic): handler for topic, handler in handlers.items()}, **handlers}
    success: object = OrderlyResult.SUCCESS if orderly else ConsumeResult.SUCCESS
    if any(map(is_async, handlers.values())):
        return Listener(_async_spread(handlers, success), True)
    return Listener(_spread(handlers, success), False)


def _spread(handlers: Mapping[str, HandlerFunction], success: object) -> ListenerFunction:
    def listen(messages: Sequence[ReceivedMessage], context: Context) -> object:
        for message in messages:
            handlers[message.topic](message)
        return success

    return listen


def _async_spread(handlers: Mapping[str, HandlerFunction], success: object) -> Callable[..., Awaitable[object]]:
    asynchronous = {topic for topic, handler in handlers.items() if is_async(handler)}

    async def listen(messages: Sequence[ReceivedMessage], context: Context) -> object:
        for message in messages:
            handler = handlers[message.topic]
            if message.topic in asynchronous:
                await handler(message)
            else:
                await asyncio.to_thread(handler, message)  # a plain one may block, and must not block the others
        return success

    return listen
