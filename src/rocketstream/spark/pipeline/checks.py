"""What must fit together in a pipeline: names, references, columns and paths, as far as they can be known."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from rocketstream.spark.pipeline.mistakes import Mistake, nearest
from rocketstream.spark.pipeline.model import Lookup, Pipeline, Sink, Source, Step
from rocketstream.spark.pipeline.places import contains
from rocketstream.spark.pipeline.sql_names import has_parts, has_words, tables_of


def check_pipeline(pipeline: Pipeline) -> Iterator[Mistake]:
    """Everything that is wrong between the parts."""
    yield from _twice("table", pipeline.tables)
    yield from _twice("sink", pipeline.sinks)
    for what, parts in (("source", pipeline.sources), ("sink", pipeline.sinks)):
        if not parts:
            yield Mistake(0, f"there is no {what}: a pipeline needs at least one [[{what}s]]")
    for index, step in enumerate(pipeline.steps):
        yield from _references(pipeline, step, index)
    for step in pipeline.steps:
        yield from _dedupe(pipeline, step)
    for source in pipeline.sources:
        if source.dedupe is not None and source.watermark is None:
            yield _needs_watermark(f"source {source.name!r}", source.dedupe.line)
    streams = _streams(pipeline)
    for sink in pipeline.sinks:
        yield from _sink(pipeline, sink, streams)
    yield from _paths(pipeline)


def _twice(what: str, parts: Iterable[Source | Lookup | Step | Sink]) -> Iterator[Mistake]:
    seen: dict[str, int] = {}
    for part in parts:
        name = part.name.lower()  # as Spark compares names, and some file systems
        if name and name in seen:
            yield Mistake(part.line, f"the name {part.name!r} is taken by the {what} of line {seen[name]}")
        seen.setdefault(name, part.line)


def _references(pipeline: Pipeline, step: Step, index: int) -> Iterator[Mistake]:
    known = [table.name for table in pipeline.tables if table not in pipeline.steps[index:]]
    lower = {name.lower() for name in known}
    later = {other.name.lower(): other for other in pipeline.steps[index:]}
    for name, line in dict(reversed([(found.name, found.line) for found in tables_of(step.sql)])).items():
        at = step.sql_line + line if step.sql_line else step.line
        if name.lower() in lower:
            continue
        other = later.get(name.lower())
        if other is step:
            yield Mistake(at, f"step {step.name!r}: it uses itself")
        elif other is not None and _reaches(pipeline, other, step.name):
            yield Mistake(at, f"step {step.name!r}: it uses {other.name!r}, which uses {step.name!r}: a circle")
        elif other is not None:
            yield Mistake(at, f"step {step.name!r}: it uses {other.name!r}, a later step: move that one up")
        else:
            sentence = f"there is no source, lookup or earlier step {name!r}{nearest(name, known)}"
            yield Mistake(at, f"step {step.name!r}: {sentence}")


def _reaches(pipeline: Pipeline, start: Step, name: str) -> bool:
    """Whether a step uses another, directly or not; circles included."""
    steps = {step.name.lower(): step for step in pipeline.steps}
    seen: set[str] = set()
    todo = [start.name.lower()]
    while todo:
        at = todo.pop()
        if at not in seen and at in steps:
            seen.add(at)
            todo.extend(used.lower() for used in steps[at].uses)
    return name.lower() in seen


def _upstream(pipeline: Pipeline, table: str) -> list[Source | Step]:
    """A table and the streams that it is made of."""
    parts: dict[str, Source | Step] = {}
    parts |= {source.name.lower(): source for source in pipeline.sources}
    parts |= {step.name.lower(): step for step in pipeline.steps}
    seen: dict[str, Source | Step] = {}
    todo = [table.lower()]
    while todo:
        at = todo.pop()
        if at in parts and at not in seen:
            part = seen[at] = parts[at]
            todo.extend(used.lower() for used in (part.uses if isinstance(part, Step) else ()))
    return list(seen.values())


def _dedupe(pipeline: Pipeline, step: Step) -> Iterator[Mistake]:
    if step.dedupe is None or any(part.watermark for part in _upstream(pipeline, step.name)):
        return
    yield _needs_watermark(f"step {step.name!r}", step.dedupe.line)


def _needs_watermark(what: str, line: int) -> Mistake:
    return Mistake(line, f"{what}: `dedupe` needs a `watermark`, or Spark would have to remember all rows for ever")


def _streams(pipeline: Pipeline) -> set[str]:
    """The names of the tables that a source is part of."""
    streams = {source.name.lower() for source in pipeline.sources}
    for step in pipeline.steps:
        if any(used.lower() in streams for used in step.uses):
            streams.add(step.name.lower())
    return streams


def _sink(pipeline: Pipeline, sink: Sink, streams: set[str]) -> Iterator[Mistake]:
    what = f"sink {sink.name!r}"
    tables = [table.name for table in pipeline.tables]
    if sink.table and sink.table.lower() not in {name.lower() for name in tables}:
        sentence = f"{what}: there is no source or step {sink.table!r}{nearest(sink.table, tables)}"
        yield Mistake(sink.line_of("from"), sentence)
        return
    if sink.table and sink.table.lower() not in streams and not _unsure(pipeline, sink.table):
        yield Mistake(sink.line_of("from"), f"{what}: {sink.table!r} is made of no source, only of lookups")
    for source in pipeline.sources:
        if source.name.lower() == sink.table.lower():
            yield from sink_columns(sink, source.columns)
            if sink.output_mode == "complete":
                yield Mistake(sink.line_of("output_mode"), f"{what}: complete is for aggregates, and this is a source")
    upstream = _upstream(pipeline, sink.table)
    if sink.output_mode == "append" and not any(part.watermark for part in upstream):
        for part in upstream:
            if isinstance(part, Step) and _plainly_aggregates(pipeline, part, streams):
                yield Mistake(
                    part.line,
                    f"step {part.name!r}: GROUP BY needs a `watermark` on its source, for sink {sink.name!r} appends"
                    " a group when no more of its rows can come",
                )


def _unsure(pipeline: Pipeline, table: str) -> bool:
    """Whether a step that it is made of names something that is not there: then what it is made of is not known."""
    known = {part.name.lower() for part in pipeline.tables if not isinstance(part, Step)}
    unsure: set[str] = set()
    for step in pipeline.steps:
        used = {name.lower() for name in step.uses}
        if not used or not used <= known or used & unsure:
            unsure.add(step.name.lower())
        known.add(step.name.lower())
    return table.lower() in unsure


def _plainly_aggregates(pipeline: Pipeline, step: Step, streams: set[str]) -> bool:
    """Whether it has one GROUP BY, and only streams under it."""
    return (
        has_words(step.sql, "GROUP", "BY")
        and not has_parts(step.sql)
        and bool(step.uses)
        and all(used.lower() in streams for used in step.uses)
    )


def sink_columns(sink: Sink, columns: Iterable[str]) -> Iterator[Mistake]:
    """Columns that a sink names and its rows don't have."""
    known = list(columns)
    lower = {name.lower() for name in known}
    named = [("partition_by", name) for name in sink.partition_by]
    named += [(key, name) for key, name in sink.message.items() if (key, name) != ("body", "json")]
    for key, name in named:
        if name.lower() not in lower:
            sentence = f"`{key}`: {sink.table!r} has no column {name!r}{nearest(name, known)}"
            yield Mistake(sink.line_of(key), f"sink {sink.name!r}: {sentence}")
    if sink.partition_by and {name.lower() for name in sink.partition_by} >= lower:
        sentence = f"sink {sink.name!r}: `partition_by` has all columns: none is left for the files"
        yield Mistake(sink.line_of("partition_by"), sentence)


def _paths(pipeline: Pipeline) -> Iterator[Mistake]:
    """No two write to one place, and the checkpoint is not among anybody's files."""
    places = [(f"sink {sink.name!r}", sink.line_of("path"), sink.path) for sink in pipeline.sinks]
    letters = [(source.name, source.dead_letter) for source in pipeline.sources if source.dead_letter]
    places += [(f"source {name!r}: `dead_letter`", letter.line, letter.path) for name, letter in letters]
    seen: dict[str, str] = {}
    for what, line, path in places:
        if path is None:
            continue
        if path in seen:
            yield Mistake(line, f"{what}: {path} is where {seen[path]} writes, too")
        elif pipeline.checkpoint and contains(path, pipeline.checkpoint):
            yield Mistake(line, f"{what}: `checkpoint` must not be inside of {path}, where rows are written")
        seen.setdefault(path, what)
