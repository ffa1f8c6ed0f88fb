"""`rocketstream consumer-info GROUP [CLIENT]`: what a running consumer says of itself."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.markup import escape

from rocketstream.admin.client import AdminClient
from rocketstream.admin.running import RunningInfo, RunningQueue
from rocketstream.admin.showing import local_time, showable
from rocketstream.cli._connection import Connection, Json, connected
from rocketstream.cli._console import cell, is_wide, output, print_json, table
from rocketstream.errors import ConfigurationError


@connected
def consumer_info(
    connection: Connection,
    group: Annotated[str, typer.Argument(metavar="GROUP", help="The consumer group.")],
    client_id: Annotated[
        str | None, typer.Argument(metavar="[CLIENT]", help="The member's client id; needed if there are several.")
    ] = None,
    stack: Annotated[bool, typer.Option("--stack", help="Show what its threads do, too.")] = False,
    properties: Annotated[bool, typer.Option("--properties", "-p", help="Show its settings, too.")] = False,
    json: Json = False,
) -> None:
    """Show what a member of a group says of itself: its queues, how fast it is, its settings.

    The broker passes the question on to the member; `rocketstream connections GROUP` lists the client ids.
    """
    with connection.admin() as admin:
        found = admin.running_info(group, client_id or _only_member(admin, group), stack=stack)
    if json:
        print_json(found.to_dict())
        return
    _print(found, properties)


def _only_member(admin: AdminClient, group: str) -> str:
    members = admin.consumers(group).members
    if len(members) != 1:
        there = ", ".join(member.client_id for member in members)
        raise ConfigurationError(
            f"group {group!r} has {len(members)} members online: say which ({there})"
            if members
            else f"group {group!r} has no member online: there is nobody to ask"
        )
    return members[0].client_id


def _print(found: RunningInfo, properties: bool) -> None:
    out = output()
    if found.queues:
        numbers = ("queue", "committed", "cached")
        columns = ["topic", "broker", *numbers, "state", "last pull", "last consumed"]
        # The last ones are what a narrow terminal can do without.
        columns = columns if is_wide(out) else columns[:-2]
        shown = table(*columns, numbers=numbers)
        for one in found.queues:
            cells = (
                cell(one.topic),
                cell(one.broker_name),
                str(one.queue_id),
                cell(one.commit_offset),
                str(one.cached),
                _state(one),
                local_time(one.last_pull_timestamp) or "-",
                local_time(one.last_consume_timestamp) or "-",
            )
            shown.add_row(*cells[: len(columns)])
        out.print(shown)
    if found.speeds:
        speed_columns = ("pulled/s", "pull ms", "consumed/s", "consume ms", "failed/s", "failed/h")
        shown = table("topic", *speed_columns, numbers=speed_columns)
        for speed in found.speeds:
            rates = (speed.pull_tps, speed.pull_rt, speed.consume_ok_tps, speed.consume_rt, speed.consume_failed_tps)
            shown.add_row(cell(speed.topic), *(f"{rate:.2f}" for rate in rates), str(speed.failed_last_hour))
        out.print(shown)
    for wanted in found.subscriptions:
        out.print(
            f"subscribes to [bold]{escape(wanted.topic)}[/]: {escape(wanted.expression)} ({wanted.expression_type})"
        )
    if properties:
        for name, value in found.properties.items():
            out.print(f"{escape(showable(name))} = {escape(showable(value))}", soft_wrap=True)
    if found.stack:
        print("\n".join(showable(line) for line in found.stack.splitlines()), file=out.file)
    since = f" since {local_time(found.start_timestamp)}" if found.start_timestamp else ""
    how = f"{found.consume_type or 'unknown type'}{', in order' if found.orderly else ''}"
    out.print(
        f"[bold]{escape(showable(found.client_id))}[/] in group [bold]{escape(found.group)}[/]{since}: {how},"
        f" {len(found.queues)} queues, {found.cached} messages held, version {found.version or 'unknown'}",
        soft_wrap=True,
    )


def _state(queue: RunningQueue) -> str:
    told = ["popped"] if queue.popped else []
    told += ["locked"] if queue.locked else []
    told += ["[red]dropped[/]"] if queue.dropped else []
    return ", ".join(told) or "-"
