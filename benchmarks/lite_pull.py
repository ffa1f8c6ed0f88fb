"""The lite pull consumer against Java's, alternating, in one run: messages per second and CPU.

    python benchmarks/lite_pull.py [--messages 1000000] [--rounds 3] [--sizes 200 1024] [--version 5.5.0]

Both drain the same topic by polling in a loop that only counts, with auto commit and pulls of 32 messages; seconds and
CPU from the first message to the last. Ours is a fresh process each time (its peak memory is its own), once polled with
`poll` and once with `async for`; Java is one process that stays, so its code is warm. The broker shares the machine
with both, so only the ratios mean something.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.counting import in_new_process, peak_memory
from benchmarks.rounds import Round, cpu_seconds
from rocketstream import LitePullConsumer, StartFrom, aio
from rocketstream.testing import RocketMQCluster
from tests.interop.java_peer import JavaPeer

GOAL = 1.5
PULL_BATCH = 32


# --- ours, in a process of its own ----------------------------------------------------------------------------------


def poll_all(name_server: str, topic: str, group: str, count: int) -> dict[str, Any]:
    """Drain a topic with `poll`."""
    puller = LitePullConsumer(group, name_server, start_from=StartFrom.FIRST, pull_batch_size=PULL_BATCH)
    puller.subscribe(topic)
    with puller:
        seen = len(puller.poll(60.0))
        begun, cpu = time.perf_counter(), cpu_seconds()
        while seen < count:
            messages = puller.poll(60.0)
            assert messages, f"got {seen} of {count}"
            seen += len(messages)
        return {"seconds": time.perf_counter() - begun, "cpu": cpu_seconds() - cpu, "peak": peak_memory()}


async def iterate(name_server: str, topic: str, group: str, count: int) -> dict[str, Any]:
    """Drain a topic with `async for`."""
    puller = aio.LitePullConsumer(group, name_server, start_from=StartFrom.FIRST, pull_batch_size=PULL_BATCH)
    await puller.subscribe(topic)
    async with puller:
        seen = 0
        begun = cpu = 0.0
        async for _ in puller:
            if not seen:
                begun, cpu = time.perf_counter(), cpu_seconds()
            seen += 1
            if seen >= count:
                break
        return {"seconds": time.perf_counter() - begun, "cpu": cpu_seconds() - cpu, "peak": peak_memory()}


def run_inner(how: str, name_server: str, topic: str, group: str, count: str) -> None:
    """What `in_new_process` started."""
    if how == "poll":
        result = poll_all(name_server, topic, group, int(count))
    else:
        result = asyncio.run(iterate(name_server, topic, group, int(count)))
    print(json.dumps(result))


# --- the comparison -------------------------------------------------------------------------------------------------


def compare(address: str, peer: JavaPeer, topic: str, messages: int, rounds: int) -> dict[str, float]:
    """Each drains the topic in turn."""
    results: list[Round] = []
    peaks: list[float] = []
    peer.lite_count(f"warm-{topic}", topic, count=messages, pull_batch_size=PULL_BATCH, timeout=600.0)
    for number in range(rounds):
        for how in ("poll", "async"):
            mine = in_new_process(__file__, how, address, topic, f"{how}-{topic}-{number}", messages)
            peaks.append(mine["peak"])
            results.append(Round(how, messages, mine["seconds"], mine["cpu"]))
        java = peer.lite_count(
            f"java-{topic}-{number}", topic, count=messages, pull_batch_size=PULL_BATCH, timeout=600.0
        )
        results.append(Round("Java", java.messages, java.seconds, java.cpu_seconds))
        print(*results[-3:], sep="\n", flush=True)
    names = ("poll", "async", "Java")
    rate = {who: statistics.median(r.rate for r in results if r.who == who) for who in names}
    cpu = {who: statistics.median(r.cpu_micros for r in results if r.who == who) for who in names}
    return {
        "ratio": rate["poll"] / rate["Java"],
        "async_ratio": rate["async"] / rate["Java"],
        "ours_per_second": rate["poll"],
        "async_per_second": rate["async"],
        "java_per_second": rate["Java"],
        "ours_cpu_micros": cpu["poll"],
        "async_cpu_micros": cpu["async"],
        "java_cpu_micros": cpu["Java"],
        "ours_peak_mib": max(peaks),
        "java_peak_mib": peak_memory(peer.pid),
    }


def main() -> None:
    if sys.argv[1:2] == ["--inner"]:
        run_inner(*sys.argv[2:])
        return
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--messages", type=int, default=1_000_000, help="of 200 B; of 1 KB there are three tenths")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--sizes", type=int, nargs="+", default=[200, 1024])
    parser.add_argument("--version", default="5.5.0")
    parser.add_argument("--json", action="store_true", help="print everything as JSON on the last line")
    arguments = parser.parse_args()
    results: dict[str, dict[str, float]] = {}
    print(f"starting RocketMQ {arguments.version} ...", flush=True)
    with (
        RocketMQCluster(arguments.version, profile="benchmark") as cluster,
        JavaPeer(arguments.version, cluster.name_server_address) as peer,
    ):
        for size in arguments.sizes:
            topic = f"lite-pull-{size}"
            messages = arguments.messages if size <= 200 else arguments.messages * 3 // 10
            peer.create_topic(topic, 4)
            print(f"filling {topic!r} with {messages:,} messages of {size} B ...", flush=True)
            peer.produce(topic, count=messages, size=size, batch=100, receipts=False, timeout=900.0)
            result = compare(cluster.name_server_address, peer, topic, messages, arguments.rounds)
            results[f"{size} B"] = result
            told = ", ".join(f"{key} {value:,.2f}" for key, value in result.items())
            print(f"== {size} B (goal {GOAL}): {told}", flush=True)
    if arguments.json:
        print(json.dumps(results))


if __name__ == "__main__":
    main()
