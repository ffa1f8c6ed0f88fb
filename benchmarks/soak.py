"""A soak: a push consumer with a listener that is fast, slow, failing and raising by turns, for ten minutes.

    python benchmarks/soak.py [--minutes 10] [--rate 2000] [--version 5.5.0]

Messages are sent at a steady rate; of a hundred, 94 succeed at once, two take 50 ms, two are returned with
RECONSUME_LATER, two raise, each failing twice before it succeeds. Each tenth of the time it prints memory, the pending
table, what is cached and how far the offsets are. It fails when memory or the pending table grow from the second half's
first look to its last, when an offset stands still, or when a message was never finished.
"""

from __future__ import annotations

import argparse
import collections
import itertools
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from rocketstream import AdminClient, ConsumeContext, ConsumeResult, Message, Producer, PushConsumer, ReceivedMessage
from rocketstream.testing import RocketMQCluster

QUEUES = 8
GROWTH_ALLOWED = 1.15
FAILURES_EACH = 2


@dataclass(frozen=True, slots=True)
class Look:
    """What one look at the consumer shows."""

    seconds: float
    memory_mib: float
    pending: int
    cached: int
    stored: int
    consumed: int
    failed: int

    def __str__(self) -> str:
        return (
            f"{self.seconds:6.0f} s: {self.memory_mib:7.1f} MiB, {self.pending:3} requests pending,"
            f" {self.cached:5} cached, offsets at {self.stored:,}, {self.consumed:,} consumed, {self.failed:,} failures"
        )


def memory_mib() -> float:
    """What this process holds now."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) / 1024
    raise AssertionError("the kernel does not tell")


class MixedListener:
    """Succeeds, dawdles, fails and raises by the number in the body."""

    def __init__(self) -> None:
        self.consumed: set[int] = set()
        self.failed = 0
        self._failures: collections.Counter[int] = collections.Counter()

    def __call__(self, messages: list[ReceivedMessage], context: ConsumeContext) -> ConsumeResult:
        (message,) = messages
        number = int(message.body[:12])
        kind = number % 100
        if kind < 4 and self._failures[number] < FAILURES_EACH:
            self._failures[number] += 1
            self.failed += 1
            if kind < 2:
                raise RuntimeError(f"message {number} is one of those that raise")
            return ConsumeResult.RECONSUME_LATER
        if kind < 6:
            time.sleep(0.05)
        self._failures.pop(number, None)
        self.consumed.add(number)
        return ConsumeResult.SUCCESS


def produce(address: str, topic: str, rate: int, stop: threading.Event, sent: list[int]) -> None:
    """Send at a steady rate until told to stop."""
    with Producer("soak-producer", address) as producer:
        number, begun = 0, time.monotonic()
        while not stop.is_set():
            due = int((time.monotonic() - begun) * rate)
            while number < due:
                producer.send_async(Message(topic, b"%012d" % number + b"." * 188))
                number += 1
            stop.wait(0.02)
        sent.append(number)


def look(consumer: PushConsumer, listener: MixedListener, begun: float) -> Look:
    """What the consumer shows now."""
    status = consumer.status()
    return Look(
        time.monotonic() - begun,
        memory_mib(),
        consumer.core.instance.remoting.pending,
        sum(queue.cached_count for queue in status.queues),
        sum(max(queue.stored_offset, 0) for queue in status.queues),
        len(listener.consumed),
        listener.failed,
    )


def judge(looks: list[Look], sent: int, consumed: int) -> list[str]:
    """What is wrong, if anything."""
    half = looks[len(looks) // 2 :]
    problems: list[str] = []
    # The set of numbers that were consumed is the benchmark's own, about 70 bytes each.
    own = [look.memory_mib - look.consumed * 70 / 1024 / 1024 for look in half]
    if own[-1] > own[0] * GROWTH_ALLOWED:
        problems.append(f"memory grew from {own[0]:.0f} to {own[-1]:.0f} MiB in the second half")
    if half[-1].pending > max(half[0].pending * GROWTH_ALLOWED, half[0].pending + 10):
        problems.append(f"the pending table grew from {half[0].pending} to {half[-1].pending}")
    for earlier, later in itertools.pairwise(looks):
        if later.stored <= earlier.stored:
            problems.append(f"the offsets stood still at {later.stored} from {earlier.seconds:.0f} s on")
    if consumed != sent:
        problems.append(f"{sent - consumed} of {sent} messages were never finished")
    return problems


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--rate", type=int, default=2_000)
    parser.add_argument("--version", default="5.5.0")
    arguments = parser.parse_args()
    topic, stop, sent = "soak", threading.Event(), []
    with RocketMQCluster(arguments.version) as cluster:
        address = cluster.name_server_address
        with AdminClient(address) as admin:
            admin.create_topic(topic, queues=QUEUES)
        listener = MixedListener()
        consumer = PushConsumer("soak", address, listener=listener)
        consumer.subscribe(topic)
        consumer.start()
        begun = time.monotonic()
        producer = threading.Thread(target=produce, args=(address, topic, arguments.rate, stop, sent))
        producer.start()
        looks: list[Look] = []
        try:
            for number in range(1, 11):
                time.sleep(max(begun + arguments.minutes * 6 * number - time.monotonic(), 0))
                looks.append(look(consumer, listener, begun))
                print(looks[-1], flush=True)
        finally:
            stop.set()
            producer.join()
        deadline = time.monotonic() + 90  # the last retries come after 10 s, then 30 s
        while len(listener.consumed) < sent[0] and time.monotonic() < deadline:
            time.sleep(1)
        consumer.shutdown()
    problems = judge(looks, sent[0], len(listener.consumed))
    print(f"{sent[0]:,} sent, {len(listener.consumed):,} consumed, {listener.failed:,} failures on the way")
    print("\n".join(problems) or "memory flat, pending table flat, offsets advance, nothing lost")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
