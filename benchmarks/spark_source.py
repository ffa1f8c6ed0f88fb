"""Read a topic with Spark: our source against a raw drain of the same topic, and Spark's Kafka source, in one run.

    python benchmarks/spark_source.py [--rounds 3] [--messages 1000000] [--sizes 200,1024] [--only rates,large,...]

- rates: a RocketMQ 5.5.0 at its defaults (32 messages a pull). The raw drain pulls every queue with one request in
  flight each and looks at no message; the source reads all columns into noop and parquet, as a batch and as a stream
  (AvailableNow). Goal: 0.8 of the drain.
- large: the same with a broker that answers up to 4,096 messages or 4 MiB a pull. Goal: 2.5 times the source's own
  rate at the defaults.
- queues: the same number of messages in 4, 16, 64 and 256 queues. Goal: within 20 %.
- kafka: the same messages in a Kafka of this machine, read by Spark's own Kafka source, as a batch. Goal: as fast.

All turns share the machine with their broker, so only the ratios mean something: of medians over the rounds, after one
turn of each to warm up.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeAlias

sys.path.insert(0, str(Path(__file__).parents[1]))

from pyspark.sql import Observation, SparkSession
from pyspark.sql.functions import count, lit

from benchmarks import kafka_peer
from benchmarks.drain import pull_fields
from rocketstream import AdminClient, Message, Producer
from rocketstream.cluster.client_id import client_id, unique_instance_name
from rocketstream.cluster.client_instance import ClientInstance
from rocketstream.cluster.settings import ClientSettings
from rocketstream.message import MessageQueue
from rocketstream.remoting.io_thread import IoThread
from rocketstream.remoting.replies import read_pull_result
from rocketstream.testing import RocketMQCluster
from rocketstream.wire.codes import PullStatus, RequestCode
from rocketstream.wire.command import request

PULL = RequestCode.PULL_MESSAGE
LARGE = {"maxTransferCountOnMessageInMemory": "4096", "maxTransferBytesOnMessageInMemory": "4194304"}
SINKS = ("noop", "parquet")
WAYS = ("batch", "stream")
#: How many rows, in how many seconds.
Turn: TypeAlias = tuple[int, float]


def session(jars: str) -> SparkSession:
    os.environ["PYSPARK_PYTHON"] = sys.executable
    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.jars", jars)
        .config("spark.driver.memory", "2g")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.execution.arrow.maxRecordsPerBatch", "10000")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    return spark


def fill(address: str, topic: str, *, messages: int, size: int, queues: int) -> None:
    """Orders with tags, a key and two properties, spread evenly."""
    body = os.urandom(size)
    with AdminClient(address) as admin:
        admin.create_topic(topic, queues=queues)
    with Producer("fill", address, auto_batch=True, send_timeout=60.0) as producer:
        sent = [
            producer.send_async(
                Message(topic, body, tags="paid", keys=f"order-{n}", properties={"region": "eu", "shop": "17"})
            )
            for n in range(messages)
        ]
        for receipt in sent:
            receipt.result()


async def drain_queue(instance: ClientInstance, address: str, queue: MessageQueue, ask: int) -> int:
    fields = pull_fields(queue, "drain", ask)
    while True:
        result = read_pull_result(address, PULL, await instance.remoting.begin(address, request(PULL, fields), 30.0))
        if result.status is not PullStatus.FOUND:
            return result.max_offset
        fields["queueOffset"] = str(result.next_offset)


def drained(address: str, topic: str, ask: int) -> Turn:
    """Pull all queues of a topic to their ends: how many messages there were, and the time."""
    io = IoThread.shared()
    instance = ClientInstance(client_id(unique_instance_name()), ClientSettings.make(address))

    async def all_queues() -> int:
        route = await instance.routes.refresh(topic)
        pulls = []
        for queue in route.read_queues:
            broker = instance.brokers.master(queue.broker_name)
            assert broker is not None
            pulls.append(drain_queue(instance, broker.address, queue, ask))
        return sum(await asyncio.gather(*pulls))

    io.run(instance.start())
    try:
        begun = time.perf_counter()
        return io.run(all_queues()), time.perf_counter() - begun
    finally:
        io.run(instance.stop())


def read(spark: SparkSession, format: str, options: dict[str, str], way: str, sink: str, directory: str) -> Turn:
    """Read a topic whole: how many rows Spark says there were, and its time: of a stream, that of its batches."""
    if way == "batch":
        begun = time.perf_counter()
        seen = Observation()
        frame = spark.read.format(format).options(**options).load().observe(seen, count(lit(1)).alias("rows"))
        if sink == "noop":
            frame.write.format("noop").mode("overwrite").save()
        else:
            frame.write.mode("overwrite").parquet(f"{directory}/batch")
        return int(seen.get["rows"]), time.perf_counter() - begun
    frame = spark.readStream.format(format).options(**options).load()
    with tempfile.TemporaryDirectory(dir=directory) as place:
        writer = frame.writeStream.trigger(availableNow=True).option("checkpointLocation", f"{place}/checkpoint")
        query = (writer.format("noop") if sink == "noop" else writer.format("parquet").option("path", place)).start()
        query.awaitTermination()
        batches = [batch for batch in query.recentProgress if batch["numInputRows"]]
        seconds = sum(batch["durationMs"]["triggerExecution"] for batch in batches) / 1000
        return sum(int(batch["numInputRows"]) for batch in batches), seconds


def medians(turns: dict[str, Callable[[], Turn]], messages: int, rounds: int) -> dict[str, float]:
    """Rows a second of each, by turns."""
    seen: dict[str, list[float]] = {name: [] for name in turns}
    for number in range(rounds + 1):
        for name, turn in turns.items():
            rows, seconds = turn()
            assert rows == messages, f"{name}: {rows} rows of {messages}"
            if number:
                seen[name].append(rows / seconds)
                print(f"  {number}: {name:>22} {rows / seconds:>11,.0f} rows/s", flush=True)
    return {name: statistics.median(found) for name, found in seen.items()}


class Benchmark:
    def __init__(self, spark: SparkSession, arguments: argparse.Namespace, directory: str) -> None:
        self.spark = spark
        self.messages: int = arguments.messages
        self.rounds: int = arguments.rounds
        self.directory = directory

    def of_rocketmq(self, address: str, topic: str, way: str, sink: str) -> Callable[[], Turn]:
        options = {"nameServers": address, "topic": topic, "startingOffsets": "earliest"}
        return lambda: read(self.spark, "rocketmq", options, way, sink, self.directory)

    def of_kafka(self, address: str, topic: str, way: str, sink: str) -> Callable[[], Turn]:
        options = {"kafka.bootstrap.servers": address, "subscribe": topic, "startingOffsets": "earliest"}
        return lambda: read(self.spark, "kafka", options, way, sink, self.directory)

    def rates(self, address: str, size: int, ask: int) -> dict[str, float]:
        topic = f"rates-{size}"
        fill(address, topic, messages=self.messages, size=size, queues=4)
        turns: dict[str, Callable[[], Turn]] = {"raw drain": lambda: drained(address, topic, ask)}
        for way in WAYS:
            for sink in SINKS:
                turns[f"{way} into {sink}"] = self.of_rocketmq(address, topic, way, sink)
        return medians(turns, self.messages, self.rounds)

    def kafka(self, address: str, size: int) -> dict[str, float]:
        topic = f"rates-{size}"
        (
            self.spark.range(self.messages, numPartitions=2)
            .selectExpr("concat('order-', id) AS key", f"unhex(repeat('a5', {size})) AS value")
            .write.format("kafka")
            .options(**{"kafka.bootstrap.servers": address, "topic": topic})
            .save()
        )
        # As a batch only: its streams ask for what Spark 4.3 has no longer.
        turns = {f"batch into {sink}": self.of_kafka(address, topic, "batch", sink) for sink in SINKS}
        return medians(turns, self.messages, self.rounds)

    def by_queues(self, address: str, counts: Sequence[int]) -> dict[str, float]:
        turns = {}
        for queues in counts:
            fill(address, f"queues-{queues}", messages=self.messages, size=200, queues=queues)
            turns[f"{queues} queues"] = self.of_rocketmq(address, f"queues-{queues}", "batch", "noop")
        return medians(turns, self.messages, self.rounds)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--messages", type=int, default=1_000_000)
    parser.add_argument("--sizes", default="200,1024")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", default="rates,large,queues,kafka")
    parser.add_argument("--json", action="store_true", help="print the result as JSON on the last line")
    arguments = parser.parse_args()
    only, sizes = arguments.only.split(","), [int(size) for size in arguments.sizes.split(",")]

    found: dict[str, dict[str, float]] = {}
    spark = session(kafka_peer.source_jars() if "kafka" in only else "")
    with tempfile.TemporaryDirectory() as directory:
        benchmark = Benchmark(spark, arguments, directory)
        if "rates" in only or "queues" in only:
            print("RocketMQ 5.5.0 at its defaults", flush=True)
            with RocketMQCluster("5.5.0", profile="benchmark") as cluster:
                address = cluster.name_server_address
                for size in sizes if "rates" in only else ():
                    print(f" {size} B", flush=True)
                    found[f"defaults {size} B"] = benchmark.rates(address, size, 32)
                if "queues" in only:
                    found["queues"] = benchmark.by_queues(address, (4, 16, 64, 256))
        if "large" in only:
            print("RocketMQ 5.5.0 with large transfers", flush=True)
            with RocketMQCluster("5.5.0", broker_config=LARGE, profile="benchmark") as cluster:
                for size in sizes:
                    print(f" {size} B", flush=True)
                    found[f"large {size} B"] = benchmark.rates(cluster.name_server_address, size, 4096)
        if "kafka" in only:
            print("Kafka", flush=True)
            with kafka_peer.kafka() as address:
                for size in sizes:
                    print(f" {size} B", flush=True)
                    found[f"kafka {size} B"] = benchmark.kafka(address, size)
    spark.stop()
    report(found, sizes)
    if arguments.json:
        print(json.dumps(found))


def report(found: dict[str, dict[str, float]], sizes: Sequence[int]) -> None:
    """The ratios, with their goals."""
    nothing: dict[str, float] = {}
    for size in sizes:
        defaults, large, kafka = (found.get(f"{what} {size} B", nothing) for what in ("defaults", "large", "kafka"))
        for name in [f"{way} into {sink}" for way in WAYS for sink in SINKS]:
            ratios = []
            if defaults:
                ratios.append(f"{defaults[name] / defaults['raw drain']:.2f} x the raw drain (goal 0.8)")
            if defaults and large:
                ratios.append(f"{large[name] / defaults[name]:.2f} x with large transfers (goal 2.5)")
            if large:
                ratios.append(f"{large[name] / large['raw drain']:.2f} x the large raw drain")
            if defaults and name in kafka:
                ratios.append(f"{defaults[name] / kafka[name]:.2f} x Kafka's source (goal 1.0)")
            if large and name in kafka:
                ratios.append(f"{large[name] / kafka[name]:.2f} x with large transfers")
            if ratios:
                print(f"{size:>5} B {name:>20}: {', '.join(ratios)}")
    if queues := found.get("queues"):
        first = next(iter(queues.values()))
        shares = ", ".join(f"{name} {rate / first:.2f}" for name, rate in queues.items())
        print(f"rows/s by queues, x those of 4 queues (goal 0.8 to 1.2): {shares}")


if __name__ == "__main__":
    main()
