"""Who may look at everything that is consumed, leave messages out, or hear of new queues.

The rule of this file: these are a user's own functions, and whatever they raise is logged and changes nothing else
(CON-05, RES-04, REB-09). Filter hooks run in `filtering.py`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from rocketstream.message import MessageQueue, ReceivedMessage

log = logging.getLogger("rocketstream.consumer")


@dataclass(slots=True)
class ConsumeHookContext:
    """One call of the listener. `success`, `status` and `return_type` are there once it has ended."""

    group: str
    queue: MessageQueue
    messages: Sequence[ReceivedMessage]
    success: bool | None = None
    status: str = ""
    """What became of it, by the name of its result: SUCCESS, RECONSUME_LATER, SUSPEND, ..."""
    return_type: str = ""
    """How the listener came back, in Java's words: SUCCESS, FAILED, EXCEPTION, RETURNNULL or TIME_OUT."""
    properties: dict[str, str] = field(default_factory=dict)
    """For hooks to take notes between before and after."""
    namespace: str | None = None
    error: BaseException | None = None
    """What the listener raised, if it did."""
    notes: dict[object, Any] = field(default_factory=dict)
    """The same as `properties` for notes that are no texts; a hook keeps them under itself."""


class ConsumeHook:
    """Override what you need. An exception is logged, and the messages are consumed all the same."""

    def before(self, context: ConsumeHookContext) -> None:
        """The listener is about to be called."""

    def after(self, context: ConsumeHookContext) -> None:
        """The listener has answered, or raised."""


@dataclass(slots=True)
class FilterContext:
    """What a pull brought. A filter hook removes from `messages` what shall not be consumed."""

    group: str
    queue: MessageQueue
    messages: list[ReceivedMessage]
    unit_mode: bool = False


class FilterHook:
    """Override `filter`. An exception is logged; what is in `messages` then is consumed."""

    def filter(self, context: FilterContext) -> None:
        """Remove messages from `context.messages`."""


class QueueListener:
    """Override `on_change`, or give a function with its parameters."""

    def on_change(self, topic: str, all_queues: frozenset[MessageQueue], mine: frozenset[MessageQueue]) -> None:
        """The queues of a topic, or those of them that this consumer has, have changed."""


QueueChange = Callable[[str, frozenset[MessageQueue], frozenset[MessageQueue]], object]
"""A function that is told what a `QueueListener` is told."""


def run_before(hooks: Iterable[ConsumeHook], context: ConsumeHookContext) -> None:
    """All hooks before a call of the listener, whatever they do."""
    for hook in hooks:
        try:
            hook.before(context)
        except (Exception, SystemExit):
            log.exception("the consume hook %r raised before messages of %s", hook, context.queue)


def run_after(hooks: Iterable[ConsumeHook], context: ConsumeHookContext) -> None:
    """All hooks after a call of the listener, whatever they do."""
    for hook in hooks:
        try:
            hook.after(context)
        except (Exception, SystemExit):
            log.exception("the consume hook %r raised after messages of %s", hook, context.queue)


def tell_queues(
    listener: QueueListener | QueueChange | None,
    topic: str,
    all_queues: frozenset[MessageQueue],
    mine: frozenset[MessageQueue],
) -> None:
    """Tell a user's queue listener of either kind, whatever it does."""
    if listener is None:
        return
    tell = listener.on_change if isinstance(listener, QueueListener) else listener
    try:
        tell(topic, all_queues, mine)
    except Exception:
        log.exception("the queue listener %r raised when it was told of topic %r", listener, topic)
