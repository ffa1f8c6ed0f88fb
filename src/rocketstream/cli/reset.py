"""`rocketstream reset GROUP TOPIC --to ...`: let a group go on elsewhere."""

from __future__ import annotations

import re
from typing import Annotated

import typer
from rich.markup import escape

from rocketstream.admin.moments import is_offset, parse_moment
from rocketstream.admin.values import OffsetReset
from rocketstream.cli._connection import Connection, Json, connected
from rocketstream.cli._console import cell, output, print_json, table
from rocketstream.clock import SystemClock
from rocketstream.errors import ConfigurationError
from rocketstream.message import MessageQueue

_AT = re.compile(r"(?P<broker>.+):(?P<queue>\d+)=(?P<offset>\d+)", re.ASCII)


@connected
def reset(
    connection: Connection,
    group: Annotated[str, typer.Argument(metavar="GROUP", help="The consumer group.")],
    topic: Annotated[str, typer.Argument(metavar="TOPIC", help="The topic.")],
    to: Annotated[
        str | None,
        typer.Option(
            "--to", metavar="WHERE", help="begin, end, 2026-03-01T12:00, 15m (ago), milliseconds, or an offset."
        ),
    ] = None,
    offset: Annotated[int | None, typer.Option(min=0, help="To this offset, as --to with a small number.")] = None,
    at: Annotated[
        list[str] | None,
        typer.Option("--at", metavar="BROKER:QUEUE=OFFSET", help="One queue to an offset; may be repeated."),
    ] = None,
    like: Annotated[str | None, typer.Option(metavar="GROUP", help="To where this other group is.")] = None,
    broker: Annotated[str | None, typer.Option(help="Only the queues of this broker.")] = None,
    queue: Annotated[int | None, typer.Option(min=0, help="Only the queues with this id.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would be done, and do nothing.")] = False,
    json: Json = False,
) -> None:
    """Move a group to another place in a topic, with members online or without.

    Look first with --dry-run: it shows the old and the new offset of each queue, what would be skipped and what would
    come again.
    """
    if sum(way is not None for way in (to, offset, at, like)) != 1:
        raise ConfigurationError(
            "say where to: --to WHERE, --offset N, --at BROKER:QUEUE=N or --like GROUP, one of them"
        )
    if to is not None and is_offset(to):
        offset, to = int(to), None
    moment = None if to is None else parse_moment("--to", to, SystemClock().wall_ms())
    offsets = None if at is None else dict(map(_place, at))
    with connection.admin() as admin:
        done = admin.reset_offset(
            group,
            topic,
            moment,
            offset=offset,
            offsets=offsets,
            like=like,
            broker_name=broker,
            queue_id=queue,
            dry_run=dry_run,
        )
    if json:
        print_json(done.to_dict())
    else:
        _print(done)


def _place(text: str) -> tuple[MessageQueue | tuple[str, int], int]:
    found = _AT.fullmatch(text.strip())
    if found is None:
        raise ConfigurationError(f"--at {text!r}: expected BROKER:QUEUE=OFFSET, such as broker-a:3=1200")
    return (found["broker"], int(found["queue"])), int(found["offset"])


def _print(done: OffsetReset) -> None:
    numbers = ("queue", "old offset", "new offset", "end", "skipped", "again")
    shown = table("broker", *numbers, numbers=numbers)
    for one in done.queues:
        offsets = (cell(one.old_offset), str(one.new_offset), str(one.end_offset))
        shown.add_row(cell(one.broker_name), str(one.queue_id), *offsets, _loud(one.skipped), _loud(one.again))
    out = output()
    out.print(shown)
    name = f"Group [bold]{escape(done.group)}[/] in topic [bold]{escape(done.topic)}[/]"
    what = f"{done.skipped} messages skipped, {done.again} once more"
    if done.dry_run:
        out.print(f"{name} would be moved: {what}; nothing was done (--dry-run).")
    else:
        online = " Members are online: they may take some fifteen seconds to follow." if done.online else ""
        out.print(f"{name} is moved: {what}.{online}")


def _loud(count: int) -> str:
    return f"[yellow]{count}[/]" if count else "0"
