"""The producer on the I/O thread: routes, queues, attempts, receipts.

One send is one budget of time: every attempt gets what is left of it. An attempt that fails goes on to another broker;
a broker's refusal that another broker would repeat ends it. A send to a given queue has one attempt, because another
queue would be another promise.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeAlias

from rocketstream.clock import SystemClock
from rocketstream.cluster.client import ClientCore
from rocketstream.cluster.names import check_topic, with_namespace, without_namespace
from rocketstream.cluster.settings import ClientSettings
from rocketstream.cluster.vip import explained
from rocketstream.errors import (
    BrokerError,
    BrokerNotFoundError,
    ConfigurationError,
    ConnectError,
    NameServerError,
    RemotingError,
    SendFailedError,
    TopicRouteNotFoundError,
)
from rocketstream.message import Message, MessageQueue
from rocketstream.metrics import catalogue
from rocketstream.metrics.values import Sample
from rocketstream.otel import check_otel
from rocketstream.producer.accumulator import Accumulator
from rocketstream.producer.attempts import NotStoredSafely, has_moved, may_try, pause_before_next
from rocketstream.producer.dispatch import BlockedCaller, Dispatcher, Outcome, Send
from rocketstream.producer.hooks import SendContext, call, run_after, run_before
from rocketstream.producer.introduction import Introductions
from rocketstream.producer.meters import ProducerMeters
from rocketstream.producer.outgoing import Outgoing, Preparation
from rocketstream.producer.publish_routes import PublishRoutes
from rocketstream.producer.queue_choice import FAILURE_LATENCY, QueueChooser, queue_for_key
from rocketstream.producer.receipt import STATUS_BY_CODE, SendReceipt, SendStatus, read_receipt
from rocketstream.producer.request_reply import PendingRequests
from rocketstream.producer.send_trace import SendTrace
from rocketstream.producer.settings import ProducerSettings
from rocketstream.producer.spans import SendSpans
from rocketstream.producer.trace import FLUSH_TIMEOUT, TraceDispatcher
from rocketstream.producer.user_future import UserFuture
from rocketstream.remoting.replies import broker_error
from rocketstream.wire.codes import ResponseCode
from rocketstream.wire.command import Command
from rocketstream.wire.trace import TRACE_TOPIC, Trace

log = logging.getLogger("rocketstream.producer")

Selector: TypeAlias = Callable[[Sequence[MessageQueue], Message, Any], MessageQueue]

_TRACE_TIMEOUT = 5.0
_SPANS_TIMEOUT = 1.0


class ProducerCore(ClientCore):
    """A producer's life and its sends; a member of the client instance (`GroupMember`)."""

    def __init__(
        self, settings: ClientSettings, producer: ProducerSettings, *, instance_name: str | None = None, **others: Any
    ) -> None:
        super().__init__(f"producer of group {producer.group!r}", settings, instance_name=instance_name, **others)
        self.producer = producer
        self.preparation = Preparation(producer, SystemClock())
        self.meters = ProducerMeters()
        self._chooser = QueueChooser(latency_fault_tolerance=producer.latency_fault_tolerance)
        self._routes = PublishRoutes(self, producer.default_topic_queue_nums)
        self._trace: SendTrace | None = None
        self._trace_topic: str | None = None
        self._dispatcher = Dispatcher(self)
        self.catch_up = self._dispatcher.catch_up
        self.has_quick_way = not (producer.send_hooks or producer.retry_another_broker)
        """Whether an attempt ends with the broker's answer: no hook to tell, no status that another may better."""
        self.introductions = Introductions()
        self.requests = PendingRequests(producer.max_async_messages)
        self._callback_threads = ThreadPoolExecutor(4, thread_name_prefix="rocketstream-send-callback")
        self._hook_threads = ThreadPoolExecutor(2, thread_name_prefix="rocketstream-send-hook")

    # --- life -------------------------------------------------------------------------------------------------------

    @property
    def group(self) -> str:
        """The group as brokers know it."""
        return with_namespace(self.producer.namespace, self.producer.group)

    def topics(self) -> Iterable[str]:
        """The topics that were sent to."""
        return self._routes.topics()

    async def on_start(self) -> None:
        """Register, start the instance, and make sure that a name server answers."""
        self.instance.register_producer(self)
        try:
            await self.instance.start()
            # A producer that cannot reach any name server is of no use: say so now, not at the first send.
            await self.instance.name_servers.check(self.settings.api_timeout)
        except BaseException:
            await self.instance.unregister_producer(self.group)
            raise
        await self.instance.heartbeat()
        if self.producer.trace:
            topic = TRACE_TOPIC if self.producer.trace is True else self.producer.trace
            dispatcher = TraceDispatcher(topic, self.clock, self._send_trace)
            self._trace = SendTrace(self.producer.group, dispatcher)
            self._trace_topic = with_namespace(self.producer.namespace, topic)
        telemetry = check_otel(self.producer.otel)
        if telemetry is not None:
            self.preparation.spans = SendSpans(self.producer, telemetry, lambda: self.client_id, self._hook_threads)
        if self.producer.auto_batch:
            self._dispatcher.batch_with(
                Accumulator(self.producer, self.preparation, self.clock, self._dispatcher.start)
            )

    async def on_shutdown(self, timeout: float | None) -> None:
        """Tell the brokers and end."""
        self.requests.close(self.what)
        if self._trace is not None:
            await self._trace.dispatcher.end(FLUSH_TIMEOUT if timeout is None else min(timeout, FLUSH_TIMEOUT))
        self._routes.close()
        await self.instance.unregister_producer(self.group)
        if self.preparation.spans is not None:
            await self.preparation.spans.end(_SPANS_TIMEOUT)
        self._hook_threads.shutdown(wait=False)
        self._callback_threads.shutdown(wait=False)

    # --- queues -----------------------------------------------------------------------------------------------------

    async def queues(self, topic: str, deadline: float | None = None) -> tuple[MessageQueue, ...]:
        """The queues of a topic (with its namespace) that can be written to; asked for until the deadline."""
        return await self._routes.queues(topic, deadline)

    async def user_queues(self, topic: str) -> tuple[MessageQueue, ...]:
        """The same for a user: topics without their namespace on both sides."""
        check_topic(topic)
        return tuple(map(self.shown, await self.queues(with_namespace(self.producer.namespace, topic))))

    async def choose_queue(
        self,
        out: Outgoing,
        *,
        queue: MessageQueue | None,
        sharding_key: str | None,
        selector: Selector | None,
        arg: Any,
        deadline: float,
    ) -> MessageQueue | None:
        """The queue that the caller decided on; None leaves it to round robin."""
        if queue is not None:
            topic = with_namespace(self.producer.namespace, queue.topic)
            if topic != out.topic:
                raise ConfigurationError(f"queue {queue} is not one of topic {out.message.topic!r}")
            return queue._replace(topic=topic)
        if selector is None:
            key = out.message.sharding_key if sharding_key is None else sharding_key
            return None if key is None else queue_for_key(await self.queues(out.topic, deadline), key)
        queues = await self.queues(out.topic, deadline)
        shown = [self.shown(queue) for queue in queues]
        loop = asyncio.get_running_loop()
        chosen = await loop.run_in_executor(self._hook_threads, call, selector, shown, out.message, arg)
        if chosen not in shown:
            raise ConfigurationError(
                f"the selector chose {chosen!r}, which is not one of the {len(shown)} it was given"
            )
        return queues[shown.index(chosen)]

    def shown(self, queue: MessageQueue) -> MessageQueue:
        """A queue as the user knows it, without the namespace."""
        if not self.producer.namespace:
            return queue
        return queue._replace(topic=without_namespace(self.producer.namespace, queue.topic))

    # --- sending ----------------------------------------------------------------------------------------------------

    async def send(
        self,
        out: Outgoing,
        *,
        timeout: float | None = None,
        begun: float | None = None,
        retries: int | None = None,
        queue: MessageQueue | None = None,
        sharding_key: str | None = None,
        selector: Selector | None = None,
        arg: Any = None,
        failed: Sequence[tuple[str, BaseException]] = (),
        last: MessageQueue | None = None,
    ) -> SendReceipt:
        """Store what was made ready, or raise saying which address was tried and why it failed.

        The time-out counts from `begun`, when the caller called; that is now unless it is said. `failed` and `last`
        are the attempt that the quick way has already made.
        """
        try:
            if out.topic != self._trace_topic:  # the last traces are sent while it is being shut down
                self.check_running()
            now = self.clock.monotonic
            if begun is None:
                begun = now()
            deadline = begun + (self.producer.send_timeout if timeout is None else timeout)
            choice = {"queue": queue, "sharding_key": sharding_key, "selector": selector, "arg": arg}
            fixed = await self.choose_queue(out, **choice, deadline=deadline)
            more = 0 if fixed is not None else self.producer.retries if retries is None else retries
            receipt = await self._try_all(out, fixed, last, more, list(failed), begun, deadline)
        except BaseException as error:
            self.ended(out, error, 0.0)
            raise
        self.ended(out, receipt, now() - begun)
        return receipt

    async def _try_all(
        self,
        out: Outgoing,
        fixed: MessageQueue | None,
        last: MessageQueue | None,
        more: int,
        attempts: list[tuple[str, BaseException]],
        begun: float,
        deadline: float,
    ) -> SendReceipt:
        """One attempt after the other, until one goes well, or it is final, or there is no time left."""
        now = self.clock.monotonic
        best: SendReceipt | None = None
        target = last if fixed is None else fixed
        may_have_moved = True
        while (moved := may_have_moved and has_moved(attempts)) or may_try(attempts, more):
            if moved:  # Nothing was stored, and the queue is still the right one: its new leader is asked, once.
                may_have_moved = False
                attempts.pop()
                await self._routes.look_again(out.topic, deadline)
            if attempts:
                if pause := pause_before_next(attempts):
                    await self.clock.sleep(min(pause, max(deadline - now(), 0.0)))
                if now() >= deadline or not self.is_running:
                    break
                self.meters.of(out.topic).retries += 1
            if fixed is None:
                avoid = target.broker_name if target is not None else None
                target = self._chooser.choose(await self.queues(out.topic, deadline), avoid, now())
            assert target is not None
            try:
                receipt = await self._attempt(out, target, deadline)
            except (RemotingError, BrokerNotFoundError, NameServerError, TopicRouteNotFoundError) as error:
                attempts.append((getattr(error, "address", target.broker_name), error))
            except BrokerError as error:
                attempts.append((error.address, error))
                if error.code == ResponseCode.TOPIC_NOT_EXIST:
                    self._routes.forget_guess(out.topic)
            else:
                best = receipt
                if receipt.status is SendStatus.OK or not self.producer.retry_another_broker:
                    return receipt
                attempts.append((target.broker_name, NotStoredSafely(receipt.status.value)))
        if best is not None:
            return best
        if len(attempts) == 1 and isinstance(attempts[0][1], BrokerError):
            raise attempts[0][1]  # the broker has said no: its own words are the whole story
        raise SendFailedError(out.message.topic, attempts, now() - begun)

    def ended(self, out: Outgoing, outcome: SendReceipt | BaseException | None, seconds: float) -> None:
        """A send has ended, so long after its caller called (None: it was written one way): count it, end its spans."""
        if out.topic == self._trace_topic:
            return
        if isinstance(outcome, SendReceipt):
            self.meters.sent(out, seconds)
        elif outcome is None:
            self.meters.one_way(out)
        elif isinstance(outcome, Exception):  # else nobody waits for it any more, and nobody knows
            self.meters.failed(out)
        if out.spans and self.preparation.spans is not None:
            self.preparation.spans.ended(out.spans, outcome)

    def collect_metrics(self) -> Iterable[Sample]:
        """What was counted so far."""
        yield from self.meters.samples(self.group)
        if self._trace is not None:
            yield Sample(catalogue.TRACE_DROPPED, ("producer", self.group), self._trace.dispatcher.dropped)

    async def send_all(
        self, batches: Sequence[Outgoing], *, timeout: float | None, queue: MessageQueue | None
    ) -> list[SendReceipt]:
        """Store several requests one after the other, within one budget of time."""
        deadline = self.clock.monotonic() + (self.producer.send_timeout if timeout is None else timeout)
        receipts: list[SendReceipt] = []
        for out in batches:
            left = max(deadline - self.clock.monotonic(), 0.001)
            receipts.append(await self.send(out, timeout=left, queue=queue))
        return receipts

    def submit_send(
        self, out: Outgoing, outcome: Outcome, *, timeout: float | None, retries: int, begun: float, **choice: Any
    ) -> None:
        """Start a send from any thread; its time-out counts from `begun`."""
        limit = self.producer.send_timeout if timeout is None else timeout
        self._dispatcher.submit(Send(out, outcome, retries, limit, begun, **choice))

    def send_and_wait(
        self, out: Outgoing, *, timeout: float | None, retries: int, begun: float, **choice: Any
    ) -> SendReceipt:
        """Send from a thread that has nothing else to do; not the I/O thread."""
        self.io.check_may_wait(self.what)
        caller = BlockedCaller()
        limit = self.producer.send_timeout if timeout is None else timeout
        send = Send(out, caller, retries, limit, begun, **choice)
        for span in out.spans:
            span.by_caller = True
        self._dispatcher.start_here(send)
        try:
            return caller.wait()
        finally:
            for span in out.spans:
                span.finish()

    def new_future(self, on_end: Callable[[], None] | None) -> UserFuture:
        """A future whose callbacks run on this producer's threads."""
        return UserFuture(self._callback_threads, on_end)

    def flush(self) -> None:
        """Start what `auto_batch` holds back; from any thread."""
        self.io.call_soon(self._dispatcher.flush)

    def quick_queue(self, out: Outgoing, sharding_key: str | None, now: float) -> MessageQueue | None:
        """The queue of a send if it can be told without asking anybody."""
        route = self.instance.routes.cached(out.topic)
        if route is None or not route.write_queues:
            return None
        key = out.message.sharding_key if sharding_key is None else sharding_key
        if key is not None:
            return queue_for_key(route.write_queues, key)
        return self._chooser.choose(route.write_queues, None, now)

    async def send_one_way(self, out: Outgoing, **choice: Any) -> None:
        """Write it and forget it."""
        try:
            await self._write(out, **choice)
        except BaseException as error:
            self.ended(out, error, 0.0)
            raise
        self.ended(out, None, 0.0)

    async def _write(self, out: Outgoing, **choice: Any) -> None:
        self.check_running()
        deadline = self.clock.monotonic() + self.producer.send_timeout
        target = await self.choose_queue(out, **choice, deadline=deadline)
        if target is None:
            target = self._chooser.choose(await self.queues(out.topic, deadline), None, self.clock.monotonic())
        address = await self.address_of(target, deadline)
        if out.check is not None:
            await out.check(self.instance, target, address, deadline - self.clock.monotonic())
        command = self.command(out, target)
        asked = self.instance.address_for(out.code, address)
        await self.instance.remoting.invoke_one_way(asked, command, deadline - self.clock.monotonic())

    async def address_of(self, queue: MessageQueue, deadline: float) -> str:
        """Where a queue's master is; asked for until the deadline."""
        return await self._routes.master(queue, deadline)

    async def _attempt(self, out: Outgoing, queue: MessageQueue, deadline: float) -> SendReceipt:
        hooks = self.producer.send_hooks
        now = self.clock.monotonic
        address = await self.address_of(queue, deadline)
        if out.check is not None:
            await out.check(self.instance, queue, address, deadline - now())
        context: SendContext | None = None
        loop = asyncio.get_running_loop()
        if hooks:
            context = SendContext(
                self.producer.group,
                self.producer.namespace,
                out.message,
                self.shown(queue),
                address,
                self.clock.wall_ms(),
            )
            await loop.run_in_executor(self._hook_threads, run_before, hooks, context)
        begun = now()
        try:
            receipt = await self._store(out, queue, address, begun, deadline)
        except BaseException as error:
            self.record_outcome(queue, begun, failed=True)
            if context is not None:
                context.error, context.elapsed = error, now() - begun
                self._tell_hooks(context)
            raise
        self.record_outcome(queue, begun, failed=False)
        self._routes.stored_in(out.topic)
        if context is not None:
            context.receipt, context.elapsed = receipt, now() - begun
            self._tell_hooks(context)
        return receipt

    async def _store(
        self, out: Outgoing, queue: MessageQueue, address: str, begun: float, deadline: float
    ) -> SendReceipt:
        command = self.command(out, queue)
        asked = self.instance.address_for(out.code, address)
        try:
            response = await self.instance.remoting.invoke(asked, command, deadline - self.clock.monotonic())
        except ConnectError as error:
            if asked == address:
                raise
            raise explained(error, address) from error
        if response.code not in STATUS_BY_CODE:
            raise broker_error(asked, out.code, response)
        receipt = read_receipt(response, out.message_id, self.shown(queue))
        self.traced(out, address, begun, receipt, response.fields)
        return receipt

    def traced(
        self, out: Outgoing, address: str, begun: float, receipt: SendReceipt, answered: Mapping[str, str]
    ) -> None:
        """Note a send in the trace, if there is one; `answered` are the fields of the broker's answer."""
        if self._trace is not None and out.topic != self._trace_topic:
            self._trace.sent(out, address, begun, receipt, answered)

    def note(self, make: Callable[[int], Trace]) -> None:
        """Put a record into the trace, if there is one; `make` gets the time in milliseconds."""
        if self._trace is not None:
            self._trace.dispatcher.record(make(self.clock.wall_ms()))

    async def _send_trace(self, message: Message) -> SendReceipt:
        return await self.send(self.preparation.single(message), timeout=_TRACE_TIMEOUT)

    def _tell_hooks(self, context: SendContext) -> None:
        try:
            self._hook_threads.submit(run_after, self.producer.send_hooks, context)
        except RuntimeError:  # shut down: the send that ended with it is still told to its caller
            log.debug("a send to %s ended after its producer; no hook was told", context.address)

    def command(self, out: Outgoing, queue: MessageQueue) -> Command:
        """The request for a queue. An `Outgoing` has one attempt at a time, so its fields are filled in place."""
        fields = out.fields
        fields["e"] = str(queue.queue_id)
        fields["n"] = self.instance.routes.broker_name_of(queue)
        return Command(code=out.code, fields=fields, body=out.body)

    def record_outcome(self, queue: MessageQueue, begun: float, *, failed: bool) -> None:
        """Tell the latency table, if there is one, how an attempt went."""
        if self._chooser.latencies is not None and self._instance is not None:
            now = self.clock.monotonic()
            self._chooser.latencies.record(queue.broker_name, FAILURE_LATENCY if failed else now - begun, now)
