"""Docstrings are plain text with `code` in single backticks, as in Markdown; Sphinx takes them for reStructuredText.

The rule: no docstring is written for Sphinx. What its rules would trip over is put right here.
"""

from __future__ import annotations

import re

from sphinx.application import Sphinx

_CODE = re.compile(r"(?<!`)`([^`]+)`(?!`)(?=(\w?))")
_BULLET = re.compile(r"\s*([-*]|\d+\.) ")
_LIST_BEGINS = re.compile(r"^(?![-*] )(\S.*)\n(?=[-*] )", re.MULTILINE)


def translated(lines: list[str]) -> list[str]:
    """A docstring in reStructuredText: indented paragraphs are programs here, not quotations."""
    told: list[str] = []
    in_block = False
    for paragraph in "\n".join(lines).split("\n\n"):
        is_block = paragraph.startswith("    ") and not _BULLET.match(paragraph)
        if is_block and not in_block:
            told += ["::", ""]
        told += [*(paragraph if is_block else _prose(paragraph)).split("\n"), ""]
        in_block = is_block
    return told


def _prose(text: str) -> str:
    # A letter right behind code, as in `send`s, would take the end of it away; a list needs an empty line before it.
    marked = _CODE.sub(lambda found: f"``{' '.join(found[1].split())}``" + ("\\ " if found[2] else ""), text)
    return _LIST_BEGINS.sub("\\1\n\n", marked)


def _process(app: Sphinx, what: str, name: str, obj: object, options: object, lines: list[str]) -> None:
    # What a NamedTuple says of a field that nobody has said anything of.
    lines[:] = [] if lines and lines[0].startswith("Alias for field number") else translated(lines)


def setup(app: Sphinx) -> dict[str, bool]:
    """Have docstrings translated before they are read."""
    app.connect("autodoc-process-docstring", _process)
    return {"parallel_read_safe": True}
