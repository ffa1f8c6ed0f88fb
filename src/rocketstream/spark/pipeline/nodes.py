"""A file as values that know their lines: the same tree for TOML and YAML.

The rule of this file: every value has a line, of its key if it has one, for that is where a person looks.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

Scalar: TypeAlias = str | int | float | bool | None
Value: TypeAlias = "Scalar | list[Node] | dict[str, Node]"


@dataclass(slots=True)
class Node:
    """A value, and where it is.

    `text_line` is where the first line of a text is, if the text's lines are the file's lines; 0 if they are not.
    `replaced`: the text came out of a variable, so that "5" may be meant as a number.
    """

    value: Value
    line: int
    text_line: int = 0
    replaced: bool = False

    @property
    def entries(self) -> Mapping[str, Node]:
        """The entries of a table; none if it is no table."""
        return self.value if isinstance(self.value, dict) else {}

    def kind(self) -> str:
        """What it is, in a sentence: "a text", "a list", ..."""
        match self.value:
            case None:
                return "nothing"
            case bool():
                return "true" if self.value else "false"
            case int() | float():
                return f"the number {self.value}"
            case str():
                return "a text"
            case list():
                return "a list"
        return "a table"
