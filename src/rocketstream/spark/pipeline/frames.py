"""A pipeline's tables as DataFrames, checked by Spark's own analyser before any query starts.

The rule of this file: nothing is read and nothing is written here; what Spark finds wrong becomes a mistake with the
line of the step or sink that it is about.
"""

from __future__ import annotations

import re
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rocketstream.spark.pipeline.bodies import COORDINATES, counted, dead_letters, good_rows
from rocketstream.spark.pipeline.checks import sink_columns
from rocketstream.spark.pipeline.ddl import quoted
from rocketstream.spark.pipeline.failures import cause, quiet
from rocketstream.spark.pipeline.mistakes import Mistake
from rocketstream.spark.pipeline.model import Dedupe, Lookup, Pipeline, Sink, Source, Step, Watermark
from rocketstream.spark.pipeline.progress import DEAD_LETTER
from rocketstream.spark.pipeline.writing import WRITE_COLUMNS, as_messages, letter_writer, table_of, writer

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_LINE = re.compile(r"\bline (\d+),? pos \d+")
_CLASSES = {
    "delta": ("org.apache.spark.sql.delta.sources.DeltaDataSource", "Delta Lake", "io.delta:delta-spark_2.13:VERSION"),
    "iceberg": (
        "org.apache.iceberg.spark.source.IcebergSource",
        "Iceberg",
        "org.apache.iceberg:iceberg-spark-runtime-VERSION",
    ),
}
# Temporary views belong to the session: two pipelines must not make theirs at the same time.
_views = threading.Lock()


@dataclass(frozen=True, slots=True)
class PlannedQuery:
    """A query that is ready to start."""

    name: str
    kind: str
    line: int
    sources: tuple[str, ...]
    writer: Any
    table: str | None = None


def plan_queries(pipeline: Pipeline, spark: SparkSession) -> tuple[list[PlannedQuery], list[Mistake]]:
    """One query per sink, and one per source that has dead letters; or what is wrong."""
    return _Plan(pipeline, spark).make()


