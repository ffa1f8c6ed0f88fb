"""`[[steps]]`, `[[sinks]]` and triggers of a pipeline file."""

from __future__ import annotations

import re

from rocketstream.spark.pipeline.model import Sink, Step, Trigger
from rocketstream.spark.pipeline.nodes import Node
from rocketstream.spark.pipeline.option_checks import check_write_options
from rocketstream.spark.pipeline.places import resolved
from rocketstream.spark.pipeline.read_sources import (
    FILE_FORMATS,
    Context,
    read_dedupe,
    read_name,
    read_watermark,
    texts,
)
from rocketstream.spark.pipeline.sql_names import tables_of
from rocketstream.spark.pipeline.tables import Table

TABLE_FORMATS = ("delta", "iceberg")
SINK_TYPES = (*FILE_FORMATS, *TABLE_FORMATS, "console", "rocketmq")
#: What each type can do with rows that change.
OUTPUT_MODES = {
    **dict.fromkeys(FILE_FORMATS, ("append",)),
    **dict.fromkeys(TABLE_FORMATS, ("append", "complete")),
    "console": ("append", "update", "complete"),
    "rocketmq": ("append", "update", "complete"),
}
#: Columns of a message that a sink may take out of the row.
MESSAGE_PARTS = ("keys", "tags", "sharding_key", "delay_level", "properties")
_SINK_NAME = re.compile(r"[A-Za-z0-9_-]+")


def read_step(table: Table, context: Context) -> Step:
    """One step."""
    name, sql, node = read_name(table), table.text("sql", needed=True) or "", table.node("sql")
    text_line = node.text_line if node is not None else 0
    sql_line = text_line or (node.line if node is not None else table.line)
    stripped = sql.rstrip().removesuffix(";")
    if ";" in re.sub(r"'[^']*'|\"[^\"]*\"|--[^\n]*", "", stripped):
        table.wrong(sql_line, "`sql` must be one query: there is a ; in the midst of it")
    step = Step(
        name=name,
        line=table.line,
        sql=stripped,
        sql_line=text_line,
        uses=tuple(dict.fromkeys(found.name for found in tables_of(stripped))),
        watermark=read_watermark(table),
        dedupe=read_dedupe(table),
    )
    table.end()
    return step


def read_trigger(table: Table | None) -> Trigger | None:
    """When batches begin; None if nothing is said."""
    if table is None:
        return None
    interval = table.duration("processing_time", zero=True)
    now = table.flag("available_now")
    now = table.flag("once") or now
    given = [key for key in ("processing_time", "available_now", "once") if table.has(key)]
    if len(given) > 1:
        table.wrong(table.line_of(given[1]), f"`{given[0]}` and `{given[1]}` are two triggers: give one")
    elif not given:
        table.wrong(table.line, "give `processing_time` or `available_now`")
    table.end()
    return Trigger(available_now=True) if now else Trigger(interval or "")


def read_sink(table: Table, context: Context, trigger: Trigger) -> Sink:
    """One sink."""
    name = table.text("name", needed=True) or ""
    if name and not _SINK_NAME.fullmatch(name):
        table.wrong(table.line_of("name"), "`name` must be made of letters, digits, _ and -")
    origin = table.text("from", needed=True) or ""
    kind = table.one_of("type", SINK_TYPES, needed=True) or ""
    own = table.options("options")
    path: str | None = None
    partition_by: tuple[str, ...] = ()
    message: dict[str, str] = {}
    if kind in (*FILE_FORMATS, *TABLE_FORMATS):
        path = _path(table, kind, own, context)
        partition_by = table.texts("partition_by")
    if kind == "rocketmq":
        own, message = _topic(table, own, context)
    if kind:
        _tell_others(table, kind)
    modes = OUTPUT_MODES.get(kind, OUTPUT_MODES["console"])
    mode = table.one_of("output_mode", ("append", "update", "complete")) or "append"
    if mode not in modes:
        can = " or ".join(modes)
        table.wrong(table.line_of("output_mode"), f"a sink of type {kind} can only {can}, not {mode}")
    own_trigger = read_trigger(table.table("trigger"))
    if kind:  # else it is not known which keys it may have
        table.end()
    return Sink(
        name=name,
        line=table.line,
        table=origin,
        type=kind,
        lines=table.lines(),
        path=path,
        partition_by=partition_by,
        output_mode=mode,
        trigger=own_trigger or trigger,
        options=texts(own),
        message=message,
    )


def _path(table: Table, kind: str, own: dict[str, Node], context: Context) -> str | None:
    path = table.text("path")
    for key in [key for key in own if key.lower() in ("path", "checkpointlocation")]:
        meant = "`path` in the sink" if key.lower() == "path" else "`checkpoint` of the pipeline"
        table.wrong(own[key].line, f"option {key!r} is the {meant}")
    if kind in TABLE_FORMATS and table.has("table"):
        name = table.text("table")
        if path is not None:
            table.wrong(table.line_of("table"), "`path` and `table` are two places: give one")
        if name is not None:
            own["table"] = Node(name, table.line_of("table"))
        return None
    if path is None and not table.has("path"):
        table.wrong(table.line, "`path` is missing" + (" (or `table`)" if kind in TABLE_FORMATS else ""))
    return resolved(path, context.base) if path else None


def _topic(table: Table, own: dict[str, Node], context: Context) -> tuple[dict[str, Node], dict[str, str]]:
    """The options of the rocketmq sink, and which columns become which part of a message."""
    message = {part: value for part in (*MESSAGE_PARTS, "body") if (value := table.text(part)) is not None}
    topic = table.text("topic")
    if topic is not None:
        own = {key: node for key, node in own.items() if key.lower() != "topic"}
        own["topic"] = Node(topic, table.line_of("topic"))
    elif not table.has("topic") and not any(key.lower() == "topic" for key in own):
        table.wrong(table.line, "`topic` is missing")
    options = context.connected(own)
    check_write_options(table, options)
    return options, message


def _tell_others(table: Table, kind: str) -> None:
    """Keys of other types: known, but not here."""
    of_files = ("path", "partition_by")
    keys = {
        **dict.fromkeys(of_files, (*FILE_FORMATS, *TABLE_FORMATS)),
        **dict.fromkeys(("topic", *MESSAGE_PARTS, "body"), ("rocketmq",)),
        "table": TABLE_FORMATS,
    }
    for key, types in keys.items():
        if kind not in types and table.has(key):
            table.wrong(table.line_of(key), f"`{key}` is nothing for a sink of type {kind}")
