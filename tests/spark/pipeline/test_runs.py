"""A run's decisions, with queries that do what the test says: no Spark is started here."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from rocketstream.errors import ClientStateError
from rocketstream.spark.pipeline import (
    Mistake,
    PipelineFailedError,
    PipelineFileError,
    PipelineRun,
    load_pipeline,
    running,
)
from rocketstream.spark.pipeline.frames import PlannedQuery, reader_count, source_options
from rocketstream.spark.pipeline.model import Pipeline
from tests.bare_client import eventually
from tests.spark.pipeline.examples import COMPLETE

BUSY = "[STREAM_FAILED] Query terminated with exception: Python worker failed to connect back."


class Query:
    """A streaming query as PySpark shows it."""

    def __init__(self, error: str | None = None, *, active: bool = True, at_work: bool = False) -> None:
        self.error = error
        self.active = active and error is None
        self.at_work = at_work
        self.stops = 0
        self.batch = 0

    @property
    def isActive(self) -> bool:  # noqa: N802
        return self.active

    @property
    def status(self) -> dict[str, Any]:
        return {"message": "Waiting", "isTriggerActive": self.at_work}

    @property
    def lastProgress(self) -> Any:  # noqa: N802
        document = {
            "batchId": self.batch,
            "timestamp": str(self.batch),
            "numInputRows": 1,
            "durationMs": {"addBatch": 1},
        }
        return SimpleNamespace(batchId=self.batch, timestamp=str(self.batch), json=json.dumps(document))

    @property
    def recentProgress(self) -> list[Any]:  # noqa: N802
        return [self.lastProgress]

    def exception(self) -> Exception | None:
        return None if self.error is None else Exception(self.error)

    def stop(self) -> None:
        self.stops += 1
        self.active = False


class Writer:
    """Gives out queries, one per start."""

    def __init__(self, *queries: Query | Exception) -> None:
        self.queries = list(queries)
        self.checkpoint = self.name = ""

    def queryName(self, name: str) -> Writer:  # noqa: N802
        self.name = name
        return self

    def option(self, name: str, value: str) -> Writer:
        self.checkpoint = value
        return self

    def start(self) -> Query:
        one = self.queries.pop(0)
        if isinstance(one, Exception):
            raise one
        return one


@pytest.fixture
def pipeline(tmp_path: Path) -> Pipeline:
    (tmp_path / "regions.csv").touch()
    file = tmp_path / "orders.toml"
    file.write_text(COMPLETE.replace(', group = "orders-pipeline"', ""), "utf-8")
    return load_pipeline(file)


@pytest.fixture
def run(pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Make a run of given writers, by name."""

    def run(mistakes: list[Mistake] | None = None, **writers: Writer) -> PipelineRun:
        planned = [PlannedQuery(name, "sink", 1, ("orders",), writer) for name, writer in writers.items()]
        monkeypatch.setattr(running, "plan_queries", lambda pipeline, spark: (planned, mistakes or []))
        return PipelineRun(pipeline, None)  # type: ignore[arg-type]

    return run


def test_each_query_has_its_name_and_checkpoint(run: Any, pipeline: Pipeline) -> None:
    first, second = Writer(Query(active=False)), Writer(Query(active=False))
    started = run(a=first, b=second)
    started.start()
    assert started.wait(60.0)
    assert (first.name, first.checkpoint) == ("orders.a", f"{pipeline.checkpoint}/a")
    assert (second.name, second.checkpoint) == ("orders.b", f"{pipeline.checkpoint}/b")
    with pytest.raises(ClientStateError, match="was started before"):
        started.start()


def test_mistakes_that_spark_finds_start_nothing(run: Any, pipeline: Pipeline) -> None:
    writer = Writer(Query())
    with pytest.raises(PipelineFileError, match=r"orders\.toml:7: no"):
        run([Mistake(7, "no")], a=writer).start()
    assert len(writer.queries) == 1


def test_a_query_that_does_not_start_stops_the_others(run: Any) -> None:
    first = Query()
    with pytest.raises(PipelineFailedError, match="sink 'b': disk full"):
        run(a=Writer(first), b=Writer(Exception("java.io.IOException: disk full"))).start()
    assert first.stops == 1


def test_a_query_that_fails_stops_the_others(run: Any) -> None:
    good, bad = Query(), Query()
    started = run(a=Writer(good), b=Writer(bad))
    started.start()
    assert not started.wait(0.0)
    bad.error, bad.active = "[X] too bad", False
    with pytest.raises(PipelineFailedError, match=r"^sink 'b': too bad$"):
        started.wait(60.0)
    assert good.stops == 1
    assert [query.state for query in started.progress().queries] == ["ended", "failed"]


def test_a_python_process_that_did_not_start_is_no_failure(run: Any) -> None:
    last = Query()
    writer = Writer(Query(BUSY), Query(BUSY), last)
    started = run(a=writer)
    started.start()
    eventually(lambda: not writer.queries)
    assert not started.wait(0.0)
    last.active = False
    assert started.wait(60.0)


def test_but_not_for_ever(run: Any) -> None:
    started = run(a=Writer(*(Query(BUSY) for _ in range(6))))
    started.start()
    with pytest.raises(PipelineFailedError, match="Python worker failed to connect back"):
        started.wait(60.0)


def test_stop_waits_for_the_batch(run: Any) -> None:
    idle, busy = Query(), Query(at_work=True)
    started = run(a=Writer(idle), b=Writer(busy))
    started.start()
    results: list[bool] = []
    stopping = threading.Thread(target=lambda: results.append(started.stop(60.0)))
    stopping.start()
    eventually(lambda: idle.stops)
    assert busy.stops == 0

    def end_batch() -> int:
        busy.batch += 1  # it has ended, and the next one has begun
        return busy.stops

    eventually(end_batch)
    stopping.join(60.0)
    assert (busy.stops, results) == (1, [True])
    assert started.wait(60.0)


def test_stop_waits_no_longer_than_it_may(run: Any) -> None:
    busy = Query(at_work=True)
    started = run(a=Writer(busy))
    started.start()
    assert not started.stop(0.0)
    assert busy.stops == 1
    started.stop(0.0)


def test_what_fails_because_it_was_stopped_is_no_failure(run: Any) -> None:
    query = Query()
    started = run(a=Writer(query))
    started.start()
    query.error = "java.lang.InterruptedException"
    assert started.stop(5.0)
    assert started.wait(60.0)


def test_a_run_that_was_not_started_can_be_stopped(run: Any) -> None:
    assert run(a=Writer()).stop()
    assert repr(run(a=Writer())) == "<PipelineRun orders: not started>"


def test_only_one_reader_speaks_for_the_group(tmp_path: Path) -> None:
    (tmp_path / "regions.csv").touch()
    file = tmp_path / "orders.toml"
    file.write_text(COMPLETE, "utf-8")
    shared = load_pipeline(file)
    assert reader_count(shared, shared.sources[0]) == 3
    assert source_options(shared, shared.sources[0])["commitOffsets"] == "false"
    file.write_text(COMPLETE[: COMPLETE.rindex("[[sinks]]")].replace('{ path = "dead" }', '"drop"'), "utf-8")
    alone = load_pipeline(file)
    assert reader_count(alone, alone.sources[0]) == 1
    assert "commitOffsets" not in source_options(alone, alone.sources[0])
