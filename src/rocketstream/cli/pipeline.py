"""`rocketstream pipeline run FILE` and `pipeline check FILE`: topics through SQL into files, tables and topics."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rocketstream.cli._connection import JsonLines
from rocketstream.cli._console import clear_failures, print_json_line, problems, tell
from rocketstream.errors import ConfigurationError

if TYPE_CHECKING:
    from rocketstream.spark.pipeline import Pipeline, PipelineFileError

app = typer.Typer(help="Run pipelines: topics through SQL into files, tables and topics.", no_args_is_help=True)

File = Annotated[Path, typer.Argument(metavar="FILE", help="The pipeline, a .toml or a .yaml file.")]
NameServers = Annotated[
    str | None,
    typer.Option("-n", "--name-servers", metavar="HOST:PORT;...", help="Instead of those that the file says."),
]
Master = Annotated[
    str | None, typer.Option("--master", metavar="URL", help="Where Spark runs: local[4], spark://host:7077, yarn, ...")
]
Conf = Annotated[
    list[str] | None,
    typer.Option("--conf", "-c", metavar="NAME=VALUE", help="A setting of Spark; goes before the file's. Repeatable."),
]
Log = Annotated[
    Path | None, typer.Option("--log", metavar="PATH", help="Keep Spark's log here; without it only of runs that fail.")
]
Verbose = Annotated[bool, typer.Option("--verbose", "-v", help="Spark's log, and whole errors, on standard error.")]


@app.command()
def run(
    file: File,
    name_servers: NameServers = None,
    master: Master = None,
    conf: Conf = None,
    available_now: Annotated[
        bool, typer.Option("--available-now", "--once", help="Do what is there now, then end; whatever the file says.")
    ] = False,
    stop_timeout: Annotated[
        float, typer.Option(min=0.0, max=86_400.0, help="Seconds that batches get to end after Ctrl-C.")
    ] = 60.0,
    interval: Annotated[float, typer.Option(min=0.1, help="Seconds between two lines of progress.")] = 5.0,
    log: Log = None,
    verbose: Verbose = False,
    json: JsonLines = False,
) -> None:
    """Run a pipeline until Ctrl-C or SIGTERM, or until all is done (trigger available_now).

    It goes on where it stopped: the checkpoint directory says how far it was. The first Ctrl-C lets the batches under
    way end, the second does not.
    """
    with clear_failures():
        pipeline = _load(file, name_servers, json)
        from rocketstream.cli._pipeline_run import Running, Showing

        settings = _settings(conf)
        running = Running(pipeline, master, settings, available_now, stop_timeout, log, verbose)
        # A sink of type console writes to the same terminal: then no table is drawn over it.
        alone = all(sink.type != "console" for sink in pipeline.sinks)
        code = running.run(Showing(json=json, interval=interval, alone=alone))
    sys.stdout.flush()
    if code:
        raise typer.Exit(code)


@app.command()
def check(
    file: File,
    name_servers: NameServers = None,
    sql: Annotated[
        bool, typer.Option("--sql", help="Start Spark and have it check the queries, too; nothing is read or written.")
    ] = False,
    master: Master = None,
    conf: Conf = None,
    log: Log = None,
    verbose: Verbose = False,
    json: JsonLines = False,
) -> None:
    """Check a pipeline file and list all its mistakes, each with its line; exit code 2 if there are any."""
    with clear_failures():
        pipeline = _load(file, name_servers, json)
        if sql:
            from rocketstream.cli._pipeline_run import Running

            _told(lambda: Running(pipeline, master, _settings(conf), False, 0.0, log, verbose).check(), json)
    if json:
        print_json_line({"file": str(file), "mistakes": []})
    else:
        sources, sinks = (", ".join(part.name for part in parts) for parts in (pipeline.sources, pipeline.sinks))
        tell(f"{file}: no mistakes; {sources} to {sinks}")


def _load(file: Path, name_servers: str | None, json: bool) -> Pipeline:
    """The pipeline; its mistakes are told line by line, as editors read them."""
    from rocketstream.spark.pipeline import load_pipeline
    from rocketstream.spark.pipeline.session import require_spark

    require_spark()
    loaded: list[Pipeline] = []
    _told(lambda: loaded.append(load_pipeline(file, name_servers=name_servers)), json)
    return loaded[0]


def _told(step: Callable[[], object], json: bool) -> None:
    from rocketstream.spark.pipeline import PipelineFileError

    try:
        step()
    except PipelineFileError as error:
        tell_mistakes(error, json)
        raise typer.Exit(2) from None


def tell_mistakes(error: PipelineFileError, json: bool) -> None:
    """`FILE:LINE: sentence` for people and editors, one document for programs."""
    if json:
        mistakes = [mistake._asdict() for mistake in error.mistakes]
        print_json_line({"file": error.file, "mistakes": mistakes})
        return
    console = problems()
    for mistake in error.mistakes:
        console.print(mistake.at(error.file), markup=False, soft_wrap=True)


def _settings(conf: list[str] | None) -> dict[str, str]:
    settings = {}
    for one in conf or []:
        name, equals, value = one.partition("=")
        if not equals or not name.strip():
            raise ConfigurationError(f"--conf {one!r} must be NAME=VALUE, as in --conf spark.executor.memory=4g")
        name = name.strip()
        settings[name if name.startswith("spark.") else f"spark.{name}"] = value
    return settings
