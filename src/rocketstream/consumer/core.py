"""The push consumer on the I/O thread: its life, and the parts that do the work.

The rule of this file: it puts the parts together and decides nothing about messages. Its life is START; pulling is
`puller`, sharing out queues `rebalancer`, running listeners `concurrent` and `orderly`, offsets `broker_offsets` and
`local_offsets`, subscriptions `subscribing`, what it tells people `overview`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

from rocketstream.cluster.client import ClientCore, ClientState
from rocketstream.cluster.names import retry_topic, with_namespace
from rocketstream.cluster.settings import ClientSettings
from rocketstream.cluster.timers import PeriodicTask
from rocketstream.consumer.answers import OperatorAnswers
from rocketstream.consumer.assignment import Assignment
from rocketstream.consumer.broker_offsets import BrokerOffsets, QueueOffsets
from rocketstream.consumer.concurrent import ConcurrentConsumption
from rocketstream.consumer.consume_service import ConsumeService
from rocketstream.consumer.first_meeting import meet_the_brokers
from rocketstream.consumer.flow_control import FlowLimits
from rocketstream.consumer.listener import Listener
from rocketstream.consumer.local_offsets import LocalFileOffsets
from rocketstream.consumer.metering import queue_samples, stats_samples
from rocketstream.consumer.offset_store import OffsetStore
from rocketstream.consumer.orderly import OrderlyConsumption
from rocketstream.consumer.overview import WATCH_INTERVAL, Overview
from rocketstream.consumer.pop_consumption import PopConcurrentConsumption, PopOrderlyConsumption
from rocketstream.consumer.pop_request import PopRequest, Request
from rocketstream.consumer.popper import Popper
from rocketstream.consumer.process_queue import ProcessQueue
from rocketstream.consumer.pull_request import PullRequest
from rocketstream.consumer.pull_service import PullService
from rocketstream.consumer.puller import Puller
from rocketstream.consumer.queue_locks import QueueLocks
from rocketstream.consumer.rebalancer import Rebalancer
from rocketstream.consumer.request_modes import RequestModes
from rocketstream.consumer.resetting import OffsetResets
from rocketstream.consumer.send_back import SendBack
from rocketstream.consumer.services import ConsumerServices, consumer_services
from rocketstream.consumer.settings import ConsumerSettings, check_ready
from rocketstream.consumer.spans import SpanHook
from rocketstream.consumer.stats import SAMPLE_INTERVAL, ConsumeStats
from rocketstream.consumer.subscribing import Subscribing
from rocketstream.consumer.topic_names import TopicNames
from rocketstream.consumer.trace import CallTrace, ConsumeTrace
from rocketstream.message import MessageQueue, ReceivedMessage
from rocketstream.metrics import catalogue
from rocketstream.metrics.values import Sample
from rocketstream.otel import check_otel
from rocketstream.wire.bodies.heartbeat import ConsumerData
from rocketstream.wire.bodies.subscription import SubscriptionData
from rocketstream.wire.codes import ConsumeType, MessageModel

log = logging.getLogger("rocketstream.consumer")

LOCK_FIRST, LOCK_INTERVAL = 1.0, 20.0  # ORD-01
# How long an end makes sure, if it has the time, that no pull under way will lower the offsets that it stores last. A
# broker throws a pull away that has waited for 5 s to be handled (its `waitTimeMillsInPullQueue`).
LAST_COMMIT = 5.0
_MIB = 1024 * 1024


class ConsumerCore(ClientCore):
    """A push consumer (`ConsumerMember`); all of it belongs to the I/O thread."""

    consumption: ConsumeService
    offsets: OffsetStore
    queue_offsets: QueueOffsets
    puller: Puller
    rebalancer: Rebalancer
    locks: QueueLocks
    modes: RequestModes
    _services: ConsumerServices
    _send_back: SendBack

    consume_type = ConsumeType.CONSUME_PASSIVELY

    def __init__(
        self, settings: ClientSettings, consumer: ConsumerSettings, *, instance_name: str | None = None, **others: Any
    ) -> None:
        # START-04: a broadcasting consumer finds its local offsets by its client id, so that one must not change.
        unique = consumer.model is MessageModel.CLUSTERING
        super().__init__(
            f"consumer of group {consumer.group!r}", settings, instance_name=instance_name, unique=unique, **others
        )
        self.consumer = self._given = consumer
        self.group = with_namespace(consumer.namespace, consumer.group)
        """The group as brokers know it."""
        self.subscriptions: dict[str, SubscriptionData] = {}
        """By the topic's name as brokers know it."""
        self.subscribing = Subscribing(self)
        self.listener: Listener | None = None
        self.listener_loop: asyncio.AbstractEventLoop | None = None
        self.paused = False
        """Whether pulling is suspended, by the user or by a reset that is under way."""
        self._suspended = False
        self.names = TopicNames(self.group, consumer.namespace, self.subscriptions)
        self.resets = OffsetResets(self)
        self.overview = Overview(self)
        self.answers = OperatorAnswers(self)
        """What operators are told who ask through the brokers."""
        self.stats = ConsumeStats(consumer.group)
        self.hook_threads = ThreadPoolExecutor(2, thread_name_prefix="rocketstream-consume-hook")
        self.leaving: set[PullRequest] = set()
        """Requests whose queue is dropped and taken anew after a pause (RES-10, OFF-05)."""
        self._limits: dict[str, FlowLimits] = {}
        self._base_limits = FlowLimits(
            consumer.pull_threshold_for_queue,
            consumer.pull_threshold_size_for_queue * _MIB,
            consumer.consume_concurrently_max_span,
        )
        self._to_begin: list[Request] = []
        self._popper: Popper | None = None
        self._trace: ConsumeTrace | None = None
        self._periodic: list[PeriodicTask] = []
        self._tasks: set[asyncio.Task[Any]] = set()
        self._last_tasks: set[asyncio.Task[Any]] = set()

    # --- what the parts ask -----------------------------------------------------------------------------------------

    @property
    def needs_locks(self) -> bool:
        """Whether queues are locked at their brokers: orderly, and shared with others (ORD-13)."""
        return self.consumer.orderly and self.consumer.model is MessageModel.CLUSTERING

    @property
    def retries(self) -> bool:
        """Whether what failed comes again through the group's retry topic (START-03)."""
        return self.consumer.model is MessageModel.CLUSTERING

    @property
    def is_alive(self) -> bool:
        """Whether it runs, or is about to."""
        return self.state is ClientState.RUNNING or self.state is ClientState.START_FAILED

    @property
    def call_trace(self) -> CallTrace | None:
        """Who notes calls of the listener for the trace, if there is one."""
        return None if self._trace is None else self._trace.calls

    @property
    def pull_service(self) -> PullService:
        """The instance's pull service."""
        return self._services.pull

    def limits_of(self, topic: str) -> FlowLimits:
        """How much of a topic's queue may be cached."""
        return self._limits.get(topic, self._base_limits)

    def process_queues(self) -> list[ProcessQueue]:
        """The process queues that are in use."""
        requests = self.rebalancer.requests.values()
        return [request.process_queue for request in requests if isinstance(request, PullRequest)]

    def pull_request(self, queue: MessageQueue) -> PullRequest | None:
        """Who pulls a queue that is ours, or is just being given away."""
        request = self.rebalancer.requests.get(queue)
        return request if isinstance(request, PullRequest) else None

    @property
    def popper(self) -> Popper:
        """Who pops; made with the first queue that is popped, with threads of its own."""
        if self._popper is None:
            assert self.listener is not None
            kind = PopOrderlyConsumption if self.consumer.orderly else PopConcurrentConsumption  # START-07
            self._popper = Popper(self, kind(self, self.listener, self.listener_loop))
        return self._popper

    async def send_back(self, message: ReceivedMessage, queue: MessageQueue, delay_level: int) -> None:
        """Give a failed message back to the brokers, or raise (CON-09, CON-10)."""
        meters = self.stats.of(queue.topic)
        try:
            await self._send_back.send_back(message, queue, delay_level)
        except BaseException:
            meters.not_sent_back += 1
            raise
        meters.sent_back += 1
        # As the broker decides it (CON-13).
        if delay_level < 0 or message.reconsume_times >= self.consumer.max_reconsume_times_concurrent:
            meters.dead_letters += 1

    def collect_metrics(self) -> Iterable[Sample]:
        """What was counted so far, and what there is now."""
        yield from stats_samples(self.stats, self.group)
        if self.is_running:
            yield from queue_samples(self)
        if self._trace is not None:
            yield Sample(catalogue.TRACE_DROPPED, ("consumer", self.group), self._trace.dropped)

    def heartbeat_soon(self) -> None:
        """A broker does not know us (any more)."""
        self.spawn(self.instance.heartbeat())

    def rebalance_soon(self) -> None:
        """Something has changed that rebalance looks at."""
        self._services.rebalance.wake()

    async def queues_changed(self, topic: str, owned: int) -> None:
        """PULL-09, REB-09: limits are divided anew, and the brokers are told a new version of the subscription."""
        settings = self.consumer
        self._limits[topic] = self._base_limits.divide(
            settings.pull_threshold_for_topic, settings.pull_threshold_size_for_topic, owned
        )
        await self.subscribing.announce(topic)

    def begin_pulling(self, request: Request) -> None:
        """A queue was won: its first pull."""
        if self.is_running:
            self.pull_service.now(request)
        else:
            self._to_begin.append(request)

    def pull(self, request: Request) -> None:
        """One step with a request (for the pull service): by its mode a pull or a pop (PULL-22)."""
        if isinstance(request, PopRequest):
            self.popper.pop(request)
        else:
            self.puller.pull(request)

    async def rebalance(self) -> bool:
        """One pass over all topics (for the rebalance service)."""
        return await self.rebalancer.rebalance() if self.is_alive else True

    async def broker_assignment(self, topic: str) -> Assignment | None:
        """What the broker assigns, if it is to and can (REB-11); None: reckon for ourselves."""
        return await self.modes.assignment(topic)

    # --- ConsumerMember ---------------------------------------------------------------------------------------------

    def topics(self) -> Iterable[str]:
        """The topics whose routes are kept fresh."""
        return tuple(self.subscriptions)

    def heartbeat(self) -> ConsumerData:
        """What the brokers are told (START-15)."""
        return ConsumerData(
            group_name=self.group,
            consume_type=self.consume_type,
            message_model=self.consumer.model,
            consume_from_where=self.consumer.start_from.where,
            subscription_data_set=self.subscribing.heartbeat_data(),
            unit_mode=self.consumer.unit_mode,
        )

    async def persist_offsets(self) -> None:
        """Write the offsets of the queues that are ours."""
        if self.is_running:
            await self.offsets.persist_all(self.rebalancer.pulled)

    async def adjust_threads(self) -> None:
        """CON-14."""
        if self.is_running:
            await self.consumption.adjust(sum(pq.count for pq in self.process_queues()))

    # --- life -------------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Come to life: registered, routed and assigned; or raise and leave nothing behind."""
        if self.state is ClientState.CREATE_JUST:
            self.check_ready()  # START-02: before anything is opened
        await super().start()
        requests, self._to_begin = self._to_begin, []
        for request in requests:
            self.pull_service.now(request)

    def check_ready(self) -> None:
        """Raise if there would be nothing to consume, or nobody to give it to (START-02)."""
        check_ready(self.subscriptions, self.listener and self.listener.call)

    async def on_start(self) -> None:
        """START-03 to START-09."""
        self.hook_threads = ThreadPoolExecutor(2, thread_name_prefix="rocketstream-consume-hook")
        instance = self.instance
        instance.register_consumer(self)
        try:
            if self.retries:
                self.subscribing.put(retry_topic(self.group), "*")  # START-03
            self._services = await consumer_services(instance, self.consumer.rebalance_interval)
            await self._make_parts()
            self._services.join(self)  # not before: a pass of the rebalance service could come at once
            await instance.start()
            await self._meet_the_brokers()
        except BaseException:
            await self._undo_start()
            raise

    async def _make_parts(self) -> None:
        self.consumer = self._given  # as it was before a start that failed
        if self._given.trace:
            self._trace = ConsumeTrace(self._given, self.instance, self._services.inner_producer)
        telemetry = check_otel(self._given.otel)
        if telemetry is not None:  # the first: what other hooks do belongs to its span
            hook = SpanHook(self._given, telemetry, self.client_id)
            self.consumer = replace(self.consumer, consume_hooks=(hook, *self.consumer.consume_hooks))
        self.queue_offsets = QueueOffsets(self.instance)
        self.offsets = self.consumer.offset_store or self.own_offset_store()
        await self.offsets.load()
        self.locks = QueueLocks(self)
        self.modes = self.make_modes()
        self._popper = None
        self.puller = self.make_puller()
        self.rebalancer = self.make_rebalancer()
        send_retry = self._services.inner_producer.send_retry
        self._send_back = SendBack(self.instance, self.consumer, self.group, self.names, send_retry)
        self.consumption = self.make_consumption(self.listener)
        self.answers.begin()

    def make_puller(self) -> Puller:
        """Who pulls."""
        return Puller(self)

    def make_modes(self) -> RequestModes:
        """Who knows whether topics are pulled or popped."""
        return RequestModes(self)

    def make_rebalancer(self) -> Rebalancer:
        """Who knows which queues are ours."""
        return Rebalancer(self)

    def make_consumption(self, listener: Listener | None) -> ConsumeService:
        """Who has the listener called (START-07)."""
        assert listener is not None
        kind = OrderlyConsumption if self.consumer.orderly else ConcurrentConsumption
        return kind(self, listener, self.listener_loop)

    def own_offset_store(self) -> OffsetStore:
        """Where offsets are kept unless the user has a store of their own."""
        if self.consumer.model is MessageModel.CLUSTERING:  # START-06
            return BrokerOffsets(self.instance, self.group, self.pull_request)
        # Not Java's ~/.rocketmq_offsets: neither could read what the other wrote there.
        directory = self.consumer.local_offset_dir or Path.home() / ".rocketstream_offsets"
        return LocalFileOffsets(directory, self.client_id, self.group)

    async def _meet_the_brokers(self) -> None:
        await meet_the_brokers(self)
        if self._trace is not None:
            await self._trace.start(self.what)
        self._start_timers()

    def _start_timers(self) -> None:
        every = self.instance.timers.every
        period = self.consumer.consume_timeout
        self._periodic = [
            every("consume statistics", SAMPLE_INTERVAL, SAMPLE_INTERVAL, self._sample_stats),
            every("watch queues", WATCH_INTERVAL, WATCH_INTERVAL, self.overview.watch),
            every("send stale messages back", period, period, self.consumption.send_back_stale),
        ]
        if self.needs_locks:
            self._periodic.append(every("lock queues", LOCK_FIRST, LOCK_INTERVAL, self._lock_queues))

    async def _undo_start(self) -> None:
        for task in self._periodic:
            await self.instance.timers.end(task)
        self._periodic = []
        self._to_begin = []
        if hasattr(self, "rebalancer"):
            await self.rebalancer.lose_all()
            await self.consumption.stop(0.0)
            await self._stop_popping(0.0)
        self.subscriptions.pop(retry_topic(self.group), None)  # else an empty consumer would look ready
        if hasattr(self, "_services"):
            self._services.leave(self)
        await self.instance.unregister_consumer(self.group)
        self.hook_threads.shutdown(wait=False)

    async def on_shutdown(self, timeout: float | None) -> None:
        """REB-10: stop pulling, let listeners end, store offsets, tell the brokers."""
        limit = self.consumer.shutdown_timeout if timeout is None else timeout
        ends_at = self.clock.monotonic() + limit
        for task in self._periodic:
            await self.instance.timers.end(task)
        ended = await asyncio.gather(self.consumption.stop(limit), self._stop_popping(limit), self.answers.end(limit))
        if not all(ended):
            log.warning("%s: listeners still run after %g s; what they have not finished comes again", self.what, limit)
        await self.puller.stop()
        if self._trace is not None:
            await self._trace.end()
        for request in self.leaving:  # what their pause was for is not lost by an end
            self.offsets.update(request.queue, request.next_offset, increase_only=False)
        last = {*self.rebalancer.pulled, *(request.queue for request in self.leaving)}
        patience = min(max(ends_at - self.clock.monotonic(), 0.0), LAST_COMMIT)
        await asyncio.gather(*(self._persist_last(queue, patience) for queue in sorted(last)))
        await self.rebalancer.lose_all()
        if self._last_tasks:
            await asyncio.wait(self._last_tasks)
        self._services.leave(self)
        await self.instance.unregister_consumer(self.group)
        for work in self._tasks:
            work.cancel()
        self.hook_threads.shutdown(wait=False)

    async def _stop_popping(self, limit: float) -> bool:
        return self._popper is None or await self._popper.stop(limit)

    async def _persist_last(self, queue: MessageQueue, patience: float) -> None:
        try:
            make_sure = await self.offsets.persist_last(queue, patience)
            if make_sure is not None:
                await make_sure()
        except Exception as error:
            log.warning("the offset of %s could not be stored: %s; its last messages come again", queue, error)

    async def set_paused(self, paused: bool) -> None:
        """Suspend or resume pulling (PULL-05); what is cached is consumed all the same."""
        self._suspended = paused
        self.update_paused()

    def update_paused(self) -> None:
        """The user or a reset has changed whether pulling pauses."""
        self.paused = self._suspended or self.resets.under_way > 0
        if not self.paused and self.is_running:
            for request in list(self.rebalancer.requests.values()):
                self.pull_service.hurry(request)

    # --- timers -----------------------------------------------------------------------------------------------------

    async def _sample_stats(self) -> None:
        self.stats.sample(self.clock.monotonic())

    async def _lock_queues(self) -> None:
        await self.locks.lock_again(self.process_queues())

    def spawn(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """Do something beside all else; the end of the consumer cancels it."""
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._task_ended)
        return task

    def spawn_last(self, work: Coroutine[Any, Any, Any]) -> None:
        """Do something beside all else that an end waits for: it has to end by itself, and soon."""
        self._last_tasks.add(self.spawn(work))

    def _task_ended(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        self._last_tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            log.error("%s: a task failed", self.what, exc_info=task.exception())
