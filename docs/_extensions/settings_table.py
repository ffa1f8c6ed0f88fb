"""The directive `settings-table`: a settings dataclass as a table of names, defaults and what their docstrings say.

    ```{settings-table} rocketstream.producer.settings.ProducerSettings
    :without: one another
    ```

The rule: a setting is documented where it is declared, by the text under its field, and nowhere else.
"""

from __future__ import annotations

import dataclasses
import inspect
from enum import Enum
from importlib import import_module
from typing import Any

from docutils import nodes
from docutils.statemachine import StringList
from sphinx.application import Sphinx
from sphinx.pycode import ModuleAnalyzer
from sphinx.util.docutils import SphinxDirective

_HEADS = ("setting", "type", "default", "")


class SettingsTable(SphinxDirective):
    """A table of a dataclass's fields."""

    required_arguments = 1
    option_spec = {"without": str.split}  # noqa: RUF012

    def run(self) -> list[nodes.Node]:
        module_name, _, name = self.arguments[0].rpartition(".")
        module = import_module(module_name)
        kind = getattr(module, name)
        if inspect.getsourcefile(module):
            self.env.note_dependency(inspect.getsourcefile(module))
        told = ModuleAnalyzer.for_module(kind.__module__).find_attr_docs()
        group = nodes.tgroup(cols=len(_HEADS))
        group += [nodes.colspec(colwidth=1) for _ in _HEADS]
        group += nodes.thead("", _row(*(nodes.paragraph(text=head) for head in _HEADS)))
        body = nodes.tbody()
        for field in dataclasses.fields(kind):
            if field.name in self.options.get("without", ()):
                continue
            body += _row(
                _code(field.name),
                _code(_type(field)),
                _code(_default(field)),
                self._prose(told.get((name, field.name), [])),
            )
        group += body
        return [nodes.table("", group, classes=["settings"])]

    def _prose(self, lines: list[str]) -> nodes.container:
        """What a docstring says; the page's own parser reads it, for which `code` is in single backticks, too."""
        holder = nodes.container()
        self.state.nested_parse(StringList([line.strip() for line in lines]), self.content_offset, holder)
        return holder


def _row(*cells: nodes.Element) -> nodes.row:
    return nodes.row("", *(nodes.entry("", cell) for cell in cells))


def _code(text: str) -> nodes.paragraph:
    return nodes.paragraph("", "", nodes.literal(text=text)) if text else nodes.paragraph()


def _default(field: dataclasses.Field[Any]) -> str:
    if field.default is not dataclasses.MISSING:
        value = field.default
        return f"{type(value).__name__}.{value.name}" if isinstance(value, Enum) else _short(value)
    if field.default_factory is not dataclasses.MISSING:
        return _short(field.default_factory())
    return ""


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:56]} ..."


def _type(field: dataclasses.Field[Any]) -> str:
    return field.type if isinstance(field.type, str) else getattr(field.type, "__name__", str(field.type))


def setup(app: Sphinx) -> dict[str, bool]:
    """Make the directive known to Sphinx."""
    app.add_directive("settings-table", SettingsTable)
    return {"parallel_read_safe": True}
