"""The push consumer that users call: a thin face over `ConsumerCore`.

Settings and subscriptions are checked on the caller's thread; everything else happens on the I/O thread, and is waited
for here.
"""

from __future__ import annotations

import asyncio
import logging
import signal
import threading
from collections.abc import Callable, Coroutine, Sequence
from types import TracebackType
from typing import Any, Self, TypeVar

from rocketstream.cluster.client import ClientState, start_and_wait
from rocketstream.cluster.names import RETRY_PREFIX
from rocketstream.cluster.settings import CLIENT_SETTINGS, ClientSettings, make_settings
from rocketstream.consumer.core import ConsumerCore
from rocketstream.consumer.expressions import Sql, Tag
from rocketstream.consumer.listener import HandlerFunction, ListenerFunction, make_listener
from rocketstream.consumer.member_face import MemberFace
from rocketstream.consumer.settings import ConsumerSettings
from rocketstream.consumer.start_from import StartFrom
from rocketstream.consumer.status import ConsumerStatus
from rocketstream.errors import ClientStateError, ConfigurationError
from rocketstream.message import MessageQueue
from rocketstream.remoting.acl import AnyCredentials
from rocketstream.remoting.hooks import RpcHook
from rocketstream.remoting.tls import Tls
from rocketstream.stop_event import StopEvent
from rocketstream.wire.codes import MessageModel

T = TypeVar("T")
HandlerT = TypeVar("HandlerT", bound=HandlerFunction)

log = logging.getLogger("rocketstream.consumer")

_CLIENT_SETTINGS = (*CLIENT_SETTINGS, "persist_offset_interval")


class ConsumerFace(MemberFace):
    """What the plain and the `aio` consumer have in common: everything that needs no waiting."""

    def __init__(
        self,
        group: str,
        name_servers: str | Sequence[str] | None = None,
        *,
        listener: ListenerFunction | None = None,
        orderly: bool = False,
        model: MessageModel = MessageModel.CLUSTERING,
        start_from: StartFrom = StartFrom.LAST,
        instance_name: str | None = None,
        credentials: AnyCredentials | None = None,
        tls: Tls = False,
        rpc_hooks: Sequence[RpcHook] = (),
        **settings: Any,
    ) -> None:
        settings.update(orderly=orderly, model=model, start_from=start_from)
        client, consumer = make_settings(
            ConsumerSettings,
            "a consumer",
            _CLIENT_SETTINGS,
            settings,
            group=group,
            name_servers=name_servers,
            credentials=credentials,
            tls=tls,
            rpc_hooks=rpc_hooks,
        )
        self._settings = consumer
        self._core = self._make_core(client, consumer, instance_name)
        self._function: ListenerFunction | None = None
        self._handlers: dict[str, HandlerFunction] = {}
        if listener is not None:
            self.set_listener(listener)

    def _make_core(self, client: ClientSettings, consumer: ConsumerSettings, instance_name: str | None) -> ConsumerCore:
        return ConsumerCore(client, consumer, instance_name=instance_name)

    def __repr__(self) -> str:
        shown = map(self._core.names.shown_topic, self._core.subscriptions)
        topics = ", ".join(topic for topic in shown if not topic.startswith(RETRY_PREFIX)) or "nothing"
        return f"<{type(self).__name__} {self._settings.group} {self.state.value}, subscribed to {topics}>"

    def set_listener(self, listener: ListenerFunction) -> None:
        """Give the function that is called with messages; before the start."""
        self._check_new("set_listener()")
        make_listener(listener, {}, orderly=self._settings.orderly)
        self._function = listener

    def handler(self, topic: str, expression: str | Tag | Sql = "*") -> Callable[[HandlerT], HandlerT]:
        """Subscribe a function to a topic. It gets one message at a time; returning is success, raising is "later".

        As a decorator: `@consumer.handler("orders", "paid")`.
        """
        self._check_new("handler()")
        if self._settings.consume_message_batch_max_size != 1:
            raise ConfigurationError(
                f"consume_message_batch_max_size={self._settings.consume_message_batch_max_size!r} must be 1 with"
                " handlers, which get one message at a time; use a listener for batches"
            )
        if topic in self._handlers:
            raise ConfigurationError(f"topic {topic!r} has a handler already: {self._handlers[topic]!r}")

        def register(function: HandlerT) -> HandlerT:
            if not callable(function):
                raise ConfigurationError(
                    f"the handler of topic {topic!r} must be a function of a message: {function!r}"
                )
            self._set_subscription(topic, expression)
            self._handlers[topic] = function
            return function

        return register

    def _set_subscription(self, topic: str, expression: str | Tag | Sql) -> None:
        self._check_topic(topic, expression)
        self._core.subscribing.before_start(topic, expression)

    def _check_new(self, what: str) -> None:
        self._core.check_process()
        if self._core.state is not ClientState.CREATE_JUST:
            raise ClientStateError(f"{self._core.what} is {self.state.value}: {what} comes before start()")

    def _make_ready(self, loop: asyncio.AbstractEventLoop | None) -> None:
        if self._core.state is ClientState.CREATE_JUST:
            self._core.listener = make_listener(self._function, self._handlers, orderly=self._settings.orderly)
            self._core.listener_loop = loop


