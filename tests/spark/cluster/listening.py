"""A `SparkConsumer` for tests: its listener writes down what it gets, fails some messages once, and can be held."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from pyspark.sql import SparkSession

from rocketstream import ConsumeContext, ConsumeResult, StartFrom
from rocketstream.message import ReceivedMessage
from rocketstream.spark import SparkConsumer

FAILS_ONCE = 40
HELD = 500
_consumers: list[SparkConsumer] = []


class Handled(NamedTuple):
    """A message that a listener has said is consumed."""

    number: int
    times_before: int
    pid: int


def start_consumer(spark: SparkSession, group: str, name_servers: str, topic: str, **places: str) -> None:
    """Start a consumer that writes into `notebook`, waits at `gate` and keeps its offsets in `checkpoint` too."""
    consumer = SparkConsumer(
        spark,
        group,
        name_servers,
        listener=partial(listener, places["gate"], places["notebook"]),
        checkpoint=places["checkpoint"],
        start_from=StartFrom.FIRST,
        round_time=1.0,
    )
    consumer.subscribe(topic).start()
    _consumers.append(consumer)


def consumer_tasks(spark: SparkSession) -> dict[str, Any]:
    """What the consumer tells of itself."""
    (consumer,) = _consumers
    return {"failure": consumer.failure, "ended": consumer.tasks.ended, "state": consumer.state.name}


def stop_consumer(spark: SparkSession) -> None:
    _consumers.pop().shutdown()


def listener(gate: str, notebook: str, messages: Sequence[ReceivedMessage], context: ConsumeContext) -> ConsumeResult:
    """Every 500th message waits for the gate; every 40th fails when it comes for the first time."""
    for message in messages:
        number = int(message.body)
        if number % HELD == 0 and not Path(gate, "open").exists():
            Path(gate, f"process-{os.getpid()}").touch()
            while not Path(gate, "open").exists():
                time.sleep(0.02)
        if number % FAILS_ONCE == 1 and message.reconsume_times == 0:
            context.delay_level_when_next_consume = 1
            return ConsumeResult.RECONSUME_LATER
        file = os.open(Path(notebook, str(os.getpid())), os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.write(file, b"%d %d\n" % (number, message.reconsume_times))
        os.close(file)
    return ConsumeResult.SUCCESS


def handled(notebook: Path) -> list[Handled]:
    """What listeners have written down so far."""
    lines = [(int(path.name), line.split()) for path in notebook.iterdir() for line in path.read_text().splitlines()]
    return [Handled(int(line[0]), int(line[1]), pid) for pid, line in lines if len(line) == 2]
