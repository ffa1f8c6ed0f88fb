"""How a task gets to an executor: one Spark job with one task, for which a thread of the driver waits.

The rule of this file: everything that is Spark's is here. A job has one partition, so that a slow task holds up its own
queues and no others; several run side by side, from several threads. A plain Python UDF carries it, since that needs
neither pandas nor jars and works in classic sessions and over Spark Connect alike.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Final, Protocol

from rocketstream.errors import ConfigurationError
from rocketstream.spark.listening.task import TaskCore
from rocketstream.spark.listening.task_client import task_client
from rocketstream.spark.listening.values import TaskPlan, TaskResult

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = logging.getLogger("rocketstream.spark.listening")

# Where a session does not say how many tasks it can run at a time.
_UNKNOWN_SLOTS: Final = 2


def run_task(shipped: bytes, plan: TaskPlan) -> TaskResult:
    """Run a task in this process; blocks until it has ended."""
    client = task_client(shipped)

    async def run() -> TaskResult:
        return await TaskCore(client, plan).run_task()

    return client.io.run(run(), f"task {plan.number} of group {client.work.consumer.group}")


class Runner(Protocol):
    """Who runs tasks. All methods may block, and are called from any thread."""

    def slots(self) -> int:
        """How many tasks can run at a time."""

    def run(self, shipped: bytes, plan: TaskPlan) -> TaskResult:
        """Run a task somewhere and wait for it; raises whatever kept it from ending."""

    def cancel(self) -> None:
        """End the tasks that run; what they have not finished comes again."""

    def why_dead(self) -> str | None:
        """Why no task will ever run again; None while they can."""


class TaskFunction:
    """What Spark calls on an executor."""

    def __init__(self, shipped: bytes, plan: TaskPlan) -> None:
        self._shipped = shipped
        self._plan = plan

    def __call__(self, _: int) -> str:
        """Run the task; its result as JSON."""
        return run_task(self._shipped, self._plan).to_json()


class SparkRunner:
    """Runs tasks as jobs of a session."""

    def __init__(self, spark: SparkSession, group: str) -> None:
        self._spark = spark
        self._group = group
        self._tag = f"rocketstream-consumer-{group}-{id(self)}"
        # Not by its type: over Connect there is no context, and asking for one raises.
        self._context: Any = getattr(spark, "_sc", None)

    def __repr__(self) -> str:
        return f"<SparkRunner of group {self._group} on {self._spark!r}>"

    def check(self, *, orderly: bool) -> None:
        """Refuse a session that would break a promise."""
        speculates = str(self._spark.conf.get("spark.speculation", "false")).lower()
        if orderly and speculates == "true":
            raise ConfigurationError(
                "spark.speculation=true would run an ordered queue's listener twice at the same time: switch it off"
                " for an orderly consumer"
            )

    def slots(self) -> int:
        """How many tasks the session can run at a time, as far as it says."""
        if self._context is not None:
            return max(int(self._context.defaultParallelism), 1)
        told = self._spark.conf.get("spark.default.parallelism", str(_UNKNOWN_SLOTS))
        return max(int(told or _UNKNOWN_SLOTS), 1)

    def run(self, shipped: bytes, plan: TaskPlan) -> TaskResult:
        """Run a task as a job; for a thread that waits for nothing else."""
        from pyspark.sql.functions import udf

        self._mark_thread(plan)
        # Not deterministic: else an optimizer might run the listener twice for one result.
        function = udf(TaskFunction(shipped, plan), "string", useArrow=False).asNondeterministic()
        (row,) = self._spark.range(0, 1, 1, 1).select(function("id").alias("result")).collect()
        return TaskResult.from_json(row["result"])

    def _mark_thread(self, plan: TaskPlan) -> None:
        if self._context is None:
            self._spark.addTag(self._tag)
            return
        queues = f"{len(plan.parts)} queues" if len(plan.parts) > 1 else "1 queue"
        description = f"group {self._group}: task {plan.number}, {queues}"
        self._context.setJobGroup(self._tag, description, interruptOnCancel=True)

    def cancel(self) -> None:
        """End the jobs that run."""
        if self._context is None:
            self._spark.interruptTag(self._tag)
        elif self.why_dead() is None:
            self._context.cancelJobGroup(self._tag)

    def why_dead(self) -> str | None:
        """Whether the session has been stopped."""
        if self._context is not None:
            stopped = self._context._jsc is None or self._context._jsc.sc().isStopped()
        else:
            stopped = bool(getattr(self._spark, "is_stopped", False))
        return "its Spark session has been stopped" if stopped else None
