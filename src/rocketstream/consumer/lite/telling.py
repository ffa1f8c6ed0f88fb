"""What a lite pull consumer says of itself, to its program and to operators.

The rule of this file: a queue that nobody polls is the program's own choice. It is shown, and not complained of.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from rocketstream.consumer.answers import OperatorAnswers
from rocketstream.consumer.overview import Overview
from rocketstream.consumer.status import QueueStatus
from rocketstream.message import ReceivedMessage
from rocketstream.wire.bodies.running_info import ConsumeMessageDirectlyResult
from rocketstream.wire.codes import ConsumeType

if TYPE_CHECKING:
    from rocketstream.consumer.lite.core import LitePullCore


_PAUSED: Final = "the queue is paused"


class LiteOverview(Overview):
    """Looks at one lite pull consumer."""

    def __init__(self, core: LitePullCore) -> None:
        super().__init__(core)
        self._lite_core = core

    def queues(self) -> tuple[QueueStatus, ...]:
        """Where each queue is; what waits, waits for a poll."""
        core = self._lite_core
        core.polls.settle()
        paused = {core.names.shown_queue(queue) for queue in core.polls.stock.paused}
        return tuple(_in_own_words(status, status.queue in paused) for status in super().queues())

    def watched(self) -> tuple[QueueStatus, ...]:
        """The queues whose pulls ought to bring something."""
        return tuple(status for status in self.queues() if status.cached_first is None and status.waits_for != _PAUSED)

    async def compare(self) -> None:
        """As every consumer; but who chose its queues by hand does not disagree with those who subscribe."""
        if not self._lite_core.chosen:
            await super().compare()


def _in_own_words(status: QueueStatus, paused: bool) -> QueueStatus:
    if paused:
        return replace(status, waits_for=_PAUSED)
    if status.cached_first is not None and not status.dropped:
        return replace(status, waits_for=f"message {status.cached_first} waits to be polled")
    return status


class LiteAnswers(OperatorAnswers):
    """The answers of one lite pull consumer."""

    consume_type = ConsumeType.CONSUME_ACTIVELY

    async def consume_directly(self, message: ReceivedMessage, broker_name: str) -> ConsumeMessageDirectlyResult | None:
        """There is no listener that could be given a message."""
        return None
