"""How commands talk: results to standard output, problems to standard error, colours on a terminal only.

Exit codes are 0, 1 (failed, or whoever read the output went away), 2 (usage) and 130 (Ctrl-C).
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
from collections.abc import Iterable, Iterator
from typing import Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from rocketstream.errors import ConfigurationError, RocketStreamError

#: Too wide rather than cut: what is not a terminal is a file or a program.
_PIPE_WIDTH = 240
_WIDE = 132
_INTERRUPTED = 130


def output() -> Console:
    """The console of results; made per command because tests and pipes replace standard output."""
    return _console(sys.stdout.isatty(), stderr=False)


def problems() -> Console:
    """The console of problems and of progress."""
    return _console(sys.stderr.isatty(), stderr=True)


def _console(is_terminal: bool, *, stderr: bool) -> Console:
    # Nothing is coloured by guess, and what says ":rocket:" means these letters.
    return Console(stderr=stderr, highlight=False, emoji=False, width=None if is_terminal else _PIPE_WIDTH)


def print_json(value: Any) -> None:
    """One JSON document, for programs."""
    print(json.dumps(value, indent=2))


def print_json_line(value: Any) -> None:
    """One of many JSON documents, a line each, at once: for what comes as a stream."""
    print(json.dumps(value), flush=True)


def tell(line: str) -> None:
    """A remark that is not the result."""
    _say(f"[dim]{escape(line)}[/]")


def warn(line: str) -> None:
    """A remark that nobody should overlook."""
    _say(f"[bold yellow]{escape(line)}[/]")


def _say(markup: str) -> None:
    console = problems()
    # A terminal would break a long line in the midst of a word; a file wants it whole.
    console.print(markup, soft_wrap=not console.is_terminal)


def is_wide(console: Console) -> bool:
    """Whether a table of many columns can be read there; a file or a program takes any width."""
    return not console.is_terminal or console.width >= _WIDE


def cell(value: object) -> str:
    """A value in a table: None is a dash, markup is text."""
    return "-" if value is None else escape(str(value))


def table(*columns: str, numbers: Iterable[str] = ()) -> Table:
    """An empty table; the columns that hold numbers are set flush right."""
    made = Table()
    right = set(numbers)
    for column in columns:
        made.add_column(column, justify="right" if column in right else "left", overflow="fold")
    return made


def progress_bar(*, shown: bool = True) -> Progress:
    """A bar on standard error, on a terminal only; it goes away when it is done."""
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        console=problems(),
        transient=True,
        disable=not (shown and sys.stderr.isatty()),
    )


@contextlib.contextmanager
def clear_failures() -> Iterator[None]:
    """End the command with one sentence instead of a traceback: code 2 for a wrong argument, 1 for all else."""
    try:
        yield
        sys.stdout.flush()
    except RocketStreamError as problem:
        _say(f"[bold red]rocketstream:[/] {escape(str(problem))}")
        raise typer.Exit(2 if isinstance(problem, ConfigurationError) else 1) from None
    except KeyboardInterrupt:
        raise typer.Exit(_INTERRUPTED) from None
    except BrokenPipeError:
        # `| head` has seen enough. The interpreter flushes once more at its end, and must find somebody there.
        with contextlib.suppress(OSError, ValueError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise typer.Exit(1) from None
