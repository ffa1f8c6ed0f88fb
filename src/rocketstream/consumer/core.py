"""The push consumer on the I/O thread: its life, its subscriptions, and the parts that do the work.

The rule of this file: it puts the parts together and decides nothing about messages. Its life is START; pulling is
`puller`, sharing out queues `rebalancer`, running listeners `concurrent` and `orderly`, offsets `broker_offsets` and
`local_offsets`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from rocketstream.cluster.client import ClientCore, ClientState
from rocketstream.cluster.names import retry_topic, with_namespace, without_namespace
from rocketstream.cluster.projects import project_of, with_project, without_project
from rocketstream.cluster.settings import ClientSettings
from rocketstream.cluster.timers import PeriodicTask
from rocketstream.consumer.assignment import Assignment
from rocketstream.consumer.broker_offsets import BrokerOffsets, QueueOffsets
from rocketstream.consumer.checks import check_filters, group_subscriptions
from rocketstream.consumer.concurrent import ConcurrentConsumption
from rocketstream.consumer.expressions import Sql, Tag, subscription_to
from rocketstream.consumer.flow_control import FlowLimits
from rocketstream.consumer.listener import Listener
from rocketstream.consumer.local_offsets import LocalFileOffsets
from rocketstream.consumer.offset_store import OffsetStore
from rocketstream.consumer.orderly import OrderlyConsumption
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
from rocketstream.consumer.send_back import SendBack
from rocketstream.consumer.services import ConsumerServices, consumer_services
from rocketstream.consumer.settings import ConsumerSettings, check_ready
from rocketstream.consumer.stats import SAMPLE_INTERVAL, ConsumeStats
from rocketstream.consumer.status import ConsumerStatus, QueueStatus, pop_status, queue_status
from rocketstream.consumer.trace import TraceHook
from rocketstream.consumer.watchdog import Watchdog, differences
from rocketstream.errors import ClientStateError, RocketStreamError
from rocketstream.message import Message, MessageQueue, ReceivedMessage
from rocketstream.producer.receipt import SendReceipt
from rocketstream.producer.trace import TraceDispatcher
from rocketstream.property_names import PropertyName
from rocketstream.wire.bodies.heartbeat import ConsumerData
from rocketstream.wire.bodies.subscription import SubscriptionData
from rocketstream.wire.codes import ConsumeType, MessageModel
from rocketstream.wire.trace import TRACE_TOPIC

log = logging.getLogger("rocketstream.consumer")

LOCK_FIRST, LOCK_INTERVAL = 1.0, 20.0  # ORD-01
WATCH_INTERVAL = 10.0
RESET_PAUSE = 10.0  # OFF-05
_TRACE_TIMEOUT = 5.0
_MIB = 1024 * 1024


class ConsumerCore(ClientCore):
    """A push consumer (`ConsumerMember`); all of it belongs to the I/O thread."""

    consumption: ConcurrentConsumption | OrderlyConsumption
    offsets: OffsetStore
    queue_offsets: QueueOffsets
    puller: Puller
    rebalancer: Rebalancer
    locks: QueueLocks
    modes: RequestModes
    _services: ConsumerServices
    _send_back: SendBack

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
        self._announced: dict[str, SubscriptionData] = {}
        """New versions of some of them, which the brokers are being told of."""
        self.listener: Listener | None = None
        self.listener_loop: asyncio.AbstractEventLoop | None = None
        self.paused = False
        """Whether pulling is suspended, by the user or by a reset that is under way."""
        self._suspended = False
        self._resets = 0
        self.project: str | None = None
        """The project that this machine belongs to, if the name servers know one (RES-05)."""
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
        self._trace: tuple[TraceHook, TraceDispatcher] | None = None
        self._periodic: list[PeriodicTask] = []
        self._tasks: set[asyncio.Task[Any]] = set()
        self._watchdog = Watchdog(consumer.group)

    # --- what the parts ask -----------------------------------------------------------------------------------------

    @property
    def needs_locks(self) -> bool:
        """Whether queues are locked at their brokers: orderly, and shared with others (ORD-13)."""
        return self.consumer.orderly and self.consumer.model is MessageModel.CLUSTERING

    @property
    def is_alive(self) -> bool:
        """Whether it runs, or is about to."""
        return self.state is ClientState.RUNNING or self.state is ClientState.START_FAILED

    @property
    def renames_topics(self) -> bool:
        """Whether the topics of messages have to be shown under another name."""
        return bool(self.consumer.namespace or self.project)

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

    @property
    def popper(self) -> Popper:
        """Who pops; made with the first queue that is popped, with threads of its own."""
        if self._popper is None:
            assert self.listener is not None
            kind = PopOrderlyConsumption if self.consumer.orderly else PopConcurrentConsumption  # START-07
            self._popper = Popper(self, kind(self, self.listener, self.listener_loop))
        return self._popper

    def shown_topic(self, topic: str) -> str:
        """A topic as its user knows it (START-13, RES-05)."""
        return without_project(self.project, without_namespace(self.consumer.namespace, topic))

    def real_topic(self, shown: str) -> str:
        """The topic, as brokers know it, that a message was received from."""
        topic = with_namespace(self.consumer.namespace, shown)
        projected = with_project(self.project, topic)
        return projected if projected in self.subscriptions else topic

    def shown_queue(self, queue: MessageQueue) -> MessageQueue:
        """A queue as its user knows it."""
        return queue._replace(topic=self.shown_topic(queue.topic)) if self.renames_topics else queue

    def restore_topics(self, messages: Iterable[ReceivedMessage]) -> None:
        """Show retried messages under the topic they were sent to (CON-04), and every topic without its namespace."""
        retry = retry_topic(self.group)
        popped = f"{retry}_"
        for message in messages:
            topic = message.topic
            if topic == retry:
                topic = message.properties.get(PropertyName.RETRY_TOPIC) or topic
            elif topic.startswith(popped):
                topic = topic[len(popped) :]
            message.topic = self.shown_topic(topic)

    async def send_back(self, message: ReceivedMessage, queue: MessageQueue, delay_level: int) -> None:
        """Give a failed message back to the brokers, or raise (CON-09, CON-10)."""
        await self._send_back.send_back(message, queue, delay_level)

    def heartbeat_soon(self) -> None:
        """A broker does not know us (any more)."""
        self._spawn(self.instance.heartbeat())

    def rebalance_soon(self) -> None:
        """Something has changed that rebalance looks at."""
        self._services.rebalance.wake()

    async def queues_changed(self, topic: str, owned: int) -> None:
        """PULL-09, REB-09: limits are divided anew, and the brokers are told a new version of the subscription."""
        settings = self.consumer
        self._limits[topic] = self._base_limits.divide(
            settings.pull_threshold_for_topic, settings.pull_threshold_size_for_topic, owned
        )
        sub = self.subscriptions.get(topic)
        if sub is not None:
            version = max(self.clock.wall_ms(), sub.sub_version + 1)
            self._announced[topic] = replace(sub, sub_version=version)
        await self.instance.heartbeat()
        # Not before: a broker refuses pulls of a version that it has not heard of, and their queues would wait for 3 s.
        announced = self._announced.pop(topic, None)
        if announced is not None and self.subscriptions.get(topic) is sub:
            self.subscriptions[topic] = announced

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
            consume_type=ConsumeType.CONSUME_PASSIVELY,
            message_model=self.consumer.model,
            consume_from_where=self.consumer.start_from.where,
            subscription_data_set=tuple(self._announced.get(t, sub) for t, sub in self.subscriptions.items()),
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
            check_ready(self.subscriptions, self.listener and self.listener.call)  # START-02: before anything is opened
        await super().start()
        requests, self._to_begin = self._to_begin, []
        for request in requests:
            self.pull_service.now(request)

    async def on_start(self) -> None:
        """START-03 to START-09."""
        self.hook_threads = ThreadPoolExecutor(2, thread_name_prefix="rocketstream-consume-hook")
        instance = self.instance
        instance.register_consumer(self)
        try:
            if self.consumer.model is MessageModel.CLUSTERING:
                self._put_subscription(retry_topic(self.group), "*")  # START-03
            self._services = await consumer_services(instance, self.consumer.rebalance_interval)
            await self._make_parts()
            self._services.join(self)  # not before: a pass of the rebalance service could come at once
            await instance.start()
            await self._meet_the_brokers()
        except BaseException:
            await self._undo_start()
            raise

    async def _make_parts(self) -> None:
        assert self.listener is not None
        if self._given.trace:
            self._make_trace()
        self.queue_offsets = QueueOffsets(self.instance)
        self.offsets = self.consumer.offset_store or self._own_offset_store()
        await self.offsets.load()
        self.locks = QueueLocks(self)
        self.modes = RequestModes(self)
        self._popper = None
        self.puller = Puller(self)
        self.rebalancer = Rebalancer(self)
        send_retry = self._services.inner_producer.send_retry
        self._send_back = SendBack(
            self.instance, self.consumer, self.group, self.consumer.namespace, send_retry, real_topic=self.real_topic
        )
        kind = OrderlyConsumption if self.consumer.orderly else ConcurrentConsumption  # START-07
        self.consumption = kind(self, self.listener, self.listener_loop)

    def _make_trace(self) -> None:
        topic = TRACE_TOPIC if self._given.trace is True else str(self._given.trace)
        dispatcher = TraceDispatcher(with_namespace(self._given.namespace, topic), self.clock, self._send_trace)
        hook = TraceHook(self._given.group, self.clock, dispatcher)
        self._trace = hook, dispatcher
        self.consumer = replace(self._given, consume_hooks=(*self._given.consume_hooks, hook))

    async def _start_trace(self) -> None:
        """START-14: that nothing can be traced is no reason not to consume."""
        if self._trace is None:
            return
        topic = self._trace[1].topic
        try:
            await self.instance.routes.refresh(topic)
        except RocketStreamError as error:
            log.warning("%s starts without a trace, topic %r cannot be reached: %s", self.what, topic, error)

    async def _send_trace(self, message: Message) -> SendReceipt:
        return await self._services.inner_producer.send(message, timeout=_TRACE_TIMEOUT)

    async def _end_trace(self) -> None:
        if self._trace is not None:
            hook, dispatcher = self._trace
            hook.take()
            with suppress(TimeoutError):
                await asyncio.wait_for(dispatcher.flush(), _TRACE_TIMEOUT)

    def _own_offset_store(self) -> OffsetStore:
        if self.consumer.model is MessageModel.CLUSTERING:  # START-06
            return BrokerOffsets(self.instance, self.group)
        # Not Java's ~/.rocketmq_offsets: neither could read what the other wrote there.
        directory = self.consumer.local_offset_dir or Path.home() / ".rocketstream_offsets"
        return LocalFileOffsets(directory, self.client_id, self.group)

    async def _meet_the_brokers(self) -> None:
        """START-09: routes, filters, heartbeat, the first share of queues."""
        instance = self.instance
        await instance.name_servers.check(self.settings.api_timeout)
        ip = self.client_id.partition("@")[0].strip("[]")
        self.project = await project_of(instance.name_servers, ip, self.settings.api_timeout)
        for topic in self.subscriptions:
            if topic != retry_topic(self.group):
                await instance.routes.refresh(topic)
        await instance.routes.refresh_all([retry_topic(self.group)])
        await check_filters(instance, self.client_id, self.group, self.consumer.namespace, self.subscriptions.values())
        if not await instance.heartbeat():
            known = ", ".join(f"{broker.broker_name} ({broker.address})" for broker in instance.brokers)
            raise ClientStateError(
                f"{self.what} cannot start: no broker of its topics took its heartbeat: {known or 'none known'}"
            )
        await self.rebalance()
        problems = {t: why for t, why in self.rebalancer.problems.items() if t != retry_topic(self.group)}
        if problems:
            told = "; ".join(f"topic {self.shown_topic(topic)!r}: {why}" for topic, why in problems.items())
            raise ClientStateError(f"{self.what} cannot start: its queues could not be shared out: {told}")
        await self._start_trace()
        self._start_timers()

    def _start_timers(self) -> None:
        every = self.instance.timers.every
        period = self.consumer.consume_timeout
        self._periodic = [
            every("consume statistics", SAMPLE_INTERVAL, SAMPLE_INTERVAL, self._sample_stats),
            every("watch queues", WATCH_INTERVAL, WATCH_INTERVAL, self._watch),
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
        for task in self._periodic:
            await self.instance.timers.end(task)
        ended = await asyncio.gather(self.consumption.stop(limit), self._stop_popping(limit))
        if not all(ended):
            log.warning("%s: listeners still run after %g s; what they have not finished comes again", self.what, limit)
        await self.puller.stop()
        await self._end_trace()
        for request in self.leaving:  # what their pause was for is not lost by an end
            self.offsets.update(request.queue, request.next_offset, increase_only=False)
        last = {*self.rebalancer.pulled, *(request.queue for request in self.leaving)}
        await asyncio.gather(*map(self._persist_last, sorted(last)))
        await self.rebalancer.lose_all()
        self._services.leave(self)
        await self.instance.unregister_consumer(self.group)
        for work in self._tasks:
            work.cancel()
        self.hook_threads.shutdown(wait=False)

    async def _stop_popping(self, limit: float) -> bool:
        return self._popper is None or await self._popper.stop(limit)

    async def _persist_last(self, queue: MessageQueue) -> None:
        try:
            await self.offsets.persist(queue)
        except Exception as error:
            log.warning("the offset of %s could not be stored: %s; its last messages come again", queue, error)

    # --- subscriptions ----------------------------------------------------------------------------------------------

    def set_subscription(self, topic: str, expression: str | Tag | Sql) -> None:
        """Subscribe before the start; after it `subscribe` does more."""
        self._put_subscription(with_namespace(self.consumer.namespace, topic), expression)

    def subscribe_retry(self, topic: str) -> None:
        """Subscribe to a retry topic, whose queues come with the next rebalance."""
        self._put_subscription(topic, "*")
        self.rebalance_soon()

    def _put_subscription(self, topic: str, expression: str | Tag | Sql) -> None:
        old = self._announced.pop(topic, None) or self.subscriptions.get(topic)
        version = self._instance.clock.wall_ms() if self._instance is not None else 0
        self.subscriptions[topic] = subscription_to(topic, expression, max(version, old.sub_version + 1 if old else 0))

    async def subscribe(self, topic: str, expression: str | Tag | Sql) -> None:
        """Subscribe to a topic; a running consumer gets its queues soon."""
        if not self.is_running:
            self.set_subscription(topic, expression)
            return
        name = with_namespace(self.consumer.namespace, topic)
        sub = subscription_to(name, expression, self.clock.wall_ms())
        await self.instance.routes.refresh(name)
        await check_filters(self.instance, self.client_id, self.group, self.consumer.namespace, [sub])
        self._put_subscription(name, expression)
        await self.instance.heartbeat()
        self.rebalance_soon()

    async def unsubscribe(self, topic: str) -> None:
        """End a subscription; a running consumer gives its queues away soon."""
        name = with_namespace(self.consumer.namespace, topic)
        if self.subscriptions.pop(name, None) is not None and self.is_running:
            await self.instance.heartbeat()
            self.rebalance_soon()

    async def set_paused(self, paused: bool) -> None:
        """Suspend or resume pulling (PULL-05); what is cached is consumed all the same."""
        self._suspended = paused
        self._update_paused()

    def _update_paused(self) -> None:
        self.paused = self._suspended or self._resets > 0
        if not self.paused and self.is_running:
            for request in list(self.rebalancer.requests.values()):
                self.pull_service.hurry(request)

    # --- what brokers ask -------------------------------------------------------------------------------------------

    def begin_reset(self, topic: str, offsets: Mapping[MessageQueue, int]) -> None:
        """Begin a reset that a broker asks for."""
        if self.is_running:
            self._spawn(self.reset_offsets(topic, offsets))

    async def reset_offsets(self, topic: str, offsets: Mapping[MessageQueue, int]) -> None:
        """OFF-05: pause, drop, wait until nobody works on old messages any more, set, go on.

        Each broker of a topic asks for its own queues, so several may be under way.
        """
        self._resets += 1
        self._update_paused()
        try:
            requests = [
                request
                for queue, request in self.rebalancer.requests.items()
                if queue.topic == topic and queue in offsets and isinstance(request, PullRequest)
            ]
            for request in requests:
                request.process_queue.drop()
                request.process_queue.clear()
                request.next_offset = offsets[request.queue]
                self.leaving.add(request)
            await self.clock.sleep(RESET_PAUSE)
            for request in requests:
                await self.rebalancer.correct_offset(request)
        finally:
            self._resets -= 1
            self._update_paused()

    # --- what people ask --------------------------------------------------------------------------------------------

    def queue_statuses(self) -> tuple[QueueStatus, ...]:
        """Where each queue is."""
        now = self.clock.monotonic()
        return tuple(
            pop_status(request, now, shown=self.shown_queue(queue))
            if isinstance(request, PopRequest)
            else queue_status(
                request,
                self.offsets.read_memory(queue),
                now,
                needs_lock=self.needs_locks,
                shown=self.shown_queue(queue),
            )
            for queue, request in sorted(self.rebalancer.requests.items())
        )

    async def status(self) -> ConsumerStatus:
        """Everything there is to say of the consumer."""
        running = self.is_running
        return ConsumerStatus(
            group=self.consumer.group,
            client_id=self.client_id,
            state=self.state.value,
            paused=self.paused,
            queues=self.queue_statuses() if running else (),
            threads=self.consumption.pool.size if running else 0,
            waiting_for_threads=self.consumption.pool.backlog if running else 0,
            problems={self.shown_topic(t): why for t, why in self.rebalancer.problems.items()} if running else {},
        )

    async def assignment(self) -> tuple[MessageQueue, ...]:
        """The queues that are ours now, the retry topic's aside."""
        if not self.is_running:
            return ()
        retry = retry_topic(self.group)
        return tuple(self.shown_queue(queue) for queue in self.rebalancer.assigned if queue.topic != retry)

    # --- timers -----------------------------------------------------------------------------------------------------

    async def _sample_stats(self) -> None:
        self.stats.sample(self.clock.monotonic())

    async def _lock_queues(self) -> None:
        await self.locks.lock_again(self.process_queues())

    async def _watch(self) -> None:
        for complaint in self._watchdog.look(self.queue_statuses(), self.clock.monotonic()):
            log.warning("%s", complaint)
        try:
            known = await group_subscriptions(self.instance, self.group)
        except RocketStreamError as error:
            log.debug("the subscriptions of group %s could not be asked for: %s", self.group, error)
            return
        for difference in differences(self.subscriptions, known, self.group):
            log.error("%s", difference)

    def _spawn(self, work: Coroutine[Any, Any, Any]) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._task_ended)

    def _task_ended(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            log.error("%s: a task failed", self.what, exc_info=task.exception())
