"""A pipeline that runs: one streaming query per sink, and one per source for its dead letters.

Why a query of its own for dead letters: a streaming query has one sink, and Spark's file sink is exactly once only as
the sink of its query. Writing good and bad rows from one `foreachBatch` would read the topic once, but files twice
after a crash, and rules out windows. So the topic is read once per sink and once for dead letters, each with its own
checkpoint, and each of them is exactly once into files.
"""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from rocketstream.clock import Clock, SystemClock
from rocketstream.errors import ClientStateError, RocketStreamError
from rocketstream.spark.pipeline.failures import cause, quiet, whole_text
from rocketstream.spark.pipeline.frames import PlannedQuery, plan_queries
from rocketstream.spark.pipeline.mistakes import PipelineFileError
from rocketstream.spark.pipeline.model import Pipeline
from rocketstream.spark.pipeline.progress import RunProgress, Tally, run_progress
from rocketstream.spark.pipeline.shared_groups import SharedGroup, shared_groups

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = logging.getLogger("rocketstream.spark.pipeline")

_LOOK_EVERY = 0.25
_LOOK_FOR_END_EVERY = 0.02
_SOURCES_START_WITHIN = 15.0
#: What Spark says when a Python process did not start within ten seconds: the machine was busy. A query goes on from
#: its checkpoint, so it may as well be started again.
_BUSY = "Python worker failed to connect back"
_MOST_STARTS = 6


class PipelineFailedError(RocketStreamError):
    """A query of a pipeline failed. The text is one sentence; `details` is all that Spark said."""

    def __init__(self, sentence: str, details: str) -> None:
        super().__init__(sentence)
        self.details = details


class _Running:
    """One query, from its start to its end."""

    def __init__(self, planned: PlannedQuery, start: Callable[[PlannedQuery], Any]) -> None:
        self.planned = planned
        self._start = start
        self._starts = 0
        self.tally = Tally(planned.name, planned.kind)
        self.query: Any = None
        self.failure: str | None = None
        self.stopping = False
        self.is_over = False

    def __repr__(self) -> str:
        return f"<query {self.planned.name}, {self.state()}>"

    def state(self) -> str:
        if self.failure is not None:
            return "failed"
        if self.query is None or not self.query.isActive:
            return "ended"
        return "running" if self.is_at_work() else "waiting"

    def is_at_work(self) -> bool:
        return bool(self.query.status["isTriggerActive"])

    def start(self) -> None:
        """Start it, from its checkpoint if there is one."""
        self._starts += 1
        self.query = self._start(self.planned)

    def wait_for_sources(self, clock: Clock) -> None:
        """Until its sources are up, for a while at most.

        Each source is a process to be started, and Spark gives it ten seconds: on a small machine they had better not
        all start at once.
        """
        deadline = clock.monotonic() + _SOURCES_START_WITHIN
        pause = threading.Event()
        while self.query.isActive and str(self.query.status["message"]).startswith("Initializing"):
            if pause.wait(_LOOK_FOR_END_EVERY) or clock.monotonic() >= deadline:
                return

    def look(self) -> None:
        """Take in what Spark tells of it; see whether it has failed."""
        ended = not self.query.isActive  # before the documents are read: then the last one is among them
        last = self.query.lastProgress
        if last is not None:
            document = _document(last)
            if ended or self.tally.missed(document):
                self.tally.add(_document(one) for one in self.query.recentProgress)
            else:
                self.tally.add([document])
        if not ended or self.is_over:
            return
        with quiet():
            error = None if self.stopping else self.query.exception()
        if error is not None and _BUSY in str(error) and self._starts < _MOST_STARTS:
            log.warning("query %s is started again: Spark could not start a Python process", self.planned.name)
            self.start()
            return
        self.failure = None if error is None else whole_text(error)
        self.is_over = True

    def stop(self, clock: Clock, deadline: float) -> bool:
        """Stop it between two batches; after the deadline, at once. Whether no batch was broken off."""
        pause = threading.Event()
        batch, gentle = self._last_batch(), True
        while self.query.isActive and self.is_at_work() and self._last_batch() == batch:
            if clock.monotonic() >= deadline:
                gentle = False
                break
            pause.wait(_LOOK_FOR_END_EVERY)
        self.query.stop()
        return gentle

    def _last_batch(self) -> object:
        last = self.query.lastProgress
        return None if last is None else (last.batchId, last.timestamp)


def _make_active(spark: SparkSession) -> None:
    """Spark looks for sinks of Python's in the active session, and each thread has its own: the watcher has none."""
    session: Any = spark
    jvm = getattr(session, "_jvm", None)
    if jvm is not None:  # not with Spark Connect
        jvm.org.apache.spark.sql.classic.SparkSession.setActiveSession(session._jsparkSession)


def _document(progress: Any) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(progress.json)
    return document


