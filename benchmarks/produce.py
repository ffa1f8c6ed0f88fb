"""Send messages: our producer against the Java producer, alternating, in one run on one broker.

    python benchmarks/produce.py [--rounds 3] [--sizes 200,1024] [--only sync,batch,async,auto-batch] [--scale 1.0]

What is compared, with the same body for every message and nothing but SEND_OK accepted: messages per second from the
first send to the last receipt, and CPU seconds of the client's process per message. Java's `async` has a semaphore in
front so that both have equally many messages under way. The process of the broker shares the machine with both, so
only the ratios mean something: each is the median over the rounds of ours to Java's in the same round.
"""

from __future__ import annotations

import argparse
import collections
import json
import random
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.rounds import Round, cpu_seconds
from rocketstream import Message, Producer, SendReceipt, SendStatus
from rocketstream.testing import RocketMQCluster
from tests.interop.java_peer import JavaPeer

BATCH = 100
# At least, however short the turns: a JVM that has not compiled its hot code yet (400 µs of CPU per message instead of
# 100) would flatter us.
WARM_UP = 20_000


@dataclass(frozen=True, slots=True)
class Kind:
    """A way of sending: what Java does for it, how many messages make a round, and what we promise."""

    name: str
    java: Literal["sync", "batch", "async"]
    messages: int
    target: float


KINDS = (
    Kind("sync", "sync", 10_000, 0.9),
    Kind("batch", "batch", 500_000, 1.0),
    Kind("async", "async", 60_000, 0.7),
    Kind("auto-batch", "async", 100_000, 1.0),
)


@dataclass(frozen=True, slots=True)
class Comparison:
    """What came out for one kind and size, in medians."""

    kind: str
    size: int
    ratio: float
    cpu_ratio: float
    target: float
    ours: tuple[float, float]
    java: tuple[float, float]

    def __str__(self) -> str:
        verdict = "reached" if self.ratio >= self.target else "MISSED"
        return (
            f"{self.kind:>10} {self.size:>5} B: {self.ratio:5.2f} x Java's messages/s (target {self.target}: {verdict})"
            f"; CPU/message {self.ours[1]:7.2f} µs, Java {self.java[1]:7.2f} µs ({self.cpu_ratio:.2f} x)"
        )


def check(receipt: SendReceipt) -> None:
    assert receipt.status is SendStatus.OK, receipt


def send_each(producer: Producer, topic: str, body: bytes, count: int) -> None:
    for _ in range(count):
        check(producer.send(Message(topic, body)))


def send_batches(producer: Producer, topic: str, body: bytes, count: int) -> None:
    for _ in range(0, count, BATCH):
        for receipt in producer.send_batch([Message(topic, body) for _ in range(BATCH)]):
            check(receipt)


def send_async(producer: Producer, topic: str, body: bytes, count: int) -> None:
    # The producer itself waits when `max_async_messages` are under way. Receipts are looked at as they come, so that
    # memory does not grow with the run; Java's callback does the same.
    waiting: collections.deque[Future[SendReceipt]] = collections.deque()
    for _ in range(count):
        waiting.append(producer.send_async(Message(topic, body)))
        while waiting and waiting[0].done():
            check(waiting.popleft().result())
    for future in waiting:
        check(future.result())


OURS: dict[str, Callable[[Producer, str, bytes, int], None]] = {
    "sync": send_each,
    "batch": send_batches,
    "async": send_async,
    "auto-batch": send_async,
}


def ours(producer: Producer, kind: Kind, topic: str, body: bytes, count: int) -> Round:
    cpu, begun = cpu_seconds(), time.perf_counter()
    OURS[kind.name](producer, topic, body, count)
    return Round("ours", count, time.perf_counter() - begun, cpu_seconds() - cpu)


def javas(peer: JavaPeer, kind: Kind, topic: str, size: int, count: int, in_flight: int) -> Round:
    sends = peer.produce_benchmark(topic, kind.java, count=count, size=size, batch=BATCH, in_flight=in_flight)
    return Round("Java", sends.messages, sends.seconds, sends.cpu_seconds)


