"""`rocketstream produce TOPIC`: send what is given, or each line of standard input."""

from __future__ import annotations

import itertools
import sys
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Annotated, Any

import typer

from rocketstream.cli._connection import Connection, JsonLines, connected
from rocketstream.cli._console import output, print_json_line, progress_bar, tell
from rocketstream.cluster.names import check_topic
from rocketstream.errors import ConfigurationError, RocketStreamError
from rocketstream.message import Message
from rocketstream.producer import Producer, SendReceipt, SendStatus

# So many are under way at once; enough to be fast, few enough to tell soon when one fails.
_UNDER_WAY = 256
# More receipts than fit on a screen are a number; --json has them all.
_SHOWN = 20


@connected
def produce(
    connection: Connection,
    topic: Annotated[str, typer.Argument(metavar="TOPIC", help="The topic.")],
    body: Annotated[str | None, typer.Option("--body", "-b", help="The body, as text.")] = None,
    file: Annotated[
        Path | None, typer.Option("--file", "-f", exists=True, dir_okay=False, help="A file whose bytes are the body.")
    ] = None,
    lines: Annotated[bool, typer.Option("--lines", help="With --file: each line is a message.")] = False,
    count: Annotated[int, typer.Option("--count", "-c", min=1, help="Send it so many times.")] = 1,
    tags: Annotated[str | None, typer.Option(help="The tag.")] = None,
    keys: Annotated[list[str] | None, typer.Option("--keys", "-k", help="A key; may be repeated.")] = None,
    properties: Annotated[
        list[str] | None, typer.Option("--property", "-p", metavar="NAME=VALUE", help="A property; may be repeated.")
    ] = None,
    sharding_key: Annotated[str | None, typer.Option(help="Messages with the same one stay in order.")] = None,
    delay_level: Annotated[int, typer.Option(min=0, help="Deliver later: the broker's level, 1 to 18.")] = 0,
    group: Annotated[str, typer.Option(help="The producer group.")] = "rocketstream-cli",
    json: JsonLines = False,
) -> None:
    """Send messages: --body, --file, or each line of standard input that is not empty."""
    check_topic(topic)
    options: dict[str, Any] = {
        "tags": tags,
        "keys": keys or None,
        "properties": _pairs(properties or []),
        "sharding_key": sharding_key,
        "delay_level": delay_level,
    }
    bodies, total = _bodies(body, file, lines, count)
    producer = Producer(
        group,
        connection.name_servers,
        credentials=connection.credentials,
        tls=connection.tls,
        namespace=connection.namespace,
    )
    sent = _Sent(json, quiet=total is None or total > _SHOWN)
    with producer:
        try:
            with progress_bar(shown=total is None or total > _SHOWN) as bar:
                task = bar.add_task("sent", total=total)
                for receipt in _receipts(producer, (Message(topic, one, **options) for one in bodies)):
                    sent.add(receipt)
                    bar.update(task, completed=sent.count)
        except (RocketStreamError, KeyboardInterrupt):
            if total != 1:
                tell(f"{sent.count} stored before it ended; what was under way may be stored too")
            raise
    if not json:
        output().print(sent.summary(), markup=False, soft_wrap=True)


class _Sent:
    """What has been stored so far."""

    def __init__(self, json: bool, quiet: bool) -> None:
        self.count = 0
        self._json = json
        self._quiet = quiet
        self._statuses: dict[SendStatus, int] = {}

    def add(self, receipt: SendReceipt) -> None:
        """Count it, and show it unless there are too many for a person."""
        self.count += 1
        self._statuses[receipt.status] = self._statuses.get(receipt.status, 0) + 1
        if self._json:
            print_json_line(
                {
                    "status": receipt.status.value,
                    "message_id": receipt.message_id,
                    "offset_message_id": receipt.offset_message_id,
                    "topic": receipt.queue.topic,
                    "broker_name": receipt.queue.broker_name,
                    "queue_id": receipt.queue.queue_id,
                    "queue_offset": receipt.queue_offset,
                }
            )
        elif not self._quiet:
            place = f"{receipt.queue.broker_name}/{receipt.queue.queue_id}@{receipt.queue_offset}"
            output().print(f"{receipt.status.value}  {place}  {receipt.message_id}", markup=False, soft_wrap=True)

    def summary(self) -> str:
        """How many, and how many of them less safely than the broker was told to."""
        less = {status.value: count for status, count in self._statuses.items() if status is not SendStatus.OK}
        told = "".join(f", {count} of them {status}" for status, count in less.items())
        return f"{self.count} message{'' if self.count == 1 else 's'} sent{told}"


def _receipts(producer: Producer, messages: Iterator[Message]) -> Iterator[SendReceipt]:
    """Receipts in the order of the messages; some are under way at once unless their order matters."""
    under_way: deque[Future[SendReceipt]] = deque()
    try:
        for message in messages:
            if message.sharding_key is not None:
                yield producer.send(message, sharding_key=message.sharding_key)
                continue
            under_way.append(producer.send_async(message))
            if len(under_way) >= _UNDER_WAY or under_way[0].done():
                yield under_way.popleft().result()
        while under_way:
            yield under_way.popleft().result()
    finally:
        for future in under_way:
            future.cancel()


def _bodies(body: str | None, file: Path | None, lines: bool, count: int) -> tuple[Iterator[bytes], int | None]:
    """The bodies, and how many there are if that is known."""
    if body is not None and file is not None:
        raise ConfigurationError("--body and --file are two ways to give a body: give one")
    if lines and file is None:
        raise ConfigurationError("--lines says how to read a --file, and there is none")
    if body is not None:
        return itertools.repeat(body.encode(), count), count
    if file is not None and not lines:
        return itertools.repeat(file.read_bytes(), count), count
    if count != 1:
        raise ConfigurationError("--count repeats one body: it goes with --body or --file, not with lines")
    if file is not None:
        return _lines(file.read_bytes().splitlines()), None
    if sys.stdin.isatty():
        raise ConfigurationError("there is nothing to send: give --body, --file, or lines on standard input")
    return _lines(sys.stdin.buffer), None


def _lines(source: Any) -> Iterator[bytes]:
    return (body for line in source if (body := line.rstrip(b"\r\n")))


def _pairs(texts: list[str]) -> dict[str, str]:
    pairs: dict[str, str] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise ConfigurationError(f"--property {text!r}: expected NAME=VALUE")
        pairs[name] = value
    return pairs
