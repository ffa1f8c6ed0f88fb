"""The Spark consumer on the driver's I/O thread: the push consumer, with Spark where its threads were.

The rule of this file: it adds what Spark needs and changes nothing else. Membership, heartbeats, subscriptions,
rebalance, locks, resets and the order of start and shutdown are the push consumer's own.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from rocketstream.cluster.settings import ClientSettings
from rocketstream.consumer.answers import OperatorAnswers
from rocketstream.consumer.broker_offsets import BrokerOffsets
from rocketstream.consumer.core import ConsumerCore
from rocketstream.consumer.listener import Listener
from rocketstream.consumer.offset_store import OffsetStore
from rocketstream.consumer.overview import Overview
from rocketstream.consumer.pop_request import Request
from rocketstream.consumer.pull_request import PullRequest
from rocketstream.consumer.settings import ConsumerSettings
from rocketstream.consumer.status import QueueStatus
from rocketstream.errors import BrokerError, ClientStateError
from rocketstream.message import ReceivedMessage
from rocketstream.spark.listening.checkpoint import CheckpointedOffsets
from rocketstream.spark.listening.dispatching import SparkConsumption
from rocketstream.spark.listening.runner import Runner
from rocketstream.spark.listening.watching import QueueWatcher
from rocketstream.stop_event import StopEvent
from rocketstream.wire.bodies.members import ConsumerConnection
from rocketstream.wire.bodies.running_info import ProcessQueueInfo
from rocketstream.wire.codes import RequestCode, ResponseCode
from rocketstream.wire.headers.group import GetConsumerConnectionListRequestHeader

log = logging.getLogger("rocketstream.spark.listening")

_WATCH_INTERVAL: Final = 10.0


class SparkOverview(Overview):
    """What the driver tells of queues whose messages it has never seen."""

    def __init__(self, core: SparkCore) -> None:
        super().__init__(core)
        self._spark_core = core

    def queues(self) -> tuple[QueueStatus, ...]:
        """Where each queue is; what was read and is not finished counts as cached."""
        requests = [request for _, request in sorted(self._spark_core.rebalancer.requests.items())]
        return tuple(map(self._with_unfinished, super().queues(), requests))

    def _with_unfinished(self, status: QueueStatus, request: Request) -> QueueStatus:
        unfinished = self._spark_core.tasks.unfinished(request)
        if not unfinished:
            return status
        lag = status.lag + status.next_offset - unfinished[0]
        return replace(status, cached_first=unfinished[0], cached_last=unfinished[-1], lag=lag)


class SparkAnswers(OperatorAnswers):
    """What operators are told of queues whose messages the driver has never seen."""

    def __init__(self, core: SparkCore) -> None:
        super().__init__(core)
        self._spark_core = core

    def queue_info(self, request: PullRequest) -> ProcessQueueInfo:
        """One queue; what was read and is not finished counts as cached."""
        info = super().queue_info(request)
        unfinished = self._spark_core.tasks.unfinished(request)
        if not unfinished:
            return info
        return replace(
            info,
            cached_msg_min_offset=unfinished[0],
            cached_msg_max_offset=unfinished[-1],
            cached_msg_count=len(unfinished),
        )

    async def consume_directly(self, message: ReceivedMessage, broker_name: str) -> None:
        """The listener is for executors: what it needs may not be on the driver at all."""
        raise ClientStateError(
            f"{self._spark_core.what} runs its listener on Spark's executors and takes no message from an operator:"
            f" send it to topic {message.topic!r} again instead"
        )


@dataclass(frozen=True, slots=True)
class Rounds:
    """How a consumer uses Spark."""

    round_time: float = 5.0
    """For so many seconds a task takes new messages; then it lets begun ones end and reports."""
    tasks: int | None = None
    """How many tasks run at a time; None: as many as the session has slots."""
    beside_members: bool = False
    """Whether it may start in a group that has other members: they share the queues then."""
    checkpoint: Path | None = None


class SparkCore(ConsumerCore):
    """A member of its group whose messages are consumed by Spark."""

    def __init__(
        self,
        client: ClientSettings,
        consumer: ConsumerSettings,
        runner: Runner,
        rounds: Rounds,
        *,
        instance_name: str | None = None,
    ) -> None:
        super().__init__(client, consumer, instance_name=instance_name)
        self.what = f"Spark consumer of group {consumer.group!r}"
        self.runner = runner
        self.rounds = rounds
        self.overview = SparkOverview(self)
        self.answers = SparkAnswers(self)
        self.shipped = b""
        """The pickled listener and settings; set before the start."""
        self.slots = 1
        """How many tasks Spark can run at a time, when it was last asked; set before the start."""
        self.failure: str | None = None
        """Why it cannot go on, though nobody has shut it down."""
        self.over = StopEvent()
        """Set when there is nothing left to wait for."""

    @property
    def tasks(self) -> SparkConsumption:
        """Who has tasks run."""
        assert isinstance(self.consumption, SparkConsumption)
        return self.consumption

    @property
    def watcher(self) -> QueueWatcher:
        """Who finds out that there is something to consume."""
        assert isinstance(self.puller, QueueWatcher)
        return self.puller

    @property
    def project(self) -> str | None:
        """The project that this machine belongs to, if any (RES-05)."""
        return self.names.project

    # --- its parts --------------------------------------------------------------------------------------------------

    def make_puller(self) -> QueueWatcher:
        """Who finds out that there is something to consume."""
        return QueueWatcher(self)

    def make_consumption(self, listener: Listener | None) -> SparkConsumption:
        """Spark."""
        return SparkConsumption(self, self.runner, self.rounds.tasks or self.slots)

    def own_offset_store(self) -> OffsetStore:
        """At the brokers, and in the checkpoint if there is one."""
        if self.rounds.checkpoint is None:
            return BrokerOffsets(self.instance, self.group, self.pull_request)
        return CheckpointedOffsets(self.instance, self.group, self.rounds.checkpoint, self.pull_request)

    # --- its life ---------------------------------------------------------------------------------------------------

    async def on_start(self) -> None:
        """As every consumer, once it is certain that nobody else has the queues."""
        await self.instance.start()
        if not self.rounds.beside_members:
            await self._refuse_company()
        await super().on_start()

    async def _refuse_company(self) -> None:
        """Raise if the group has members: they and Spark would take queues from one another."""
        instance = self.instance
        await instance.name_servers.check(self.settings.api_timeout)
        for topic in self.subscriptions:
            await instance.routes.refresh(topic)
        header = GetConsumerConnectionListRequestHeader(consumer_group=self.group)
        members: set[str] = set()
        for broker in tuple(instance.brokers):
            if broker.is_slave:
                continue
            try:
                answer = await instance.ask(broker.address, RequestCode.GET_CONSUMER_CONNECTION_LIST, header)
            except BrokerError as error:
                if error.code != ResponseCode.CONSUMER_NOT_ONLINE:
                    raise
                continue
            members |= {one.client_id for one in ConsumerConnection.decode(answer.body).connection_set}
        members.discard(self.client_id)
        if members:
            raise ClientStateError(
                f"{self.what} cannot start: the group has {len(members)} other members ({', '.join(sorted(members))})."
                " Stop them first (brokers forget one that was killed within 2 minutes), use another group, or say"
                " beside_members=True to share the queues with them"
            )

    def _start_timers(self) -> None:
        super()._start_timers()
        every = self.instance.timers.every
        self._periodic.append(every("watch Spark tasks", _WATCH_INTERVAL, _WATCH_INTERVAL, self.tasks.watch))

    def give_up(self, why: str) -> None:
        """No task will ever run again: say so; `run()` ends."""
        if self.failure is None:
            self.failure = why
            log.error("%s consumes nothing any more: %s", self.what, why)
            self.over.set()
