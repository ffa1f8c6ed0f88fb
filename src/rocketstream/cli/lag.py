"""`rocketstream lag GROUP`: how far a group is, queue by queue, once or until Ctrl-C."""

from __future__ import annotations

import sys
import threading
from contextlib import nullcontext
from typing import Annotated

import typer
from rich.console import Group, RenderableType
from rich.live import Live
from rich.markup import escape

from rocketstream.admin.client import AdminClient
from rocketstream.admin.showing import local_time
from rocketstream.admin.values import GroupProgress
from rocketstream.cli._connection import Connection, Json, connected
from rocketstream.cli._console import cell, output, print_json, print_json_line, table


@connected
def lag(
    connection: Connection,
    group: Annotated[str, typer.Argument(metavar="GROUP", help="The consumer group.")],
    topic: Annotated[str | None, typer.Option(help="Only this topic.")] = None,
    watch: Annotated[bool, typer.Option("--watch", "-w", help="Ask again and again, until Ctrl-C.")] = False,
    interval: Annotated[float, typer.Option(min=0.1, help="Seconds between two looks with --watch.")] = 2.0,
    json: Json = False,
) -> None:
    """Show how far a group is in each queue, and who has the queue.

    With --watch and --json: one document per line.
    """
    with connection.admin() as admin:
        if watch:
            _watch(admin, group, topic, interval, json)
        progress = admin.consumer_progress(group, topic=topic)
    if json:
        print_json(progress.to_dict())
    else:
        output().print(*_shown(progress), sep="\n")


def _watch(admin: AdminClient, group: str, topic: str | None, interval: float, json: bool) -> None:
    """A table that changes in its place; what is not a terminal gets one after the other."""
    pause = threading.Event()
    out = output()
    # Before anything is drawn: what fails at once is one sentence and nothing else.
    progress = admin.consumer_progress(group, topic=topic)
    live = Live(console=out, auto_refresh=False) if sys.stdout.isatty() and not json else None
    with live or nullcontext():
        while True:
            if json:
                print_json_line(progress.to_dict())
            elif live is not None:
                # The sum on top: a table that is longer than the terminal is cut at its end.
                live.update(Group(*reversed(_shown(progress))), refresh=True)
            else:
                out.print(*_shown(progress), sep="\n")
                sys.stdout.flush()
            pause.wait(interval)
            progress = admin.consumer_progress(group, topic=topic)


def _shown(progress: GroupProgress) -> list[RenderableType]:
    """The table of the queues, if the group is in any, and a line about all of them."""
    numbers = ("queue", "broker offset", "consumer offset", "lag")
    shown = table("topic", "broker", *numbers, "last consumed was stored", "client", numbers=numbers)
    for queue in progress.queues:
        offsets = (str(queue.queue_id), str(queue.broker_offset), str(queue.consumer_offset))
        behind = f"[yellow]{queue.lag}[/]" if queue.lag else "0"
        last = local_time(queue.last_consumed_timestamp) or None
        shown.add_row(cell(queue.topic), cell(queue.broker_name), *offsets, behind, cell(last), cell(queue.client_id))
    members = "no member is online" if not progress.members else f"members online: {progress.members}"
    name = f"Group [bold]{escape(progress.group)}[/]"
    if progress.lag is None:
        return [f"{name}: has committed no offset yet; {members}"]
    return [shown, f"{name}: lag {progress.lag}, {progress.consume_tps:.1f} messages/s; {members}"]
