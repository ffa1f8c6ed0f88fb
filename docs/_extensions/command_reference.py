"""The directive `command-reference`: the commands of `rocketstream`, as their own `--help` tells of them.

The rule: what a command says of itself is said in its file of `rocketstream.cli`, and nowhere else.
"""

from __future__ import annotations

from typing import Any

import typer.main
from docutils import nodes
from docutils.statemachine import StringList
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

from rocketstream.cli.app import make_app


class CommandReference(SphinxDirective):
    """A section per command, with its usage, arguments and options."""

    def run(self) -> list[nodes.Node]:
        commands: dict[str, Any] = typer.main.get_command(make_app()).commands  # type: ignore[attr-defined]
        return [self._command([name], command) for name, command in commands.items()]

    def _command(self, path: list[str], command: Any) -> nodes.section:
        title = " ".join(["rocketstream", *path])
        section = nodes.section(ids=["-".join(path)], names=[title])
        section += nodes.title(title, "", nodes.literal(text=title))
        self.state.document.note_explicit_target(section)
        self._prose(section, command.help or "")
        subcommands = getattr(command, "commands", None)
        if subcommands is not None:
            section += [self._command([*path, name], each) for name, each in subcommands.items()]
            return section
        usage = " ".join([title, *_usage(command)])
        section += nodes.literal_block(usage, usage, language="none")
        section += self._parameters(command, command.context_class(command, info_name=title))
        return section

    def _parameters(self, command: Any, context: Any) -> list[nodes.Node]:
        told = nodes.definition_list(classes=["parameters"])
        for parameter in command.params:
            # Options that are hidden have no record.
            if record := parameter.get_help_record(context):
                spelling, text = record
                definition = nodes.definition()
                self._prose(definition, text)
                term = nodes.term("", "", nodes.literal(text=spelling))
                told += nodes.definition_list_item("", term, definition)
        return [told] if told.children else []

    def _prose(self, parent: nodes.Element, text: str) -> None:
        # A form feed ends what --help shows; words in square brackets are typer's own, not links.
        lines = [line.strip() for line in text.partition("\f")[0].replace("\b", "").splitlines()]
        escaped = [line.replace("[", r"\[").replace("*", r"\*").replace("<", r"\<") for line in lines]
        self.state.nested_parse(StringList(escaped), self.content_offset, parent)


def _usage(command: Any) -> list[str]:
    words = ["[OPTIONS]"] if any(one.param_type_name == "option" for one in command.params) else []
    for one in command.params:
        if one.param_type_name == "argument":
            name = (one.metavar or one.name.upper()) + ("..." if one.nargs == -1 else "")
            words.append(name if one.required else f"[{name}]")
    return words


def setup(app: Sphinx) -> dict[str, bool]:
    """Make the directive known to Sphinx."""
    app.add_directive("command-reference", CommandReference)
    return {"parallel_read_safe": True}
