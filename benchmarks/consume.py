"""The push consumer against Java's, alternating, in one run: messages per second, CPU, memory, latency, many queues.

    python benchmarks/consume.py [--messages 1000000] [--rounds 3] [--only rate latency queues] [--version 5.5.0]

Rate: both drain the same topic with a listener that only counts; seconds and CPU from the first message to the last.
Ours is a fresh process each time (its peak memory is its own); Java is one process that stays, so its code is warm.
Latency: a Java producer sends 1,000 messages a second that carry the time of their sending; the age at the listener.
Queues: one consumer of 1,000 queues. The broker shares the machine with both, so only the ratios mean something.
"""

from __future__ import annotations

import argparse
import itertools
import json
import struct
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.counting import against_java, count_messages, in_new_process, peak_memory
from benchmarks.rounds import Round, cpu_seconds
from rocketstream import ConsumeContext, ConsumeResult, MessageQueue, PushConsumer, ReceivedMessage, StartFrom
from rocketstream.consumer.allocation import AllocateAveragely, AllocateByConsistentHash
from rocketstream.testing import RocketMQCluster
from tests.interop.java_peer import JavaPeer

GOALS = {"batch 32": 2.0, "batch 1": 1.5}


# --- ours, in a process of its own ----------------------------------------------------------------------------------


def measure_ages(name_server: str, topic: str, group: str, count: int, skip: int) -> dict[str, Any]:
    """How old messages are when the listener gets them, in microseconds."""
    done = threading.Event()
    ages: list[int] = []

    def listen(messages: list[ReceivedMessage], context: ConsumeContext) -> ConsumeResult:
        now = time.time_ns() // 1_000
        ages.extend(now - struct.unpack_from(">q", message.body)[0] for message in messages)
        if len(ages) >= count:
            done.set()
        return ConsumeResult.SUCCESS

    consumer = PushConsumer(group, name_server, listener=listen, start_from=StartFrom.FIRST)
    consumer.subscribe(topic)
    consumer.start()
    print("ready", flush=True)
    assert done.wait(300), f"got {len(ages)} of {count}"
    consumer.shutdown()
    return {"ages": ages[skip:count]}


def ours(what: str, *arguments: object) -> dict[str, Any]:
    """Run one of the functions above in a new process."""
    return in_new_process(__file__, what, *arguments)


def run_inner(what: str, name_server: str, topic: str, group: str, *numbers: str) -> None:
    """What `ours` started."""
    function = {"count": count_messages, "ages": measure_ages}[what]
    print(json.dumps(function(name_server, topic, group, *map(int, numbers))))


# --- the comparisons ------------------------------------------------------------------------------------------------


def compare_rates(address: str, peer: JavaPeer, topic: str, messages: int, batch: int, rounds: int) -> dict[str, float]:
    """Both drain a topic in turn."""
    results: list[Round] = []
    peaks: list[float] = []
    peer.consume_count(f"warm-{topic}-{batch}", topic, count=messages, timeout=600.0, batch_size=batch)
    for number in range(rounds):
        mine = ours("count", address, topic, f"ours-{topic}-{batch}-{number}", messages, batch)
        peaks.append(mine["peak"])
        results.append(Round("ours", messages, mine["seconds"], mine["cpu"]))
        java = peer.consume_count(
            f"java-{topic}-{batch}-{number}", topic, count=messages, timeout=600.0, batch_size=batch
        )
        assert java.complete
        results.append(Round("Java", java.messages, java.seconds, java.cpu_seconds))
        print(*results[-2:], sep="\n", flush=True)
    return {**against_java(results), "ours_peak_mib": max(peaks), "java_peak_mib": peak_memory(peer.pid)}


def compare_latency(
    address: str, peer: JavaPeer, producer: JavaPeer, count: int, rate: int, rounds: int
) -> dict[str, float]:
    """Both consume what arrives at a steady rate, in turn; the first tenth warms up."""
    ages: dict[str, list[int]] = {"ours": [], "Java": []}
    skip = count // 10
    for number in range(rounds):
        for who in ages:
            topic = f"latency-{who}-{number}"
            peer.create_topic(topic, 4)
            with ThreadPoolExecutor(1) as pool:
                if who == "ours":
                    got = pool.submit(lambda t=topic: ours("ages", address, t, f"ours-{t}", count, skip)["ages"])
                else:
                    got = pool.submit(
                        peer.consume_latency,
                        f"java-{topic}",
                        topic,
                        count=count,
                        skip=skip,
                        timeout=count / rate + 120.0,
                    )
                time.sleep(3)  # both are ready by then; what is late is in the part that is skipped
                assert producer.produce_steadily(topic, count=count, rate=rate, size=200) == 0
                ages[who] += got.result()
    result: dict[str, float] = {}
    for name, quantile in (("p50", 0.50), ("p99", 0.99)):
        for who, values in ages.items():
            result[f"{who.lower()}_{name}_ms"] = sorted(values)[int(len(values) * quantile)] / 1000
        result[f"{name}_ratio"] = result[f"ours_{name}_ms"] / result[f"java_{name}_ms"]
    return result


