"""`rocketstream consume TOPIC --group GROUP`: a member of the group, for as long as messages are wanted.

The rule of this file: what was printed is consumed, and nothing else is. A message that was pulled and is not wanted
any more is not answered for, neither success nor failure; so the offset stays before it, and it is the group's.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence
from typing import TypeAlias

from rocketstream.admin.errors import NotFoundError
from rocketstream.cli._connection import Connection
from rocketstream.cli._console import tell
from rocketstream.clock import SystemClock
from rocketstream.cluster.names import RETRY_PREFIX
from rocketstream.consumer.push_consumer import PushConsumer
from rocketstream.consumer.results import ConsumeContext, ConsumeResult
from rocketstream.errors import ConfigurationError
from rocketstream.message import ReceivedMessage
from rocketstream.wire.codes import ExpressionType, MessageModel
from rocketstream.wire.subscription import parse_tags

Show: TypeAlias = Callable[[ReceivedMessage], bool]
"""Prints a message; whether more are wanted."""


def take_part(
    connection: Connection,
    topic: str,
    tags: str,
    group: str,
    show: Show,
    idle: float | None,
    deadline: float | None,
) -> None:
    """Join, show message by message until that is enough, leave."""
    is_alone = _check_fits(connection, topic, tags, group)
    printing = _Printing(show)
    consumer = PushConsumer(
        group,
        connection.name_servers,
        listener=printing.listen,
        namespace=connection.namespace,
        credentials=connection.credentials,
        tls=connection.tls,
        consume_thread_min=1,
        consume_thread_max=1,
    )
    consumer.subscribe(topic, tags)
    try:  # not `with`: Ctrl-C may come right after the start, when something has been printed already
        consumer.start()
        if not is_alone and not consumer.assignment:
            tell(f"the other members of group {group} have all queues of topic {topic}: nothing will come for now")
        printing.wait(idle, deadline)
    finally:
        consumer.shutdown()
    if printing.problem is not None:
        raise printing.problem


class _Printing:
    """A listener that prints message by message until it is enough."""

    def __init__(self, show: Show) -> None:
        self._show = show
        self._clock = SystemClock()
        self._last = self._clock.monotonic()
        self._enough = threading.Event()
        self.problem: BaseException | None = None

    async def listen(self, messages: Sequence[ReceivedMessage], context: ConsumeContext) -> ConsumeResult:
        """Print a message, unless it came too late."""
        if self._enough.is_set():
            await _no_answer()
        try:
            for message in messages:
                if not self._show(message):
                    self._enough.set()
        except BaseException as problem:  # whoever read the output went away
            self.problem = problem
            self._enough.set()
            await _no_answer()
        self._last = self._clock.monotonic()
        return ConsumeResult.SUCCESS

    def wait(self, idle: float | None, deadline: float | None) -> None:
        """Until it is enough: the limit, the quiet, the deadline."""
        now = self._last = self._clock.monotonic()
        while not self._enough.is_set():
            ends = [end for end in (deadline, None if idle is None else self._last + idle) if end is not None]
            left = min(ends) - now if ends else 3600.0
            if left <= 0:
                self._enough.set()
            self._enough.wait(max(left, 0.0))
            now = self._clock.monotonic()


async def _no_answer() -> None:
    """End this call as a shutdown ends one that takes too long: it has no result, so the message stays the group's."""
    task = asyncio.current_task()
    assert task is not None
    task.cancel()
    await asyncio.sleep(0)


def _check_fits(connection: Connection, topic: str, tags: str, group: str) -> bool:
    """Refuse to join members who want something else: each would keep messages from the others.

    Returns whether there are no other members.
    """
    with connection.admin() as admin:
        try:
            known = admin.consumers(group)
        except NotFoundError:
            return True
    if not known.online:
        return True
    if known.model != MessageModel.CLUSTERING:
        raise ConfigurationError(f"--group {group}: its members are {known.model} and share no messages")
    others = [one for one in known.subscriptions if not one.topic.startswith(RETRY_PREFIX)]
    theirs = {(one.topic, one.expression_type, parse_tags(one.expression)) for one in others}
    if theirs != {(topic, ExpressionType.TAG, parse_tags(tags))}:
        told = ", ".join(f"{one.topic} ({one.expression})" for one in others)
        raise ConfigurationError(
            f"--group {group}: its members subscribe to {told}. A member that wants something else would keep messages"
            " from them: give the same topic and --tags, or another group, or none to look on"
        )
    return False
