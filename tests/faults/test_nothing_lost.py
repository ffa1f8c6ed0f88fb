"""Nothing is lost while members join, leave and die, and the broker with them (issue 5, "must show" 2).

The rule under test: what a producer was told is stored is consumed at least once, whoever of the group lives at the
time; and a member that leaves in order leaves no work that is done twice.
"""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from rocketstream import AdminClient, Message, Producer
from rocketstream.testing import RocketMQCluster
from tests.contract.consuming import Heard, new_consumer
from tests.faults.members import Group, SteadyProducer, wait_until

pytestmark = pytest.mark.xdist_group("machine")

QUEUES = 8
MESSAGES = 200_000
RATE = 8_000
GRACEFUL_MESSAGES, GRACEFUL_RATE = 100_000, 2_500
GROUPS, ROUNDS, PER_ROUND = 8, 25, 3
# Keeps a processor busy as long as its parent lives.
BURN = "import os\nparent = os.getppid()\nwhile os.getppid() == parent: sum(range(100_000))"


@pytest.fixture
def producer(mortal_cluster: RocketMQCluster, unique_group: str):
    with Producer(f"{unique_group}-p", mortal_cluster.name_server_address, send_timeout=10.0) as producer:
        yield producer


def consumed(group: Group, sender: SteadyProducer) -> bool:
    return not sender.acknowledged - group.counts().keys()


def missing(group: Group, sender: SteadyProducer) -> str:
    left = sorted(sender.acknowledged - group.counts().keys())
    return f"{len(left)} of {len(sender.acknowledged)} are missing, from {left[:5]} to {left[-5:]}"


def uncommitted(admin: AdminClient, group: str, topic: str) -> dict[int, int]:
    """How far the committed offsets are from the ends of their queues."""
    progress = [queue for queue in admin.consumer_progress(group).queues if queue.topic == topic]
    assert len(progress) == QUEUES
    return {queue.queue_id: queue.lag for queue in progress if queue.lag}


@pytest.mark.feature("consume/nothing-lost")
@pytest.mark.timeout(600)
@pytest.mark.long(120, "kills a broker twice under 200,000 messages")
def test_nothing_is_lost_when_members_and_brokers_die(
    mortal_cluster: RocketMQCluster,
    admin: AdminClient,
    producer: Producer,
    unique_topic: str,
    unique_group: str,
    tmp_path: Path,
):
    (broker,) = mortal_cluster.brokers
    admin.create_topic(unique_topic, queues=QUEUES)
    sender = SteadyProducer(producer, unique_topic, MESSAGES, RATE)
    told = {"name_servers": mortal_cluster.name_server_address, "topic": unique_topic, "group": unique_group}
    with Group(tmp_path, **told) as group:

        def outage() -> None:
            sender.up.clear()
            broker.kill()
            broker.start()
            sender.up.set()

        group.join(3)
        sender.start()
        for reached, happen in (
            (10_000, [group.kill, group.join]),
            (25_000, [group.join, group.leave]),
            (40_000, [group.kill, group.join]),
            (60_000, [outage]),
            (80_000, [group.kill, group.join]),
            (100_000, [group.leave, group.join]),
            (120_000, [outage]),
            # Not at once: a broker that has just started may read the last heartbeat of one that was killed after it
            # has seen its connection end, and would then wait two minutes for the next.
            (140_000, [group.kill, group.join]),
            (160_000, [group.kill, group.join]),
            (180_000, [group.leave]),
        ):
            sender.wait_for(reached)
            for step in happen:
                step()
        sender.join(120.0)
        assert not sender.is_alive()
        assert sum(member.killed_at is not None for member in group.all) == 5
        wait_until(lambda: consumed(group, sender), 240.0, lambda: missing(group, sender))
        group.leave_all()
        counts = group.counts()

    assert len(sender.acknowledged) >= MESSAGES
    again = sum(counts.values()) - len(counts)
    print(f"{len(sender.acknowledged)} acknowledged, {len(sender.failed)} failed, {again} consumed again")
    assert counts.keys() <= sender.acknowledged | sender.failed
    assert uncommitted(admin, unique_group, unique_topic) == {}


@pytest.mark.long(60, "sends 100,000 messages at 2,500 a second")
def test_members_that_leave_in_order_leave_next_to_nothing_to_do_again(
    mortal_cluster: RocketMQCluster,
    admin: AdminClient,
    producer: Producer,
    unique_topic: str,
    unique_group: str,
    tmp_path: Path,
):
    admin.create_topic(unique_topic, queues=QUEUES)
    sender = SteadyProducer(producer, unique_topic, GRACEFUL_MESSAGES, GRACEFUL_RATE)
    told = {"name_servers": mortal_cluster.name_server_address, "topic": unique_topic, "group": unique_group}
    with Group(tmp_path, **told) as group:
        group.join(5)
        # Before the first message: who joins begins before the last owners have heard of it.
        group.wait_until_shared(QUEUES)
        sender.start()
        for reached in (20_000, 40_000, 60_000, 80_000):
            sender.wait_for(reached)
            group.leave()
        sender.join(60.0)
        assert not sender.is_alive()
        wait_until(lambda: consumed(group, sender), 60.0, lambda: missing(group, sender))
        group.leave_all()
        counts = group.counts()

    assert sender.failed == set()
    again = sum(counts.values()) - len(counts)
    print(f"{again} of {len(counts)} consumed again")
    assert counts.keys() == sender.acknowledged
    assert again < len(counts) / 1000
    assert uncommitted(admin, unique_group, unique_topic) == {}


@contextlib.contextmanager
def busy_machine(processes: int = 2) -> Iterator[None]:
    """Others want the processors, too: then a broker's threads often wait between two steps."""
    burning = [subprocess.Popen([sys.executable, "-c", BURN]) for _ in range(processes)]
    try:
        yield
    finally:
        for process in burning:
            process.kill()
            process.wait()


@pytest.mark.feature("consume/shutdown")
@pytest.mark.behaviour("REB-10")
@pytest.mark.timeout(600)
@pytest.mark.long(30, "starts and ends 200 consumers")
def test_two_hundred_ends_on_a_busy_machine_leave_nothing_to_do_again(
    mortal_cluster: RocketMQCluster, admin: AdminClient, producer: Producer, unique_topic: str, unique_group: str
):
    """A member that ends right after its last message: the pull that it sent before carries an older offset."""

    def rounds(number: int) -> None:
        topic, group, heard = f"{unique_topic}-{number}", f"{unique_group}-{number}", Heard()
        admin.create_topic(topic, queues=1)
        for each in range(ROUNDS):
            before = len(heard.deliveries)
            with new_consumer(group, mortal_cluster.name_server_address, heard, topic):
                for count in range(1, PER_ROUND + 1):
                    producer.send(Message(topic, b"%d" % (before + count)))
                    heard.until(before + count)
            lag = admin.consumer_progress(group, topic=topic).lag
            assert lag == 0, f"{lag} after round {each} of group {number}"
        assert heard.bodies == [b"%d" % count for count in range(1, ROUNDS * PER_ROUND + 1)]

    with busy_machine(), ThreadPoolExecutor(GROUPS) as side_by_side:
        assert len(list(side_by_side.map(rounds, range(GROUPS)))) == GROUPS
