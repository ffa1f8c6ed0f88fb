"""A `SparkConsumer` whose tasks run in this process: everything but Spark."""

from __future__ import annotations

from rocketstream.consumer.settings import ConsumerSettings
from rocketstream.spark import SparkConsumer
from rocketstream.spark.listening.runner import Runner, run_task
from rocketstream.spark.listening.values import TaskPlan, TaskResult


class InProcess:
    """Runs tasks on the thread that asks; what went to them and came back is kept."""

    def __init__(self) -> None:
        self.plans: list[TaskPlan] = []
        self.results: list[TaskResult] = []
        self.fail_next: list[Exception] = []
        self.cancelled = False
        self.dead: str | None = None

    def slots(self) -> int:
        return 2

    def run(self, shipped: bytes, plan: TaskPlan) -> TaskResult:
        self.plans.append(plan)
        if self.fail_next:
            raise self.fail_next.pop()
        result = TaskResult.from_json(run_task(shipped, plan).to_json())
        self.results.append(result)
        return result

    def cancel(self) -> None:
        self.cancelled = True

    def why_dead(self) -> str | None:
        return self.dead


class InProcessConsumer(SparkConsumer):
    """The consumer."""

    runner: InProcess

    def _make_runner(self, consumer: ConsumerSettings) -> Runner:
        self.runner = InProcess()
        return self.runner
