"""Send hooks: who may look at every message that is sent and at what became of it."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from rocketstream.message import Message, MessageQueue
from rocketstream.producer.receipt import SendReceipt

T = TypeVar("T")

log = logging.getLogger("rocketstream.producer")


@dataclass(slots=True)
class SendContext:
    """One attempt to send. `receipt` or `error` is there once it has ended."""

    group: str
    namespace: str | None
    message: Message
    queue: MessageQueue
    address: str
    born_timestamp: int
    """Milliseconds since the epoch at which the attempt began."""
    receipt: SendReceipt | None = None
    error: BaseException | None = None
    elapsed: float = 0.0
    """Seconds that the attempt took."""


class SendHook:
    """Override what you need. Hooks run on a hook thread, never on the I/O thread.

    An exception from `before_send` fails the send before anything leaves; one from `after_send` is logged.
    """

    def before_send(self, context: SendContext) -> None:
        """An attempt is about to be made."""

    def after_send(self, context: SendContext) -> None:
        """An attempt has ended, well or badly."""


def call(function: Callable[..., T], *args: object) -> T:
    """Call a user's function from a coroutine's executor.

    `StopIteration` (a `next()` that found nothing) cannot leave a future: whoever awaits it would wait for ever.
    """
    try:
        return function(*args)
    except StopIteration as error:
        raise RuntimeError(f"{function!r} raised StopIteration") from error


def run_before(hooks: Sequence[SendHook], context: SendContext) -> None:
    """All hooks before a send; the first exception ends it."""
    for hook in hooks:
        call(hook.before_send, context)


def run_after(hooks: Sequence[SendHook], context: SendContext) -> None:
    """All hooks after a send, whatever they do."""
    for hook in hooks:
        try:
            hook.after_send(context)
        except Exception:
            log.exception("the send hook %r raised after the send of %r", hook, context.message)
