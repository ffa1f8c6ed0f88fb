"""How commands print messages."""

from __future__ import annotations

from rich.console import Console
from rich.markup import escape

from rocketstream.admin.showing import body_of, local_time, showable, user_properties
from rocketstream.message import ReceivedMessage


def print_message(out: Console, message: ReceivedMessage, *, properties: bool = False) -> None:
    """One line about the message, its body below, indented."""
    body = body_of(message)
    place = f"{message.broker_name}/{message.queue_id}@{message.queue_offset}"
    head = [f"[bold]{local_time(message.store_timestamp)}[/]", f"[cyan]{escape(showable(place))}[/]"]
    head.append(escape(showable(message.message_id)))
    if message.tags is not None:
        head.append(f"tags=[green]{escape(showable(message.tags))}[/]")
    if message.keys is not None:
        head.append(f"keys=[green]{escape(showable(message.keys))}[/]")
    if message.reconsume_times:
        head.append(f"reconsumed={message.reconsume_times}")
    head.append(f"[dim]{message.body_size} bytes, {body.kind}[/]")
    out.print("  ".join(head), soft_wrap=True)
    if properties:
        for name, value in user_properties(message).items():
            out.print(f"    [dim]{escape(showable(name))}=[/]{escape(showable(value))}", soft_wrap=True)
    for line in body.text.splitlines():
        out.print("    " + line, soft_wrap=True, markup=False)
