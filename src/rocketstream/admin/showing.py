"""Messages for eyes and for programs: bodies as JSON, text or hexadecimal; a message as JSON types.

A message is a stranger's: nothing of it may reach a terminal as a control character.
"""

from __future__ import annotations

import base64
import json
from datetime import datetime
from typing import Any, NamedTuple

from rocketstream.errors import CorruptMessageError, MissingCodecError
from rocketstream.message import ReceivedMessage
from rocketstream.property_names import RESERVED_PROPERTIES

_HEX_BYTES = 512


class ReadableBody(NamedTuple):
    """A body as people read it, and what it was taken for: json, text, hex, empty or unreadable."""

    kind: str
    text: str


def readable_body(body: bytes) -> ReadableBody:
    """JSON objects and arrays laid out, other text as it is, anything else as hexadecimal lines."""
    if not body:
        return ReadableBody("empty", "")
    try:
        text = body.decode()
    except UnicodeDecodeError:
        return ReadableBody("hex", _hex_lines(body))
    if text.lstrip()[:1] in ("{", "["):
        try:
            # What JSON allows inside of a text may still be no thing for a terminal.
            laid_out = json.dumps(json.loads(text), indent=2, ensure_ascii=False)
        except (ValueError, RecursionError):
            pass
        else:
            return ReadableBody("json", laid_out if _is_showable(laid_out) else json.dumps(json.loads(text), indent=2))
    return ReadableBody("text", text) if _is_showable(text) else ReadableBody("hex", _hex_lines(body))


def body_of(message: ReceivedMessage) -> ReadableBody:
    """The same for a message, whose body may be damaged or need a package that is not installed."""
    try:
        return readable_body(message.body)
    except (CorruptMessageError, MissingCodecError) as error:
        return ReadableBody("unreadable", str(error))


def message_to_dict(message: ReceivedMessage) -> dict[str, Any]:
    """Every field as JSON types. `body` is text if it is UTF-8, else base64, as `body_encoding` says."""
    fields: dict[str, Any] = {
        "topic": message.topic,
        "broker_name": message.broker_name,
        "queue_id": message.queue_id,
        "queue_offset": message.queue_offset,
        "message_id": message.message_id,
        "offset_message_id": message.offset_message_id,
        "tags": message.tags,
        "keys": message.keys,
        "born_timestamp": message.born_timestamp,
        "store_timestamp": message.store_timestamp,
        "born_host": message.born_host,
        "store_host": message.store_host,
        "reconsume_times": message.reconsume_times,
        "flag": message.flag,
        "properties": dict(message.properties),
    }
    try:
        body = message.body
    except (CorruptMessageError, MissingCodecError) as error:
        return {**fields, "body": None, "body_encoding": None, "body_problem": str(error)}
    try:
        return {**fields, "body": body.decode(), "body_encoding": "utf-8"}
    except UnicodeDecodeError:
        return {**fields, "body": base64.b64encode(body).decode("ascii"), "body_encoding": "base64"}


def user_properties(message: ReceivedMessage) -> dict[str, str]:
    """The properties that the sender chose, without RocketMQ's own."""
    return {name: value for name, value in message.properties.items() if name not in RESERVED_PROPERTIES}


def showable(text: object) -> str:
    """A text of somebody else's on one line of a terminal: control characters as \\x1b and the like."""
    return "".join(letter if letter.isprintable() else _escaped(letter) for letter in str(text))


def local_time(milliseconds: int | None) -> str:
    """A time of RocketMQ's in the local time zone; "" for None."""
    if milliseconds is None:
        return ""
    return datetime.fromtimestamp(milliseconds / 1000).isoformat(sep=" ", timespec="milliseconds")


def _is_showable(text: str) -> bool:
    return all(letter.isprintable() or letter in "\n\t" for letter in text.replace("\r\n", "\n"))


def _escaped(letter: str) -> str:
    return letter.encode("unicode_escape").decode("ascii")


def _hex_lines(body: bytes) -> str:
    lines = []
    for start in range(0, min(len(body), _HEX_BYTES), 16):
        part = body[start : start + 16]
        plain = "".join(chr(byte) if 32 <= byte < 127 else "." for byte in part)
        lines.append(f"{start:08x}  {part.hex(' '):<47}  {plain}")
    if len(body) > _HEX_BYTES:
        lines.append(f"... {len(body) - _HEX_BYTES} more bytes")
    return "\n".join(lines)
