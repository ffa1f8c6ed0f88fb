"""`rocketstream connections GROUP`: which clients are there, and whether they want the same."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.markup import escape

from rocketstream.admin.connections import ConnectedConsumer, ConsumerConnections, ProducerConnections
from rocketstream.admin.showing import local_time, showable
from rocketstream.cli._connection import Connection, Json, connected
from rocketstream.cli._console import cell, is_wide, output, print_json, table, tell, warn
from rocketstream.cluster.names import RETRY_PREFIX
from rocketstream.errors import ConfigurationError


@connected
def connections(
    connection: Connection,
    group: Annotated[str, typer.Argument(metavar="GROUP", help="The consumer group, or with --producers the other.")],
    producers: Annotated[bool, typer.Option("--producers", help="GROUP is a producer group.")] = False,
    topic: Annotated[str | None, typer.Option(help="With --producers: only at the brokers of this topic.")] = None,
    json: Json = False,
) -> None:
    """List the clients of a group: id, address, language, version, subscriptions.

    Members of a consumer group that subscribe to different things lose messages: that is said loudly, and the exit code
    is 1.
    """
    if topic is not None and not producers:
        raise ConfigurationError("--topic says which brokers to ask for producers: it goes with --producers")
    with connection.admin() as admin:
        if producers:
            _print_producers(admin.producer_connections(group, topic), json)
            return
        found = admin.consumer_connections(group)
    _print_consumers(found, json)
    if found.disagreements:
        raise typer.Exit(1)


def _print_producers(found: ProducerConnections, json: bool) -> None:
    if json:
        print_json(found.to_dict())
    elif not found.online:
        tell(f"No producer of group {found.group} is connected; whether there is such a group, brokers do not know.")
    else:
        shown = table("client", "address", "language", "version", "brokers")
        for one in found.members:
            shown.add_row(
                _text(one.client_id),
                _text(one.address),
                _text(one.language),
                one.version,
                _text(", ".join(one.brokers)),
            )
        output().print(shown)


def _print_consumers(found: ConsumerConnections, json: bool) -> None:
    if json:
        print_json(found.to_dict())
        return
    if not found.online:
        tell(f"No member of group {found.group} is online.")
        return
    out = output()
    columns = ["client", "subscriptions", "language", "version", "address", "brokers", "since"]
    # The last ones are what a narrow terminal can do without.
    columns = columns if is_wide(out) else columns[:-2]
    shown = table(*columns)
    for one in found.members:
        cells = (
            _text(one.client_id),
            _subscriptions(one),
            _text(one.language),
            one.version,
            _text(one.address),
            _text(", ".join(one.brokers)),
            local_time(one.start_timestamp) or "-",
        )
        shown.add_row(*cells[: len(columns)])
    out.print(shown)
    order = " in order" if any(one.orderly for one in found.members) else ""
    out.print(
        f"Group [bold]{escape(found.group)}[/]: members online: {len(found.members)}, {found.model}"
        f" {found.consume_type}{order}, from {found.consume_from}"
    )
    if found.silent:
        tell(f"{', '.join(found.silent)} did not say what it subscribes to, so it was compared with nobody.")
    for sentence in found.disagreements:
        warn(f"MEMBERS DISAGREE: {sentence}")


def _subscriptions(member: ConnectedConsumer) -> str:
    if member.subscriptions is None:
        return "(did not say)"
    own = [one for one in member.subscriptions if not one.topic.startswith(RETRY_PREFIX)]
    return "\n".join(_text(f"{one.topic}: {one.expression}") for one in own) or "-"


def _text(value: str | None) -> str:
    return cell(None if value is None else showable(value))
