"""What docs/howto-operate.md shows: every command line is one that there is, and its Python runs."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
import typer.main

from rocketstream import AdminClient, Message, Producer
from rocketstream.broker import EmbeddedBroker
from rocketstream.cli.app import COMMANDS, make_app

PAGE = (Path(__file__).parents[2] / "docs" / "howto-operate.md").read_text("utf-8")
_FENCED = re.compile(r"^```(\w*)\n(.*?)^```", re.MULTILINE | re.DOTALL)


def shown_commands() -> list[list[str]]:
    lines = [line for kind, text in _FENCED.findall(PAGE) if not kind for line in text.splitlines()]
    found = [line[line.index("rocketstream ") :] for line in lines if "rocketstream " in line]
    # What comes after a pipe is another program's.
    words = [shlex.split(line.partition(" | ")[0], comments=True) for line in found]
    return [one[1:] for one in words]


@pytest.mark.parametrize("arguments", shown_commands(), ids=" ".join)
def test_a_command_that_is_shown_can_be_given(arguments, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "photo.jpg").write_bytes(b"x")
    command = typer.main.get_command(make_app(arguments[0]))
    context = command.make_context("rocketstream", list(arguments), resilient_parsing=True)
    rest = list(arguments)
    while hasattr(command, "resolve_command"):
        _, command, rest = command.resolve_command(context, rest)
        assert command is not None
        if not hasattr(command, "resolve_command"):
            command.make_context(command.name, rest)  # raises for an option that it has not


def test_the_page_shows_every_command_of_operators():
    shown = {arguments[0] for arguments in shown_commands()}
    others = {"demo", "run", "pipeline", "broker", "cluster"}
    assert shown == set(COMMANDS) - others


def test_the_python_of_the_page_runs(embedded_broker: EmbeddedBroker, capsys):
    with AdminClient(embedded_broker.address) as admin, Producer("p", embedded_broker.address) as producer:
        admin.create_topic("orders", queues=8)
        admin.create_group("billing")
        producer.send(Message("orders", b"1", tags="paid"))
        admin.reset_offset("billing", "orders", "earliest")
    (code,) = [text for kind, text in _FENCED.findall(PAGE) if kind == "python"]
    exec(code.replace("127.0.0.1:9876", embedded_broker.address), {})
    printed = capsys.readouterr().out.splitlines()
    assert printed[-2:] == ["0 {} []", "{} {}"]
