"""One consumer's pulls: the decision before, the request, and what its answer does.

The rule of this file: effects only. Whether to pull is decided in `flow_control`, what a message's filter says in
`filtering`; here the pull is sent, its answer taken apart, and the next one arranged. Everything runs on the I/O
thread. The next pull of a queue is sent before the messages of the last one are decoded, unless a limit is near.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from functools import partial
from typing import TYPE_CHECKING, Any

from rocketstream.cluster.brokers import BrokerAddress
from rocketstream.cluster.names import RETRY_PREFIX
from rocketstream.cluster.versions import V4_1_0
from rocketstream.consumer.filtering import run_filter_hooks, tag_filtered
from rocketstream.consumer.flow_control import FULL, Drop, FlowCounters, Pull, Wait, WaitReason, next_step
from rocketstream.consumer.offset_store import UNKNOWN_OFFSET, ReadFrom
from rocketstream.consumer.process_queue import ProcessQueue
from rocketstream.consumer.pull_request import PullRequest, pull_code, pull_flags
from rocketstream.consumer.pull_service import AGAIN_AFTER_ERROR
from rocketstream.consumer.pull_targets import PullTargets
from rocketstream.errors import (
    BrokerError,
    ConnectError,
    RocketStreamError,
    UnsupportedByBrokerError,
)
from rocketstream.message import MessageQueue, ReceivedMessage
from rocketstream.remoting.quick_request import Outcome
from rocketstream.remoting.replies import PullResult, read_pull_result
from rocketstream.wire.bodies.subscription import SubscriptionData
from rocketstream.wire.codes import ExpressionType, MessageModel, PullStatus, RequestCode, ResponseCode
from rocketstream.wire.command import Command
from rocketstream.wire.command import request as make_request
from rocketstream.wire.record_decoder import decode_records

if TYPE_CHECKING:
    from rocketstream.consumer.core import ConsumerCore

log = logging.getLogger("rocketstream.consumer")

AGAIN_AFTER_BROKER_FLOW_CONTROL = 0.020
# Java pulls again at once, and so without end, from a slave that lacks what its dead master had.
AGAIN_WHEN_BEHIND = 1.0
PAUSE_AFTER_ILLEGAL_OFFSET = 10.0
_PULL = int(RequestCode.PULL_MESSAGE)
_GO_AWAY = int(ResponseCode.GO_AWAY)
# A broker that answers so has not had, or has lost, our heartbeat.
_UNKNOWN_TO_BROKER = frozenset(map(int, (ResponseCode.SUBSCRIPTION_NOT_EXIST, ResponseCode.SUBSCRIPTION_NOT_LATEST)))


class Puller:
    """Pulls for one consumer."""

    waits_at_broker = True
    """Whether a broker holds a pull back that finds nothing."""
    lite = False
    """Whether these are lite pulls: of another code, and without the group's offset (PULL-14, PULL-20)."""
    again_after_error = AGAIN_AFTER_ERROR
    """Seconds until the next try after a pull that failed."""

    def __init__(self, core: ConsumerCore) -> None:
        self._core = core
        self._settings = core.consumer
        self._now = core.clock.monotonic
        self.targets = PullTargets(core.instance, core.consumer.connect_broker_by_user)
        self._counters = FlowCounters()
        self._tasks: set[asyncio.Task[None]] = set()

    # --- before -----------------------------------------------------------------------------------------------------

    def pull(self, request: PullRequest) -> None:
        """Take one step with a request (PULL-02 to PULL-12)."""
        core = self._core
        pq = request.process_queue
        # PULL-03: before anything else, so that a queue that waits is not taken for one that was forgotten.
        pq.last_pull_at = self._now()
        request.pulling_since = None
        step = next_step(
            pq,
            running=core.is_running,
            paused=core.paused,
            subscribed=request.queue.topic in core.subscriptions,
            orderly=self._settings.orderly,
            needs_lock=core.needs_locks,
            limits=core.limits_of(request.queue.topic),
        )
        if isinstance(step, Pull):
            request.waiting = None
            if core.needs_locks and not request.offset_is_fixed:
                self._spawn(self._fix_offset(request), request)
            else:
                self._send(request)
        elif isinstance(step, Drop):
            log.info("%s is not pulled any more: %s", request.queue, step.reason)
        else:
            self._wait(request, step)

    def _wait(self, request: PullRequest, wait: Wait) -> None:
        request.waiting = wait
        self._core.stats.of(request.queue.topic).waits[wait.reason.name.lower()] += 1
        warning = self._counters.warning(wait)
        if warning is not None:
            log.warning("group %s: %s", self._core.group, warning)
        self._core.pull_service.later(request, wait.seconds)

    def room_made(self, pq: ProcessQueue) -> None:
        """Messages were finished: a queue that was full and is half empty need not wait any longer.

        A fast listener empties a full queue in a few milliseconds; to wait out the 50 would halve its rate.
        """
        request = self._core.rebalancer.requests.get(pq.queue)
        if request is None or request.waiting is None or request.waiting.reason not in FULL:
            return
        limits = self._core.limits_of(pq.queue.topic)
        if request.waiting.reason is WaitReason.SPAN:
            made = pq.span <= limits.span
        else:
            made = pq.count <= limits.count // 2 and pq.size <= limits.size_bytes // 2
        if made:
            self._core.pull_service.hurry(request)

    async def _fix_offset(self, request: PullRequest) -> None:
        """Orderly: another member may have gone on between the offset that was read and the lock (PULL-11)."""
        try:
            offset = await self._core.offsets.read(request.queue, ReadFrom.STORE)
            if offset == UNKNOWN_OFFSET:
                # Nobody has gone on. To look for the end of the queue again would skip what has come since it was won.
                offset = request.next_offset
        except Exception as error:  # a user's own store may raise anything
            offset = UNKNOWN_OFFSET
            log.warning("the offset of %s could not be read after it was locked: %s", request.queue, error)
        if request.process_queue.dropped:
            return
        if offset < 0:
            text = f"the offset of {request.queue} is not known yet"
            self._wait(request, Wait(AGAIN_AFTER_ERROR, WaitReason.OFFSET_UNKNOWN, text))
            return
        if offset < request.next_offset:
            log.warning(
                "%s: the broker is busy: its offset of the group is %d, behind the %d that was to be pulled",
                request.queue,
                offset,
                request.next_offset,
            )
        request.offset_is_fixed = True
        request.next_offset = offset
        request.committed = self._core.offsets.known_at_broker(request.queue)
        self._send(request)

    # --- the request ------------------------------------------------------------------------------------------------

    def _send(self, request: PullRequest) -> None:
        core = self._core
        sub = core.subscriptions.get(request.queue.topic)
        if sub is None:  # unsubscribed while its messages were decoded
            core.pull_service.now(request)
            return
        broker = self.targets.at_hand(request.queue)
        if broker is None or sub.class_filter_mode:
            self._spawn(self._find_and_send(request, sub), request)
            return
        try:
            self._send_to(request, sub, broker, broker.address)
        except RocketStreamError as error:
            self._failed(request, error)

    async def _find_and_send(self, request: PullRequest, sub: SubscriptionData) -> None:
        broker, address = await self.targets.find(request.queue, sub)
        self._send_to(request, sub, broker, address)

    def _send_to(self, request: PullRequest, sub: SubscriptionData, broker: BrokerAddress, address: str) -> None:
        core = self._core
        if (
            sub.expression_type != ExpressionType.TAG and broker.version is not None and broker.version < V4_1_0
        ):  # PULL-19
            raise UnsupportedByBrokerError(
                f"broker {broker.broker_name} ({address}) is older than 4.1.0 and cannot filter by"
                f" {sub.expression_type}, which the subscription to topic {sub.topic!r} asks for"
            )
        commit_offset = 0
        if self._settings.model is MessageModel.CLUSTERING and not self.lite:
            commit_offset = max(core.offsets.read_memory(request.queue), 0)
            # What the broker has already is not carried: nobody could tell whether it has handled that once more.
            if commit_offset == request.committed or not request.may_carry:
                commit_offset = 0
        commit = commit_offset > 0 and not broker.is_slave  # PULL-13, PULL-17
        if commit and not core.offsets.may_travel(request.queue, broker):
            commit, commit_offset = False, 0
        flags = pull_flags(
            commit=commit,
            suspend=self.waits_at_broker,
            subscription=self._settings.post_subscription_when_pull,
            class_filter=sub.class_filter_mode,
            lite=self.lite,
        )
        fields = request.header(self._settings, core.group, sub)
        fields["queueOffset"] = str(request.next_offset)
        fields["sysFlag"] = str(flags)
        fields["commitOffset"] = str(commit_offset)
        if commit:
            request.carries = commit_offset
        # PULL-03 again: the pull that follows an answer at once has not come through `pull`.
        request.pulling_since = request.process_queue.last_pull_at = self._now()
        command = make_request(pull_code(flags, broker.version), fields)
        remoting, timeout = core.instance.remoting, self._settings.pull_timeout
        answered = partial(self._answered, request, sub, address)
        if not remoting.try_invoke(address, command, request.pulling_since + timeout, answered):
            remoting.begin(address, command, timeout).add_done_callback(partial(self._answered_late, answered))

    # --- the answer -------------------------------------------------------------------------------------------------

    def _answered_late(self, answered: Callable[[Outcome], None], answer: asyncio.Future[Command]) -> None:
        if not answer.cancelled():  # the client was closed
            error = answer.exception()
            answered(answer.result() if error is None else error)

    def _answered(self, request: PullRequest, sub: SubscriptionData, address: str, outcome: Outcome) -> None:
        carried = request.carries
        # Brokers commit before they answer. One that was asked and did not answer may still do so, in its own time.
        if carried and (not isinstance(outcome, BaseException) or isinstance(outcome, ConnectError)):
            request.carries = 0
        if isinstance(outcome, BaseException):
            request.committed = UNKNOWN_OFFSET  # a broker that crashed may come back with an older one
        if request.process_queue.dropped:
            return
        try:
            if isinstance(outcome, BaseException):
                raise outcome
            if outcome.code == _GO_AWAY:
                self._send(request)  # over a new connection
                return
            result = read_pull_result(address, _PULL, outcome)
        except Exception as failure:
            self._failed(request, failure)
            return
        if carried:
            request.committed = carried
        self.targets.suggest(request.queue, result.suggested_broker_id)  # RES-01
        if self._is_behind(request, result, address):
            return
        request.broker_max = result.max_offset
        # A pull that waited at the broker was answered by what is subscribed now, not by what was when it was sent.
        sub = self._core.subscriptions.get(request.queue.topic, sub)
        try:
            self._handle(request, sub, result)
        except Exception:
            log.exception("the answer to a pull of %s could not be handled", request.queue)
            self._core.pull_service.later(request, AGAIN_AFTER_ERROR)

    def _handle(self, request: PullRequest, sub: SubscriptionData, result: PullResult) -> None:
        core = self._core
        self._take_rest(request)
        if result.status is PullStatus.FOUND:
            core.stats.add_found(request.queue.topic, self._elapsed(request), len(result.body))
            asked = request.next_offset
            request.next_offset = result.next_offset
            if self._settings.filter_hooks:
                self._spawn(self._take_with_hooks(request, sub, result, asked), request)
            elif self._far_from_limits(request, asked):
                # Decoded once the next pull has left, arranged before: should that fail, these must not be lost.
                request.untaken = (sub, result, asked)
                asyncio.get_running_loop().call_soon(self._take_rest, request)
                self._send(request)
            else:
                self._again(request, some=self._take(request, sub, result, asked))
        elif result.status is PullStatus.OFFSET_ILLEGAL:
            self._offset_illegal(request, result)
        else:
            request.next_offset = result.next_offset
            if not request.process_queue.count:
                self._all_done(request)
            core.pull_service.now(request)

    def _is_behind(self, request: PullRequest, result: PullResult, address: str) -> bool:
        """Whether a slave, all there is, says "again at once" because it lacks what its master had; then later."""
        again_here = result.status is PullStatus.NO_MATCHED_MSG and self.targets.slave_of(request.queue) == address
        if not again_here or result.next_offset != request.next_offset:
            return False
        text = f"slave {address} has not got to offset {request.next_offset}, and its master is away"
        self._wait(request, Wait(AGAIN_WHEN_BEHIND, WaitReason.SLAVE_BEHIND, text))
        return True

    def _all_done(self, request: PullRequest) -> None:
        """RES-09: only an empty queue says that everything before its next offset is done."""
        self._core.offsets.update(request.queue, request.next_offset, increase_only=True)

    def _elapsed(self, request: PullRequest) -> float:
        since = request.pulling_since
        return 0.0 if since is None else self._now() - since

    def _far_from_limits(self, request: PullRequest, asked: int) -> bool:
        """Whether the next pull is certain to be allowed, whatever is in this answer."""
        core, pq, settings = self._core, request.process_queue, self._settings
        limits = core.limits_of(request.queue.topic)
        first = asked if pq.first_offset is None else pq.first_offset
        return (
            core.is_running
            and not core.paused
            and not settings.pull_interval
            and (pq.locked or not core.needs_locks)
            and pq.count + settings.pull_batch_size <= limits.count
            and pq.size + settings.pull_batch_size_in_bytes <= limits.size_bytes
            and (settings.orderly or request.next_offset - first <= limits.span)
        )

    def _again(self, request: PullRequest, *, some: bool) -> None:
        """RES-06; an answer of which nothing was left is no reason to wait (RES-07)."""
        interval = self._settings.pull_interval
        if some and interval > 0:
            self._wait(request, Wait(interval, WaitReason.INTERVAL, f"pull_interval is {interval:g} s"))
        else:
            self._core.pull_service.now(request)

    def _take_rest(self, request: PullRequest) -> None:
        """Take the last answer's messages, if that is still to do: before the next answer, whatever comes first.

        An event loop may bring the next one in before it runs what was arranged (uvloop, many answers at a time).
        """
        left, request.untaken = request.untaken, None
        if left is not None:
            self._take(request, *left)

    def _take(self, request: PullRequest, sub: SubscriptionData, result: PullResult, asked: int) -> bool:
        """Decode, filter and hand over the messages of an answer (RES-02 to RES-08); False if none were left."""
        if request.process_queue.dropped:
            return False
        return self._deliver(request, tag_filtered(self._decode(request, result, asked), sub), result)

    async def _take_with_hooks(
        self, request: PullRequest, sub: SubscriptionData, result: PullResult, asked: int
    ) -> None:
        core = self._core
        messages = tag_filtered(self._decode(request, result, asked), sub)
        if messages:
            loop = asyncio.get_running_loop()
            hooks, unit = self._settings.filter_hooks, self._settings.unit_mode
            shown = core.names.shown_queue(request.queue)
            messages = await loop.run_in_executor(
                core.hook_threads, run_filter_hooks, hooks, self._settings.group, shown, messages, unit
            )
        if not request.process_queue.dropped:
            self._again(request, some=self._deliver(request, messages, result))

    def _decode(self, request: PullRequest, result: PullResult, asked: int) -> list[ReceivedMessage]:
        core, queue = self._core, request.queue
        messages, corrupt = decode_records(
            result.body, queue=queue, min_offset=result.min_offset, max_offset=result.max_offset
        )
        if result.offset_delta:  # a static topic's queue that has moved: its records tell the offsets of where they lie
            for message in messages:
                message.queue_offset += result.offset_delta
        for record in corrupt:
            log.error(
                "%s: %d bytes at %d of an answer for offset %d are no message and are passed over: %s",
                queue,
                record.size,
                record.position,
                asked,
                record.reason,
            )
        if result.next_offset < asked or (messages and messages[0].queue_offset < asked):  # RES-08
            log.error(
                "%s: data error: offset %d was asked for, the answer begins at %s and goes on at %d",
                queue,
                asked,
                messages[0].queue_offset if messages else "none",
                result.next_offset,
            )
        if core.names.renames or queue.topic.startswith(RETRY_PREFIX):
            core.names.restore(messages)
        return messages

    def _deliver(self, request: PullRequest, messages: list[ReceivedMessage], result: PullResult) -> bool:
        if not messages:
            return False
        core, pq = self._core, request.process_queue
        core.stats.add_pulled(request.queue.topic, len(messages))
        dispatch = pq.put(messages, result.max_offset)
        core.consumption.submit(pq, messages, dispatch)
        return True

    # --- what goes wrong --------------------------------------------------------------------------------------------

    def _failed(self, request: PullRequest, error: Exception) -> None:
        """PULL-21."""
        core = self._core
        request.pulling_since = None
        if not core.is_running:
            return
        seconds, reason = self.again_after_error, WaitReason.PULL_FAILED
        if isinstance(error, BrokerError):
            if error.code == ResponseCode.FLOW_CONTROL:
                seconds, reason = AGAIN_AFTER_BROKER_FLOW_CONTROL, WaitReason.BROKER_FLOW_CONTROL
            elif error.code in _UNKNOWN_TO_BROKER:
                core.heartbeat_soon()
        if reason is WaitReason.PULL_FAILED and self.targets.failed(request.queue, error, self._now()):
            core.spawn(core.instance.routes.refresh_all([request.queue.topic]))
        retry = request.queue.topic.startswith(RETRY_PREFIX)
        level = logging.DEBUG if retry or reason is WaitReason.BROKER_FLOW_CONTROL else logging.WARNING
        log.log(level, "pulling %s failed, again in %g s: %s", request.queue, seconds, error)
        self._wait(request, Wait(seconds, reason, str(error)))

    def _offset_illegal(self, request: PullRequest, result: PullResult) -> None:
        """RES-10: the queue is given up; the pause lets a broker that is recovering come back."""
        log.warning(
            "%s: offset %d is not one of the broker's (%d to %d); the queue starts again at %d in %g s",
            request.queue,
            request.next_offset,
            result.min_offset,
            result.max_offset,
            result.next_offset,
            PAUSE_AFTER_ILLEGAL_OFFSET,
        )
        request.next_offset = result.next_offset
        request.process_queue.drop()
        self._core.leaving.add(request)
        self._core.clock.call_later(PAUSE_AFTER_ILLEGAL_OFFSET, self._correct_offset, request)

    def _correct_offset(self, request: PullRequest) -> None:
        if self._core.is_running:
            self._spawn(self._core.rebalancer.correct_offset(request), request)

    def _spawn(self, work: Coroutine[Any, Any, None], request: PullRequest) -> None:
        """Run a step that has to wait; if it raises, the request comes again."""

        async def guarded() -> None:
            try:
                await work
            except RocketStreamError as error:
                if not request.process_queue.dropped:
                    self._failed(request, error)
            except Exception as error:
                log.exception("pulling %s failed", request.queue)
                if not request.process_queue.dropped:
                    self._failed(request, error)

        task = asyncio.ensure_future(guarded())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def forget(self, queue: MessageQueue) -> None:
        """A queue was lost: what its broker suggested means nothing any more."""
        self.targets.forget(queue)

    async def stop(self) -> None:
        """End the steps that wait."""
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)
