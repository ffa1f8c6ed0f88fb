"""A checked pipeline as values: what a file says, with its variables replaced, and the lines of what can still fail."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from rocketstream.spark.pipeline.ddl import Column

Options: TypeAlias = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Trigger:
    """When the next micro-batch begins: after an interval ("" is at once), or only for what is there now."""

    processing_time: str = ""
    available_now: bool = False


@dataclass(frozen=True, slots=True)
class Watermark:
    """How late rows may come: `delay` behind the newest value of `column`."""

    column: str
    delay: str
    line: int


@dataclass(frozen=True, slots=True)
class Dedupe:
    """Of rows that are equal in these columns, the first one within the watermark."""

    columns: tuple[str, ...]
    line: int


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """Where rows go whose body does not parse: files, a topic, or nowhere (then they are only counted)."""

    line: int
    path: str | None = None
    format: str = "parquet"
    topic: str | None = None
    options: Options = field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True)
class Source:
    """Topics read as a table; `options` are the rocketmq source's own."""

    name: str
    line: int
    options: Options = field(repr=False)
    schema: tuple[Column, ...] = ()
    schema_line: int = 0
    json_options: Options = field(default_factory=dict)
    message_columns: tuple[str, ...] = ()
    dead_letter: DeadLetter | None = None
    watermark: Watermark | None = None
    dedupe: Dedupe | None = None

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns of the table."""
        return (*(column.name for column in self.schema), *self.message_columns)


@dataclass(frozen=True, slots=True)
class Lookup:
    """A table that does not change while the pipeline runs."""

    name: str
    line: int
    path: str
    format: str
    schema: tuple[Column, ...] = ()
    options: Options = field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True)
class Step:
    """A named query over sources, lookups and earlier steps; `sql_line` is where its text begins, 0 if unknown."""

    name: str
    line: int
    sql: str
    sql_line: int
    uses: tuple[str, ...] = ()
    watermark: Watermark | None = None
    dedupe: Dedupe | None = None


@dataclass(frozen=True, slots=True)
class Sink:
    """Where the rows of a source or step go; `lines` has the lines of its keys."""

    name: str
    line: int
    table: str
    type: str
    lines: Mapping[str, int]
    path: str | None = None
    partition_by: tuple[str, ...] = ()
    output_mode: str = "append"
    trigger: Trigger = field(default_factory=Trigger)
    options: Options = field(default_factory=dict, repr=False)
    message: Mapping[str, str] = field(default_factory=dict)

    def line_of(self, key: str) -> int:
        """The line of one of its keys, or its own."""
        return self.lines.get(key, self.line)


@dataclass(frozen=True, slots=True)
class Pipeline:
    """A pipeline file that has been checked without Spark."""

    name: str
    file: str
    checkpoint: str
    sources: tuple[Source, ...]
    lookups: tuple[Lookup, ...]
    steps: tuple[Step, ...]
    sinks: tuple[Sink, ...]
    spark: Options = field(default_factory=dict, repr=False)
    master: str | None = None

    @property
    def tables(self) -> tuple[Source | Lookup | Step, ...]:
        """All that a query may name."""
        return (*self.sources, *self.lookups, *self.steps)

    def uses(self, table: str) -> frozenset[str]:
        """The names of all sources and lookups that a table is made of."""
        steps = {step.name: step for step in self.steps}
        found: set[str] = set()
        todo = [table]
        while todo:
            name = todo.pop()
            if name in steps:
                todo.extend(steps[name].uses)
            else:
                found.add(name)
        return frozenset(found)
