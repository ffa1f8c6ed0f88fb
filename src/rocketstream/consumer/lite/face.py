"""The lite pull consumer that users call: thin faces over `LitePullCore`.

What needs no waiting is checked on the caller's thread. A poll that finds something takes it there too, without a word
to the I/O thread; everything else happens on the I/O thread, and is waited for here.
"""

from __future__ import annotations

from collections.abc import Collection, Coroutine, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from types import TracebackType
from typing import Any, Self, TypeVar

from rocketstream.clock import SystemClock
from rocketstream.cluster.client import ClientState, start_and_wait
from rocketstream.cluster.names import check_topic
from rocketstream.cluster.settings import CLIENT_SETTINGS, make_settings
from rocketstream.consumer.expressions import Sql, Tag
from rocketstream.consumer.lite.core import LitePullCore
from rocketstream.consumer.lite.settings import LitePullSettings
from rocketstream.consumer.lite.stock import Batch
from rocketstream.consumer.member_face import MemberFace
from rocketstream.consumer.start_from import StartFrom
from rocketstream.consumer.status import ConsumerStatus
from rocketstream.errors import ConfigurationError
from rocketstream.message import MessageQueue, ReceivedMessage
from rocketstream.remoting.acl import AnyCredentials
from rocketstream.remoting.hooks import RpcHook
from rocketstream.remoting.tls import Tls
from rocketstream.wire.codes import MessageModel

T = TypeVar("T")

# So long, in effect without end, somebody waits who gave no time-out.
FOREVER = 3600.0


class LitePullFace(MemberFace):
    """What the plain and the `aio` lite pull consumer have in common: everything that needs no waiting."""

    _core: LitePullCore

    def __init__(
        self,
        group: str,
        name_servers: str | Sequence[str] | None = None,
        *,
        model: MessageModel = MessageModel.CLUSTERING,
        start_from: StartFrom = StartFrom.LAST,
        auto_commit: bool = True,
        instance_name: str | None = None,
        credentials: AnyCredentials | None = None,
        tls: Tls = False,
        rpc_hooks: Sequence[RpcHook] = (),
        **settings: Any,
    ) -> None:
        settings.update(model=model, start_from=start_from, auto_commit=auto_commit)
        client, lite = make_settings(
            LitePullSettings,
            "a lite pull consumer",
            (*CLIENT_SETTINGS, "persist_offset_interval"),
            settings,
            group=group,
            name_servers=name_servers,
            credentials=credentials,
            tls=tls,
            rpc_hooks=rpc_hooks,
        )
        self._settings = lite
        self._core = LitePullCore(client, lite, instance_name=instance_name)

    def __repr__(self) -> str:
        core = self._core
        if core.chosen:
            what = f"assigned {len(core.chosen)} queues"
        else:
            what = f"subscribed to {', '.join(map(core.names.shown_topic, core.subscriptions)) or 'nothing'}"
        return f"<{type(self).__name__} {self._settings.group} {self.state.value}, {what}>"

    @property
    def core(self) -> LitePullCore:
        """What lives on the I/O thread (for the faces and for tests)."""
        return self._core

    @property
    def auto_commit(self) -> bool:
        """Whether what was polled counts as consumed with the next poll; may be changed at any time."""
        return self._core.auto_commit

    @auto_commit.setter
    def auto_commit(self, auto_commit: bool) -> None:
        if not isinstance(auto_commit, bool):
            raise ConfigurationError(f"auto_commit={auto_commit!r} must be True or False")
        core = self._core
        core.check_process()
        if core.state is ClientState.RUNNING:
            core.io.call_soon(core.set_auto_commit, auto_commit)
        else:
            core.auto_commit = auto_commit

    def _check_queues(self, queues: Iterable[MessageQueue], expression: str | Tag | Sql = "*") -> list[MessageQueue]:
        if isinstance(queues, MessageQueue) or not isinstance(queues, Iterable):
            raise ConfigurationError(f"queues={queues!r} must be a list of MessageQueue")
        checked = [check_queue(queue) for queue in queues]
        for queue in checked:
            self._check_topic(queue.topic, expression)
        return checked

    def _check_commit(
        self, what: Mapping[MessageQueue, int] | Iterable[MessageQueue] | None
    ) -> Mapping[MessageQueue, int] | list[MessageQueue] | None:
        if isinstance(what, Mapping):
            return {check_queue(queue): check_offset(offset) for queue, offset in what.items()}
        return None if what is None else self._check_queues(what)

    def _poll_time(self, timeout: float | None) -> float:
        """How long a poll may wait; an error where it could not be made."""
        core = self._core
        core.check_running()
        if timeout is None:
            return self._settings.poll_timeout
        if isinstance(timeout, bool) or not isinstance(timeout, int | float) or not timeout >= 0:
            raise ConfigurationError(f"timeout={timeout!r} must be a number of seconds, 0 or more, or None")
        return min(timeout, FOREVER)


