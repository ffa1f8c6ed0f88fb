"""`rocketstream group create|delete|show|mode`: the settings of one consumer group."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.markup import escape

from rocketstream.admin.group_settings import GroupSettings
from rocketstream.cli._connection import Connection, Json, connected
from rocketstream.cli._console import cell, output, print_json, table, tell

app = typer.Typer(help="Create and delete a consumer group, and see its settings.", no_args_is_help=True)

Group = Annotated[str, typer.Argument(metavar="GROUP", help="The group's name.")]


@app.command()
@connected
def create(
    connection: Connection,
    group: Group,
    max_retries: Annotated[
        int | None, typer.Option(help="How often a failed message comes again before it is a dead letter (16).")
    ] = None,
    retry_queues: Annotated[int | None, typer.Option(help="Queues of the retry topic (1).")] = None,
    consume: Annotated[bool | None, typer.Option("--consume/--no-consume", help="Whether it gets messages.")] = None,
    broadcast: Annotated[
        bool | None, typer.Option("--broadcast/--no-broadcast", help="Whether members may be BROADCASTING.")
    ] = None,
    orderly: Annotated[
        bool | None, typer.Option("--orderly/--no-orderly", help="Whether what is popped comes in order (5.x).")
    ] = None,
    update: Annotated[bool, typer.Option("--update", help="Change the group if it exists.")] = False,
    json: Json = False,
) -> None:
    """Create a group on every master. A broker does it by itself for the first member, if it may."""
    with connection.admin() as admin:
        made = admin.create_group(
            group,
            max_retries=max_retries,
            retry_queues=retry_queues,
            consume_enabled=consume,
            broadcast_enabled=broadcast,
            orderly=orderly,
            update=update,
        )
    _print(made, json)
    if not json:
        output().print(f"Group [bold]{escape(group)}[/] is ready.")


@app.command()
@connected
def show(connection: Connection, group: Group, json: Json = False) -> None:
    """Show a group's settings on each broker."""
    with connection.admin() as admin:
        found = admin.group_settings(group)
    _print(found, json)


@app.command()
@connected
def delete(
    connection: Connection,
    group: Group,
    offsets: Annotated[bool, typer.Option("--offsets", help="Forget where it is in all topics, too.")] = False,
    json: Json = False,
) -> None:
    """Delete a group that has no members. Its retry topic and its dead letters stay."""
    with connection.admin() as admin:
        admin.delete_group(group, offsets=offsets)
    if json:
        print_json({"group": group, "deleted": True, "offsets_deleted": offsets})
    else:
        output().print(f"Group [bold]{escape(group)}[/] is deleted{' with its offsets' if offsets else ''}.")


@app.command()
@connected
def mode(
    connection: Connection,
    group: Group,
    topic: Annotated[str | None, typer.Argument(metavar="TOPIC", help="The topic; without it, all are shown.")] = None,
    wanted: Annotated[str | None, typer.Argument(metavar="MODE", help="pop or pull; without it, it is shown.")] = None,
    share_queues: Annotated[
        int, typer.Option(min=0, help="pop: with how many other members one shares its queues; 0 is all.")
    ] = 0,
    json: Json = False,
) -> None:
    """Show which topics a group pops, or have it pop one, or pull it again (5.x); a running group follows."""
    with connection.admin() as admin:
        if wanted is not None and topic is not None:
            modes = admin.set_request_mode(group, topic, wanted, share_queues=share_queues)
        else:
            modes = [one for one in admin.request_modes(group) if topic is None or one.topic == topic]
    if json:
        print_json([one.to_dict() for one in modes])
        return
    if not modes:
        tell(f"No mode was set: group {group} pulls.")
        return
    shown = table("topic", "broker", "mode", "shared with", numbers=("shared with",))
    for one in modes:
        shared = "-" if one.mode == "PULL" else str(one.share_queues) if one.share_queues > 0 else "all"
        shown.add_row(cell(one.topic), cell(one.broker_name), one.mode.lower(), shared)
    output().print(shown)


def _print(settings: list[GroupSettings], json: bool) -> None:
    if json:
        print_json([one.to_dict() for one in settings])
        return
    numbers = ("max retries", "retry queues")
    shown = table("broker", "consume", "broadcast", *numbers, "orderly (pop)", numbers=numbers)
    for one in settings:
        switches = (_yes(one.consume_enabled), _yes(one.broadcast_enabled))
        shown.add_row(cell(one.broker_name), *switches, str(one.max_retries), str(one.retry_queues), _yes(one.orderly))
    output().print(shown)


def _yes(value: bool) -> str:
    return "yes" if value else "no"
