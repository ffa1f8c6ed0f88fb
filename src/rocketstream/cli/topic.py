"""`rocketstream topic create|delete|route`: one topic."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.markup import escape

from rocketstream.admin.showing import local_time
from rocketstream.admin.values import QueueRange, RouteInfo
from rocketstream.cli._connection import Connection, Json, connected
from rocketstream.cli._console import cell, output, print_json, table

app = typer.Typer(help="Create and delete a topic, and see where it is.", no_args_is_help=True)

Topic = Annotated[str, typer.Argument(metavar="TOPIC", help="The topic's name.")]


@app.command()
@connected
def create(
    connection: Connection,
    topic: Topic,
    queues: Annotated[int, typer.Option("--queues", "-q", help="How many queues on each broker.")] = 8,
    read_queues: Annotated[int | None, typer.Option(help="As many to read from instead.")] = None,
    write_queues: Annotated[int | None, typer.Option(help="As many to write to instead.")] = None,
    permission: Annotated[str, typer.Option(help="RW, R or W.")] = "RW",
    update: Annotated[bool, typer.Option("--update", help="Change the topic if it exists.")] = False,
    json: Json = False,
) -> None:
    """Create a topic on every master, and wait until it can be used."""
    with connection.admin() as admin:
        route = admin.create_topic(
            topic,
            queues,
            read_queues=read_queues,
            write_queues=write_queues,
            permission=permission,
            update=update,
        )
    if json:
        print_json(route.to_dict())
        return
    _print_route(route)
    output().print(f"Topic [bold]{escape(topic)}[/] is ready.")


@app.command()
@connected
def delete(connection: Connection, topic: Topic, json: Json = False) -> None:
    """Delete a topic with its messages, everywhere. There is no way back."""
    with connection.admin() as admin:
        admin.delete_topic(topic)
    if json:
        print_json({"topic": topic, "deleted": True})
    else:
        output().print(f"Topic [bold]{escape(topic)}[/] is deleted.")


@app.command()
@connected
def route(
    connection: Connection,
    topic: Topic,
    offsets: Annotated[bool, typer.Option("--offsets", help="Show what each queue holds, too.")] = False,
    json: Json = False,
) -> None:
    """Show which brokers have a topic, and how many queues."""
    with connection.admin() as admin:
        found = admin.route(topic)
        ranges = admin.queue_ranges(topic) if offsets else []
    if json:
        print_json(found.to_dict() | ({"queues": [one.to_dict() for one in ranges]} if offsets else {}))
        return
    _print_route(found)
    if offsets:
        _print_ranges(ranges)


def _print_route(found: RouteInfo) -> None:
    numbers = ("read queues", "write queues")
    shown = table("cluster", "broker", "addresses", "read queues", "write queues", "permission", numbers=numbers)
    for broker in found.brokers:
        addresses = ", ".join(
            f"{address} ({'master' if broker_id == 0 else f'slave {broker_id}'})"
            for broker_id, address in broker.addresses.items()
        )
        queues = (str(broker.read_queues), str(broker.write_queues))
        shown.add_row(cell(broker.cluster), cell(broker.broker_name), cell(addresses), *queues, cell(broker.permission))
    output().print(shown)


def _print_ranges(ranges: list[QueueRange]) -> None:
    numbers = ("queue", "first offset", "next offset", "messages")
    shown = table("broker", *numbers, "newest message", numbers=numbers)
    for one in ranges:
        limits = (str(one.queue_id), str(one.min_offset), str(one.max_offset), str(one.messages))
        shown.add_row(cell(one.broker_name), *limits, cell(local_time(one.last_store_timestamp) or None))
    output().print(shown)
