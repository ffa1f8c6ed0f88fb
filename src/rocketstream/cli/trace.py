"""`rocketstream trace ID`: what happened to a message, as clients that trace have told."""

from __future__ import annotations

from typing import Annotated

import typer

from rocketstream.admin.showing import local_time, showable
from rocketstream.cli._connection import Connection, Json, connected
from rocketstream.cli._console import cell, output, print_json, table
from rocketstream.wire.trace import TRACE_TOPIC


@connected
def trace(
    connection: Connection,
    message_id: Annotated[str, typer.Argument(metavar="ID", help="The message's unique id.")],
    topic: Annotated[str, typer.Option(help="The topic that it was traced into.")] = TRACE_TOPIC,
    json: Json = False,
) -> None:
    """Show what happened to a message: who sent it and who consumed it, when, and how long it took.

    Only clients with trace=True tell.
    """
    with connection.admin() as admin:
        found = admin.message_trace(message_id, topic)
    if json:
        print_json(found.to_dict())
        return
    shown = table("when", "what", "group", "client", "result", "ms", "detail", "topic", numbers=("ms",))
    for step in found.steps:
        result = "-" if step.success is None else "[green]ok[/]" if step.success else "[red]failed[/]"
        shown.add_row(
            local_time(step.timestamp) or "-",
            step.what,
            _text(step.group),
            _text(step.client),
            result,
            cell(step.cost_ms),
            _text(step.detail),
            _text(step.topic),
        )
    output().print(shown)


def _text(value: str | None) -> str:
    return cell(None if value is None else showable(value))
