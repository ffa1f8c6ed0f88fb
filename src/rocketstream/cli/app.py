"""The commands put together."""

from __future__ import annotations

import io
import logging
import sys
import warnings
from importlib.metadata import version
from typing import Annotated

import typer

from rocketstream.cli import cluster, consume, groups, lag, messages, produce, reset, topic, topics
from rocketstream.cli import run as run_command

app = typer.Typer(
    name="rocketstream",
    help="RocketMQ for Python and Spark.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.add_typer(cluster.app, name="cluster")
app.command()(topics.topics)
app.add_typer(topic.app, name="topic")
app.command()(groups.groups)
app.command()(lag.lag)
app.command()(reset.reset)
app.command()(messages.messages)
app.command()(produce.produce)
app.command()(consume.consume)
app.command()(run_command.run)


def _print_version(wanted: bool) -> None:
    if wanted:
        print(f"rocketstream {version('rocketstream')}")
        raise typer.Exit


@app.callback()
def _options(
    show_version: Annotated[
        bool, typer.Option("--version", help="Print the version and exit.", callback=_print_version, is_eager=True)
    ] = False,
) -> None:
    # A command says itself what went wrong, in one sentence; Python would print the library's warnings beside it.
    logging.getLogger("rocketstream").addHandler(logging.NullHandler())


def run() -> None:
    """Run the command that the process was started with."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            # A message may have letters that the terminal has not: better escaped than a traceback.
            stream.reconfigure(errors="backslashreplace")
    # Ctrl-C may strike between a question's making and its asking; that is no news to whoever pressed it.
    warnings.filterwarnings("ignore", "coroutine .* was never awaited", RuntimeWarning)
    app()
