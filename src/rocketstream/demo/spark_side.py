"""The Spark pipeline of the demo: `pipeline.toml` beside this file, run as anybody's pipeline is.

The rule of this file: Spark is touched by one thread, from its start to its end, since a JVM takes seconds to start and
a batch takes one to end; whoever asks gets what that thread has noted last.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from collections import Counter
from datetime import UTC, datetime
from decimal import Decimal
from importlib.resources import files as resources
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from rocketstream.admin.client import AdminClient
from rocketstream.demo.expectation import Expectation, MinuteKey, MinuteRow
from rocketstream.demo.files import DemoFiles
from rocketstream.demo.orders import RATES, REGIONS, OrderStream
from rocketstream.demo.outcome import PipelineSeen
from rocketstream.demo.reading import read_topic
from rocketstream.demo.settings import DEAD_LETTER_TOPIC, RESULT_TOPIC
from rocketstream.errors import ConfigurationError, RocketStreamError
from rocketstream.message import ReceivedMessage
from rocketstream.spark.pipeline import PipelineRun, load_pipeline, open_session
from rocketstream.spark.pipeline.session import require_spark
from rocketstream.spark.row_ids import ROW_ID
from rocketstream.testing.java import JavaNotFoundError, find_java

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_WITHOUT = "rocketstream demo --no-spark shows the rest without it: the push consumer, its retries and dead letters"
_LOOK_EVERY = 0.4
_MAIN_SINK = "orders-table"
#: Small and quiet: it shares two cores with a broker, a producer and a consumer.
_SPARK = {
    "spark.driver.memory": "1g",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    # The quick compiler only: the JVM lives for half a minute, and would spend half of it on the other one.
    "spark.driver.extraJavaOptions": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1 -Xss4m",
    "spark.default.parallelism": "2",
    "spark.python.unix.domain.socket.enabled": "true",
}


class SparkSide:
    """The pipeline in a thread of its own."""

    def __init__(self, files: DemoFiles) -> None:
        self._files = files
        self.doing = "not started"
        """What it does now, in a few words."""
        self.running = False
        """Whether all its queries have read something: the first batch takes longest."""
        self.problem: Exception | None = None
        """Why it can't go on."""
        self._rows = 0
        self._complete = False
        self._seen = PipelineSeen()
        self._stream: OrderStream | None = None
        self._expected: Expectation | None = None
        self._name_servers = ""
        self._over = threading.Event()
        self._wanted = True
        """Whether what it left behind is to be read."""
        self._thread = threading.Thread(target=self._run, name="demo-spark", daemon=True)

    @classmethod
    def checked(cls, files: DemoFiles) -> Self:
        """Make it, or say in one sentence what is missing."""
        try:
            require_spark()
            java = find_java()
        except (ConfigurationError, JavaNotFoundError) as problem:
            sentence = str(problem).removesuffix(".").replace("to run RocketMQ", "for Spark")
            raise ConfigurationError(f"{sentence}; or: {_WITHOUT}") from None
        # The one that was found: Spark would take that of JAVA_HOME, however old, and any python3 on PATH.
        os.environ["JAVA_HOME"] = str(java.executable.resolve().parent.parent)
        os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
        return cls(files)

    def attach(self, stream: OrderStream, expected: Expectation) -> None:
        """What it will read, and when it has seen everything."""
        self._stream, self._expected = stream, expected

    def start(self, name_servers: str) -> None:
        """Start it, in a thread of its own."""
        self._name_servers = name_servers
        self._write_files()
        self._thread.start()

    def progress(self) -> tuple[int, bool]:
        """Rows that it has read for its table of orders, and whether everything is written."""
        return self._rows, self._complete

    def close(self) -> None:
        """Stop it without looking back; harmless when repeated."""
        self._wanted = False
        self._end(10.0)

    def collect(self) -> PipelineSeen:
        """Let it finish its batches, stop it, and tell what it left behind."""
        self._end(90.0)
        if self.problem is not None:
            raise self.problem
        return self._seen

    def _end(self, patience: float) -> None:
        self._over.set()
        if self._thread.is_alive():
            self._thread.join(patience)

    # --- before -----------------------------------------------------------------------------------------------------

    def _write_files(self) -> None:
        """The pipeline's file and its lookup tables, for a person to look at, and to run again."""
        assert self._stream is not None
        text = resources("rocketstream.demo").joinpath("pipeline.toml").read_text("utf-8")
        for name, moment in (("{start}", self._stream.start), ("{end}", self._stream.end)):
            text = text.replace(name, f"{moment:%Y-%m-%d %H:%M:%S}")
        text = text.replace("{name_servers}", self._name_servers)
        self._files.pipeline.write_text(text, "utf-8")
        lookups = self._files.directory / "lookups"
        lookups.mkdir()
        rates = [f"{currency},{Decimal(rate) / 1_000_000}" for currency, rate in RATES.items()]
        (lookups / "currencies.csv").write_text("\n".join(["currency,rate", *rates, ""]), "utf-8")
        regions = [f"{region.name},{region.title}" for region in REGIONS]
        (lookups / "regions.csv").write_text("\n".join(["region,region_title", *regions, ""]), "utf-8")

    # --- the thread -------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        spark = None
        try:
            pipeline = load_pipeline(self._files.pipeline)
            self.doing = "Spark is starting"
            conf = _SPARK | {"spark.local.dir": str(self._files.directory / "spark"), **pipeline.spark}
            spark = open_session("rocketstream demo", master="local[2]", conf=conf, log=self._files.log)
            if not self._over.is_set():
                self._follow(PipelineRun(pipeline, spark), spark)
        except Exception as problem:
            self.problem = _told(problem, self._files)
        finally:
            self.doing = "stopped"
            if spark is not None:
                _stop(spark)

    def _follow(self, run: PipelineRun, spark: SparkSession) -> None:
        self.doing = "the pipeline is starting"
        run.start()
        self.doing = "the pipeline reads its first message"
        try:
            while not self._over.wait(_LOOK_EVERY) and not run.wait(0):
                self._look(run, spark)
        finally:
            run.stop(30.0 if self._wanted else 1.0)
        if self._wanted:
            self._look(run, spark)
            self._read_back(spark)

    def _look(self, run: PipelineRun, spark: SparkSession) -> None:
        assert self._expected is not None
        progress = run.progress()
        self._rows = self._seen.rows_read = progress.query(_MAIN_SINK).rows
        least = min(query.rows for query in progress.queries)
        self._seen.batches = sum(query.batches for query in progress.queries)
        if least > 0 and not self.running:
            self.doing, self.running = "the pipeline runs", True
        # The tables are counted only when all that they are made of has been read.
        if least >= self._expected.topic_messages and not self._complete:
            orders, minutes = (_count(spark, path) for path in (self._files.orders, self._files.minutes))
            self._complete = orders >= len(self._expected.order_ids) and minutes >= len(self._expected.minutes)

    # --- after ------------------------------------------------------------------------------------------------------

    def _read_back(self, spark: SparkSession) -> None:
        assert self._expected is not None
        seen, expected = self._seen, self._expected
        # By Spark, which knows the files that batches have really finished.
        seen.table_ids = Counter(row["event_id"] for row in _rows(spark, self._files.orders, "event_id"))
        columns = (
            "unix_seconds(minute) AS minute",
            "region",
            "status",
            "orders",
            "CAST(euros * 100 AS BIGINT) AS cents",
        )
        for row in _rows(spark, self._files.minutes, *columns):
            seen.minute_rows += 1
            _add(seen.minutes, row["minute"], row["region"], row["status"], MinuteRow(row["orders"], row["cents"]))
        for path in (self._files.orders, self._files.minutes):
            sizes = [file.stat().st_size for file in path.rglob("*.parquet")]
            seen.files += len(sizes)
            seen.file_bytes += sum(sizes)
        with AdminClient(self._name_servers) as admin:
            self._read_results(read_topic(admin, RESULT_TOPIC, len(expected.minutes)))
            unreadable = read_topic(admin, DEAD_LETTER_TOPIC, len(expected.poison_keys))
        seen.unreadable_keys = Counter(message.keys or "" for message in unreadable)

    def _read_results(self, messages: list[ReceivedMessage]) -> None:
        """What is on the topic of results, each row once: the sink sends at least once, with an id per row."""
        by_id = {message.properties.get(ROW_ID, message.message_id): message for message in messages}
        self._seen.result_messages, self._seen.result_ids = len(messages), len(by_id)
        for message in by_id.values():
            row = json.loads(message.body, parse_float=Decimal)
            minute = int(datetime.fromisoformat(row["minute"]).timestamp())
            cents = int(Decimal(row["euros"]) * 100)
            _add(self._seen.results, minute, row["region"], row["status"], MinuteRow(row["orders"], cents))


