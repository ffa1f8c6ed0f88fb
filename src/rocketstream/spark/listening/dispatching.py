"""Spark as a consume service: queues that have something go into tasks, and what tasks report is accounted for.

The rule of this file: a queue is in one place at a time: watched, ready, in a task, or pausing. Everything here runs on
the driver's I/O thread, but for the threads that wait for Spark. Only what a task says is finished is ever stored.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from rocketstream.consumer.flow_control import Wait, WaitReason
from rocketstream.consumer.pop_request import Request
from rocketstream.consumer.process_queue import ProcessQueue
from rocketstream.consumer.pull_request import PullRequest
from rocketstream.consumer.workers import ThreadWorkers
from rocketstream.errors import RocketStreamError
from rocketstream.message import MessageQueue, ReceivedMessage
from rocketstream.spark.listening.checkpoint import CheckpointedOffsets
from rocketstream.spark.listening.reporting import shortened, tell
from rocketstream.spark.listening.runner import Runner
from rocketstream.spark.listening.sharing import share
from rocketstream.spark.listening.values import QueuePart, QueueResult, QueueState, TaskPlan, TaskResult

if TYPE_CHECKING:
    from rocketstream.spark.listening.core import SparkCore

log = logging.getLogger("rocketstream.spark.listening")

# Queues that get messages at the same time go into tasks together: so long the first waits for the others.
_GATHER: Final = 0.010
_FIRST_PAUSE_AFTER_FAILURE: Final = 1.0
_LONGEST_PAUSE_AFTER_FAILURE: Final = 30.0
# How long cancelled tasks have to tell that they are gone.
_CANCEL_TIMEOUT: Final = 5.0
# So long a task may take beyond its time before somebody is told.
_LATE: Final = 60.0


@dataclass(frozen=True, slots=True)
class TaskCounts:
    """What became of the tasks of a consumer so far."""

    running: int
    ended: int
    failed: int
    """Those whose messages came again because Spark could not end them."""
    ready_queues: int
    """Queues that have messages and wait for a free task."""


@dataclass(slots=True)
class _Running:
    plan: TaskPlan
    requests: dict[MessageQueue, PullRequest]
    began: float
    told: bool = False


class SparkConsumption:
    """The consume service of a Spark consumer."""

    def __init__(self, core: SparkCore, runner: Runner, tasks: int) -> None:
        self._core = core
        self._runner = runner
        self._now = core.clock.monotonic
        self._io_loop = asyncio.get_running_loop()
        # Threads that wait for Spark: as many as there may be tasks.
        self.pool = ThreadWorkers[TaskPlan](self._run, tasks, f"rocketstream-spark-{core.consumer.group}")
        self._ready: dict[PullRequest, None] = {}
        self._running: dict[int, _Running] = {}
        self._states: dict[PullRequest, QueueState] = {}
        self._gathering = False
        self._stopping = False
        self._number = self._ended_tasks = self._failed_tasks = self._failed_in_a_row = 0
        self._changed = asyncio.Condition()
        self._tasks: set[asyncio.Task[None]] = set()

    def __repr__(self) -> str:
        return f"<SparkConsumption {len(self._running)} tasks run, {len(self._ready)} queues are ready>"

    @property
    def counts(self) -> TaskCounts:
        """What became of tasks."""
        return TaskCounts(len(self._running), self._ended_tasks, self._failed_tasks, len(self._ready))

    def unfinished(self, request: Request) -> tuple[int, ...]:
        """The offsets of a queue that were read and wait for a commit, or for another try."""
        state = self._states.get(request) if isinstance(request, PullRequest) else None
        return state.unfinished if state is not None else ()

    # --- work goes out ----------------------------------------------------------------------------------------------

    def offer(self, request: PullRequest) -> None:
        """A queue has something to consume."""
        if self._stopping or request.process_queue.dropped:
            return
        self._ready[request] = None
        request.waiting = Wait(0.0, WaitReason.TASK, "it waits for a Spark task")
        self._dispatch_soon()

    def _dispatch_soon(self) -> None:
        if self._ready and not self._gathering:
            self._gathering = True
            self._core.clock.call_later(_GATHER, self._dispatch)

    def _dispatch(self) -> None:
        self._gathering = False
        core = self._core
        if self._stopping or not core.is_running:
            self._ready.clear()
            return
        for request in tuple(self._ready):
            pq = request.process_queue
            locked = not core.needs_locks or (pq.locked and not pq.lock_expired(self._now()))
            if core.paused or not locked or pq.dropped or request.queue.topic not in core.subscriptions:
                # The watcher knows what to do with it.
                del self._ready[request]
                core.pull_service.now(request)
        backlogs = {request: request.broker_max - request.next_offset for request in self._ready}
        for requests in share(backlogs, self.pool.size - len(self._running)):
            self._begin(requests)

    def _begin(self, requests: Sequence[PullRequest]) -> None:
        core = self._core
        self._number += 1
        topics = {request.queue.topic for request in requests}
        plan = TaskPlan(
            number=self._number,
            parts=tuple(QueuePart(request.queue, self._state(request)) for request in requests),
            subscriptions={topic: core.subscriptions[topic] for topic in sorted(topics)},
            client_id=core.client_id,
            project=core.project,
            round_time=core.rounds.round_time,
        )
        now = self._now()
        for request in requests:
            del self._ready[request]
            request.process_queue.last_pull_at = now
            request.waiting = Wait(0.0, WaitReason.TASK, f"Spark task {plan.number} has it")
        self._running[plan.number] = _Running(plan, {request.queue: request for request in requests}, now)
        self.pool.submit([plan])

    def _state(self, request: PullRequest) -> QueueState:
        known = self._states.get(request)
        # Orderly the position is the watcher's, which passes over what the filter leaves out; so it is where all is
        # finished. Where something is not, the task has to find it again.
        if known is not None and known.unfinished:
            position = max(known.position, request.next_offset) if self._core.consumer.orderly else known.position
            return QueueState(known.finished, position, known.unfinished, known.times)
        times = known.times if known is not None else ()
        return QueueState(request.next_offset, request.next_offset, (), times)

    # --- on a thread that waits for Spark -----------------------------------------------------------------------------

    def _run(self, plan: TaskPlan) -> None:
        result, error = None, None
        try:
            result = self._runner.run(self._core.shipped, plan)
        except BaseException as raised:  # a cancelled job, a lost cluster, a listener that cannot be unpickled
            error = raised
        try:
            self._io_loop.call_soon_threadsafe(self._ended, plan.number, result, error)
        except RuntimeError:
            log.debug("task %d ended after the process's I/O thread", plan.number)

    # --- results come back --------------------------------------------------------------------------------------------

    def _ended(self, number: int, result: TaskResult | None, error: BaseException | None) -> None:
        self._spawn(self._account(self._running[number], result, error))

    async def _account(self, running: _Running, result: TaskResult | None, error: BaseException | None) -> None:
        """Store what is finished; only then the queues are free for another task, or another member."""
        moved: dict[PullRequest, QueueResult] = {}
        try:
            if result is not None:
                moved = self._take(running, result)
                # What was finished before a reset must not be stored over it.
                await self._store([request for request, one in moved.items() if one.moved_to is None])
        finally:
            del self._running[running.plan.number]
        if result is None:
            self._task_failed(running, error)
        for request, one in moved.items():
            self._go_on(request, one)
        self._dispatch_soon()
        async with self._changed:
            self._changed.notify_all()

    def _take(self, running: _Running, result: TaskResult) -> dict[PullRequest, QueueResult]:
        """What a task says is what we know from now on; the queues that it still counts for."""
        core = self._core
        self._ended_tasks += 1
        self._failed_in_a_row = 0
        tell(result)
        core.stats.add_all(result.counts)
        results = {running.requests[one.queue]: one for one in result.queues}
        moved = {request: one for request, one in results.items() if self._counts(request)}
        for request, one in moved.items():
            state = self._states[request] = one.state
            core.offsets.update(request.queue, state.finished, increase_only=not core.consumer.orderly)
            request.next_offset = state.position
            request.broker_max = max(request.broker_max, one.broker_max)
            # The stored offset is not moved by a pull that finds nothing as long as something waits (RES-09).
            request.process_queue.count = len(state.unfinished)
            request.process_queue.last_consume_at = request.process_queue.last_pull_at = self._now()
        return moved

    def _counts(self, request: PullRequest) -> bool:
        """Whether a task's report about a queue is still of use (CON-03)."""
        pq = request.process_queue
        if not pq.dropped:
            return True
        # Ordered, it is still locked by us: whoever gets it next begins where its task ended.
        core = self._core
        return (
            core.needs_locks
            and core.rebalancer.requests.get(request.queue) is request
            and (request not in core.leaving)
        )

    async def _store(self, requests: Iterable[PullRequest]) -> None:
        """After each task: the checkpoint, then the brokers. What fails is written by the timer."""
        offsets = self._core.offsets
        queues = [request.queue for request in requests]
        try:
            if isinstance(offsets, CheckpointedOffsets):
                known = {queue: offsets.read_memory(queue) for queue in queues}
                await offsets.write_checkpoint({queue: offset for queue, offset in known.items() if offset >= 0})
            await asyncio.gather(*map(offsets.persist, queues))
        except RocketStreamError as error:
            log.warning("group %s: offsets are not stored yet: %s", self._core.group, error)

    def _go_on(self, request: PullRequest, result: QueueResult) -> None:
        if result.moved_to is not None:
            if not request.process_queue.dropped:
                self._core.watcher.moved(request, result.moved_to)
        elif result.pause > 0:
            text = f"it pauses for {result.pause:g} s"
            request.waiting = Wait(result.pause, WaitReason.TASK, text)
            self._core.clock.call_later(result.pause, self._again, request, result.look_first)
        else:
            self._again(request, result.look_first)

    def _again(self, request: PullRequest, look_first: bool) -> None:
        if self._stopping or request.process_queue.dropped or not self._core.is_running:
            return
        state = self._states.get(request)
        waiting = bool(state and state.unfinished and not self._core.consumer.orderly)
        if waiting or (not look_first and request.broker_max > request.next_offset):
            self.offer(request)
        else:
            self._core.pull_service.now(request)

    def _task_failed(self, running: _Running, error: BaseException | None) -> None:
        self._failed_tasks += 1
        self._failed_in_a_row += 1
        if self._stopping:
            log.info("task %d of group %s was ended by the shutdown", running.plan.number, self._core.group)
            return
        pause = min(_FIRST_PAUSE_AFTER_FAILURE * 2 ** (self._failed_in_a_row - 1), _LONGEST_PAUSE_AFTER_FAILURE)
        log.error(
            "task %d of group %s failed, the messages of its %d queues come again in %g s: %s",
            running.plan.number,
            self._core.group,
            len(running.requests),
            pause,
            shortened(error),
        )
        log.debug("why task %d failed", running.plan.number, exc_info=error)
        for request in running.requests.values():
            request.waiting = Wait(pause, WaitReason.TASK, f"Spark task {running.plan.number} failed")
            self._core.clock.call_later(pause, self._again, request, False)
        self._spawn(self._look_for_life())

    async def _look_for_life(self) -> None:
        why = await asyncio.to_thread(self._runner.why_dead)
        if why is not None:
            self._core.give_up(why)

    # --- what the core asks -------------------------------------------------------------------------------------------

    def submit(self, pq: ProcessQueue, messages: Sequence[ReceivedMessage], dispatch: bool = True) -> None:
        """Nothing is pulled here that could be consumed."""
        raise AssertionError("a driver pulls no messages")

    def settle(self) -> None:
        """Nothing waits to be accounted for: a task's report is taken at once."""

    async def adjust(self, cached: int) -> None:
        """Spark has as many slots as it has."""

    async def send_back_stale(self) -> None:
        """The tasks do that."""

    async def listener_ended(self, pq: ProcessQueue, timeout: float) -> bool:
        """Wait until no task has a dropped queue (ORD-03); False if one still has after `timeout` seconds."""

        def ended() -> bool:
            return all(
                request.process_queue is not pq
                for running in self._running.values()
                for request in running.requests.values()
            )

        if not self._core.needs_locks or ended() or timeout <= 0:
            return not self._core.needs_locks or ended()
        await self._wait_until(ended, timeout)
        return ended()

    async def watch(self) -> None:
        """Now and then: queues in tasks are not forgotten ones (PULL-03), and a task that does not end is told of."""
        now = self._now()
        for request in self._ready:
            request.process_queue.last_pull_at = now
        for running in self._running.values():
            for request in running.requests.values():
                request.process_queue.last_pull_at = now
            if now - running.began > running.plan.round_time + _LATE and not running.told:
                running.told = True
                log.warning(
                    "task %d of group %s runs for %.0f s: it waits for a slot, or its listener for something: %s",
                    running.plan.number,
                    self._core.group,
                    now - running.began,
                    ", ".join(map(str, running.requests)),
                )
        gone = [request for request in self._states if request.process_queue.dropped]
        for request in gone:
            del self._states[request]
        if self._core.rounds.tasks is None:
            await self._follow_slots()

    async def _follow_slots(self) -> None:
        """Executors come and go, and most come a while after their session."""
        try:
            slots = await asyncio.to_thread(self._runner.slots)
        except Exception as error:  # a session that is gone; whoever runs the next task finds out
            log.info("group %s: the number of slots is not known: %s", self._core.group, shortened(error))
            return
        if slots != self.pool.size:
            log.info("group %s: %d tasks at a time become %d", self._core.group, self.pool.size, slots)
            self.pool.resize(slots)
            self._dispatch_soon()

    async def stop(self, timeout: float) -> bool:
        """Let tasks end and their results count; those that run after `timeout` seconds are cancelled."""
        self._stopping = True
        self._ready.clear()
        await self._wait_until(lambda: not self._running, timeout)
        ended = not self._running
        if not ended:
            log.warning("group %s: %d Spark tasks are cancelled", self._core.group, len(self._running))
            try:
                await asyncio.wait_for(asyncio.to_thread(self._runner.cancel), _CANCEL_TIMEOUT)
            except Exception as error:  # a session that is gone has cancelled them itself
                log.info("group %s: its tasks could not be cancelled: %s", self._core.group, shortened(error))
            await self._wait_until(lambda: not self._running, _CANCEL_TIMEOUT)
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=_CANCEL_TIMEOUT)
        await self.pool.stop(1.0)
        return ended

    async def _wait_until(self, condition: Any, timeout: float) -> None:
        async def wait() -> None:
            async with self._changed:
                await self._changed.wait_for(condition)

        try:
            await asyncio.wait_for(wait(), timeout)
        except TimeoutError:
            log.debug("group %s: tasks still run after %g s", self._core.group, timeout)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._task_ended)

    def _task_ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            log.error("group %s: a task's result could not be taken", self._core.group, exc_info=task.exception())
