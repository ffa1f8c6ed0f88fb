"""The producer that users call: a thin face over `ProducerCore`.

Checking and making ready happen on the caller's thread; sending on the I/O thread; waiting here.
"""

from __future__ import annotations

import concurrent.futures
from collections.abc import Callable, Coroutine, Mapping, Sequence
from types import TracebackType
from typing import Any, Self, TypeVar

from rocketstream.cluster.client import BoundToProcess, ClientState, start_and_wait
from rocketstream.cluster.settings import CLIENT_SETTINGS, ClientSettings, make_settings
from rocketstream.errors import ConfigurationError
from rocketstream.message import Message, MessageQueue, ReceivedMessage
from rocketstream.producer import request_reply, timer
from rocketstream.producer.accumulator import can_share
from rocketstream.producer.async_gate import AsyncGate
from rocketstream.producer.core import ProducerCore, Selector
from rocketstream.producer.outgoing import Outgoing
from rocketstream.producer.receipt import SendReceipt
from rocketstream.producer.settings import ProducerSettings
from rocketstream.producer.user_future import UserFuture
from rocketstream.producer.validation import check_batch, check_message, check_timeout
from rocketstream.remoting.acl import AnyCredentials
from rocketstream.remoting.hooks import RpcHook
from rocketstream.remoting.tls import Tls

T = TypeVar("T")