class PipelineRun:
    """A pipeline in a Spark session. `with PipelineRun(pipeline, spark) as run:` starts and stops it."""

    def __init__(self, pipeline: Pipeline, spark: SparkSession, *, clock: Clock | None = None) -> None:
        self._pipeline = pipeline
        self._spark = spark
        self._clock = clock or SystemClock()
        self._queries: list[_Running] = []
        self._groups: list[SharedGroup] = []
        self._watcher: threading.Thread | None = None
        self._looking = threading.Lock()
        self._wake = threading.Event()
        self._over = threading.Event()
        self._failure: PipelineFailedError | None = None
        self._gentle = True

    def __repr__(self) -> str:
        return f"<PipelineRun {self._pipeline.name}: {', '.join(map(repr, self._queries)) or 'not started'}>"

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()

    def check(self) -> list[PlannedQuery]:
        """Have Spark check all steps and sinks, without starting anything; raises `PipelineFileError`."""
        planned, mistakes = plan_queries(self._pipeline, self._spark)
        if mistakes:
            raise PipelineFileError(self._pipeline.file, mistakes)
        return planned

    def start(self) -> None:
        """Check what only Spark can check, then start all queries, or none."""
        if self._queries:
            raise ClientStateError(f"pipeline {self._pipeline.name!r} was started before: make another PipelineRun")
        for planned in self.check():
            running = _Running(planned, self._start)
            try:
                running.start()
            except Exception as error:
                self._stop_all(0.0)
                raise self._failed(running, whole_text(error)) from None
            self._queries.append(running)
            running.wait_for_sources(self._clock)
        readers = {source.name: self._readers(source.name) for source in self._pipeline.sources}
        self._groups = shared_groups(self._pipeline, readers)
        self._watcher = threading.Thread(target=self._watch, name="rocketstream-pipeline", daemon=True)
        self._watcher.start()

    def _start(self, planned: PlannedQuery) -> Any:
        checkpoint = f"{self._pipeline.checkpoint.rstrip('/')}/{planned.name}"
        writer = planned.writer.queryName(f"{self._pipeline.name}.{planned.name}")
        writer = writer.option("checkpointLocation", checkpoint)
        _make_active(self._spark)
        return writer.start() if planned.table is None else writer.toTable(planned.table)

    def _readers(self, source: str) -> list[Tally]:
        return [running.tally for running in self._queries if source in running.planned.sources]

    def progress(self) -> RunProgress:
        """How far all queries are, as of now."""
        self._look()
        return run_progress({one.planned.name: (one.tally, one.state()) for one in self._queries})

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until every query has ended; whether they have. Raises `PipelineFailedError` if one has failed."""
        over = self._over.wait(timeout)
        if self._failure is not None:
            raise self._failure
        return over

    def stop(self, timeout: float = 30.0) -> bool:
        """Stop all queries, each after the batch that it is at, within the time; whether no batch was broken off.

        What was broken off is done again by the next run: nothing is lost, and only a topic may get rows twice.
        """
        if not self._queries:
            return True
        gentle = self._stop_all(timeout)
        self._wake.set()
        if self._watcher is not None and self._watcher is not threading.current_thread():
            self._watcher.join(30.0)
        return gentle

    # --- the watcher -------------------------------------------------------------------------------------------

    def _watch(self) -> None:
        """Follow the queries until the last one has ended; one that fails ends the others."""
        try:
            waiting = True
            while waiting:
                waiting = not self._wake.wait(_LOOK_EVERY)
                self._look()
                failed = next((one for one in self._queries if one.failure is not None), None)
                if failed is not None and self._failure is None:
                    self._failure = self._failed(failed, str(failed.failure))
                    self._stop_all(10.0)
                waiting = waiting and not all(one.is_over for one in self._queries)
            self._look()
        except Exception as error:  # Spark itself is gone
            if not self._stopping:
                self._failure = PipelineFailedError(f"Spark is gone: {cause(str(error))}", str(error))
        finally:
            for group in self._groups:
                group.flush()
            self._over.set()

    @property
    def _stopping(self) -> bool:
        return any(one.stopping for one in self._queries)

    def _look(self) -> None:
        with self._looking:
            for one in self._queries:
                one.look()
            for group in self._groups:
                group.write()

    def _stop_all(self, timeout: float) -> bool:
        """All at the same time: each waits for a batch of its own."""
        deadline = self._clock.monotonic() + timeout
        with self._looking:  # or one might be started again right after it was stopped
            for one in self._queries:
                one.stopping = True
        results: list[bool] = []
        threads = [
            threading.Thread(target=lambda one=one: results.append(one.stop(self._clock, deadline)), daemon=True)
            for one in self._queries
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(timeout + 30.0)  # Spark's own stop waits for tasks that can't be interrupted
        return len(results) == len(threads) and all(results)

    def _failed(self, running: _Running, details: str) -> PipelineFailedError:
        planned = running.planned
        what = f"sink {planned.name!r}" if planned.kind == "sink" else f"the dead letters of {planned.sources[0]!r}"
        log.debug("pipeline %s: %s failed: %s", self._pipeline.name, what, details)
        return PipelineFailedError(f"{what}: {cause(details)}", details)
