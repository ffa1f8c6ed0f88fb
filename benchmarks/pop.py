"""Popping against Java's push consumer that pops, alternating, in one run: messages per second and CPU per message.

    python benchmarks/pop.py [--messages 200000] [--rounds 3] [--sizes 200] [--batches 32 1] [--version 5.5.0]

Both pop the same topic as groups of their own, which were set to POP at the broker, with a listener that only counts;
seconds and CPU from the first message to the last. Ours is a fresh process each time; Java is one process that stays,
so its code is warm. Both have RocketMQ's defaults: one pop per broker under way, 32 messages each, 96 not acknowledged.
The broker shares the machine with both, so only the ratios mean something.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import threading
import time
from pathlib import Path
from subprocess import PIPE, run
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.rounds import Round, cpu_seconds
from rocketstream import AdminClient, ConsumeContext, ConsumeResult, PushConsumer, ReceivedMessage, StartFrom
from rocketstream.property_names import PropertyName
from rocketstream.testing import RocketMQCluster
from tests.interop.java_peer import JavaPeer

GOAL = 1.0
QUEUES = 4
PATIENCE = 600.0


def pop_all(name_server: str, topic: str, group: str, count: int, batch: int) -> dict[str, Any]:
    """Pop a topic empty, in this process."""
    done = threading.Event()
    first: list[tuple[float, float]] = []
    sizes: list[int] = []
    popped: list[bool] = []

    def listen(messages: list[ReceivedMessage], context: ConsumeContext) -> ConsumeResult:
        if not first:
            first.append((time.perf_counter(), cpu_seconds()))
            popped.append(PropertyName.POP_CHECK_POINT in messages[0].properties)
        sizes.append(len(messages))
        if len(sizes) * batch >= count and sum(sizes) >= count:
            done.set()
        return ConsumeResult.SUCCESS

    consumer = PushConsumer(
        group,
        name_server,
        listener=listen,
        start_from=StartFrom.FIRST,
        consume_message_batch_max_size=batch,
        client_rebalance=False,
    )
    consumer.subscribe(topic)
    consumer.start()
    assert done.wait(PATIENCE), f"got {sum(sizes)} messages of {count}"
    seconds, cpu = time.perf_counter() - first[0][0], cpu_seconds() - first[0][1]
    consumer.shutdown()
    assert popped == [True], "the broker had it pull"
    return {"seconds": seconds, "cpu": cpu, "messages": sum(sizes)}


def ours(*arguments: object) -> dict[str, Any]:
    """The same in a new process."""
    command = [sys.executable, __file__, "--inner", *map(str, arguments)]
    output = run(command, check=True, stdout=PIPE, text=True).stdout
    result: dict[str, Any] = json.loads(output.splitlines()[-1])
    return result


def compare(address: str, peer: JavaPeer, topic: str, messages: int, batch: int, rounds: int) -> dict[str, float]:
    """Both pop the topic empty in turn, each time as a new group."""
    results: list[Round] = []

    def new_group(name: str) -> str:
        with AdminClient(address) as admin:
            admin.create_group(name)
            admin.set_request_mode(name, topic, "POP")
        return name

    def java(group: str) -> Round:
        done = peer.consume_count(
            new_group(group), topic, count=messages, timeout=PATIENCE, batch_size=batch, broker_rebalance=True
        )
        assert done.complete, f"Java got {done.messages} of {messages}"
        return Round("Java", done.messages, done.seconds, done.cpu_seconds)

    java(f"warm-{topic}-{batch}")
    for number in range(rounds):
        mine = ours(address, topic, new_group(f"ours-{topic}-{batch}-{number}"), messages, batch)
        results.append(Round("ours", mine["messages"], mine["seconds"], mine["cpu"]))
        results.append(java(f"java-{topic}-{batch}-{number}"))
        print(*results[-2:], sep="\n", flush=True)
    rate = {who: statistics.median(r.rate for r in results if r.who == who) for who in ("ours", "Java")}
    cpu = {who: statistics.median(r.cpu_micros for r in results if r.who == who) for who in ("ours", "Java")}
    return {
        "ratio": rate["ours"] / rate["Java"],
        "ours_per_second": rate["ours"],
        "java_per_second": rate["Java"],
        "ours_cpu_micros": cpu["ours"],
        "java_cpu_micros": cpu["Java"],
    }


def main() -> None:
    if sys.argv[1:2] == ["--inner"]:
        name_server, topic, group, count, batch = sys.argv[2:]
        print(json.dumps(pop_all(name_server, topic, group, int(count), int(batch))))
        return
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--messages", type=int, default=200_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--sizes", type=int, nargs="+", default=[200])
    parser.add_argument("--batches", type=int, nargs="+", default=[32, 1])
    parser.add_argument("--version", default="5.5.0")
    parser.add_argument("--json", action="store_true", help="print everything as JSON on the last line")
    arguments = parser.parse_args()
    results: dict[str, dict[str, float]] = {}
    print(f"starting RocketMQ {arguments.version} ...", flush=True)
    with (
        RocketMQCluster(arguments.version, profile="benchmark") as cluster,
        JavaPeer(arguments.version, cluster.name_server_address, profile="benchmark") as peer,
    ):
        for size in arguments.sizes:
            topic = f"pop-{size}"
            peer.create_topic(topic, QUEUES)
            print(f"filling {topic!r} with {arguments.messages:,} messages of {size} B ...", flush=True)
            peer.produce(topic, count=arguments.messages, size=size, batch=100, receipts=False, timeout=900.0)
            for batch in arguments.batches:
                name = f"batch {batch}, {size} B"
                address = cluster.name_server_address
                result = compare(address, peer, topic, arguments.messages, batch, arguments.rounds)
                results[name] = result
                told = ", ".join(f"{key} {value:,.2f}" for key, value in result.items())
                print(f"== {name} (goal {GOAL}): {told}", flush=True)
    if arguments.json:
        print(json.dumps(results))


if __name__ == "__main__":
    main()
