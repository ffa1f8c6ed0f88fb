"""`rocketstream messages TOPIC`: look into a topic; nobody else notices."""

from __future__ import annotations

import sys
from contextlib import AbstractContextManager, nullcontext
from typing import Annotated

import typer

from rocketstream.admin.client import AdminClient
from rocketstream.admin.moments import Moment, parse_moment
from rocketstream.admin.showing import message_to_dict
from rocketstream.cli._connection import Connection, Json, connected
from rocketstream.cli._console import output, print_json, problems, tell
from rocketstream.cli._messages import print_message
from rocketstream.clock import SystemClock
from rocketstream.errors import ConfigurationError
from rocketstream.message import ReceivedMessage
from rocketstream.wire.subscription import SUBSCRIBE_ALL, parse_tags


@connected
def messages(
    connection: Connection,
    topic: Annotated[str, typer.Argument(metavar="TOPIC", help="The topic.")],
    tags: Annotated[str, typer.Option(help='Only these tags: "a || b".')] = SUBSCRIBE_ALL,
    key: Annotated[str | None, typer.Option(help="Only messages with this key.")] = None,
    message_id: Annotated[str | None, typer.Option("--id", help="The message with this id (either one).")] = None,
    since: Annotated[
        str | None, typer.Option(metavar="WHEN", help="Stored since: 2026-03-01T12:00, 15m (ago), earliest, ...")
    ] = None,
    until: Annotated[str | None, typer.Option(metavar="WHEN", help="Stored until.")] = None,
    offset: Annotated[int | None, typer.Option(min=0, help="From this offset of each queue on.")] = None,
    broker: Annotated[str | None, typer.Option(help="Only the queues of this broker.")] = None,
    queue: Annotated[int | None, typer.Option(min=0, help="Only the queues with this id.")] = None,
    limit: Annotated[int, typer.Option("--limit", "-l", min=1, max=100_000, help="At most so many.")] = 20,
    scan: Annotated[int, typer.Option(min=1, help="Look for a tag in so many messages of each queue.")] = 10_000,
    properties: Annotated[bool, typer.Option("--properties", "-p", help="Show the sender's properties.")] = False,
    json: Json = False,
) -> None:
    """Show messages: the newest, or with --since or --offset the first from there on.

    Bodies are shown as JSON, text or hexadecimal. Nothing is consumed and no group is touched.
    """
    _refuse_contradictions(message_id, key, since, until, offset)
    now = SystemClock().wall_ms()
    start = None if since is None else parse_moment("--since", since, now)
    end = None if until is None else parse_moment("--until", until, now)
    with connection.admin() as admin, _reading():
        if message_id is not None:
            found = [admin.message(message_id, topic)]
        elif key is not None:
            found = _by_key(admin, topic, key, limit, start, end, tags)
        else:
            found = admin.peek(
                topic,
                limit,
                start=start,
                until=end,
                offset=offset,
                tags=tags,
                broker_name=broker,
                queue_id=queue,
                scan=scan,
            )
    if json:
        print_json([message_to_dict(message) for message in found])
    else:
        _show(found, topic, properties)


def _refuse_contradictions(
    message_id: str | None, key: str | None, since: str | None, until: str | None, offset: int | None
) -> None:
    if message_id is not None and (key is not None or (since, until, offset) != (None, None, None)):
        raise ConfigurationError("--id names one message: --key, --since, --until and --offset do not go with it")
    if key is not None and offset is not None:
        raise ConfigurationError("--key looks into the brokers' index: --offset does not go with it")


def _reading() -> AbstractContextManager[object]:
    return problems().status("Reading ...") if sys.stderr.isatty() else nullcontext()


def _show(found: list[ReceivedMessage], topic: str, properties: bool) -> None:
    out = output()
    for message in found:
        print_message(out, message, properties=properties)
    if not found:
        tell(f"No message of topic {topic} matches.")


def _by_key(
    admin: AdminClient, topic: str, key: str, limit: int, start: Moment | None, end: Moment | None, tags: str
) -> list[ReceivedMessage]:
    found = admin.messages_by_key(topic, key, limit=min(limit, 1024), start=start or "earliest", until=end or "latest")
    if tags != SUBSCRIBE_ALL:
        found = [message for message in found if message.tags in parse_tags(tags)]
    return found[-limit:]