def check_queue(queue: object) -> MessageQueue:
    """A queue, or an error that says what was given instead."""
    if not isinstance(queue, MessageQueue):
        raise ConfigurationError(f"queue={queue!r} must be a MessageQueue(topic, broker_name, queue_id)")
    name: object = queue.broker_name
    number: object = queue.queue_id
    if not isinstance(name, str) or not isinstance(number, int) or isinstance(number, bool) or number < 0:
        raise ConfigurationError(f"queue={queue!r} must have a broker's name and a queue id of 0 or more")
    return queue


def check_offset(offset: object) -> int:
    """An offset, or an error that says what was given instead."""
    if isinstance(offset, bool) or not isinstance(offset, int) or offset < 0:
        raise ConfigurationError(f"offset={offset!r} must be a whole number, 0 or more")
    return offset


def milliseconds(moment: object) -> int:
    """A moment in milliseconds since the epoch; it is a `datetime`, or that already."""
    if isinstance(moment, datetime):
        return max(round(moment.timestamp() * 1000), 0)
    if isinstance(moment, bool) or not isinstance(moment, int) or moment < 0:
        raise ConfigurationError(f"moment={moment!r} must be a datetime, or milliseconds since the epoch")
    return moment


class LitePullConsumer(LitePullFace):
    """Gives a program the messages of a group's topics, or of queues of its choice, when it asks for them.

    `with LitePullConsumer("group", name_servers=...) as puller: puller.subscribe("topic"); puller.poll()`. It may be
    polled by several threads.
    """

    def start(self) -> None:
        """Return once it is registered, routed and has its queues, or raise saying what is missing."""
        start_and_wait(self._core)

    def shutdown(self, timeout: float | None = None) -> None:
        """Stop pulling, commit what was polled (with `auto_commit`), leave the group; polls that wait end.

        Whoever shuts down says that what was polled is finished; after an error in a `with` block that is not assumed.
        """
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
            self._core.ended_well = error is None
            self.shutdown()

    # --- which queues -----------------------------------------------------------------------------------------------

    def subscribe(self, topic: str, expression: str | Tag | Sql = "*") -> None:
        """Have a share of a topic's queues, before or after the start; a second time replaces the expression."""
        self._check_topic(topic, expression)
        self._run(self._core.subscribe(topic, expression))

    def unsubscribe(self, topic: str) -> None:
        """End a subscription; what was pulled ahead is not given out any more."""
        self._run(self._core.unsubscribe(topic))

    def assign(self, queues: Collection[MessageQueue], expression: str | Tag | Sql = "*") -> None:
        """Have exactly these queues, whoever else has them; `assign([])` gives them up. Not beside `subscribe`."""
        self._run(self._core.assign(self._check_queues(queues, expression), expression))

    def fetch_queues(self, topic: str) -> tuple[MessageQueue, ...]:
        """The queues of a topic, for `assign`."""
        check_topic(topic)
        return self._run(self._core.fetch_queues(topic))

    @property
    def assignment(self) -> tuple[MessageQueue, ...]:
        """The queues that this consumer has now."""
        return self._run(self._core.overview.assignment())

    # --- messages ---------------------------------------------------------------------------------------------------

    def poll(self, timeout: float | None = None) -> list[ReceivedMessage]:
        """The messages of one pull: of one queue, in order; none if none came in `timeout` (5) seconds.

        What was polled before counts as finished, and is committed by itself with `auto_commit`.
        """
        batch = self._take(self._poll_time(timeout))
        if batch is None:
            return []
        self._core.polls.given(batch)
        return list(batch.messages)

    def __iter__(self) -> Iterator[ReceivedMessage]:
        """Message by message, until it is shut down; whoever breaks off gets the next one with the next loop or poll.

        A message counts as finished when the next one is asked for.
        """
        self._poll_time(None)
        return self._messages()

    def _messages(self) -> Iterator[ReceivedMessage]:
        while self._core.is_running:
            batch = self._take(FOREVER)
            if batch is None:
                continue
            polls = self._core.polls
            reading, pq = polls.open(batch), batch.process_queue
            through = False
            try:
                for message in batch.messages:
                    if pq.dropped:  # lost meanwhile: the rest is another's
                        break
                    reading.given += 1
                    yield message
                else:
                    through = True
            finally:
                polls.close(reading, through=through)

    def _take(self, timeout: float) -> Batch | None:
        core = self._core
        polls, stock = core.polls, core.polls.stock
        batch = stock.take()
        if batch is None:
            core.io.check_may_wait(core.what)
            polls.finished()
            batch = self._wait(timeout)
        if batch is not None and polls.is_watched:
            polls.show(batch)
        return batch

    def _wait(self, timeout: float) -> Batch | None:
        # A real thread waits for real time, whatever the client's clock says.
        stock, now = self._core.polls.stock, SystemClock.monotonic
        deadline = now() + timeout
        while not stock.closed:
            waiter = stock.wait()
            if waiter is not None:
                try:
                    waiter.result(max(deadline - now(), 0.0))
                except TimeoutError:
                    stock.give_up(waiter)
                    return stock.take()
                except BaseException:
                    stock.give_up(waiter)
                    raise
            batch = stock.take()
            if batch is not None:
                return batch
        return None

    # --- where in the queues ----------------------------------------------------------------------------------------

    def seek(self, queue: MessageQueue, offset: int) -> None:
        """Go on with this offset of a queue; what was pulled ahead is forgotten. The broker must have the offset."""
        self._run(self._core.seek(check_queue(queue), check_offset(offset)))

    def seek_to_begin(self, queue: MessageQueue) -> None:
        """Go on with the oldest message of a queue."""
        self._run(self._core.seek_to_begin(check_queue(queue)))

    def seek_to_end(self, queue: MessageQueue) -> None:
        """Go on with what comes to a queue from now on."""
        self._run(self._core.seek_to_end(check_queue(queue)))

    def seek_to_timestamp(self, queue: MessageQueue, moment: datetime | int) -> None:
        """Go on with the first message of a queue that was stored at a moment (ms since the epoch) or later."""
        self._run(self._core.seek_to_timestamp(check_queue(queue), milliseconds(moment)))

    def offset_for_timestamp(self, queue: MessageQueue, moment: datetime | int) -> int:
        """The offset of the first message that was stored at a moment (ms since the epoch) or later; else the end."""
        return self._run(self._core.offset_for_timestamp(check_queue(queue), milliseconds(moment)))

    def pause(self, queues: Iterable[MessageQueue] | None = None) -> None:
        """Pull and give out nothing of these queues, or of all that it has now."""
        self._run(self._core.pause(None if queues is None else self._check_queues(queues)))

    def resume(self, queues: Iterable[MessageQueue] | None = None) -> None:
        """Go on with these queues, or with all."""
        self._run(self._core.resume(None if queues is None else self._check_queues(queues)))

    # --- committing -------------------------------------------------------------------------------------------------

    def commit(self, offsets: Mapping[MessageQueue, int] | Iterable[MessageQueue] | None = None) -> None:
        """Store what was polled: of all queues, of some, or exactly these offsets (of the next message to consume).

        Returns when the brokers have it; `OffsetStoreError` if one does not take it.
        """
        self._run(self._core.commit(self._check_commit(offsets)))

    def committed(self, queue: MessageQueue) -> int | None:
        """Where the group would go on with a queue; None if it has no offset there."""
        return self._run(self._core.committed(check_queue(queue)))

    def status(self) -> ConsumerStatus:
        """Per queue: offsets, what waits to be polled, lag, the last pull, and why it waits if it does."""
        return self._run(self._core.overview.status())

    def _run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        return self._core.io.run(coroutine, self._core.what)
