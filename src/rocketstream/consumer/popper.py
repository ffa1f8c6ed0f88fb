"""One consumer's pops: the decision before, the request, and what its answer does.

The rule of this file: effects only. Whether to pop is decided in `pop_flow`; what becomes of messages in
`pop_consumption`. Everything runs on the I/O thread.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from rocketstream.cluster.brokers import MASTER_ID, BrokerAddress
from rocketstream.consumer.filtering import run_filter_hooks, tag_filtered
from rocketstream.consumer.flow_control import (
    AFTER_BROKER_FLOW_CONTROL,
    AFTER_TROUBLE,
    FULL,
    Drop,
    FlowCounters,
    Pull,
    Wait,
    WaitReason,
)
from rocketstream.consumer.pop_flow import after_nothing, delay_of, next_pop
from rocketstream.consumer.pop_request import Lease, PopProcessQueue, PopRequest
from rocketstream.errors import BrokerError, RocketStreamError
from rocketstream.message import MessageQueue, ReceivedMessage
from rocketstream.remoting.replies import PopResult, read_pop_result
from rocketstream.wire.bodies.subscription import SubscriptionData
from rocketstream.wire.check_point import CheckPoint, set_check_points
from rocketstream.wire.codes import PopStatus, RequestCode, ResponseCode
from rocketstream.wire.command import Command
from rocketstream.wire.command import request as make_request
from rocketstream.wire.record_decoder import decode_records

if TYPE_CHECKING:
    from rocketstream.consumer.core import ConsumerCore
    from rocketstream.consumer.pop_consumption import PopConsumption

log = logging.getLogger("rocketstream.consumer")


class _Answer(NamedTuple):
    """What one pop brought."""

    messages: list[ReceivedMessage]
    points: dict[int, CheckPoint]
    """By the messages' identity: from here to the acknowledgement they are the same objects."""
    ends: float


