"""What it costs to be watched: a consumer and a producer with trace and metrics on against off, in alternating turns.

    python benchmarks/observed.py [--messages 500000] [--rounds 3] [--batches 32 1] [--only consume produce]

`off`: neither a trace nor an endpoint. `on`: `trace=` a topic, and a Prometheus endpoint that is scraped once a second
by this very process, as often as nobody does. `metrics`, `trace` and `otel` (spans that are sampled, and dropped by
their processor) take single ones; `uncounted` is `off` without the counting that is always on. Each turn is a fresh
process; seconds and CPU from the first message to the last. Ratios are to `off` in the same round, medians over rounds.
Trace records that the trace topic could not take are dropped, never waited for: how many is told too.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import threading
import time
import urllib.request
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.counting import count_messages, in_new_process
from benchmarks.rounds import Round, cpu_seconds
from rocketstream import Message, Producer
from rocketstream.metrics import collect, start_http_server
from rocketstream.metrics.catalogue import TRACE_DROPPED
from rocketstream.metrics.values import Histogram
from rocketstream.testing import RocketMQCluster
from tests.interop.java_peer import JavaPeer

GOAL = 0.9
VARIANTS = ("off", "on", "metrics", "trace", "otel", "uncounted")
TRACES = "observed-traces"
_SCRAPE_EVERY = 1.0


# --- in a process of its own ------------------------------------------------------------------------------------------


def settings_of(variant: str) -> dict[str, Any]:
    """What a client of a variant is made with."""
    if variant in ("on", "trace"):
        return {"trace": TRACES}
    if variant == "otel":
        from opentelemetry.sdk.trace import TracerProvider

        return {"otel": TracerProvider(shutdown_on_exit=False)}
    return {}


def watched(variant: str) -> Callable[[], None]:
    """Serve and scrape metrics from now on, where the variant wants that; returns how to end it."""
    if variant == "uncounted":
        Histogram.observe = lambda self, value: None  # type: ignore[method-assign]
        Histogram.observe_all = lambda self, values: None  # type: ignore[method-assign]
    if variant not in ("on", "metrics"):
        return lambda: None
    server = start_http_server(0, "127.0.0.1")
    over = threading.Event()

    def scrape() -> None:
        while not over.wait(_SCRAPE_EVERY):
            with urllib.request.urlopen(server.url) as answer:
                answer.read()

    threading.Thread(target=scrape, daemon=True).start()

    def end() -> None:
        over.set()
        server.close()

    return end


def consume(address: str, topic: str, group: str, count: int, batch: int, variant: str) -> dict[str, float]:
    """Drain a topic."""
    end = watched(variant)
    result = count_messages(address, topic, group, count, batch, **settings_of(variant))
    end()
    return {**result, "dropped": dropped()}


def produce(address: str, topic: str, group: str, count: int, batch: int, variant: str) -> dict[str, float]:
    """Fill a topic: by `send_async`, or by `send_batch` of so many."""
    body = bytes(200)
    with Producer(group, address, **settings_of(variant)) as producer:
        producer.send(Message(topic, body))
        end = watched(variant)
        begun, cpu = time.perf_counter(), cpu_seconds()
        if batch > 1:
            for _ in range(count // batch):
                producer.send_batch([Message(topic, body) for _ in range(batch)])
        else:
            sends: list[Future[Any]] = [producer.send_async(Message(topic, body)) for _ in range(count)]
            for sent in sends:
                sent.result()
        result = {"seconds": time.perf_counter() - begun, "cpu": cpu_seconds() - cpu}
        end()
    return {**result, "dropped": dropped()}


def dropped() -> float:
    """Trace records that were dropped in this process."""
    return sum(float(s.value) for s in collect() if s.metric is TRACE_DROPPED)  # type: ignore[arg-type]


INNER = {"consume": consume, "produce": produce}


def run_inner(what: str, address: str, topic: str, group: str, count: str, batch: str, variant: str) -> None:
    """One variant's turn."""
    print(json.dumps(INNER[what](address, topic, group, int(count), int(batch), variant)))


# --- the comparison -------------------------------------------------------------------------------------------------


def compare(what: str, address: str, topic: str, count: int, batch: int, rounds: int, variants: list[str]) -> None:
    """All variants in turn, in another order each round; prints the medians and their ratio to `off`."""
    results: dict[str, list[Round]] = {variant: [] for variant in variants}
    lost = dict.fromkeys(variants, 0.0)
    for number in range(rounds):
        for variant in variants if number % 2 == 0 else reversed(variants):
            group = f"{what}-{batch}-{variant}-{number}-{topic}"
            told = in_new_process(__file__, what, address, topic, group, count, batch, variant)
            results[variant].append(Round(variant, count, told["seconds"], told["cpu"]))
            lost[variant] += told["dropped"]
            print(f"{variant:>10} {results[variant][-1]}", flush=True)
    base = results["off"]
    for variant, turns in results.items():
        ratio = statistics.median(mine.rate / off.rate for mine, off in zip(turns, base, strict=True))
        cpu = statistics.median(mine.cpu_micros - off.cpu_micros for mine, off in zip(turns, base, strict=True))
        goal = f" (goal {GOAL})" if variant == "on" else ""
        traced = f", {lost[variant] / rounds:,.0f} trace records dropped a round" if lost[variant] else ""
        print(f"== {what}, batch {batch}, {variant}: {ratio:.3f} x off{goal}, {cpu:+.2f} µs CPU/message{traced}")


def main() -> None:
    if sys.argv[1:2] == ["--inner"]:
        run_inner(*sys.argv[2:])
        return
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--messages", type=int, default=500_000, help="of 200 B; send_async has a fifth of them")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--batches", type=int, nargs="+", default=[32, 1])
    parser.add_argument("--variants", nargs="+", choices=VARIANTS, default=["off", "on"])
    parser.add_argument("--only", nargs="+", choices=sorted(INNER), default=sorted(INNER))
    parser.add_argument("--version", default="5.5.0")
    arguments = parser.parse_args()
    variants = ["off", *(variant for variant in arguments.variants if variant != "off")]
    print(f"starting RocketMQ {arguments.version} ...", flush=True)
    with (
        RocketMQCluster(arguments.version, profile="benchmark") as cluster,
        JavaPeer(arguments.version, cluster.name_server_address) as peer,
    ):
        address = cluster.name_server_address
        for topic in ("observed-in", "observed-out", TRACES):
            peer.create_topic(topic, 4)
        if "consume" in arguments.only:
            print(f"filling a topic with {arguments.messages:,} messages of 200 B ...", flush=True)
            peer.produce("observed-in", count=arguments.messages, size=200, batch=100, receipts=False, timeout=900.0)
        for batch in arguments.batches:
            if "consume" in arguments.only:
                count = arguments.messages
                compare("consume", address, "observed-in", count, batch, arguments.rounds, variants)
            if "produce" in arguments.only:
                count = arguments.messages if batch > 1 else arguments.messages // 5
                compare("produce", address, "observed-out", count, batch, arguments.rounds, variants)


if __name__ == "__main__":
    main()
