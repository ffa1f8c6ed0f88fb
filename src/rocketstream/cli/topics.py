"""`rocketstream topics`: what there is."""

from __future__ import annotations

from typing import Annotated

import typer

from rocketstream.admin.values import TopicKind
from rocketstream.cli._connection import Connection, Json, connected
from rocketstream.cli._console import cell, output, print_json, table, tell


@connected
def topics(
    connection: Connection,
    everything: Annotated[
        bool, typer.Option("--all", "-a", help="RocketMQ's own topics and those for retries and dead letters too.")
    ] = False,
    json: Json = False,
) -> None:
    """List the topics with their queues."""
    with connection.admin() as admin:
        found = [topic for topic in admin.topics() if everything or topic.kind is TopicKind.NORMAL]
    if json:
        print_json([topic.to_dict() for topic in found])
        return
    if not found:
        tell("No topic yet. RocketMQ's own are shown with --all." if not everything else "No topic at all.")
        return
    shown = table("topic", "kind", "brokers", "read queues", "write queues", "permission", numbers=_NUMBERS)
    for topic in found:
        brokers = ", ".join(broker.broker_name for broker in topic.brokers)
        permissions = ", ".join(dict.fromkeys(broker.permission for broker in topic.brokers))
        queues = (str(topic.read_queues), str(topic.write_queues))
        shown.add_row(cell(topic.name), topic.kind, cell(brokers or None), *queues, cell(permissions or None))
    output().print(shown)


_NUMBERS = ("read queues", "write queues")