class Popper:
    """Pops for one consumer."""

    def __init__(self, core: ConsumerCore, consumption: PopConsumption) -> None:
        self._core = core
        self._settings = core.consumer
        self.consumption = consumption
        self._counters = FlowCounters()
        self._tasks: set[asyncio.Task[None]] = set()

    # --- before -----------------------------------------------------------------------------------------------------

    def pop(self, request: PopRequest) -> None:
        """Take one step with a request (POP-01, POP-03)."""
        core, pq = self._core, request.process_queue
        pq.last_pull_at = core.clock.monotonic()
        request.pulling_since = None
        step = next_pop(
            pq,
            running=core.is_running,
            paused=core.paused,
            subscribed=request.queue.topic in core.subscriptions,
            limit=self._settings.pop_threshold_for_queue,
        )
        if isinstance(step, Pull):
            request.waiting = None
            self._send(request)
        elif isinstance(step, Drop):
            log.info("%s is not popped any more: %s", request.queue, step.reason)
        else:
            self._wait(request, step)

    def _wait(self, request: PopRequest, wait: Wait) -> None:
        request.waiting = wait
        self._core.stats.of(request.queue.topic).waits[wait.reason.name.lower()] += 1
        warning = self._counters.warning(wait)
        if warning is not None:
            log.warning("group %s: %s", self._core.group, warning)
        self._core.pull_service.later(request, wait.seconds)

    def room_made(self, pq: PopProcessQueue) -> None:
        """Messages were finished: a queue that was full and is half empty need not wait any longer."""
        request = self._core.rebalancer.requests.get(pq.queue)
        if (
            isinstance(request, PopRequest)
            and request.waiting is not None
            and request.waiting.reason in FULL
            and pq.unacked <= self._settings.pop_threshold_for_queue // 2
        ):
            self._core.pull_service.hurry(request)

    # --- the request ------------------------------------------------------------------------------------------------

    def _send(self, request: PopRequest) -> None:
        broker = self._core.instance.brokers.master(request.queue.broker_name)
        if broker is None:
            self._spawn(self._find_and_send(request), request)
        else:
            self._send_to(request, broker)

    async def _find_and_send(self, request: PopRequest) -> None:
        queue = request.queue
        broker = await self._core.instance.routes.broker(queue.topic, queue.broker_name, MASTER_ID, only_this=True)
        self._send_to(request, broker)

    def _send_to(self, request: PopRequest, broker: BrokerAddress) -> None:
        core = self._core
        sub = core.subscriptions.get(request.queue.topic)
        if sub is None:  # unsubscribed while its broker was looked for
            core.pull_service.now(request)
            return
        fields = request.header(self._settings, sub)
        fields["bornTime"] = str(core.clock.wall_ms())
        request.pulling_since = core.clock.monotonic()
        command = make_request(RequestCode.POP_MESSAGE, fields)
        answer = core.instance.remoting.begin(broker.address, command, self._settings.pull_timeout)
        answer.add_done_callback(partial(self._answered, request, sub, broker.address))

    # --- the answer -------------------------------------------------------------------------------------------------

    def _answered(
        self, request: PopRequest, sub: SubscriptionData, address: str, answer: asyncio.Future[Command]
    ) -> None:
        if answer.cancelled():
            return  # the client was closed
        try:
            error = answer.exception()
            if error is not None:
                raise error
            result = read_pop_result(address, answer.result())
            self._handle(request, sub, result)
        except RocketStreamError as failure:
            self._failed(request, failure)
        except Exception as failure:
            log.exception("the answer to a pop of %s could not be handled", request.queue)
            self._failed(request, failure)

    def _handle(self, request: PopRequest, sub: SubscriptionData, result: PopResult) -> None:
        core = self._core
        now = core.clock.monotonic()
        took = 0.0 if request.pulling_since is None else now - request.pulling_since
        if result.header is None:
            wait = after_nothing(result.status, took, self._settings.broker_suspend_max_time)
            if result.status is not PopStatus.POLLING_FULL:
                request.rest = 0
            if wait is None:
                core.pull_service.now(request)
            else:
                self._wait(request, wait)
            return
        core.stats.add_found(request.queue.topic, took, len(result.body))
        request.rest = result.header.rest_num
        answer = self._decode(request.queue, result, now + result.header.invisible_time / 1000)
        if self._settings.filter_hooks:
            self._spawn(self._take_with_hooks(request, sub, answer), request)
        else:
            self._take(request, answer, tag_filtered(answer.messages, sub))

    def _decode(self, queue: MessageQueue, result: PopResult, ends: float) -> _Answer:
        assert result.header is not None
        messages, corrupt = decode_records(result.body, broker_name=queue.broker_name)
        for record in corrupt:
            log.error("%s: %d bytes of a pop are no message and are passed over: %s", queue, record.size, record.reason)
        points = set_check_points(messages, result.header, queue.broker_name, order=self._settings.orderly)
        topic = self._core.names.shown_topic(queue.topic)
        for message in messages:
            message.topic = topic  # a retried one may come under the name of the retry topic
        return _Answer(messages, dict(zip(map(id, messages), points, strict=True)), ends)

    async def _take_with_hooks(self, request: PopRequest, sub: SubscriptionData, answer: _Answer) -> None:
        loop = asyncio.get_running_loop()
        settings = self._settings
        kept = await loop.run_in_executor(
            self._core.hook_threads,
            run_filter_hooks,
            settings.filter_hooks,
            settings.group,
            self._core.names.shown_queue(request.queue),
            tag_filtered(answer.messages, sub),
            settings.unit_mode,
        )
        self._take(request, answer, kept)

    def _take(self, request: PopRequest, answer: _Answer, kept: list[ReceivedMessage]) -> None:
        """Hand over what was wanted; what was not is done (Java's `processPopResult`)."""
        core, pq = self._core, request.process_queue
        core.stats.add_pulled(request.queue.topic, len(kept))
        leases: dict[MessageQueue, Lease] = {}
        wanted: dict[Lease, list[ReceivedMessage]] = {}
        unwanted: list[tuple[Lease, ReceivedMessage]] = []
        ours = set(map(id, kept))
        for message in answer.messages:
            queue = message.queue
            lease = leases.get(queue)
            if lease is None:
                lease = leases[queue] = Lease(pq, request.queue.topic, queue, answer.ends, answer.points)
            if id(message) not in ours:
                unwanted.append((lease, message))
            elif message.reconsume_times > self.consumption.max_times:
                self.consumption.acks.give_up(lease, message, delay_of(message.reconsume_times, 0))
            else:
                wanted.setdefault(lease, []).append(message)
        self.consumption.not_wanted(unwanted)
        for lease, some in wanted.items():
            pq.found(len(some))
            self.consumption.submit(lease, some)
        self._again(request)

    def _again(self, request: PopRequest) -> None:
        interval = self._settings.pull_interval
        if interval > 0:
            self._wait(request, Wait(interval, WaitReason.INTERVAL, f"pull_interval is {interval:g} s"))
        else:
            self._core.pull_service.now(request)

    # --- what goes wrong --------------------------------------------------------------------------------------------

    def _failed(self, request: PopRequest, error: Exception) -> None:
        core = self._core
        request.pulling_since = None
        if request.process_queue.dropped or not core.is_running:
            return
        seconds, reason = AFTER_TROUBLE, WaitReason.PULL_FAILED
        if isinstance(error, BrokerError) and error.code == ResponseCode.FLOW_CONTROL:
            seconds, reason = AFTER_BROKER_FLOW_CONTROL, WaitReason.BROKER_FLOW_CONTROL
        level = logging.DEBUG if reason is WaitReason.BROKER_FLOW_CONTROL else logging.WARNING
        log.log(level, "popping %s failed, again in %g s: %s", request.queue, seconds, error)
        self._wait(request, Wait(seconds, reason, str(error)))

    def _spawn(self, work: Coroutine[Any, Any, None], request: PopRequest) -> None:
        """Run a step that has to wait; if it raises, the request comes again."""

        async def guarded() -> None:
            try:
                await work
            except Exception as error:
                if not isinstance(error, RocketStreamError):
                    log.exception("popping %s failed", request.queue)
                self._failed(request, error)

        task = asyncio.ensure_future(guarded())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def stop(self, timeout: float) -> bool:
        """Let running listeners end and be acknowledged; False if some still run after `timeout` seconds."""
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)
        return await self.consumption.stop(timeout)
