"""How commands talk: results to standard output, problems to standard error, colours on a terminal only."""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Iterator
from typing import Any

import typer
from rich.console import Console

from rocketstream.errors import ConfigurationError, RocketStreamError

#: Too wide rather than cut: what is not a terminal is a file or a program.
_PIPE_WIDTH = 240


def output() -> Console:
    """The console of results; made per command because tests and pipes replace standard output."""
    return Console(highlight=False, width=None if sys.stdout.isatty() else _PIPE_WIDTH)


def problems() -> Console:
    """The console of problems and of progress."""
    return Console(stderr=True, highlight=False, width=None if sys.stderr.isatty() else _PIPE_WIDTH)


def print_json(value: Any) -> None:
    """One JSON document, for programs."""
    print(json.dumps(value, indent=2))


@contextlib.contextmanager
def clear_failures() -> Iterator[None]:
    """End the command with one sentence instead of a traceback: code 2 for a wrong argument, 1 for all else."""
    try:
        yield
    except RocketStreamError as problem:
        problems().print(f"[bold red]rocketstream:[/] {_escaped(problem)}", soft_wrap=True)
        raise typer.Exit(2 if isinstance(problem, ConfigurationError) else 1) from None


def _escaped(problem: RocketStreamError) -> str:
    from rich.markup import escape

    return escape(str(problem))
