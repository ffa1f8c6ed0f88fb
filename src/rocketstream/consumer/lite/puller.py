"""Lite pulls: the push consumer's, with a code and a flag of their own, and limits over all queues.

The rule of this file: it adds what differs. A queue may be paused by itself; so much of all queues together may wait
to be polled; an offset that a broker does not have is corrected at once, as Java's lite pull consumer does, without the
push consumer's pause (RES-10): what was pulled before it is still given out.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from rocketstream.consumer.flow_control import WHILE_FULL, WHILE_PAUSED, Wait, WaitReason
from rocketstream.consumer.lite.stock import LiteProcessQueue
from rocketstream.consumer.process_queue import ProcessQueue
from rocketstream.consumer.pull_request import PullRequest
from rocketstream.consumer.puller import Puller
from rocketstream.errors import BrokerError
from rocketstream.message import MessageQueue
from rocketstream.remoting.replies import PullResult
from rocketstream.wire.bodies.subscription import SubscriptionData
from rocketstream.wire.codes import ResponseCode

if TYPE_CHECKING:
    from rocketstream.consumer.lite.core import LitePullCore

log = logging.getLogger("rocketstream.consumer")

_PAUSED: Final = Wait(WHILE_PAUSED, WaitReason.PAUSED, "the queue is paused")


class LitePuller(Puller):
    """Pulls for one lite pull consumer."""

    lite = True
    again_after_error = 1.0

    def __init__(self, core: LitePullCore) -> None:
        super().__init__(core)
        self._lite_core = core
        self._limit = core.lite.pull_threshold_for_all
        self._for_all: set[PullRequest] = set()

    def pull(self, request: PullRequest) -> None:
        """Take one step with a request, unless its queue is paused or too much waits to be polled."""
        wait = self._must_wait(request)
        if wait is None:
            super().pull(request)
            return
        request.process_queue.last_pull_at = self._now()
        request.pulling_since = None
        self._wait(request, wait)

    def _must_wait(self, request: PullRequest) -> Wait | None:
        core, stock = self._lite_core, self._lite_core.polls.stock
        if request.process_queue.dropped or not core.is_running:
            return None  # that comes first
        if request.queue in stock.paused:
            return _PAUSED
        if stock.count > self._limit:
            stock.purge()
            if stock.count > self._limit:
                self._for_all.add(request)
                text = f"{request.queue} is not pulled for now, {stock.count} messages of all queues wait to be polled"
                return Wait(WHILE_FULL, WaitReason.ALL, f"{text}, more than {self._limit}")
        return None

    def _far_from_limits(self, request: PullRequest, asked: int) -> bool:
        stock = self._lite_core.polls.stock
        return (
            stock.count + self._settings.pull_batch_size <= self._limit
            and request.queue not in stock.paused
            and super()._far_from_limits(request, asked)
        )

    def room_made(self, pq: ProcessQueue) -> None:
        """Messages were polled: a queue that was full need not wait any longer, nor all, if all were."""
        super().room_made(pq)
        if self._for_all and self._lite_core.polls.stock.count <= self._limit // 2:
            waiting, self._for_all = self._for_all, set()
            for request in waiting:
                self._core.pull_service.hurry(request)

    def forget(self, queue: MessageQueue) -> None:
        """A queue was lost."""
        super().forget(queue)
        self._for_all = {request for request in self._for_all if request.queue != queue}

    def resumed(self, request: PullRequest) -> None:
        """A queue is not paused any more."""
        if request.waiting is _PAUSED:
            self._core.pull_service.hurry(request)

    def _handle(self, request: PullRequest, sub: SubscriptionData, result: PullResult) -> None:
        self._lite_core.polls.settle()  # what was polled is not cached any more
        super()._handle(request, sub, result)

    def _all_done(self, request: PullRequest) -> None:
        """Nothing of the queue waits to be polled, and up to its next offset there is nothing for us."""
        pq = request.process_queue
        assert isinstance(pq, LiteProcessQueue)
        self._lite_core.polls.passed_over(pq, request.next_offset)

    def _failed(self, request: PullRequest, error: Exception) -> None:
        if isinstance(error, BrokerError) and error.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
            self._core.heartbeat_soon()  # an old broker, whose version is told with the next heartbeat (PULL-20)
        super()._failed(request, error)

    def _offset_illegal(self, request: PullRequest, result: PullResult) -> None:
        log.warning(
            "%s: offset %d is not one of the broker's (%d to %d): it is pulled from %d on",
            request.queue,
            request.next_offset,
            result.min_offset,
            result.max_offset,
            result.next_offset,
        )
        same = result.next_offset == request.next_offset
        request.next_offset = result.next_offset
        if not request.process_queue.count:
            self._all_done(request)
        if same:  # a broker that contradicts itself is not asked without a pause
            text = f"the broker says that offset {result.next_offset} is illegal, and to go on there"
            self._wait(request, Wait(self.again_after_error, WaitReason.PULL_FAILED, text))
        else:
            self._core.pull_service.now(request)
