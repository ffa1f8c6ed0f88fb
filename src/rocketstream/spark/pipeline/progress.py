"""How far a run is, out of what Spark tells of each query: pure arithmetic over its progress documents."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from rocketstream.spark.pipeline.bodies import BAD_ROWS

#: What follows the name of a source in the name of the query of its dead letters.
DEAD_LETTER = ".dead_letter"


@dataclass(frozen=True, slots=True)
class QueryProgress:
    """One sink, or the dead letters of one source (`kind` "dead_letter"), since the run began."""

    name: str
    kind: str
    state: str  # "running", "waiting" (for rows or its trigger), "ended", "failed"
    rows: int  # read from its topics
    rows_per_second: float  # of the last batch
    lag: int | None  # messages in its topics that it has not read yet; None until it is known
    batches: int
    batch_seconds: float | None  # of the last batch
    bad_rows: int  # whose body did not parse; in every query that reads the source

    def to_dict(self) -> dict[str, Any]:
        """It, for JSON."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class RunProgress:
    """All queries of a run."""

    queries: tuple[QueryProgress, ...]
    dead_letters: int  # rows whose body did not parse, each counted once

    @property
    def rows(self) -> int:
        """The rows read, by the sink that has read the most."""
        return max((query.rows for query in self.queries), default=0)

    @property
    def rows_per_second(self) -> float:
        """The speed of the slowest sink that is at work."""
        return min((query.rows_per_second for query in self.queries if query.rows_per_second), default=0.0)

    @property
    def lag(self) -> int | None:
        """The lag of the one furthest behind; None until all have told theirs."""
        known = [query.lag for query in self.queries]
        return max((lag for lag in known if lag is not None), default=None) if None not in known else None

    def query(self, name: str) -> QueryProgress:
        """The progress of one sink (or of `SOURCE.dead_letter`)."""
        return next(query for query in self.queries if query.name == name)

    def to_dict(self) -> dict[str, Any]:
        """It, for JSON."""
        return {
            "rows": self.rows,
            "rows_per_second": self.rows_per_second,
            "lag": self.lag,
            "dead_letters": self.dead_letters,
            "queries": [query.to_dict() for query in self.queries],
        }


class Tally:
    """What one query has done, summed up over the progress documents that Spark has given of it."""

    def __init__(self, name: str, kind: str) -> None:
        self.name = name
        self.kind = kind
        self.ends: list[Mapping[str, Any]] = []
        """The offsets up to which it has finished, per source."""
        self.bad_rows: dict[str, int] = {}
        self.batch: int | None = None
        self._rows = 0
        self._rows_per_second = 0.0
        self._latest: list[Mapping[str, Any]] = []
        self._lag: int | None = None
        self._batches = 0
        self._batch_seconds: float | None = None
        self._seen: str | None = None

    def __repr__(self) -> str:
        return f"<Tally of {self.name}: {self._rows} rows in {self._batches} batches, lag {self._lag}>"

    def add(self, documents: Iterable[Mapping[str, Any]]) -> None:
        """Take in the documents that are new, oldest first; those taken in before are left out."""
        fresh = [one for one in documents if self._seen is None or str(one.get("timestamp")) > self._seen]
        for document in fresh:
            self._add(document)

    def missed(self, document: Mapping[str, Any]) -> bool:
        """Whether there were batches between the last document taken in and this one."""
        last = -1 if self.batch is None else self.batch
        # A query that goes on from its checkpoint begins with a later batch: then nothing was missed, but nobody knows.
        return int(document.get("batchId", 0)) > last + 1

    def _add(self, document: Mapping[str, Any]) -> None:
        self._seen = str(document.get("timestamp"))
        batch = int(document.get("batchId", 0))
        durations = document.get("durationMs") or {}
        rows = int(document.get("numInputRows") or 0)
        if "addBatch" in durations:  # else it only tells that it is idle
            self._batches += 1
            self._batch_seconds = float(durations.get("triggerExecution", document.get("batchDuration", 0))) / 1000
            self.batch = batch
        self._rows += rows
        self._rows_per_second = float(document.get("processedRowsPerSecond") or 0.0) if rows else 0.0
        sources = document.get("sources") or []
        self.ends = [read_offsets(source.get("endOffset")) for source in sources]
        # A batch that is done again after a restart is planned already: Spark does not ask for the latest offsets then.
        known = [read_offsets(source.get("latestOffset")) for source in sources]
        before = self._latest if len(self._latest) == len(known) else known
        self._latest = [new or old for new, old in zip(known, before, strict=True)]
        self._lag = _lag(self.ends, self._latest)
        for name, metrics in (document.get("observedMetrics") or {}).items():
            self.bad_rows[name] = self.bad_rows.get(name, 0) + int(metrics.get(BAD_ROWS) or 0)

    def progress(self, state: str) -> QueryProgress:
        """How far it is."""
        return QueryProgress(
            name=self.name,
            kind=self.kind,
            state=state,
            rows=self._rows,
            rows_per_second=self._rows_per_second,
            lag=self._lag,
            batches=self._batches,
            batch_seconds=self._batch_seconds,
            bad_rows=sum(self.bad_rows.values()),
        )


def run_progress(tallies: Mapping[str, tuple[Tally, str]]) -> RunProgress:
    """All queries together, each with its state; a bad row counts once, whoever has met it."""
    bad: dict[str, int] = {}
    for tally, _ in tallies.values():
        for source, count in tally.bad_rows.items():
            bad[source] = max(bad.get(source, 0), count)
    for tally, _ in tallies.values():
        if tally.kind == "dead_letter":  # what was written there is what counts
            source = tally.name.removesuffix(DEAD_LETTER)
            bad[source] = tally.bad_rows.get(source, 0)
    queries = tuple(tally.progress(state) for tally, state in tallies.values())
    return RunProgress(queries, sum(bad.values()))


def read_offsets(value: object) -> Mapping[str, Any]:
    """Offsets in a progress document, {"topic": {"broker": {"0": 5}}}: an object, or the text of one."""
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except ValueError:
            return {}
    return value if isinstance(value, Mapping) else {}


def _lag(ends: Iterable[Mapping[str, Any]], latest: Iterable[Mapping[str, Any]]) -> int | None:
    """How much is left; None where the latest offsets of a source are not known yet."""
    lag = 0
    for end, last in zip(ends, latest, strict=True):
        if not last:
            return None
        done = _flat(end)
        lag += sum(max(0, offset - done.get(queue, 0)) for queue, offset in _flat(last).items())
    return lag


def _flat(offsets: Mapping[str, Any]) -> dict[tuple[str, str, str], int]:
    return {
        (topic, broker, queue): offset
        for topic, brokers in offsets.items()
        if isinstance(brokers, Mapping)
        for broker, queues in brokers.items()
        if isinstance(queues, Mapping)
        for queue, offset in queues.items()
        if isinstance(offset, int)
    }
