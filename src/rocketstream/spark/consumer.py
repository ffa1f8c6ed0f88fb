"""`SparkConsumer`: the push consumer with Spark as its consume service.

A thin face, as `PushConsumer`'s: settings are checked on the caller's thread, the work is done by `listening`.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Self

from rocketstream.cluster.client import ClientState
from rocketstream.cluster.settings import ClientSettings
from rocketstream.consumer.expressions import Sql, Tag
from rocketstream.consumer.listener import ListenerFunction
from rocketstream.consumer.push_consumer import PushConsumer
from rocketstream.consumer.settings import ConsumerSettings
from rocketstream.consumer.start_from import StartFrom
from rocketstream.errors import ClientStateError, ConfigurationError
from rocketstream.remoting.acl import Credentials
from rocketstream.remoting.hooks import RpcHook
from rocketstream.remoting.tls import Tls
from rocketstream.spark.listening.checkpoint import checkpoint_directory
from rocketstream.spark.listening.core import Rounds, SparkCore
from rocketstream.spark.listening.dispatching import TaskCounts
from rocketstream.spark.listening.runner import Runner, SparkRunner
from rocketstream.spark.listening.shipping import check_rounds, check_settings, ship
from rocketstream.wire.codes import MessageModel

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = logging.getLogger("rocketstream.spark.listening")


class SparkConsumer(PushConsumer):
    """Calls a listener on Spark's executors with the messages of a group's topics, with the push consumer's promises.

    `SparkConsumer(spark, "group", name_servers=..., listener=handle, checkpoint=DIR).subscribe("topic").start()`
    """

    def __init__(
        self,
        spark: SparkSession,
        group: str,
        name_servers: str | Sequence[str] | None = None,
        *,
        listener: ListenerFunction | None = None,
        orderly: bool = False,
        checkpoint: str | os.PathLike[str] | None = None,
        round_time: float = 5.0,
        tasks: int | None = None,
        beside_members: bool = False,
        model: MessageModel = MessageModel.CLUSTERING,
        start_from: StartFrom = StartFrom.LAST,
        instance_name: str | None = None,
        credentials: Credentials | None = None,
        tls: Tls = False,
        rpc_hooks: Sequence[RpcHook] = (),
        **settings: Any,
    ) -> None:
        check_settings({**settings, "model": model, "tls": tls, "credentials": credentials})
        self._rounds = Rounds(round_time, tasks, beside_members, checkpoint_directory(checkpoint))
        check_rounds(self._rounds)
        self._spark = spark
        super().__init__(
            group,
            name_servers,
            listener=listener,
            orderly=orderly,
            model=model,
            start_from=start_from,
            instance_name=instance_name,
            credentials=credentials,
            tls=tls,
            rpc_hooks=rpc_hooks,
            **settings,
        )

    def _make_core(self, client: ClientSettings, consumer: ConsumerSettings, instance_name: str | None) -> SparkCore:
        runner = self._make_runner(consumer)
        self._spark_core = SparkCore(client, consumer, runner, self._rounds, instance_name=instance_name)
        return self._spark_core

    def _make_runner(self, consumer: ConsumerSettings) -> Runner:
        spark: object = self._spark
        if not hasattr(spark, "range") or not hasattr(spark, "conf"):
            raise ConfigurationError(f"spark={spark!r} must be a SparkSession")
        runner = SparkRunner(self._spark, consumer.group)
        runner.check(orderly=consumer.orderly)
        return runner

    def _make_ready(self, loop: asyncio.AbstractEventLoop | None) -> None:
        super()._make_ready(None)  # an `async def` listener runs on a loop of its task's
        core = self._spark_core
        if core.state is ClientState.CREATE_JUST and core.listener is not None:
            core.shipped = ship(core.settings, self._settings, core.listener)
            core.slots = core.runner.slots()

    def subscribe(self, topic: str, expression: str | Tag | Sql = "*") -> Self:  # type: ignore[override]
        """Subscribe to a topic, before or after the start; returns the consumer itself."""
        super().subscribe(topic, expression)
        return self

    @property
    def tasks(self) -> TaskCounts:
        """How many Spark tasks run, ended and failed so far."""
        if self.state is not ClientState.RUNNING:
            return TaskCounts(0, 0, 0, 0)
        return self._spark_core.tasks.counts

    @property
    def failure(self) -> str | None:
        """Why it consumes nothing any more, if it cannot; None while all is well."""
        return self._spark_core.failure

    def run(self) -> None:
        """Start, stay until SIGINT or SIGTERM, then shut down; raises if Spark goes away meanwhile."""
        # Spark's own handler of SIGINT would cancel the running jobs, whose messages were then consumed twice.
        self._run_until(self._spark_core.over)
        if self.failure is not None:
            raise ClientStateError(f"{self._core.what} had to end: {self.failure}")