def running_loop() -> asyncio.AbstractEventLoop | None:
    """The event loop of the calling thread, if it runs one."""
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


class PushConsumer(ConsumerFace):
    """Calls a listener with the messages of a group's topics, and keeps RocketMQ's promises about them.

    `consumer = PushConsumer("group", name_servers=..., listener=handle); consumer.subscribe("topic"); consumer.run()`
    """

    def start(self) -> None:
        """Return once it is registered, routed and has its queues, or raise saying what is missing."""
        self._make_ready(running_loop())
        start_and_wait(self._core)

    def shutdown(self, timeout: float | None = None) -> None:
        """Stop pulling, let running listeners end (up to `timeout` seconds), store offsets, leave the group."""
        self._core.check_process()
        if self._core.state is ClientState.RUNNING:
            self._run(self._core.shutdown(timeout))

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None or not self._core.io.is_elsewhere:  # what ends a forked child is not hidden
            self.shutdown()

    def run(self) -> None:
        """Start, stay until SIGINT or SIGTERM, then shut down; for the main thread of a program."""
        self._run_until(StopEvent())

    def _run_until(self, over: StopEvent) -> None:
        """Start, stay until somebody sets the event, as SIGINT and SIGTERM do, then shut down."""
        self._core.check_process()
        previous = {}
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):
                previous[number] = signal.signal(number, lambda *_: over.set())
        try:
            self.start()
            try:
                while not over.wait(3600.0):
                    pass
            finally:
                log.info("%s ends", self._core.what)
                self.shutdown()
        finally:
            for number, handler in previous.items():
                signal.signal(number, handler)

    def subscribe(self, topic: str, expression: str | Tag | Sql = "*") -> None:
        """Subscribe to a topic, before or after the start; a second time replaces the expression."""
        self._check_topic(topic, expression)
        if self._core.state is ClientState.RUNNING:
            self._run(self._core.subscribing.subscribe(topic, expression))
        else:
            self._core.subscribing.before_start(topic, expression)

    def unsubscribe(self, topic: str) -> None:
        """End a subscription."""
        self._run(self._core.subscribing.unsubscribe(topic))

    def suspend(self) -> None:
        """Pull nothing for now; what was pulled already is consumed."""
        self._run(self._core.set_paused(True))

    def resume(self) -> None:
        """Pull again."""
        self._run(self._core.set_paused(False))

    @property
    def assignment(self) -> tuple[MessageQueue, ...]:
        """The queues that this consumer has now."""
        return self._run(self._core.overview.assignment())

    def status(self) -> ConsumerStatus:
        """Per queue: offsets, what is cached, lag, lock, the last pull, and why it waits if it does."""
        return self._run(self._core.overview.status())

    def _run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        return self._core.io.run(coroutine, self._core.what)
