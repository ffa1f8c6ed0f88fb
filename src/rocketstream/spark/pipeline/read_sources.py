"""`[[sources]]` and `[[lookups]]` of a pipeline file."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from rocketstream.spark.options import ReadOptions
from rocketstream.spark.pipeline.ddl import Column, DdlError, parse_column, parse_columns
from rocketstream.spark.pipeline.mistakes import Mistake, nearest
from rocketstream.spark.pipeline.model import DeadLetter, Dedupe, Lookup, Source, Watermark
from rocketstream.spark.pipeline.nodes import Node
from rocketstream.spark.pipeline.option_checks import check_options, check_write_options
from rocketstream.spark.pipeline.places import is_missing, resolved
from rocketstream.spark.pipeline.tables import Table

#: What a message has beside its body, in the order of the rocketmq source.
MESSAGE_COLUMNS = (
    "topic", "broker_name", "queue_id", "queue_offset", "message_id", "tags", "keys", "body", "born_timestamp",
    "store_timestamp", "reconsume_times", "properties",
)  # fmt: skip
_UNKNOWN = ""  # the type of a column whose type has a mistake: the column is there all the same
_TIMES = ("TIMESTAMP", "TIMESTAMP_NTZ", _UNKNOWN)
FILE_FORMATS = ("parquet", "json", "csv")
_LOOKUP_FORMATS = (*FILE_FORMATS, "orc", "text", "delta", "iceberg", "avro")
_SUFFIXES = {".parquet": "parquet", ".csv": "csv", ".json": "json", ".jsonl": "json", ".ndjson": "json", ".orc": "orc"}


@dataclass(slots=True)
class Context:
    """What all parts of a file share: where it is, how the cluster is reached, and what is wrong so far."""

    base: Path
    mistakes: list[Mistake]
    connection: Mapping[str, Node] = field(default_factory=dict)
    name_servers: str | None = None
    """Of the command line: it goes before all that the file says."""

    def connected(self, own: Mapping[str, Node]) -> dict[str, Node]:
        """Options with those of the connection beside them; a part's own go before those of `[rocketmq]`."""
        lower = {name.lower() for name in own}
        options = {name: node for name, node in self.connection.items() if name.lower() not in lower} | dict(own)
        if self.name_servers is not None:
            options = {name: node for name, node in options.items() if name.lower() != "nameservers"}
            options["nameServers"] = Node(self.name_servers, 0)
        return options


def texts(options: Mapping[str, Node]) -> dict[str, str]:
    """Options as Spark takes them."""
    return {name: str(node.value) for name, node in options.items()}


def read_source(table: Table, context: Context) -> Source:
    """One source."""
    name = read_name(table)
    own = table.options("options")
    topics = (*table.texts("topics"), *table.texts("topic"))
    _check_topics(table, own, topics)
    options = context.connected(own)
    if topics:
        options["topics"] = Node(",".join(topics), table.line_of("topics" if table.has("topics") else "topic"))
    if topics or any(key.lower() == "topicpattern" for key in own):
        check_options(table, options, ReadOptions.parse)
    schema = read_schema(table)
    columns = _message_columns(table, schema)
    source = Source(
        name=name,
        line=table.line,
        options=texts(options),
        schema=schema,
        schema_line=table.line_of("schema"),
        json_options=_json_options(table, schema),
        message_columns=columns,
        dead_letter=_dead_letter(table, context, bool(schema) or table.has("schema")),
        watermark=read_watermark(table),
        dedupe=read_dedupe(table),
    )
    _check_columns(table, source)
    table.end()
    return source


def read_name(table: Table) -> str:
    """The name of a table of SQL; "" if there is none."""
    name = table.text("name", needed=True) or ""
    if name and not (name.isascii() and name.replace("_", "a").isalnum() and not name[0].isdigit()):
        table.wrong(table.line_of("name"), "`name` must be made of letters, digits and _, and not begin with a digit")
    return name


