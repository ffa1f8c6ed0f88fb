"""`rocketstream consume TOPIC`: print messages as they come.

Without a group by plain pulls: no group is joined, nothing is committed, nobody notices. With `--group` as a member of
that group: it gets its share of the queues, and what it has printed is consumed.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Annotated

import typer

from rocketstream.admin.client import AdminClient
from rocketstream.admin.moments import LATEST, Moment, parse_moment
from rocketstream.admin.showing import message_to_dict
from rocketstream.cli._connection import Connection, JsonLines, connected
from rocketstream.cli._console import output, print_json_line, progress_bar, tell
from rocketstream.cli._messages import print_message
from rocketstream.clock import SystemClock
from rocketstream.errors import ConfigurationError
from rocketstream.message import ReceivedMessage
from rocketstream.wire.subscription import SUBSCRIBE_ALL


@connected
def consume(
    connection: Connection,
    topic: Annotated[str, typer.Argument(metavar="TOPIC", help="The topic.")],
    tags: Annotated[str, typer.Option(help='Only these tags: "a || b".')] = SUBSCRIBE_ALL,
    start: Annotated[
        str | None,
        typer.Option("--from", metavar="WHEN", help="earliest, latest (default), 2026-03-01T12:00, 15m (ago), ..."),
    ] = None,
    group: Annotated[
        str | None,
        typer.Option(help="Be a member of this group: begin where it is, and consume what is printed."),
    ] = None,
    limit: Annotated[int | None, typer.Option("--limit", "-l", min=1, help="End after so many messages.")] = None,
    idle: Annotated[float | None, typer.Option(min=0.1, help="End when nothing came for so many seconds.")] = None,
    timeout: Annotated[float | None, typer.Option(min=0.1, help="End after so many seconds.")] = None,
    properties: Annotated[bool, typer.Option("--properties", "-p", help="Show the sender's properties.")] = False,
    json: JsonLines = False,
) -> None:
    """Print messages as they come, until Ctrl-C, --limit, --idle or --timeout.

    Without --group messages are only looked at: all consumers get them all the same. With --group what is printed is
    consumed: no other member of the group gets it.
    """
    if group is not None and start is not None:
        raise ConfigurationError("--from and --group are two ways to say where to begin: give one")
    clock = SystemClock()
    moment: Moment = LATEST if start is None else parse_moment("--from", start, clock.wall_ms())
    deadline = None if timeout is None else clock.monotonic() + timeout
    out = output()
    count = 0
    try:
        # A bar would be drawn over messages that go to the same terminal.
        with progress_bar(shown=not sys.stdout.isatty()) as bar:
            task = bar.add_task("messages", total=limit)

            def show(message: ReceivedMessage) -> bool:
                nonlocal count
                count += 1  # first, since Ctrl-C can strike right after the message was read by somebody
                if json:
                    print_json_line(message_to_dict(message))
                else:
                    print_message(out, message, properties=properties)
                    sys.stdout.flush()
                bar.update(task, completed=count)
                return count != limit

            if group is not None:
                # Here, because the other commands have no use for a consumer and need not wait until it is loaded.
                from rocketstream.cli._member import take_part

                take_part(connection, topic, tags, group, show, idle, deadline)
            else:
                with connection.admin() as admin:
                    for message in _messages(admin, topic, moment, tags, idle, deadline):
                        if not show(message):
                            break
    except KeyboardInterrupt:
        tell(_counted(count))
        raise
    tell(_counted(count))


def _counted(count: int) -> str:
    return f"{count} message{'' if count == 1 else 's'}"


def _messages(
    admin: AdminClient, topic: str, start: Moment, tags: str, idle: float | None, deadline: float | None
) -> Iterator[ReceivedMessage]:
    clock = SystemClock()
    step = 1.0 if deadline is None else max(0.05, min(1.0, deadline - clock.monotonic()))
    for part in admin.read(topic, start, tags=tags, idle=idle, step=step):
        yield from part
        if deadline is not None and clock.monotonic() >= deadline:
            return
