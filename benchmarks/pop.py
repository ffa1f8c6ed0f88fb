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
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.counting import PATIENCE, against_java, count_messages, in_new_process
from benchmarks.rounds import Round
from rocketstream import AdminClient, ReceivedMessage
from rocketstream.property_names import PropertyName
from rocketstream.testing import RocketMQCluster
from tests.interop.java_peer import JavaPeer

GOAL = 1.0
QUEUES = 4


def pop_all(name_server: str, topic: str, group: str, count: int, batch: int) -> dict[str, Any]:
    """Pop a topic empty, in this process."""
    popped: list[bool] = []

    def look(message: ReceivedMessage) -> None:
        popped.append(PropertyName.POP_CHECK_POINT in message.properties)

    result = count_messages(name_server, topic, group, count, batch, on_first=look, client_rebalance=False)
    assert popped == [True], "the broker had it pull"
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
        mine = in_new_process(__file__, address, topic, new_group(f"ours-{topic}-{batch}-{number}"), messages, batch)
        results.append(Round("ours", messages, mine["seconds"], mine["cpu"]))
        results.append(java(f"java-{topic}-{batch}-{number}"))
        print(*results[-2:], sep="\n", flush=True)
    return against_java(results)


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
