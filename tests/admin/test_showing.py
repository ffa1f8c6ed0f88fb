"""How messages look: bodies that are JSON, text or neither, and nothing that a terminal would obey."""

from __future__ import annotations

import base64
import json

import pytest

from rocketstream import ReceivedMessage
from rocketstream.admin.showing import body_of, local_time, message_to_dict, readable_body, showable, user_properties
from rocketstream.errors import CorruptMessageError


@pytest.mark.parametrize(
    ("body", "kind", "text"),
    [
        (b"", "empty", ""),
        (b"plain", "text", "plain"),
        ("größer 数字 🚀".encode(), "text", "größer 数字 🚀"),
        (b"two\r\nlines\tand a tab", "text", "two\r\nlines\tand a tab"),
        (b'{"a":[1,2]}', "json", '{\n  "a": [\n    1,\n    2\n  ]\n}'),
        ('["ü"]'.encode(), "json", '[\n  "ü"\n]'),
        (b"42", "text", "42"),
        (b"{not json", "text", "{not json"),
        (b"[" * 100_000, "text", "[" * 100_000),
        (b"\x00\xff", "hex", "00000000  00 ff                                            .."),
    ],
)
def test_a_body_is_shown_as_what_it_is(body, kind, text):
    assert readable_body(body) == (kind, text)


@pytest.mark.parametrize("body", [b"\x1b[2Jgone", b"overwritten\rby this", b"bell\x07", "\u202eright to left".encode()])
def test_nothing_reaches_the_terminal_that_it_would_obey(body):
    shown = readable_body(body)
    assert shown.kind == "hex"
    assert all(letter.isprintable() or letter == "\n" for letter in shown.text)


def test_json_with_an_escape_sequence_inside_stays_escaped():
    shown = readable_body(json.dumps({"name": "\x1b[2J", "emoji": "é"}).encode())
    assert shown.kind == "json"
    assert "\x1b" not in shown.text
    raw = readable_body('{"name": "right\u202eleft"}'.encode())
    assert "\u202e" not in raw.text


def test_a_long_binary_body_is_cut():
    lines = readable_body(bytes(range(256)) * 10).text.splitlines()
    assert len(lines) == 33
    assert lines[-1] == "... 2048 more bytes"
    assert lines[2].startswith("00000020  20 21 22")
    assert lines[2].endswith("  !\"#$%&'()*+,-./")


def test_names_and_values_are_made_harmless():
    assert showable("a\x1b[2Jb\nc") == r"a\x1b[2Jb\nc"
    assert showable("größe 数字") == "größe 数字"


def test_a_message_as_json():
    message = ReceivedMessage("t", b"caf\xc3\xa9", tags="a", keys=["k1", "k2"], properties={"p": "v"}, queue_id=3)
    fields = json.loads(json.dumps(message_to_dict(message)))
    assert (fields["body"], fields["body_encoding"]) == ("café", "utf-8")
    assert (fields["topic"], fields["queue_id"], fields["tags"], fields["keys"]) == ("t", 3, "a", "k1 k2")
    assert user_properties(message) == {"p": "v"}
    binary = message_to_dict(ReceivedMessage("t", b"\xff\x00"))
    assert binary["body_encoding"] == "base64"
    assert base64.b64decode(binary["body"]) == b"\xff\x00"


def test_a_damaged_body_is_told_not_raised():
    class Damaged(ReceivedMessage):
        @property
        def body(self) -> bytes:
            raise CorruptMessageError("its checksum is wrong")

    message = Damaged("t", b"x")
    assert body_of(message) == ("unreadable", "its checksum is wrong")
    fields = message_to_dict(message)
    assert (fields["body"], fields["body_problem"]) == (None, "its checksum is wrong")


def test_times():
    assert local_time(None) == ""
    assert local_time(1_700_000_000_123).endswith(".123")
