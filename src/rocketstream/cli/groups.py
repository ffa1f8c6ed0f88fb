"""`rocketstream groups`: who consumes."""

from __future__ import annotations

from typing import Annotated

import typer

from rocketstream.cli._connection import Connection, Json, connected
from rocketstream.cli._console import cell, output, print_json, table, tell

_TYPES = {"CONSUME_PASSIVELY": "push", "CONSUME_ACTIVELY": "pull", "CONSUME_POP": "pop"}


@connected
def groups(
    connection: Connection,
    lag: Annotated[bool, typer.Option("--lag/--no-lag", help="Ask how far behind each group is.")] = True,
    json: Json = False,
) -> None:
    """List the consumer groups with their members and lag."""
    with connection.admin() as admin:
        found = admin.groups(lag=lag)
    if json:
        print_json([group.to_dict() for group in found])
        return
    if not found:
        tell("No group yet.")
        return
    numbers = ("members", "lag", "messages/s")
    shown = table("group", "members", "model", "type", "lag", "messages/s", numbers=numbers)
    for group in found:
        members = str(group.members) if group.members else "[dim]offline[/]"
        rate = None if group.consume_tps is None else f"{group.consume_tps:.1f}"
        kind = None if group.consume_type is None else _TYPES.get(group.consume_type, group.consume_type)
        lag_text = "-" if group.lag is None else f"[yellow]{group.lag}[/]" if group.lag else "0"
        shown.add_row(cell(group.group), members, cell(group.model), cell(kind), lag_text, cell(rate))
    output().print(shown)
