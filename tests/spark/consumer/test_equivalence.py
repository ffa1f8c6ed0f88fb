"""The same workload through `PushConsumer` and `SparkConsumer` ends in the same retries, dead letters and offsets.

Every kind of answer a listener can give is in the workloads. All of them run side by side, because most of the time is
the brokers' own: a retried message comes after a second.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from pyspark.sql import SparkSession

from rocketstream import AdminClient, Producer, PushConsumer, StartFrom
from rocketstream.cluster.names import dlq_topic, retry_topic
from rocketstream.message import MessageQueue
from rocketstream.remoting.io_thread import IoThread
from rocketstream.spark import SparkConsumer
from rocketstream.testing import RocketMQCluster
from tests.bare_client import BareClient, eventually
from tests.contract.consuming import committed, send
from tests.spark.consumer.journal import Concurrent, Journal, Noted, Orderly

# On a busy machine the first task of a session alone may take half a minute.
PATIENCE = 6000
SETTINGS: dict[str, Any] = {"start_from": StartFrom.FIRST, "consume_thread_min": 4, "consume_thread_max": 4}


class Workload(NamedTuple):
    """What is sent to each queue, who listens, and what is to come of it."""

    bodies: tuple[tuple[str, ...], ...]
    deliveries: int
    dead: int
    settings: dict[str, Any]
    listener: Any
    offsets: dict[int, int]
    retries: int


def own_commits(journal: Journal) -> Orderly:
    return Orderly(journal, auto_commit=False)


WORKLOADS = {
    "one at a time": Workload(
        (
            ("ok-0", "fail2-0", "raise1-0", "ok-1", "always-0", "none1-0"),
            ("dead-0", "ok-2", "fail1-1", "ok-3", "always-1", "ok-4"),
        ),
        deliveries=5 + 3 + 2 + 3 + 2 + 1 + 2 + 3,
        dead=3,
        settings={"max_reconsume_times": 2},
        listener=Concurrent,
        offsets={0: 6, 1: 6},
        retries=2 + 1 + 2 + 1 + 1 + 2,
    ),
    "partly acknowledged": Workload(
        (("ok-0", "ok-1", "partial1-2", "ok-3", "ok-4", "fail1-5", "ok-6", "ok-7", "partial1-8", "ok-9"),),
        deliveries=10 + 2 + 4 + 2,
        dead=0,
        settings={"consume_message_batch_max_size": 4},
        listener=Concurrent,
        offsets={0: 10},
        retries=8,
    ),
    "in order": Workload(
        (
            ("ok-0", "suspend2-0", "ok-1", "raise1-0", "none1-0", "always-0", "ok-2"),
            ("ok-10", "ok-11", "suspend1-10", "ok-12"),
        ),
        deliveries=3 + 3 + 2 + 2 + 3 + 3 + 2,
        dead=1,
        settings={"orderly": True, "max_reconsume_times": 2},
        listener=Orderly,
        offsets={0: 7, 1: 4},
        retries=0,
    ),
    "with its own commits": Workload(
        (("keep-0", "keep-1", "commit-2", "keep-3", "rollback1-4", "suspend1-5", "keep-6"), ("keep-10",)),
        deliveries=3 + 2 + 2 + 2 + 1 + 1,
        dead=0,
        settings={"orderly": True},
        listener=own_commits,
        # The messages after the last COMMIT come again when the group starts anew.
        offsets={0: 6},
        retries=0,
    ),
}


class Ended(NamedTuple):
    """What is left when a group has consumed a workload."""

    noted: list[Noted]
    offsets: dict[int, int]
    retry_offsets: dict[int, int]
    dead: dict[str, tuple[int, str, str]]


class Contest:
    """Every workload with a group of each kind, begun together."""

    def __init__(self, cluster: RocketMQCluster, spark: SparkSession, place: Path, stack: ExitStack) -> None:
        self.address = cluster.name_server_address
        self.broker = cluster.brokers[0].address
        self.client = BareClient(self.address, IoThread.shared())
        stack.callback(self.client.close)
        self.admin = stack.enter_context(AdminClient(self.address))
        self.sender = stack.enter_context(Producer("equivalence-p", self.address, send_timeout=10.0))
        self._spark = spark
        self._place = place
        self._stack = stack
        self._name = f"{time.time_ns()}"
        self._journals: dict[tuple[str, str], Journal] = {}
        self._consumers: dict[tuple[str, str], PushConsumer] = {}

    def topic(self, name: str) -> str:
        return f"t-{self._name}-{name.replace(' ', '-')}"

    def group(self, name: str, kind: str) -> str:
        return f"g-{self._name}-{name.replace(' ', '-')}-{kind}"

    def send(self, name: str, work: Workload) -> None:
        topic = self.topic(name)
        self.client.create_topic(self.broker, topic, queues=len(work.bodies))
        for queue_id, bodies in enumerate(work.bodies):
            queue = self.client.queue(topic, queue_id)
            send(self.sender, queue, *(body.encode() for body in bodies))
            self._until_stored(queue, len(bodies))

    def _until_stored(self, queue: MessageQueue, count: int) -> None:
        eventually(lambda: self.client.max_offset(queue.topic, queue.queue_id) == count)

    def begin(self, name: str, work: Workload, kind: str) -> None:
        key = (name, kind)
        self._journals[key] = journal = Journal(self._place / f"{name}-{kind}")
        settings = {**SETTINGS, **work.settings, "listener": work.listener(journal)}
        if kind == "spark":
            consumer: PushConsumer = SparkConsumer(
                self._spark, self.group(name, kind), self.address, checkpoint=self._place / "checkpoint", **settings
            )
        else:
            consumer = PushConsumer(self.group(name, kind), self.address, **settings)
        consumer.subscribe(self.topic(name))
        self._consumers[key] = self._stack.enter_context(consumer)

    def end(self, name: str, kind: str) -> Ended:
        """Wait until a group is done, shut it down, and look."""
        work, journal = WORKLOADS[name], self._journals[name, kind]
        group, consumer = self.group(name, kind), self._consumers[name, kind]
        eventually(lambda: len(journal.lines()) >= work.deliveries, PATIENCE)
        dead = self._dead_letters(group, work.dead)
        # Nothing is left that could still come: each queue, the retry topic's too, is consumed to its end.
        uncommitted = sum(map(len, work.bodies)) - sum(work.offsets.values())
        eventually(lambda: consumer.status().lag == uncommitted, PATIENCE)
        consumer.shutdown()
        return Ended(
            journal.lines(),
            committed(self.admin, group, self.topic(name)),
            {queue: offset for queue, offset in committed(self.admin, group, retry_topic(group)).items() if offset},
            dead,
        )

    def _dead_letters(self, group: str, count: int) -> dict[str, tuple[int, str, str]]:
        found: list[Any] = []

        def there() -> bool:
            try:
                found[:] = self.admin.peek(dlq_topic(group), 10)
            except Exception:  # no such topic yet
                return False
            return len(found) >= count

        if count:
            eventually(there, PATIENCE)
        return {
            message.body.decode(): (message.reconsume_times, message.properties["RETRY_TOPIC"], message.message_id)
            for message in found
        }


@pytest.fixture(scope="module")
def contest(rocketmq_cluster: RocketMQCluster, spark: SparkSession, tmp_path_factory: Any) -> Iterator[Contest]:
    with ExitStack() as stack:
        contest = Contest(rocketmq_cluster, spark, tmp_path_factory.mktemp("contest"), stack)
        for name, work in WORKLOADS.items():
            contest.send(name, work)
        for kind in ("push", "spark"):
            for name, work in WORKLOADS.items():
                contest.begin(name, work, kind)
        yield contest


def as_heard(noted: list[Noted], *, in_order: bool) -> object:
    """What has to be the same: how often each message came, in what batches at first, and in order its queue's order.

    What comes again comes in batches by chance: whatever has arrived in the retry topic.
    """
    if not in_order:
        return sorted((one.body, one.times, one.topic, one.batch if not one.times else 0) for one in noted)
    by_queue: dict[int, list[tuple[str, int]]] = defaultdict(list)
    for one in noted:
        by_queue[one.queue_id].append((one.body, one.times))
    return dict(by_queue)


@pytest.mark.feature("spark/listener")
@pytest.mark.parametrize("name", WORKLOADS)
@pytest.mark.slow(12, "runs one workload with and without Spark")
def test_the_same_workload_ends_the_same(contest, name):
    work = WORKLOADS[name]
    push, spark = contest.end(name, "push"), contest.end(name, "spark")
    in_order = bool(work.settings.get("orderly"))
    assert as_heard(spark.noted, in_order=in_order) == as_heard(push.noted, in_order=in_order)
    assert len(spark.noted) == work.deliveries
    assert spark.dead == push.dead
    assert len(spark.dead) == work.dead
    known = {queue: offset for queue, offset in spark.offsets.items() if offset}
    assert known == {queue: offset for queue, offset in push.offsets.items() if offset} == work.offsets
    assert sum(spark.retry_offsets.values()) == sum(push.retry_offsets.values()) == work.retries
    assert {one.pid for one in spark.noted}.isdisjoint(one.pid for one in push.noted), "it ran on executors"


def test_the_workloads_have_every_kind_of_answer():
    sent = {body for work in WORKLOADS.values() for bodies in work.bodies for body in bodies}
    kinds = {body.partition("-")[0].rstrip("0123456789") for body in sent}
    concurrent = {"ok", "fail", "raise", "none", "always", "dead", "partial"}
    assert kinds == concurrent | {"suspend", "keep", "commit", "rollback"}