class _Plan:
    """The making of one pipeline's DataFrames."""

    def __init__(self, pipeline: Pipeline, spark: SparkSession) -> None:
        self._pipeline = pipeline
        self._spark = spark
        self._frames: dict[str, DataFrame] = {}
        self._mistakes: list[Mistake] = []
        self._used = {name for sink in pipeline.sinks for name in (sink.table, *_all_uses(pipeline, sink.table))}

    def make(self) -> tuple[list[PlannedQuery], list[Mistake]]:
        with _views, _restored_views(self._spark, [table.name for table in self._pipeline.tables]), quiet():
            for source in self._pipeline.sources:
                self._add(source, "source", lambda source=source: self._source(source))
            for lookup in self._pipeline.lookups:
                self._add(lookup, "lookup", lambda lookup=lookup: self._lookup(lookup))
            for step in self._pipeline.steps:
                if all(used in self._frames for used in step.uses):
                    self._add(step, "step", lambda step=step: self._step(step))
            queries = [query for sink in self._pipeline.sinks for query in self._sink(sink)]
            queries += [query for source in self._pipeline.sources for query in self._letters(source)]
        return queries, self._mistakes

    # --- tables ------------------------------------------------------------------------------------------------

    def _add(self, part: Source | Lookup | Step, what: str, make: Any) -> None:
        with self._noting(part, f"{what} {part.name!r}"):
            frame = make()
            if isinstance(part, Source | Step):
                frame = _refined(frame, part.watermark, part.dedupe)
            frame.createOrReplaceTempView(part.name)
            self._frames[part.name] = frame

    @contextmanager
    def _noting(self, part: Source | Lookup | Step | Sink, what: str) -> Iterator[None]:
        """Spark's analyser raises where a person made a mistake."""
        from pyspark.errors import AnalysisException, PySparkException

        try:
            yield
        except PySparkException as error:
            line = part.line
            if isinstance(part, Step) and part.sql_line:
                found = _LINE.search(str(error))
                line = part.sql_line + (int(found[1]) - 1 if found else 0)
            if isinstance(error, AnalysisException) or not isinstance(part, Sink):
                self._mistakes.append(Mistake(line, f"{what}: {cause(str(error))}"))
            else:
                raise

    def _source(self, source: Source) -> DataFrame:
        columns = [*source.message_columns, *(["body"] if source.schema else [])]
        messages = self._messages(source, columns)
        return good_rows(messages, source) if source.schema else counted(messages, source.name)

    def _messages(self, source: Source, columns: list[str]) -> DataFrame:
        from rocketstream.spark.schema import full_schema

        everything = full_schema()
        wanted = type(everything)([everything[name] for name in dict.fromkeys(columns)])
        reader = self._spark.readStream.format("rocketmq").options(**source_options(self._pipeline, source))
        return reader.schema(wanted).load()

    def _lookup(self, lookup: Lookup) -> DataFrame:
        reader = self._spark.read.format(lookup.format).options(**lookup.options)
        if lookup.schema:
            reader = reader.schema(", ".join(column.ddl for column in lookup.schema))
        return reader.load(lookup.path)

    def _step(self, step: Step) -> DataFrame:
        return self._spark.sql(step.sql)

    # --- queries -----------------------------------------------------------------------------------------------

    def _sink(self, sink: Sink) -> Iterator[PlannedQuery]:
        frame = self._frames.get(sink.table)
        if frame is None:
            return
        before = len(self._mistakes)
        self._mistakes += sink_columns(sink, frame.columns)
        self._mistakes += self._unfit(sink, frame)
        if len(self._mistakes) > before:
            return
        with self._noting(sink, f"sink {sink.name!r}"):
            if sink.type == "rocketmq":
                as_messages(frame, sink)
            self._check_mode(sink, frame)
            sources = tuple(sorted(_all_uses(self._pipeline, sink.table)))
            yield PlannedQuery(sink.name, "sink", sink.line, sources, writer(frame, sink), table_of(sink))

    def _unfit(self, sink: Sink, frame: DataFrame) -> Iterator[Mistake]:
        what = f"sink {sink.name!r}"
        twice = [name for name, count in Counter(column.lower() for column in frame.columns).items() if count > 1]
        for name in twice:
            yield Mistake(
                sink.line_of("from"), f"{what}: {sink.table!r} has two columns {name!r}: give one another name"
            )
        if not frame.isStreaming:
            yield Mistake(sink.line_of("from"), f"{what}: {sink.table!r} is made of no source, only of lookups")
        if sink.type == "csv":
            for name, kind in frame.dtypes:
                if kind.startswith(("struct", "array", "map", "binary", "variant")):
                    yield Mistake(sink.line_of("type"), f"{what}: CSV can't hold column {name!r}, which is {kind}")
        if sink.type == "rocketmq" and "body" not in sink.message and "body" in frame.columns:
            for name in frame.columns:
                if name not in WRITE_COLUMNS:
                    known = ", ".join(WRITE_COLUMNS)
                    sentence = f"{what}: column {name!r} is no part of a message (they are {known}); beside a column"
                    yield Mistake(sink.line_of("from"), f"{sentence} 'body' there can be no others")
        if sink.type in _CLASSES and not self._has_class(_CLASSES[sink.type][0]):
            _, product, package = _CLASSES[sink.type]
            sentence = f"{what}: Spark has no {product} here: add its package to [spark] jars.packages ({package})"
            yield Mistake(sink.line_of("type"), sentence)

    def _has_class(self, name: str) -> bool:
        jvm: Any = getattr(self._spark, "_jvm", None)
        if jvm is None:  # Spark Connect: the server will tell
            return True
        try:
            loader = jvm.java.lang.Thread.currentThread().getContextClassLoader()
            jvm.java.lang.Class.forName(name, False, loader)
        except Exception:
            return False
        return True

    def _check_mode(self, sink: Sink, frame: DataFrame) -> None:
        """What Spark would refuse when the query starts, while others already run."""
        jvm: Any = getattr(self._spark, "_jvm", None)
        if jvm is None:
            return
        mode = getattr(jvm.org.apache.spark.sql.streaming.OutputMode, sink.output_mode.capitalize())()
        checker = jvm.org.apache.spark.sql.catalyst.analysis.UnsupportedOperationChecker
        plan: Any = frame
        checker.checkForStreaming(plan._jdf.queryExecution().analyzed(), mode)

    def _letters(self, source: Source) -> Iterator[PlannedQuery]:
        letter = source.dead_letter
        if letter is None or source.name not in self._used or source.name not in self._frames:
            return
        if letter.path is None and letter.topic is None:
            return
        with self._noting(source, f"source {source.name!r}: `dead_letter`"):
            frame = dead_letters(self._messages(source, [*COORDINATES, "body"]), source)
            triggers = [sink.trigger for sink in self._pipeline.sinks if source.name in _reads(self._pipeline, sink)]
            # As long as one of them goes on, so do dead letters.
            trigger = next((one for one in triggers if not one.available_now), triggers[0])
            made = letter_writer(frame, letter, trigger)
            yield PlannedQuery(f"{source.name}{DEAD_LETTER}", "dead_letter", letter.line, (source.name,), made)


def source_options(pipeline: Pipeline, source: Source) -> dict[str, str]:
    """The options of a source; where several queries read it, none of them may speak for the group alone."""
    options = dict(source.options)
    if reader_count(pipeline, source) > 1 and any(key.lower() == "group" for key in options):
        options = {key: value for key, value in options.items() if key.lower() != "commitoffsets"}
        options["commitOffsets"] = "false"
    return options


def reader_count(pipeline: Pipeline, source: Source) -> int:
    """How many queries read a source."""
    sinks = sum(source.name in _reads(pipeline, sink) for sink in pipeline.sinks)
    letter = source.dead_letter
    return sinks + (1 if sinks and letter is not None and (letter.path or letter.topic) else 0)


def _reads(pipeline: Pipeline, sink: Sink) -> frozenset[str]:
    return _all_uses(pipeline, sink.table)


def _all_uses(pipeline: Pipeline, table: str) -> frozenset[str]:
    names = {source.name for source in pipeline.sources}
    return pipeline.uses(table) & names


def _refined(frame: DataFrame, watermark: Watermark | None, dedupe: Dedupe | None) -> DataFrame:
    if watermark is not None:
        frame = frame.withWatermark(watermark.column, watermark.delay)
    if dedupe is not None:
        frame = frame.dropDuplicatesWithinWatermark(list(dedupe.columns))
    return frame


@contextmanager
def _restored_views(spark: SparkSession, names: list[str]) -> Iterator[None]:
    """Our views hide the user's of the same names for a moment only."""
    ours = {name.lower() for name in names}
    views = [table.name for table in spark.catalog.listTables() if table.isTemporary and table.name.lower() in ours]
    before = {name: spark.table(quoted(name)) for name in views}
    try:
        yield
    finally:
        for name in names:
            spark.catalog.dropTempView(name)
        for name, frame in before.items():
            frame.createOrReplaceTempView(name)
