"""The driver's pulls: they only find out that there is something to consume.

The rule of this file: an idle consumer costs one request per queue that waits at its broker, and no Spark job. A pull
asks for one message; when it comes, the queue is handed to whoever plans tasks, and is not pulled again until its task
has ended. What the push consumer does about filters, locks and illegal offsets is done here as there.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from rocketstream.consumer.pull_request import PullRequest
from rocketstream.consumer.puller import Puller
from rocketstream.remoting.replies import PullResult
from rocketstream.wire.bodies.subscription import SubscriptionData
from rocketstream.wire.codes import PullStatus

if TYPE_CHECKING:
    from rocketstream.spark.listening.core import SparkCore


class QueueWatcher(Puller):
    """Watches the queues of one consumer."""

    def __init__(self, core: SparkCore) -> None:
        super().__init__(core)
        self._spark_core = core
        self._settings = replace(self._settings, pull_batch_size=1)

    def _handle(self, request: PullRequest, sub: SubscriptionData, result: PullResult) -> None:
        if result.status is PullStatus.FOUND:
            self._core.stats.add_found(request.queue.topic, self._elapsed(request), len(result.body))
            self._spark_core.tasks.offer(request)
        else:
            super()._handle(request, sub, result)

    def moved(self, request: PullRequest, offset: int) -> None:
        """A task was told that a queue's offset is another now (RES-10)."""
        self._offset_illegal(request, PullResult(PullStatus.OFFSET_ILLEGAL, offset, 0, request.broker_max, 0, b""))