class Producer(BoundToProcess):
    """Sends messages. `with Producer("group", name_servers=...) as producer: producer.send(Message(...))`."""

    def __init__(
        self,
        group: str,
        name_servers: str | Sequence[str] | None = None,
        *,
        instance_name: str | None = None,
        credentials: AnyCredentials | None = None,
        tls: Tls = False,
        rpc_hooks: Sequence[RpcHook] = (),
        **settings: Any,
    ) -> None:
        client, producer = make_settings(
            ProducerSettings,
            "a producer",
            CLIENT_SETTINGS,
            settings,
            group=group,
            name_servers=name_servers,
            credentials=credentials,
            tls=tls,
            rpc_hooks=rpc_hooks,
        )
        self._core = self._make_core(client, producer, instance_name)
        self._settings = producer
        self._gate = AsyncGate(producer.max_async_messages, producer.max_async_bytes)

    def _make_core(self, client: ClientSettings, producer: ProducerSettings, instance_name: str | None) -> ProducerCore:
        return ProducerCore(client, producer, instance_name=instance_name)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._settings.group} {self.state.value}, {self._gate!r}>"

    # --- life -------------------------------------------------------------------------------------------------------

    @property
    def state(self) -> ClientState:
        """Where it is in its life."""
        return self._core.state

    @property
    def client_id(self) -> str:
        """How brokers know this client."""
        return self._core.client_id

    @property
    def metrics(self) -> Mapping[str, Mapping[str, int]]:
        """What was sent so far, per topic (`docs/howto-metrics.md`)."""
        return self._core.meters.metrics()

    @property
    def core(self) -> ProducerCore:
        """What lives on the I/O thread (for the faces)."""
        return self._core

    def start(self) -> None:
        """Connect, or raise saying what is missing."""
        start_and_wait(self._core)

    def shutdown(self, timeout: float = 30.0) -> None:
        """Wait for what `send_async` has under way, at most `timeout` seconds, and end; harmless when repeated."""
        check_timeout(timeout)
        self._core.io.check(self._core.what)
        if self.state is ClientState.RUNNING:
            self._core.flush()
            self._gate.wait_empty(timeout)
        self._run(self._core.shutdown(timeout))

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None or not self._core.io.is_elsewhere:  # what ends a forked child is not hidden
            self.shutdown()

    # --- sending ----------------------------------------------------------------------------------------------------

    def queues(self, topic: str) -> tuple[MessageQueue, ...]:
        """The queues of a topic that can be written to."""
        self._core.check_running()
        return self._run(self._core.user_queues(topic))

    def send(
        self,
        message: Message,
        *,
        queue: MessageQueue | None = None,
        sharding_key: str | None = None,
        selector: Selector | None = None,
        arg: Any = None,
        timeout: float | None = None,
    ) -> SendReceipt:
        """Send a message and return the broker's receipt; `SendFailedError` says who was tried and why it failed."""
        out = self.ready(message, queue, sharding_key, selector, timeout)
        choice = {"queue": queue, "sharding_key": sharding_key, "selector": selector, "arg": arg}
        return self._send_and_wait(out, timeout, self._core.clock.monotonic(), **choice)

    def _send_and_wait(self, out: Outgoing, timeout: float | None, begun: float, **choice: Any) -> SendReceipt:
        return self._core.send_and_wait(out, timeout=timeout, retries=self._settings.retries, begun=begun, **choice)

    def send_oneway(
        self,
        message: Message,
        *,
        queue: MessageQueue | None = None,
        sharding_key: str | None = None,
        selector: Selector | None = None,
        arg: Any = None,
    ) -> None:
        """Send a message without waiting for an answer; whether it was stored is not known."""
        out = self.ready(message, queue, sharding_key, selector, None)
        self._run(self._core.send_one_way(out, queue=queue, sharding_key=sharding_key, selector=selector, arg=arg))

    def send_batch(
        self, messages: Sequence[Message], *, queue: MessageQueue | None = None, timeout: float | None = None
    ) -> list[SendReceipt]:
        """Send messages of one topic in as few requests as their size allows; a receipt per request, in order."""
        batches = self.ready_batch(messages, queue, timeout)
        begun = self._core.clock.monotonic()  # one budget of time for all of them
        return [self._send_and_wait(out, timeout, begun, queue=queue) for out in batches]

    def ready_batch(
        self, messages: Sequence[Message], queue: MessageQueue | None, timeout: float | None
    ) -> list[Outgoing]:
        """Check messages and make their requests ready, on the caller's thread (for the faces)."""
        self._core.check_running()
        check_timeout(timeout)
        bodies = check_batch(messages, self._settings)
        check_choice(queue, None, None)
        return self._core.preparation.batches(messages, bodies)

    def send_async(
        self,
        message: Message,
        *,
        queue: MessageQueue | None = None,
        sharding_key: str | None = None,
        selector: Selector | None = None,
        arg: Any = None,
        timeout: float | None = None,
    ) -> concurrent.futures.Future[SendReceipt]:
        """Send a message and return a future of its receipt.

        While `max_async_messages` or `max_async_bytes` are under way it waits for room, at most the time-out.
        """
        self._core.check_process()  # the gate's lock may be held by a thread that stayed in the parent
        check_timeout(timeout)
        # About the size: what is compressed takes less, and the room is needed before the work is done.
        size = len(message.body) if isinstance(message, Message) and isinstance(message.body, bytes) else 0
        gate = self._gate
        gate.enter(size, self._settings.send_timeout if timeout is None else timeout)
        try:
            future = self.submit(
                message,
                queue=queue,
                sharding_key=sharding_key,
                selector=selector,
                arg=arg,
                timeout=timeout,
                on_end=lambda: gate.leave(size),
            )
        except BaseException:
            gate.leave(size)
            raise
        if not self._settings.auto_batch:  # those wait for others anyway
            self._core.catch_up()
        return future

    def submit(
        self,
        message: Message,
        *,
        queue: MessageQueue | None,
        sharding_key: str | None,
        selector: Selector | None,
        arg: Any,
        timeout: float | None,
        on_end: Callable[[], None] | None = None,
    ) -> UserFuture:
        """Start an asynchronous send without a bound on how many are under way (for the faces).

        `on_end` is called once if this returns, on the thread on which the send ends.
        """
        out = self.ready(message, queue, sharding_key, selector, timeout)
        chosen = queue is not None or sharding_key is not None or selector is not None
        future = self._core.new_future(on_end)
        self._core.submit_send(
            out,
            future,
            timeout=timeout,
            begun=self._core.clock.monotonic(),
            retries=self._settings.retries_async,
            may_wait=self._settings.auto_batch and not chosen and can_share(message, self._settings),
            queue=queue,
            sharding_key=sharding_key,
            selector=selector,
            arg=arg,
        )
        return future

    # --- requests, replies, recall ----------------------------------------------------------------------------------

    def request(
        self,
        message: Message,
        *,
        queue: MessageQueue | None = None,
        sharding_key: str | None = None,
        selector: Selector | None = None,
        arg: Any = None,
        timeout: float = request_reply.DEFAULT_TIMEOUT,
    ) -> ReceivedMessage:
        """Send a message and return the reply to it; `ReplyTimeoutError` if none comes within the time-out."""
        out, correlation_id = self.ready_request(message, queue, sharding_key, selector, timeout)
        choice = {"queue": queue, "sharding_key": sharding_key, "selector": selector, "arg": arg}
        return self._run(request_reply.request(self._core, out, correlation_id, timeout=timeout, **choice))

    def ready_request(
        self,
        message: Message,
        queue: MessageQueue | None,
        sharding_key: str | None,
        selector: Selector | None,
        timeout: float,
    ) -> tuple[Outgoing, str]:
        """Check a request and make it ready, on the caller's thread (for the faces)."""
        self._core.check_running()
        check_timeout(timeout)
        check_message(message, self._settings)
        check_choice(queue, sharding_key, selector)
        return request_reply.prepare_request(self._core, message, timeout)

    def reply(
        self,
        received: ReceivedMessage,
        body: bytes,
        *,
        tags: str | None = None,
        keys: str | None = None,
        properties: Mapping[str, str] | None = None,
        timeout: float | None = None,
    ) -> SendReceipt:
        """Reply to a message that somebody sent with `request`; an error tells that the reply did not reach them."""
        self._core.check_running()
        check_timeout(timeout)
        out = request_reply.prepare_reply(self._core, received, body, tags=tags, keys=keys, properties=properties)
        return self._run(request_reply.reply(self._core, out, received.broker_name, timeout))

    def recall(self, topic: str, handle: str, *, timeout: float | None = None) -> str:
        """Take a timer message back before it is due (5.x); `handle` is its receipt's `recall_handle`.

        Returns its message id. The broker does not say whether there was still a message to take back.
        """
        self._core.check_running()
        check_timeout(timeout)
        return self._run(timer.recall(self._core, topic, handle, timeout))

    # --- making ready -----------------------------------------------------------------------------------------------

    def ready(
        self,
        message: Message,
        queue: MessageQueue | None,
        sharding_key: str | None,
        selector: Selector | None,
        timeout: float | None,
    ) -> Outgoing:
        """Check a message and make it ready, on the caller's thread (for the faces)."""
        self._core.check_running()
        check_timeout(timeout)
        check_message(message, self._settings)
        check_choice(queue, sharding_key, selector)
        return self._core.preparation.single(message)

    def _run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        return self._core.io.run(coroutine, self._core.what)


def check_choice(queue: MessageQueue | None, sharding_key: str | None, selector: Selector | None) -> None:
    """Refuse a choice of queue that is none, or more than one."""
    if queue is not None and not isinstance(queue, MessageQueue):
        raise ConfigurationError(f"queue={queue!r} is not a MessageQueue")
    if sharding_key is not None and (not isinstance(sharding_key, str) or not sharding_key):
        raise ConfigurationError(f"sharding_key={sharding_key!r} must be a text that is not empty")
    if selector is not None and not callable(selector):
        raise ConfigurationError(f"selector={selector!r} cannot be called")
    given = [
        name for name, value in (("queue", queue), ("sharding_key", sharding_key), ("selector", selector)) if value
    ]
    if len(given) > 1:
        raise ConfigurationError(f"{' and '.join(given)} were given: only one of them can choose the queue")
