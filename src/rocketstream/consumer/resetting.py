"""Offsets that an operator sets while the group runs, and that brokers tell its members (OFF-05).

The rule of this file: who still works on old messages must not store their offsets over the new ones. So the queues are
dropped first and set a pause later, and nothing is pulled meanwhile.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from rocketstream.consumer.pull_request import PullRequest
from rocketstream.message import MessageQueue

if TYPE_CHECKING:
    from rocketstream.consumer.core import ConsumerCore

RESET_PAUSE = 10.0


class OffsetResets:
    """The resets of one consumer. Each broker of a topic asks for its own queues, so several may be under way."""

    def __init__(self, core: ConsumerCore) -> None:
        self._core = core
        self.under_way = 0

    def __repr__(self) -> str:
        return f"<OffsetResets of group {self._core.group}, {self.under_way} under way>"

    def begin(self, topic: str, offsets: Mapping[MessageQueue, int]) -> None:
        """Begin a reset that a broker asks for."""
        if self._core.is_running:
            self._core.spawn(self._reset(topic, offsets))

    async def _reset(self, topic: str, offsets: Mapping[MessageQueue, int]) -> None:
        """Pause, drop, wait until nobody works on old messages any more, set, go on."""
        core = self._core
        self.under_way += 1
        core.update_paused()
        try:
            requests = [
                request
                for queue, request in core.rebalancer.requests.items()
                if queue.topic == topic and queue in offsets and isinstance(request, PullRequest)
            ]
            for request in requests:
                request.process_queue.drop()
                request.process_queue.clear()
                request.next_offset = offsets[request.queue]
                core.leaving.add(request)
            await core.clock.sleep(RESET_PAUSE)
            for request in requests:
                await core.rebalancer.correct_offset(request)
        finally:
            self.under_way -= 1
            core.update_paused()
