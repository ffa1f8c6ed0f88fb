"""`rocketstream reset GROUP TOPIC --to ...`: let a group go on elsewhere."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.markup import escape

from rocketstream.admin.moments import parse_moment
from rocketstream.cli._connection import Connection, Json, connected
from rocketstream.cli._console import cell, output, print_json, table
from rocketstream.clock import SystemClock
from rocketstream.errors import ConfigurationError


@connected
def reset(
    connection: Connection,
    group: Annotated[str, typer.Argument(metavar="GROUP", help="The consumer group.")],
    topic: Annotated[str, typer.Argument(metavar="TOPIC", help="The topic.")],
    to: Annotated[
        str | None,
        typer.Option("--to", metavar="WHEN", help="earliest, latest, 2026-03-01T12:00, 15m (ago), or milliseconds."),
    ] = None,
    offset: Annotated[int | None, typer.Option(min=0, help="To this offset instead.")] = None,
    broker: Annotated[str | None, typer.Option(help="Only the queues of this broker.")] = None,
    queue: Annotated[int | None, typer.Option(min=0, help="Only the queues with this id.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would be done, and do nothing.")] = False,
    json: Json = False,
) -> None:
    """Move a group to another place in a topic, with members online or without."""
    if (to is None) == (offset is None):
        raise ConfigurationError("say where to: --to WHEN or --offset N, one of them")
    moment = None if to is None else parse_moment("--to", to, SystemClock().wall_ms())
    with connection.admin() as admin:
        done = admin.reset_offset(
            group, topic, moment, offset=offset, broker_name=broker, queue_id=queue, dry_run=dry_run
        )
    if json:
        print_json(done.to_dict())
        return
    numbers = ("queue", "old offset", "new offset")
    shown = table("broker", *numbers, numbers=numbers)
    for one in done.queues:
        shown.add_row(cell(one.broker_name), str(one.queue_id), cell(one.old_offset), str(one.new_offset))
    out = output()
    out.print(shown)
    name = f"Group [bold]{escape(group)}[/] in topic [bold]{escape(topic)}[/]"
    if dry_run:
        out.print(f"{name} would be moved; nothing was done (--dry-run).")
    else:
        online = " Members are online: they may take some fifteen seconds to follow." if done.online else ""
        out.print(f"{name} is moved.{online}")
