"""One task on an executor: it pulls its queues, runs the listener, and says how far it came.

The rule of this file: a task decides nothing about the group. It begins where the plan says, takes no new messages
once its time is over, lets begun ones end, and reports what is finished; the driver does the rest. A task that is
killed has told nobody anything, so that all of its messages come again.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from dataclasses import dataclass, replace

from rocketstream.cluster.client import ClientState
from rocketstream.cluster.client_instances import ClientInstances
from rocketstream.consumer.core import LOCK_INTERVAL, ConsumerCore
from rocketstream.consumer.orderly import LOCK_REFUSED
from rocketstream.consumer.process_queue import ProcessQueue
from rocketstream.consumer.pull_request import PullRequest
from rocketstream.consumer.pull_service import PullService
from rocketstream.consumer.queue_locks import QueueLocks
from rocketstream.consumer.rebalancer import Rebalancer
from rocketstream.consumer.send_back import RetryCopy, SendBack
from rocketstream.consumer.trace import ConsumeTrace
from rocketstream.spark.listening.task_client import TaskClient
from rocketstream.spark.listening.task_log import TaskLog
from rocketstream.spark.listening.task_parts import (
    TaskConcurrent,
    TaskOffsets,
    TaskOrderly,
    TaskPuller,
    TaskQueue,
    pull_request,
)
from rocketstream.spark.listening.values import QueueResult, TaskPlan, TaskResult

log = logging.getLogger("rocketstream.consumer")


@dataclass(slots=True)
class Ending:
    """Why a queue's part is over: nothing more to pull, or something in the way."""

    pause: float = 0.0
    look_first: bool = False
    moved_to: int | None = None
    stopped: bool = False
    """Whether what is cached is left where it is, too."""