def _check_topics(table: Table, own: Mapping[str, Node], topics: tuple[str, ...]) -> None:
    if table.has("topics") and table.has("topic"):
        table.wrong(table.line_of("topic"), "`topic` and `topics` are two ways to say the same: give one")
    pattern = False
    for key, node in own.items():
        if key.lower() in ("topic", "topics"):
            table.wrong(node.line, f"say `topics` in the source itself, not in its `options` as {key!r}")
            pattern = True
        elif key.lower() == "topicpattern":
            pattern = True
        elif key.lower() in ("endingoffsets", "endingtimestamp"):
            table.wrong(node.line, f"option {key!r} is for batches: a pipeline ends with the trigger available_now")
    if not topics and not pattern and not (table.has("topics") or table.has("topic")):
        table.wrong(table.line, "`topics` is missing")
    elif not topics and not pattern:
        table.wrong(table.line_of("topics"), "`topics` must name a topic")


def read_schema(table: Table) -> tuple[Column, ...]:
    """Columns as a table (name = type) or as DDL in one text."""
    node = table.node("schema")
    if node is None:
        return ()
    if isinstance(node.value, str):
        try:
            return parse_columns(node.value)
        except DdlError as error:
            line = node.text_line + node.value.count("\n", 0, error.position) if node.text_line else node.line
            table.wrong(line, f"`schema`: {error}")
            return ()
    if not isinstance(node.value, dict) or not node.value:
        table.wrong(node.line, "`schema` must be a table of columns and their types, or DDL like 'id STRING, n INT'")
        return ()
    columns: list[Column] = []
    for name, kind in node.value.items():
        if not isinstance(kind.value, str):
            table.wrong(kind.line, f"`schema`: the type of column {name!r} must be a text, not {kind.kind()}")
            columns.append(Column(name, _UNKNOWN))
            continue
        if any(column.name.lower() == name.lower() for column in columns):
            table.wrong(kind.line, f"`schema`: column {name!r} is there twice")
            continue
        try:
            columns.append(parse_column(name, kind.value))
        except DdlError as error:
            table.wrong(kind.line, f"`schema`: column {name!r}: {error}")
            columns.append(Column(name, _UNKNOWN))
    return tuple(columns)


def _message_columns(table: Table, schema: Iterable[Column]) -> tuple[str, ...]:
    """The message's own columns: those asked for; else all that no column of the body hides, without costly ones."""
    of_body = {column.name.lower() for column in schema}
    asked = table.texts("message_columns")
    line = table.line_of("message_columns")
    for name in asked:
        if name not in MESSAGE_COLUMNS:
            table.wrong(line, f"a message has no column {name!r}{nearest(name, MESSAGE_COLUMNS)}")
        elif name.lower() in of_body:
            table.wrong(line, f"column {name!r} is in `schema`, too: the body's and the message's can't both be it")
    if table.has("message_columns"):
        return asked
    if not of_body:
        return MESSAGE_COLUMNS
    return tuple(name for name in MESSAGE_COLUMNS if name not in of_body and name not in ("body", "properties"))


def _json_options(table: Table, schema: tuple[Column, ...]) -> dict[str, str]:
    options = table.options("json_options")
    for name, node in options.items():
        if name.lower() in ("mode", "columnnameofcorruptrecord"):
            table.wrong(node.line, f"option {name!r} is set by the pipeline, for dead letters")
    if options and not schema and not table.has("schema"):
        table.wrong(table.line_of("json_options"), "`json_options` are for a `schema`, and there is none")
    return texts(options)


