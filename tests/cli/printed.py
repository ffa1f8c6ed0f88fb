"""What commands print, as a test reads it."""

from __future__ import annotations

import json
from typing import Any

from typer.testing import Result


def documents(done: Result) -> list[Any]:
    """The JSON documents of a command that prints one per line."""
    return [json.loads(line) for line in done.stdout.splitlines()]


def rows(done: Result) -> list[list[str]]:
    """The cells of a printed table, without its lines and head."""
    return [[cell.strip() for cell in line.split("│")[1:-1]] for line in done.stdout.splitlines() if line[:1] == "│"]
