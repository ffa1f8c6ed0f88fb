"""`rocketstream config NODE [NAME ...]`: the settings of a broker or a name server."""

from __future__ import annotations

import fnmatch
from typing import Annotated

import typer
from rich.markup import escape

from rocketstream.admin.errors import NotFoundError
from rocketstream.admin.showing import showable
from rocketstream.cli._connection import Connection, Json, connected
from rocketstream.cli._console import cell, output, print_json, table


@connected
def config(
    connection: Connection,
    node: Annotated[
        str, typer.Argument(metavar="NODE", help="A broker's name or address, or a name server's address.")
    ],
    names: Annotated[
        list[str] | None,
        typer.Argument(metavar="[NAME]...", help="Only these settings; * stands for anything: 'flush*'."),
    ] = None,
    runtime: Annotated[bool, typer.Option("--runtime", help="What the broker counts and measures instead.")] = False,
    json: Json = False,
) -> None:
    """Show the settings of a broker or a name server, as it has them now. Secrets are hidden.

    `rocketstream brokers` lists the names. One setting by its whole name is printed as its value alone.
    """
    with connection.admin() as admin:
        found = admin.broker_runtime(node) if runtime else admin.node_config(node)
    chosen = {name: value for name, value in found.items() if _is_wanted(name, names)}
    if names and not chosen:
        raise NotFoundError(f"{node} has no setting called {', '.join(names)}: it has {len(found)} others")
    if json:
        print_json(chosen)
    elif names is not None and len(names) == 1 and names[0] in chosen:
        print(showable(chosen[names[0]]))
    else:
        shown = table("name", "value")
        for name, value in chosen.items():
            shown.add_row(cell(showable(name)), cell(showable(value)))
        out = output()
        out.print(shown)
        out.print(f"[bold]{escape(node)}[/]: {len(chosen)} of {len(found)}")


def _is_wanted(name: str, patterns: list[str] | None) -> bool:
    return not patterns or any(fnmatch.fnmatchcase(name.lower(), pattern.lower()) for pattern in patterns)