def _dead_letter(table: Table, context: Context, has_schema: bool) -> DeadLetter | None:
    line = table.line_of("dead_letter")
    if not has_schema:
        if table.has("dead_letter"):
            table.wrong(line, "`dead_letter` is for bodies that don't fit a `schema`, and there is none")
        return None
    node = table.node("dead_letter")
    if node is None:
        table.wrong(
            table.line_of("schema"),
            "`dead_letter` is missing: say where bodies go that don't fit the schema, as in"
            ' dead_letter = { path = "..." } or { topic = "..." }, or dead_letter = "drop"',
        )
        return None
    if node.value == "drop":
        return DeadLetter(line)
    inside = table.table("dead_letter")
    if inside is None or not isinstance(node.value, dict):
        return None
    path, topic = inside.text("path"), inside.text("topic")
    kind = inside.one_of("format", ("parquet", "json")) or "parquet"
    own = inside.options("options")
    if (path is None) == (topic is None) and inside.has("path") == inside.has("topic"):
        both = path is not None and topic is not None
        inside.wrong(line, "`path` and `topic` are two places: give one" if both else "give a `path` or a `topic`")
    if topic is not None:
        if inside.has("format"):
            inside.wrong(inside.line_of("format"), "`format` is for a `path`: a topic gets the body as it was")
        own = context.connected(own) | {"topic": Node(topic, inside.line_of("topic"))}
        check_write_options(inside, own)
    inside.end()
    return DeadLetter(line, resolved(path, context.base) if path else None, kind, topic, texts(own))


def read_watermark(table: Table) -> Watermark | None:
    """How late rows may come."""
    inside = table.table("watermark")
    if inside is None:
        return None
    column, delay = inside.text("column", needed=True), inside.duration("delay", needed=True, zero=True)
    inside.end()
    return Watermark(column or "", delay or "", inside.line_of("column"))


def read_dedupe(table: Table) -> Dedupe | None:
    """Which rows are the same; a text or a list is short for its columns."""
    node = table.node("dedupe")
    if node is None:
        return None
    if isinstance(node.value, dict):
        inside = table.table("dedupe")
        assert inside is not None
        columns = (*inside.texts("columns"), *inside.texts("column"))
        if not columns and not inside.has("columns"):
            inside.wrong(inside.line, "`columns` is missing")
        inside.end()
    else:
        columns = table.texts("dedupe")
    return Dedupe(columns, node.line) if columns else None


def _check_columns(table: Table, source: Source) -> None:
    """The columns that watermark and dedupe name must be there."""
    if table.has("schema") and not source.schema:
        return  # it has mistakes of its own
    known = {column.lower() for column in source.columns}
    watermark, dedupe = source.watermark, source.dedupe
    if watermark is not None and watermark.column:
        if watermark.column.lower() not in known:
            table.wrong(watermark.line, _no_column("watermark", watermark.column, source.columns))
        for column in source.schema:
            if column.name.lower() == watermark.column.lower() and column.type not in _TIMES:
                table.wrong(
                    watermark.line,
                    f"`watermark`: column {column.name!r} must be a TIMESTAMP, and is {column.type}",
                )
    for name in dedupe.columns if dedupe else ():
        if name.lower() not in known:
            table.wrong(dedupe.line if dedupe else 0, _no_column("dedupe", name, source.columns))


def _no_column(key: str, name: str, known: Iterable[str]) -> str:
    return f"`{key}`: there is no column {name!r}{nearest(name, known)}"


def read_lookup(table: Table, context: Context) -> Lookup:
    """One lookup table."""
    name, path = read_name(table), table.text("path", needed=True) or ""
    kind = table.one_of("format", _LOOKUP_FORMATS)
    place = resolved(path, context.base) if path else ""
    if path and kind is None and not table.has("format"):
        kind = _SUFFIXES.get(Path(path).suffix.lower())
        if kind is None:
            table.wrong(table.line, f"`format` is missing (the suffix of {path!r} does not tell it)")
    if place and is_missing(place):
        table.wrong(table.line_of("path"), f"there is nothing at {place}")
    options = texts(table.options("options"))
    lower = {key.lower() for key in options}
    schema = read_schema(table)
    if kind == "csv":
        # What people mean by a table in CSV; whoever does not says so.
        options |= {} if "header" in lower else {"header": "true"}
        options |= {} if "inferschema" in lower or schema else {"inferSchema": "true"}
    table.end()
    return Lookup(name, table.line, place, kind or "parquet", schema, options)