def many_queues(address: str, peer: JavaPeer, queues: int) -> dict[str, float]:
    """One consumer of many queues: threads, memory; and what sharing them out costs."""
    result: dict[str, float] = {}
    for count in (4, queues):
        topic = f"many-{count}"
        peer.create_topic(topic, count)
        consumer = PushConsumer(f"many-{count}", address, listener=lambda messages, context: ConsumeResult.SUCCESS)
        consumer.subscribe(topic)
        cpu, begun = cpu_seconds(), time.perf_counter()
        consumer.start()
        result[f"start_{count}_seconds"] = time.perf_counter() - begun
        result[f"start_{count}_cpu_seconds"] = cpu_seconds() - cpu
        assert len(consumer.assignment) == count
        result[f"threads_{count}"] = threading.active_count()
        result[f"memory_{count}_mib"] = peak_memory()
        consumer.shutdown()
    all_queues = [MessageQueue("many", "broker-a", number) for number in range(queues)]
    members = sorted(f"10.0.0.{number}@1" for number in range(100))
    for strategy in (AllocateAveragely(), AllocateByConsistentHash()):
        begun = time.process_time()
        shares = [strategy.allocate("group", me, all_queues, members) for me in members]
        result[f"rebalance_{strategy.name}_all_members_cpu_ms"] = (time.process_time() - begun) * 1000
        result[f"rebalance_{strategy.name}_one_member_cpu_ms"] = (time.process_time() - begun) * 1000 / len(members)
        assert sorted(itertools.chain(*shares)) == all_queues
    return result


def main() -> None:
    if sys.argv[1:2] == ["--inner"]:
        run_inner(*sys.argv[2:])
        return
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--messages", type=int, default=1_000_000, help="of 200 B; of 1 KB there are three tenths")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--sizes", type=int, nargs="+", default=[200, 1024])
    parser.add_argument("--batches", type=int, nargs="+", default=[32, 1])
    parser.add_argument("--latency-messages", type=int, default=20_000)
    parser.add_argument("--queues", type=int, default=1_000)
    parser.add_argument(
        "--only", nargs="+", choices=["rate", "latency", "queues"], default=["rate", "latency", "queues"]
    )
    parser.add_argument("--version", default="5.5.0")
    parser.add_argument("--json", action="store_true", help="print everything as JSON on the last line")
    arguments = parser.parse_args()
    results: dict[str, dict[str, float]] = {}

    def report(name: str, result: dict[str, float]) -> None:
        results[name] = result
        goal = next((f" (goal {goal})" for prefix, goal in GOALS.items() if name.startswith(prefix)), "")
        print(f"== {name}{goal}: " + ", ".join(f"{key} {value:,.2f}" for key, value in result.items()), flush=True)

    print(f"starting RocketMQ {arguments.version} ...", flush=True)
    with (
        RocketMQCluster(arguments.version, profile="benchmark") as cluster,
        JavaPeer(arguments.version, cluster.name_server_address) as peer,
        JavaPeer(arguments.version, cluster.name_server_address) as producer,
    ):
        address = cluster.name_server_address
        for size in arguments.sizes if "rate" in arguments.only else []:
            topic = f"consume-{size}"
            messages = arguments.messages if size <= 200 else arguments.messages * 3 // 10
            peer.create_topic(topic, 4)
            print(f"filling {topic!r} with {messages:,} messages of {size} B ...", flush=True)
            peer.produce(topic, count=messages, size=size, batch=100, receipts=False, timeout=900.0)
            for batch in arguments.batches:
                report(
                    f"batch {batch}, {size} B",
                    compare_rates(address, peer, topic, messages, batch, arguments.rounds),
                )
        if "latency" in arguments.only:
            count = arguments.latency_messages
            report("latency at 1,000/s", compare_latency(address, peer, producer, count, 1_000, arguments.rounds))
        if "queues" in arguments.only:
            report(f"{arguments.queues} queues", many_queues(address, peer, arguments.queues))
    if arguments.json:
        print(json.dumps(results))


if __name__ == "__main__":
    main()
