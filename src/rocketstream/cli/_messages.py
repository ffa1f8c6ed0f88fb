"""How commands print messages."""

from __future__ import annotations

from rich.console import Console
from rich.text import Text

from rocketstream.admin.showing import ReadableBody, body_of, local_time, showable, user_properties
from rocketstream.message import ReceivedMessage


def print_message(out: Console, message: ReceivedMessage, *, properties: bool = False) -> None:
    """One line about the message, its body below, indented."""
    body = body_of(message)
    lines = [_head(message, body)]
    if properties:
        own = user_properties(message).items()
        lines += [[("    ", ""), (f"{showable(name)}=", "dim"), (showable(value), "")] for name, value in own]
    for line in lines:
        _print(out, line)
    for text in body.text.splitlines():
        print(f"    {text}", file=out.file)


def _head(message: ReceivedMessage, body: ReadableBody) -> list[tuple[str, str]]:
    """The parts of the line, each with its style."""
    place = f"{message.broker_name}/{message.queue_id}@{message.queue_offset}"
    head = [(local_time(message.store_timestamp), "bold"), ("  ", ""), (showable(place), "cyan")]
    head.append((f"  {showable(message.message_id)}", ""))
    for name, value in (("tags", message.tags), ("keys", message.keys)):
        if value is not None:
            head += [(f"  {name}=", ""), (showable(value), "green")]
    if message.reconsume_times:
        head.append((f"  reconsumed={message.reconsume_times}", ""))
    head.append((f"  {message.body_size} bytes, {body.kind}", "dim"))
    return head


def _print(out: Console, parts: list[tuple[str, str]]) -> None:
    if out.is_terminal:
        out.print(Text.assemble(*parts), soft_wrap=True)
    else:  # ten times as fast, for whoever reads a hundred thousand messages into a file
        print("".join(text for text, _ in parts), file=out.file)