def _add(rows: dict[MinuteKey, MinuteRow], minute: int, region: str, status: str, row: MinuteRow) -> None:
    """A row that is there twice counts twice: then it will not add up."""
    key = (datetime.fromtimestamp(minute, UTC), region, status)
    before = rows.get(key, MinuteRow(0, 0))
    rows[key] = MinuteRow(before.orders + row.orders, before.euro_cents + row.euro_cents)


def _count(spark: SparkSession, path: Path) -> int:
    return _rows(spark, path, "count(*) AS rows")[0]["rows"] if _is_table(path) else 0


def _rows(spark: SparkSession, path: Path, *columns: str) -> list[Any]:
    rows = spark.read.parquet(str(path)).selectExpr(*columns).toArrow() if _is_table(path) else None
    return [] if rows is None else rows.to_pylist()


def _is_table(path: Path) -> bool:
    """Whether a batch has written rows: of a table without any Spark can't tell the columns."""
    return (path / "_spark_metadata").exists() and any(path.rglob("*.parquet"))


def _stop(spark: SparkSession) -> None:
    """End Spark and its JVM; it may be gone already."""
    context: Any = spark.sparkContext
    gateway = context._gateway
    try:
        spark.stop()
        gateway.shutdown()
    except Exception as problem:
        del problem  # it was to end, and so it has
    # The JVM ends when nobody is at the other end of its standard input.
    process = getattr(gateway, "proc", None)
    if process is not None and process.stdin is not None:
        process.stdin.close()


def _told(problem: Exception, files: DemoFiles) -> Exception:
    if isinstance(problem, RocketStreamError):
        return problem
    return RocketStreamError(f"the pipeline failed: {' '.join(str(problem).split())[:300]} (see {files.log})")
