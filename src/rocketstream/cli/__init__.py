"""`rocketstream` on the command line: one file per command; exit codes are 0, 1 (failed) and 2 (usage)."""

from __future__ import annotations

from importlib.metadata import version
from typing import Annotated

import typer

from rocketstream.cli import cluster

app = typer.Typer(
    name="rocketstream",
    help="RocketMQ for Python and Spark.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.add_typer(cluster.app, name="cluster")


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
    pass


def main() -> None:
    """The entry point of the `rocketstream` command."""
    app()
