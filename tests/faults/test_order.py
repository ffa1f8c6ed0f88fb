"""Order holds while members join, leave and die (issue 5, "must show" 3; ORD-14).

The rule under test: for each key, what is delivered for the first time is delivered in the sequence in which it was
sent; and no two listeners ever work on one queue at the same time, whichever processes they are in.
"""

from __future__ import annotations

import itertools
import threading
from collections import defaultdict
from pathlib import Path
from typing import NamedTuple

import pytest

from rocketstream import AdminClient, Message, Producer
from rocketstream.testing import RocketMQCluster
from tests.faults.members import Group, Member, wait_until

pytestmark = pytest.mark.xdist_group("machine")

QUEUES = 8
KEYS = 64
PER_KEY = 782
MESSAGES = KEYS * PER_KEY
THREADS = 4


class Delivery(NamedTuple):
    """One call of a listener; the end of one that was killed is when its process was gone."""

    began: int
    ended: int
    queue: int
    key: int
    number: int


def deliveries_to(member: Member) -> list[Delivery]:
    found: list[Delivery] = []
    open_calls: dict[tuple[int, int, int], int] = {}
    for line in member.lines():
        kind, time, *rest = line.split()
        queue, key, number = map(int, rest)
        if kind == b"B":
            assert (queue, key, number) not in open_calls
            open_calls[queue, key, number] = int(time)
        else:
            found.append(Delivery(open_calls.pop((queue, key, number)), int(time), queue, key, number))
    if member.killed_at is not None:  # of others, what is open has just begun
        found += [Delivery(began, member.killed_at, *call) for call, began in open_calls.items()]
    return found


class Senders:
    """Threads that send the messages of each key one after the other."""

    def __init__(self, producer: Producer, topic: str) -> None:
        self.sent = [0] * THREADS
        self._producer = producer
        self._topic = topic
        self._threads = [threading.Thread(target=self._run, args=(n,), daemon=True) for n in range(THREADS)]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def _run(self, thread: int) -> None:
        for number in range(PER_KEY):
            for key in range(thread, KEYS, THREADS):
                self._producer.send(Message(self._topic, b"%d %d" % (key, number)), sharding_key=str(key))
                self.sent[thread] += 1

    def wait_for(self, count: int) -> None:
        wait_until(lambda: sum(self.sent) >= count, 120.0, lambda: f"{sum(self.sent)} of {count} sent")


@pytest.mark.feature("consume/nothing-lost")
@pytest.mark.behaviour("ORD-14")
@pytest.mark.slow(40, "members come and go under 50,000 messages")
def test_each_key_is_consumed_in_order_by_members_that_come_and_go(
    mortal_cluster: RocketMQCluster, admin: AdminClient, unique_topic: str, unique_group: str, tmp_path: Path
):
    admin.create_topic(unique_topic, queues=QUEUES)
    told = {"name_servers": mortal_cluster.name_server_address, "topic": unique_topic, "group": unique_group}
    with (
        Producer(f"{unique_group}-p", mortal_cluster.name_server_address, send_timeout=30.0) as producer,
        Group(tmp_path, orderly=True, **told) as group,
    ):
        senders = Senders(producer, unique_topic)
        group.join(3)
        senders.start()
        for reached, steps in (
            (2_000, [group.kill, group.join]),
            (10_000, [group.leave]),
            (18_000, [group.join]),
            (26_000, [group.leave, group.join]),
            (34_000, [group.join]),
            (42_000, [group.leave]),
        ):
            senders.wait_for(reached)
            for step in steps:
                step()
        senders.wait_for(MESSAGES)

        def delivered() -> int:
            return len({(d.key, d.number) for member in group.all for d in deliveries_to(member)})

        wait_until(lambda: delivered() == MESSAGES, 90.0, lambda: f"{delivered()} of {MESSAGES} delivered")
        group.leave_all()
        deliveries = sorted(d for member in group.all for d in deliveries_to(member))
        taking_part = sum(any(member.lines()) for member in group.all)

    assert taking_part > 3, "of those who joined later one at least had a queue"
    first: dict[int, dict[int, None]] = defaultdict(dict)
    for delivery in deliveries:
        first[delivery.key].setdefault(delivery.number)
    for key in range(KEYS):
        assert list(first[key]) == list(range(PER_KEY)), f"key {key}"

    by_queue: dict[int, list[Delivery]] = defaultdict(list)
    for delivery in deliveries:
        by_queue[delivery.queue].append(delivery)
    assert len(by_queue) == QUEUES
    for calls in by_queue.values():
        for before, after in itertools.pairwise(calls):
            assert before.ended <= after.began, (before, after)
    print(f"{len(deliveries) - MESSAGES} of {MESSAGES} delivered again")
    progress = [queue for queue in admin.consumer_progress(unique_group).queues if queue.topic == unique_topic]
    assert [queue.lag for queue in progress] == [0] * QUEUES
