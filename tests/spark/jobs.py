"""What drivers of tests are told to do (`driving.Driver.call`): functions of a session and of values that JSON knows.

A `gate` is a directory: tasks that go through it tell that they have begun by a file each, and wait there, in the
middle of their work, until there is a file `open`. So a test kills whom it wants to kill at the moment that it means.
"""

from __future__ import annotations

import os
import time
from collections import Counter
from functools import partial
from pathlib import Path
from typing import Any

from pyspark import TaskContext
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import col, rpad, spark_partition_id, udf

HELD_ROW = 3_000
Options = dict[str, str]


def read_rows(spark: SparkSession, options: Options, columns: list[str], gate: str | None = None) -> list[list[Any]]:
    """The rows of a batch read, bytes as texts."""
    rows = through(spark.read.format("rocketmq").options(**options).load().select(*columns), gate)
    return as_lists(rows)


def count_rows(spark: SparkSession, options: Options, gate: str | None = None) -> int:
    return through(spark.read.format("rocketmq").options(**options).load(), gate).count()


def tasks_of_a_read(spark: SparkSession, options: Options) -> list[dict[str, Any]]:
    """For each task of a batch read its executor, how many rows it has read, and of which queues."""
    rows = spark.read.format("rocketmq").options(**options).load().select("broker_name", "queue_id")
    # The parent of a Python worker is its executor's daemon: each executor has its own.
    executor = udf(os.getppid, "long").asNondeterministic()
    told = (
        rows.select("*", spark_partition_id().alias("task"), executor().alias("executor"))
        .groupBy("task", "executor", "broker_name", "queue_id")
        .count()
        .collect()
    )
    return [
        {
            "executors": sorted({row["executor"] for row in told if row["task"] == task}),
            "queues": sorted([row["broker_name"], row["queue_id"]] for row in told if row["task"] == task),
            "rows": sum(row["count"] for row in told if row["task"] == task),
        }
        for task in sorted({row["task"] for row in told})
    ]


def read_files(spark: SparkSession, path: str, columns: list[str]) -> list[list[Any]]:
    """The rows that a stream has written to parquet files, as its own log of them tells."""
    return as_lists(spark.read.parquet(path).select(*columns))


def stream_to_files(
    spark: SparkSession,
    options: Options,
    path: str,
    checkpoint: str,
    gate: str | None = None,
    held_batch: int | None = None,
) -> list[dict[str, Any]]:
    """Read what is there as a stream, and return its progress; the file sink keeps each row once."""
    rows = through(spark.readStream.format("rocketmq").options(**options).load(), gate, held_batch)
    query = (
        rows.writeStream.format("parquet")
        .option("checkpointLocation", checkpoint)
        .trigger(availableNow=True)
        .start(path)
    )
    query.awaitTermination()
    return [{"batch": one["batchId"], "rows": one["numInputRows"]} for one in query.recentProgress]


def stream_to_topic(
    spark: SparkSession,
    source: Options,
    sink: Options,
    checkpoint: str,
    gate: str | None = None,
    held_batch: int | None = None,
) -> None:
    """Copy bodies and keys from topic to topic as a stream, until all that is there now is copied."""
    rows = spark.readStream.format("rocketmq").options(**source).load().select("body", "keys")
    query = (
        through(rows, gate, held_batch)
        .writeStream.format("rocketmq")
        .options(**sink)
        .option("checkpointLocation", checkpoint)
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()


def copy_topic(spark: SparkSession, source: Options, sink: Options, gate: str | None = None) -> None:
    """Copy bodies and keys from topic to topic, once."""
    rows = spark.read.format("rocketmq").options(**source).load().select("body", "keys")
    through(rows, gate).write.format("rocketmq").options(**sink).mode("append").save()


def write_numbers(spark: SparkSession, sink: Options, count: int, gate: str | None = None) -> None:
    """Send the numbers from 0 on as bodies of 200 bytes, from two tasks."""
    body = rpad(col("id").cast("string"), 200, " ").cast("binary").alias("body")
    numbers = spark.range(0, count, numPartitions=2).select(body)
    through(numbers, gate).write.format("rocketmq").options(**sink).mode("append").save()


def through(rows: DataFrame, gate: str | None, micro_batch: int | None = None) -> DataFrame:
    """The same rows, but each task (of one micro-batch only, if told) waits at the gate with its 3,000th row."""
    if gate is None:
        return rows
    # A sink gets its rows in batches of that many: it has some when the gate is closed.
    rows.sparkSession.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "500")
    held = udf(partial(_hold, gate, micro_batch), "binary").asNondeterministic()
    return rows.withColumn("body", held("body"))


_rows_of_attempt: Counter[int] = Counter()


def _hold(gate: str, micro_batch: int | None, body: bytes) -> bytes:
    context = TaskContext.get()
    assert context is not None
    if micro_batch is None or context.getLocalProperty("streaming.sql.batchId") == str(micro_batch):
        _rows_of_attempt[context.taskAttemptId()] += 1
        if _rows_of_attempt[context.taskAttemptId()] == HELD_ROW:
            Path(gate, f"task-{context.partitionId()}-attempt-{context.attemptNumber()}").touch()
            while not Path(gate, "open").exists():
                time.sleep(0.02)
    return body


def as_lists(rows: DataFrame) -> list[list[Any]]:
    """Rows for JSON: bytes as texts, times in milliseconds."""
    return [[_plain(value) for value in row.values()] for row in rows.toArrow().to_pylist()]


def _plain(value: Any) -> Any:
    if isinstance(value, bytes):
        return value.decode("utf-8", "backslashreplace")
    if hasattr(value, "timestamp"):
        return round(value.timestamp() * 1000)
    if isinstance(value, list):
        return dict(value)
    return value
