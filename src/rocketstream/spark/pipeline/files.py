"""A pipeline file read and checked: `load_pipeline`.

The rule of this file: it raises nothing but `PipelineFileError` (with all mistakes) for whatever the file says, and
`ConfigurationError` for a file that cannot be read at all.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from rocketstream.errors import ConfigurationError
from rocketstream.spark.option_values import CONNECTION_OPTIONS, link_option
from rocketstream.spark.pipeline.checks import check_pipeline
from rocketstream.spark.pipeline.mistakes import Mistake, PipelineFileError, nearest
from rocketstream.spark.pipeline.model import Pipeline, Trigger
from rocketstream.spark.pipeline.nodes import Node
from rocketstream.spark.pipeline.option_checks import check_options
from rocketstream.spark.pipeline.places import resolved
from rocketstream.spark.pipeline.read_sinks import read_sink, read_step, read_trigger
from rocketstream.spark.pipeline.read_sources import Context, read_lookup, read_source, texts
from rocketstream.spark.pipeline.tables import Table
from rocketstream.spark.pipeline.toml_nodes import read_toml
from rocketstream.spark.pipeline.variables import replace_variables
from rocketstream.spark.pipeline.yaml_nodes import read_yaml

_SYNTAXES = {".toml": "toml", ".yaml": "yaml", ".yml": "yaml"}


def load_pipeline(
    source: Path | str,
    *,
    syntax: str | None = None,
    name_servers: str | None = None,
    environ: Mapping[str, str] | None = None,
) -> Pipeline:
    """Read and check a pipeline: a file's path, or its text if it has several lines.

    `syntax` is "toml" or "yaml"; without it a path's suffix says which, and a text is TOML. `name_servers` goes before
    those of the file; `environ` has the variables, instead of the process's environment.
    """
    if isinstance(source, str) and "\n" in source:
        file, text, base = "<text>", source, Path.cwd()
    else:
        path = Path(source)
        file, base = str(source), path.absolute().parent
        syntax = syntax or _SYNTAXES.get(path.suffix.lower())
        if syntax is None:
            raise ConfigurationError(f"{file}: a pipeline is a .toml or a .yaml file")
        text = _read(path)
    if syntax not in (None, "toml", "yaml"):
        raise ConfigurationError(f"syntax={syntax!r} must be 'toml' or 'yaml'")
    root = read_yaml(text) if syntax == "yaml" else read_toml(text)
    if isinstance(root, Mistake):
        raise PipelineFileError(file, [root])
    mistakes = replace_variables(root, os.environ if environ is None else environ)
    if mistakes:
        # What a variable would have said is not known, so neither is what else is wrong.
        raise PipelineFileError(file, mistakes)
    pipeline = _pipeline(root, file, Context(base, mistakes, name_servers=name_servers))
    mistakes += check_pipeline(pipeline)
    if mistakes:
        raise PipelineFileError(file, mistakes)
    return pipeline


def _read(path: Path) -> str:
    try:
        return path.read_text("utf-8-sig")
    except UnicodeDecodeError as error:
        line = path.read_bytes().count(b"\n", 0, error.start) + 1
        raise PipelineFileError(str(path), [Mistake(line, "this is not UTF-8")]) from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise ConfigurationError(f"{path}: the file can't be read: {reason}") from None


def _pipeline(root: Node, file: str, context: Context) -> Pipeline:
    table = Table(root, "", context.mistakes)
    name = table.text("name") or (Path(file).stem if file != "<text>" else "pipeline")
    checkpoint = table.text("checkpoint")
    if not table.has("checkpoint"):
        table.wrong(0, "`checkpoint` is missing: the directory where the pipeline keeps how far it is")
    _connection(table, context)
    conf, master = _spark(table)
    trigger = read_trigger(table.table("trigger")) or Trigger()
    pipeline = Pipeline(
        name=name,
        file=file,
        checkpoint=resolved(checkpoint, context.base) if checkpoint else "",
        sources=tuple(read_source(one, context) for one in table.tables("sources", "source")),
        lookups=tuple(read_lookup(one, context) for one in table.tables("lookups", "lookup")),
        steps=tuple(read_step(one, context) for one in table.tables("steps", "step")),
        sinks=tuple(read_sink(one, context, trigger) for one in table.tables("sinks", "sink")),
        spark=conf,
        master=master,
    )
    table.end()
    return _as_written(pipeline)


def _connection(table: Table, context: Context) -> None:
    """`[rocketmq]`: how all sources and sinks reach the cluster, unless they say otherwise."""
    inside = table.table("rocketmq")
    if inside is None:
        return
    before = len(context.mistakes)
    options = inside.as_options("", inside.rest())
    by_lower = {name.lower(): name for name in CONNECTION_OPTIONS}
    for name in list(options):
        if name.lower() not in by_lower:
            inside.wrong(options.pop(name).line, f"unknown key {name!r}{nearest(name, CONNECTION_OPTIONS)}")
    context.connection = options
    asked = context.connected({})
    if any(name.lower() == "nameservers" for name in asked):
        check_options(inside, asked, link_option)
    if len(context.mistakes) > before:
        # Told once, here, and not again by each source and sink.
        context.connection = {"nameServers": Node("127.0.0.1:9876", 0)}


def _spark(table: Table) -> tuple[dict[str, str], str | None]:
    """`[spark]`: settings, whether written as "spark.sql.x" or as sql.x, and the master."""
    inside = table.table("spark")
    if inside is None:
        return {}, None
    options = texts(inside.as_options("", _flat(inside.rest())))
    settings = {key if key.startswith("spark.") else f"spark.{key}": value for key, value in options.items()}
    return settings, settings.pop("spark.master", None)


def _flat(entries: Mapping[str, Node], prefix: str = "") -> dict[str, Node]:
    flat: dict[str, Node] = {}
    for key, node in entries.items():
        if isinstance(node.value, dict):
            flat |= _flat(node.value, f"{prefix}{key}.")
        else:
            flat[f"{prefix}{key}"] = node
    return flat


def _as_written(pipeline: Pipeline) -> Pipeline:
    """The same with each name in a step's or sink's references spelled as where it is defined."""
    names = {part.name.lower(): part.name for part in pipeline.tables}
    return replace(
        pipeline,
        steps=tuple(
            replace(step, uses=tuple(dict.fromkeys(names.get(used.lower(), used) for used in step.uses)))
            for step in pipeline.steps
        ),
        sinks=tuple(replace(sink, table=names.get(sink.table.lower(), sink.table)) for sink in pipeline.sinks),
    )
