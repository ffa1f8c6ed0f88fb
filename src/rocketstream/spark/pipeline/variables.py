"""`${NAME}` and `${NAME:-default}` in the texts of a pipeline file, out of the environment; `$${` is a plain `${`."""

from __future__ import annotations

import re
from collections.abc import Mapping

from rocketstream.spark.pipeline.mistakes import Mistake
from rocketstream.spark.pipeline.nodes import Node

_VARIABLE = re.compile(r"\$\$\{|\$\{([^}]*)(\}?)", re.DOTALL)
_NAME = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)(?::-(.*))?", re.DOTALL)


def replace_variables(node: Node, environ: Mapping[str, str]) -> list[Mistake]:
    """Replace the variables of all texts in a tree, in place; what is wrong with them."""
    mistakes: list[Mistake] = []
    match node.value:
        case str():
            text = node.value
            replaced = _VARIABLE.sub(lambda found: _value(found, node, environ, mistakes), text)
            if replaced != text:
                # A variable of many lines moves the lines that come after it.
                if replaced.count("\n") != text.count("\n"):
                    node.text_line = 0
                node.value, node.replaced = replaced, True
        case dict():
            for entry in node.value.values():
                mistakes += replace_variables(entry, environ)
        case list():
            for one in node.value:
                mistakes += replace_variables(one, environ)
    return mistakes


def _value(found: re.Match[str], node: Node, environ: Mapping[str, str], mistakes: list[Mistake]) -> str:
    if found[0] == "$${":
        return "${"
    line = node.text_line + found.string.count("\n", 0, found.start()) if node.text_line else node.line
    if not found[2]:
        mistakes.append(Mistake(line, "a variable that begins with ${ has no } at its end (for a plain ${ write $${)"))
        return found[0]
    name = _NAME.fullmatch(found[1])
    if name is None:
        mistakes.append(Mistake(line, f"{found[0]} is no variable: write ${{NAME}} or ${{NAME:-default}}"))
        return found[0]
    # As in a shell, ":-" stands in for a variable that is empty, too.
    value = environ.get(name[1])
    if name[2] is not None:
        return value or name[2]
    if value is None:
        mistakes.append(
            Mistake(line, f"the environment has no variable {name[1]!r}: set it, or write ${{{name[1]}:-default}}")
        )
        return found[0]
    return value