class TaskCore(ConsumerCore):
    """The push consumer for the length of a task: no member of the group, without a rebalance, with an end."""

    def __init__(self, client: TaskClient, plan: TaskPlan) -> None:
        work = client.work
        # Pulls carry the subscription: the brokers know the driver, not this client.
        settings = replace(work.consumer, post_subscription_when_pull=True)
        super().__init__(work.client, settings, io=client.io, instances=ClientInstances())
        self.attach(client.instance)
        self._client = client
        self.client_id = plan.client_id
        self.plan = plan
        self.listener = work.listener
        self.subscriptions.update(plan.subscriptions)
        self.names.set_project(plan.project)
        self._pulls = PullService(self.clock, {self.group: self}.get)
        self._endings: dict[PullRequest, Ending] = {}
        self._all_ended = asyncio.Event()

    @property
    def pull_service(self) -> PullService:
        """The task's own."""
        return self._pulls

    def heartbeat_soon(self) -> None:
        """Nothing: a task is no member of the group."""

    # --- what the parts ask -----------------------------------------------------------------------------------------

    def request_of(self, pq: ProcessQueue) -> PullRequest:
        """The request of one of the task's queues."""
        return pull_request(self.rebalancer.requests[pq.queue])

    def has_ended(self, request: PullRequest) -> bool:
        """Whether a queue is not pulled any more."""
        return request in self._endings

    def end(
        self,
        request: PullRequest,
        *,
        pause: float = 0.0,
        look_first: bool = False,
        moved_to: int | None = None,
        stopped: bool = False,
    ) -> None:
        """Pull a queue no more."""
        ending = self._endings.setdefault(request, Ending())
        ending.pause = max(ending.pause, pause)
        ending.look_first |= look_first
        ending.stopped |= stopped
        if moved_to is not None:
            ending.moved_to = moved_to
        self.look()

    def look(self) -> None:
        """Something has ended: was that all?"""
        if all(map(self._is_done, map(pull_request, self.rebalancer.requests.values()))):
            self._all_ended.set()

    def _is_done(self, request: PullRequest) -> bool:
        ending = self._endings.get(request)
        if ending is None:
            return False
        return ending.stopped or (
            not self._task_puller.is_busy(request) and self._task_consumption.is_idle(request.process_queue)
        )

    # --- its life ---------------------------------------------------------------------------------------------------

    async def run_task(self) -> TaskResult:
        """Consume until all is done or the time is over, and say what became of each queue."""
        with TaskLog() as noted:
            try:
                await self._begin()
                timer = self.clock.call_later(self.plan.round_time, self._all_ended.set)
                await self._all_ended.wait()
                timer.cancel()
                await self._finish()
                queues = tuple(map(self._result, map(pull_request, self.rebalancer.requests.values())))
            finally:
                await self._clean_up()
        counts = {topic: dict(counted) for topic, counted in self.stats.snapshot().items()}
        return TaskResult(self.plan.number, socket.gethostname(), queues, counts, tuple(noted.lines), noted.more)

    async def _begin(self) -> None:
        assert self.listener is not None
        self.offsets = TaskOffsets()
        self.locks = QueueLocks(self)
        self.rebalancer = Rebalancer(self)
        self.puller = self._task_puller = TaskPuller(self)
        await self._pulls.start()
        if self.consumer.trace:
            self._trace = ConsumeTrace(self.consumer, self.instance, await self._client.inner_producer())
        self._send_back = SendBack(self.instance, self.consumer, self.group, self.names, self._send_retry)
        kind = TaskOrderly if self.consumer.orderly else TaskConcurrent
        self.consumption = self._task_consumption = kind(self, self.listener)
        now = self.clock.monotonic()
        for part in self.plan.parts:
            pq = TaskQueue(part.queue, part.state, now=now)
            start = part.state.position if self.consumer.orderly else part.state.finished
            request = PullRequest(self.group, part.queue, pq, start)
            request.offset_is_fixed = True  # the driver did, when it got the lock
            self.rebalancer.requests[part.queue] = request
        await self._begin_pulling()

    async def _begin_pulling(self) -> None:
        period = self.consumer.consume_timeout
        every = self.instance.timers.every
        self._periodic = [every("send stale messages back", period, period, self.consumption.send_back_stale)]
        if self.needs_locks:
            # Asked for again by everyone who is about to consume: an executor that has lost its driver finds out here.
            await self._lock_queues()
            self._periodic.append(every("lock queues", LOCK_INTERVAL, LOCK_INTERVAL, self._lock_queues))
        for request in map(pull_request, tuple(self.rebalancer.requests.values())):
            if self.needs_locks and not request.process_queue.locked:
                self.end(request, pause=LOCK_REFUSED, look_first=True, stopped=True)
            else:
                self._pulls.now(request)

    async def _finish(self) -> None:
        """Take nothing more; what was begun ends, or is sent back after the consume time-out (PQ-08)."""
        self.state = ClientState.SHUTDOWN_ALREADY
        await self._pulls.stop()
        ended = await self.consumption.stop(self.consumer.consume_timeout)
        while not ended:
            log.warning(
                "task %d of group %s: a listener still runs %g s after the task's time",
                self.plan.number,
                self.group,
                self.consumer.consume_timeout,
            )
            # An ordered queue is not given to another task while its listener runs: its order would be lost.
            await self.consumption.send_back_stale()
            ended = not self.consumer.orderly or await self.consumption.stop(self.consumer.consume_timeout)
        if self._trace is not None:
            await self._trace.end()

    def _result(self, request: PullRequest) -> QueueResult:
        pq = request.process_queue
        assert isinstance(pq, TaskQueue)
        ending = self._endings.get(request, Ending())
        read_up_to = self._task_puller.read_up_to(request)
        state = pq.orderly_state(read_up_to) if self.consumer.orderly else pq.concurrent_state(read_up_to)
        pq.drop()
        return QueueResult(
            queue=request.queue,
            state=state,
            broker_max=request.broker_max,
            pause=max(ending.pause, self._task_consumption.pause_of(state)),
            look_first=ending.look_first,
            moved_to=ending.moved_to,
        )

    async def _clean_up(self) -> None:
        self.state = ClientState.SHUTDOWN_ALREADY
        for task in self._periodic:
            await self.instance.timers.end(task)
        for request in self.rebalancer.requests.values():
            request.process_queue.drop()
        await self.puller.stop()
        self.hook_threads.shutdown(wait=False)

    async def _send_retry(self, copy: RetryCopy) -> object:
        return await (await self._client.inner_producer()).send_retry(copy)
