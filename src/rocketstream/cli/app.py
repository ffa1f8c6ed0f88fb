"""The commands put together."""

from __future__ import annotations

import io
import logging
import sys
import warnings
from importlib import import_module
from importlib.metadata import version
from typing import Annotated

import typer

#: The commands in the order in which help shows them: a function of that name in the file of that name, or an `app`.
#: What serves one purpose stands together in help.
PANELS = {
    "Run something": ("demo", "run", "pipeline", "broker", "cluster"),
    "Topics and messages": ("topics", "topic", "messages", "produce", "consume", "trace"),
    "Consumer groups": ("groups", "group", "lag", "reset", "dlq", "connections", "consumer-info"),
    "Servers": ("brokers", "config"),
}
COMMANDS = tuple(name for names in PANELS.values() for name in names)


def make_app(command: str | None = None) -> typer.Typer:
    """The commands put together; only one of them if it is named, for the others' files take time to load."""
    app = typer.Typer(
        name="rocketstream",
        help="RocketMQ for Python and Spark.",
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
    )
    app.callback()(_options)
    for panel, names in PANELS.items():
        for name in names:
            if command not in COMMANDS or name == command:
                _add(app, name, panel)
    return app


def _add(app: typer.Typer, name: str, panel: str) -> None:
    python_name = name.replace("-", "_")
    module = import_module(f"rocketstream.cli.{python_name}")
    group = getattr(module, "app", None)
    if group is None:
        app.command(name, rich_help_panel=panel)(getattr(module, python_name))
    else:
        app.add_typer(group, name=name, rich_help_panel=panel)


def _print_version(wanted: bool) -> None:
    if wanted:
        print(f"rocketstream {version('rocketstream')}")
        raise typer.Exit


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
    make_app(next(iter(sys.argv[1:]), None))()
