"""How long a row takes from its event to a sink, in micro-batches: our source beside the floor of Spark itself.

    python benchmarks/spark_latency.py [--seconds 30] [--rate 1000]

- rocketmq: a producer sends `rate` messages a second to a RocketMQ 5.5.0; a stream with processingTime 0 reads them. A
  row's latency is the time from its creation in the producer until the batch that has it is in the sink.
- floor: the same query over Spark's own `rate-micro-batch` source in the JVM, which costs nothing to read: how long a
  micro-batch takes at least. Its rows have no event of their own, so batch times are compared, not latencies.

The first seconds are left out: a JVM that has not compiled its code yet is slower than any source.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
import threading
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from pyspark.sql import DataFrame

from benchmarks.spark_source import session
from rocketstream import AdminClient, Message, Producer
from rocketstream.testing import RocketMQCluster

WARM_UP = 15.0


def percentile(values: list[float], share: float) -> float:
    return sorted(values)[min(len(values) - 1, int(len(values) * share))]


class Sink:
    """Takes batches to the driver, and notes how old their rows are when they are there."""

    def __init__(self) -> None:
        self.ages: list[float] = []
        self.begun = time.time()

    def __call__(self, batch: DataFrame, number: int) -> None:
        events = batch.selectExpr("unix_micros(born_timestamp) AS event").toArrow().column("event").to_pylist()
        now = time.time()
        self.ages += [now - event / 1e6 for event in events if event / 1e6 > self.begun + WARM_UP]


def produce(address: str, topic: str, rate: int, end: threading.Event) -> None:
    body = os.urandom(200)
    with Producer("steady", address) as producer:
        begun, sent = time.monotonic(), 0
        while not end.wait(0.005):
            due = int((time.monotonic() - begun) * rate)
            for _ in range(due - sent):
                producer.send_async(Message(topic, body))
            sent = due


def batch_times(query: object) -> list[float]:
    """Seconds of each batch that had rows, without the first ones."""
    progress = [entry for entry in query.recentProgress if entry["numInputRows"]]  # type: ignore[attr-defined]
    return [entry["durationMs"]["triggerExecution"] / 1000 for entry in progress[len(progress) // 3 :]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=30.0)
    parser.add_argument("--rate", type=int, default=1_000)
    parser.add_argument("--json", action="store_true", help="print the result as JSON on the last line")
    arguments = parser.parse_args()

    spark = session("")
    with tempfile.TemporaryDirectory() as directory, RocketMQCluster("5.5.0", profile="benchmark") as cluster:
        address = cluster.name_server_address
        with AdminClient(address) as admin:
            admin.create_topic("latency", queues=4)
        end = threading.Event()
        producing = threading.Thread(target=produce, args=(address, "latency", arguments.rate, end))
        sink = Sink()
        stream = spark.readStream.format("rocketmq").options(nameServers=address, topic="latency").load()
        query = stream.writeStream.foreachBatch(sink).option("checkpointLocation", f"{directory}/ours").start()
        producing.start()
        query.awaitTermination(int(WARM_UP + arguments.seconds))
        ours = batch_times(query)
        query.stop()
        end.set()
        producing.join()

        floor = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 150).load()
        batches = floor.writeStream.foreachBatch(lambda batch, number: batch.toArrow())
        query = batches.option("checkpointLocation", f"{directory}/floor").start()
        query.awaitTermination(int(WARM_UP + arguments.seconds / 2))
        floors = batch_times(query)
        query.stop()
    spark.stop()
    found = {
        "rows": len(sink.ages),
        "p50": percentile(sink.ages, 0.5),
        "p99": percentile(sink.ages, 0.99),
        "batch": statistics.median(ours),
        "floor": statistics.median(floors),
    }
    print(
        f"event to sink at {arguments.rate:,} rows/s: p50 {found['p50'] * 1e3:.0f} ms, p99 {found['p99'] * 1e3:.0f} ms"
    )
    print(f"a micro-batch takes {found['batch'] * 1e3:.0f} ms; of the JVM's rate source {found['floor'] * 1e3:.0f} ms")
    if arguments.json:
        print(json.dumps(found))


if __name__ == "__main__":
    main()
