"""What a consumer says of itself: all of it when it is asked, and its troubles unasked.

The rule of this file: it looks and tells, in the names that users know; nothing is changed by being asked.
"""

from __future__ import annotations

import logging
from collections import Counter
from typing import TYPE_CHECKING

from rocketstream.cluster.names import retry_topic
from rocketstream.consumer.checks import group_subscriptions
from rocketstream.consumer.pop_request import PopRequest
from rocketstream.consumer.status import ConsumerStatus, QueueStatus, pop_status, queue_status
from rocketstream.consumer.watchdog import Watchdog, differences
from rocketstream.errors import RocketStreamError
from rocketstream.message import MessageQueue

if TYPE_CHECKING:
    from rocketstream.consumer.core import ConsumerCore

log = logging.getLogger("rocketstream.consumer")

WATCH_INTERVAL = 10.0


class Overview:
    """Looks at one consumer; on the I/O thread."""

    def __init__(self, core: ConsumerCore) -> None:
        self._core = core
        self._watchdog = Watchdog(core.consumer.group)

    def queues(self) -> tuple[QueueStatus, ...]:
        """Where each queue is."""
        core, shown_queue = self._core, self._core.names.shown_queue
        now = core.clock.monotonic()
        return tuple(
            pop_status(request, now, shown=shown_queue(queue))
            if isinstance(request, PopRequest)
            else queue_status(
                request,
                core.offsets.read_memory(queue),
                now,
                needs_lock=core.needs_locks,
                shown=shown_queue(queue),
            )
            for queue, request in sorted(core.rebalancer.requests.items())
        )

    async def status(self) -> ConsumerStatus:
        """Everything there is to say of the consumer."""
        core = self._core
        running, shown_topic = core.is_running, core.names.shown_topic
        return ConsumerStatus(
            group=core.consumer.group,
            client_id=core.client_id,
            state=core.state.value,
            paused=core.paused,
            queues=self.queues() if running else (),
            threads=core.consumption.pool.size if running else 0,
            waiting_for_threads=core.consumption.pool.backlog if running else 0,
            problems={shown_topic(t): why for t, why in core.rebalancer.problems.items()} if running else {},
        )

    async def assignment(self) -> tuple[MessageQueue, ...]:
        """The queues that are ours now, the retry topic's aside."""
        core = self._core
        if not core.is_running:
            return ()
        retry = retry_topic(core.group)
        return tuple(core.names.shown_queue(queue) for queue in core.rebalancer.assigned if queue.topic != retry)

    def stalled(self) -> dict[str, int]:
        """How many queues stand still, by the topic's name as brokers know it."""
        return Counter(self._core.names.real_topic(queue.topic) for queue in self._watchdog.stalled)

    def watched(self) -> tuple[QueueStatus, ...]:
        """The queues that ought to move."""
        return self.queues()

    async def watch(self) -> None:
        """Log which queues stand still and why, and which members of the group disagree; each `WATCH_INTERVAL`."""
        core, before = self._core, self._watchdog.stalled
        for complaint in self._watchdog.look(self.watched(), core.clock.monotonic()):
            log.warning("%s", complaint)
        for queue in self._watchdog.stalled - before:
            core.stats.of(core.names.real_topic(queue.topic)).stalls += 1
        await self.compare()

    async def compare(self) -> None:
        """Log how the subscriptions of the group's other members, as a broker was told them, differ from ours.

        Who joins asks before it tells its own: a broker keeps one subscription per topic and group, the newest.
        """
        core = self._core
        try:
            known = await group_subscriptions(core.instance, core.group)
        except RocketStreamError as error:
            log.debug("the subscriptions of group %s could not be asked for: %s", core.group, error)
            return
        for difference in differences(core.subscriptions, known, core.group):
            log.error("%s", difference)
