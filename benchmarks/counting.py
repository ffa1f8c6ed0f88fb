"""What the consumers' benchmarks share: a push consumer that counts to the end of a topic, and turns compared."""

from __future__ import annotations

import itertools
import json
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from benchmarks.rounds import Round, cpu_seconds
from rocketstream import ConsumeContext, ConsumeResult, PushConsumer, ReceivedMessage, StartFrom

PATIENCE = 600.0


def peak_memory(process: int | str = "self") -> float:
    """MiB at the most, so far."""
    for line in Path(f"/proc/{process}/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) / 1024
    raise AssertionError("the kernel does not tell")


def count_messages(
    name_server: str,
    topic: str,
    group: str,
    count: int,
    batch: int,
    *,
    on_first: Callable[[ReceivedMessage], None] = lambda message: None,
    **settings: Any,
) -> dict[str, Any]:
    """Consume a topic to its end, in this process; seconds and CPU from the first message to the last."""
    done = threading.Event()
    calls = itertools.count(1)  # next() is atomic, += is not
    first: list[tuple[float, float]] = []
    sizes: list[int] = []

    def one(messages: Sequence[ReceivedMessage], context: ConsumeContext) -> ConsumeResult:
        number = next(calls)
        if number == 1:
            first.append((time.perf_counter(), cpu_seconds()))
            on_first(messages[0])
        if number >= count:
            done.set()
        return ConsumeResult.SUCCESS

    def many(messages: Sequence[ReceivedMessage], context: ConsumeContext) -> ConsumeResult:
        if not first:
            first.append((time.perf_counter(), cpu_seconds()))
            on_first(messages[0])
        sizes.append(len(messages))
        if len(sizes) * batch >= count and sum(sizes) >= count:
            done.set()
        return ConsumeResult.SUCCESS

    consumer = PushConsumer(
        group,
        name_server,
        listener=one if batch == 1 else many,
        start_from=StartFrom.FIRST,
        consume_message_batch_max_size=batch,
        **settings,
    )
    consumer.subscribe(topic)
    consumer.start()
    assert done.wait(PATIENCE), f"got {next(calls)} calls, {sum(sizes)} messages of {count}"
    seconds, cpu = time.perf_counter() - first[0][0], cpu_seconds() - first[0][1]
    consumer.shutdown()
    return {"seconds": seconds, "cpu": cpu, "peak": peak_memory()}


def in_new_process(script: str, *arguments: object) -> dict[str, Any]:
    """Run a benchmark's script with `--inner` and these arguments; its last line is the result."""
    command = [sys.executable, script, "--inner", *map(str, arguments)]
    ended = subprocess.run(command, check=False, capture_output=True, text=True)
    if ended.returncode:
        raise SystemExit(f"{' '.join(command[2:])} failed:\n{ended.stderr[-4000:]}")
    result: dict[str, Any] = json.loads(ended.stdout.splitlines()[-1])
    return result


def against_java(turns: Sequence[Round]) -> dict[str, float]:
    """Medians of turns of ours and of Java, and their ratio."""
    rate = {who: statistics.median(turn.rate for turn in turns if turn.who == who) for who in ("ours", "Java")}
    cpu = {who: statistics.median(turn.cpu_micros for turn in turns if turn.who == who) for who in ("ours", "Java")}
    return {
        "ratio": rate["ours"] / rate["Java"],
        "ours_per_second": rate["ours"],
        "java_per_second": rate["Java"],
        "ours_cpu_micros": cpu["ours"],
        "java_cpu_micros": cpu["Java"],
    }