def turns(
    producer: Producer, peer: JavaPeer, kind: Kind, topic: str, size: int, count: int, arguments: argparse.Namespace
) -> Iterator[tuple[Round, Round]]:
    """Each a pair of turns; who begins alternates, since the second finds a warmer broker."""
    body = random.Random(1).randbytes(size)
    for number in range(arguments.rounds):
        pair = {}
        for who in ("ours", "Java") if number % 2 == 0 else ("Java", "ours"):
            pair[who] = (
                ours(producer, kind, topic, body, count)
                if who == "ours"
                else javas(peer, kind, topic, size, count, arguments.in_flight)
            )
            print(f"  {pair[who]}", flush=True)
        yield pair["ours"], pair["Java"]


def compare(
    producer: Producer, peer: JavaPeer, kind: Kind, topic: str, size: int, arguments: argparse.Namespace
) -> Comparison:
    count = max(BATCH, int(kind.messages * arguments.scale) // BATCH * BATCH)
    print(f"{kind.name}, {size} B, {count:,} messages a turn", flush=True)
    warm_up = max(WARM_UP, count // 2 // BATCH * BATCH)
    ours(producer, kind, topic, random.Random(1).randbytes(size), warm_up)
    javas(peer, kind, topic, size, warm_up, arguments.in_flight)
    pairs = list(turns(producer, peer, kind, topic, size, count, arguments))
    return Comparison(
        kind.name,
        size,
        ratio=statistics.median(mine.rate / theirs.rate for mine, theirs in pairs),
        cpu_ratio=statistics.median(theirs.cpu_micros / mine.cpu_micros for mine, theirs in pairs),
        target=kind.target,
        ours=tuple(statistics.median(getattr(mine, what) for mine, _ in pairs) for what in ("rate", "cpu_micros")),
        java=tuple(statistics.median(getattr(theirs, what) for _, theirs in pairs) for what in ("rate", "cpu_micros")),
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--sizes", default="200,1024", help="bytes of a body, separated by commas")
    parser.add_argument("--only", default="", help=f"of {', '.join(kind.name for kind in KINDS)}")
    parser.add_argument("--scale", type=float, default=1.0, help="times the messages of a turn")
    parser.add_argument("--in-flight", type=int, default=256, help="messages under way in async sends, ours and Java's")
    parser.add_argument("--queues", type=int, default=4)
    parser.add_argument("--version", default="5.5.0")
    parser.add_argument("--json", action="store_true", help="print the result as JSON on the last line")
    arguments = parser.parse_args()
    wanted = [kind for kind in KINDS if not arguments.only or kind.name in arguments.only.split(",")]

    print(f"starting RocketMQ {arguments.version} ...", flush=True)
    results: list[Comparison] = []
    with (
        # A broker refuses what waited for 200 ms: on a shared machine that would end a run by chance.
        RocketMQCluster(
            arguments.version, profile="benchmark", broker_config={"waitTimeMillsInSendQueue": 10_000}
        ) as cluster,
        JavaPeer(arguments.version, cluster.name_server_address, profile="benchmark") as peer,
    ):
        peer.create_topic("produce", arguments.queues)
        for size in map(int, arguments.sizes.split(",")):
            for kind in wanted:
                with Producer(
                    "benchmark",
                    name_servers=cluster.name_server_address,
                    max_async_messages=arguments.in_flight,
                    auto_batch=kind.name == "auto-batch",
                    send_timeout=10.0,
                ) as producer:
                    results.append(compare(producer, peer, kind, "produce", size, arguments))
                print(results[-1], flush=True)
    print(f"\nmedians of {arguments.rounds} rounds, RocketMQ {arguments.version}:")
    for result in results:
        print(result)
    if arguments.json:
        print(json.dumps([{name: getattr(result, name) for name in Comparison.__slots__} for result in results]))


if __name__ == "__main__":
    main()
