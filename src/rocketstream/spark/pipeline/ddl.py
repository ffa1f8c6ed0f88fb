"""Spark's types in DDL, as far as a body's columns need them: read without Spark, so that mistakes show at once."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import NamedTuple

from rocketstream.spark.pipeline.mistakes import nearest

#: What JSON can hold, by all the names that Spark has for it.
_SIMPLE = {
    name: normal
    for normal, names in {
        "STRING": ("STRING",),
        "BOOLEAN": ("BOOLEAN",),
        "TINYINT": ("TINYINT", "BYTE"),
        "SMALLINT": ("SMALLINT", "SHORT"),
        "INT": ("INT", "INTEGER"),
        "BIGINT": ("BIGINT", "LONG"),
        "FLOAT": ("FLOAT", "REAL"),
        "DOUBLE": ("DOUBLE",),
        "DATE": ("DATE",),
        "TIMESTAMP": ("TIMESTAMP", "TIMESTAMP_LTZ"),
        "TIMESTAMP_NTZ": ("TIMESTAMP_NTZ",),
        "BINARY": ("BINARY",),
        "VARIANT": ("VARIANT",),
    }.items()
    for name in names
}
_NAMES = (*_SIMPLE, "DECIMAL", "ARRAY", "MAP", "STRUCT")
_WORD = re.compile(r"\s*(`(?:[^`]|``)+`|[A-Za-z0-9_]+|'(?:[^'\\]|\\.)*'|\S|$)", re.DOTALL)
_MOST_DIGITS = 38
_DEEPEST = 50


class Column(NamedTuple):
    """A column of a schema: its type as Spark writes it; `required`: NOT NULL."""

    name: str
    type: str
    required: bool = False

    @property
    def is_nested(self) -> bool:
        """Whether its values are made of values."""
        return self.type.startswith(("STRUCT", "ARRAY", "MAP"))

    @property
    def ddl(self) -> str:
        """The column in a schema in which everything may be missing."""
        return f"{quoted(self.name)} {self.type}"


class DdlError(Exception):
    """A type that is none; the text says why, `position` where in the text it stopped."""

    def __init__(self, why: str, position: int) -> None:
        super().__init__(why)
        self.position = position


def quoted(name: str) -> str:
    """A name that SQL takes whatever its letters are."""
    return "`" + name.replace("`", "``") + "`"


def parse_column(name: str, text: str) -> Column:
    """`TYPE [NOT NULL]`, as a schema's table has it for each column."""
    words = _Words(text)
    kind, required = words.type(), words.not_null()
    words.end()
    return Column(name, kind, required)


def parse_columns(text: str) -> tuple[Column, ...]:
    """`a STRING NOT NULL, b ARRAY<INT>`; names may be in backticks."""
    words = _Words(text)
    columns: list[Column] = []
    while True:
        start = words.position
        name = words.name()
        words.skip(":")
        kind, required = words.type(), words.not_null()
        if any(column.name.lower() == name.lower() for column in columns):
            raise DdlError(f"column {name!r} is there twice", start)
        columns.append(Column(name, kind, required))
        if not words.skip(","):
            words.end()
            return tuple(columns)


class _Words:
    """A text of DDL, word by word."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._depth = 0
        self.position = 0
        self._look()

    def _look(self) -> None:
        found = _WORD.match(self._text, self.position)
        self._word = found[1] if found else ""
        self._next = found.end() if found else len(self._text)

    def _take(self) -> str:
        word = self._word
        self.position = self._next
        self._look()
        return word

    def skip(self, word: str) -> bool:
        """Whether the next word is this one; then it is taken."""
        if self._word.upper() != word:
            return False
        self._take()
        return True

    def _expect(self, word: str, after: str) -> None:
        if not self.skip(word):
            raise DdlError(f"after {after} there must be {word!r}, not {self._word or 'the end'!r}", self.position)

    def end(self) -> None:
        """Nothing more must come."""
        if self._word:
            raise DdlError(f"{self._word!r} is too much", self.position)

    def name(self) -> str:
        """A column's name."""
        word = self._word
        if word.startswith("`"):
            return self._take()[1:-1].replace("``", "`")
        if not re.fullmatch(r"[A-Za-z0-9_]+", word):
            raise DdlError(f"there must be a column's name, not {word or 'the end'!r}", self.position)
        return self._take()

    def not_null(self) -> bool:
        """`NOT NULL` and `COMMENT '...'`, if they are there."""
        required = self.skip("NOT")
        if required:
            self._expect("NULL", "NOT")
        if self.skip("COMMENT") and not self._take().startswith("'"):
            raise DdlError("after COMMENT there must be a text in quotes", self.position)
        return required

    def type(self) -> str:
        """A type, as Spark writes it."""
        start, word = self.position, self._word.upper()
        if word in _SIMPLE:
            self._take()
            return _SIMPLE[word]
        self._depth += 1
        if self._depth > _DEEPEST:
            raise DdlError(f"types are nested more than {_DEEPEST} deep", start)
        try:
            if word in ("DECIMAL", "DEC", "NUMERIC"):
                return self._decimal()
            if word == "ARRAY":
                return f"ARRAY<{self._inside(self.type)}>"
            if word == "MAP":
                return f"MAP<{self._inside(self._map)}>"
            if word == "STRUCT":
                return f"STRUCT<{self._inside(self._fields)}>"
        finally:
            self._depth -= 1
        if not word:
            raise DdlError("a type is missing", start)
        raise DdlError(f"{self._word!r} is no type{nearest(self._word, _NAMES)}", start)

    def _decimal(self) -> str:
        self._take()
        if not self.skip("("):
            return "DECIMAL(10,0)"
        precision = self._number()
        scale = self._number() if self.skip(",") else 0
        self._expect(")", "the digits of a DECIMAL")
        if not 1 <= precision <= _MOST_DIGITS or scale > precision:
            raise DdlError(
                f"DECIMAL({precision},{scale}) can't be: 1 to {_MOST_DIGITS} digits, of them so many after the point",
                self.position,
            )
        return f"DECIMAL({precision},{scale})"

    def _number(self) -> int:
        word = self._word
        if not (word.isascii() and word.isdigit() and len(word) < 4):
            raise DdlError(f"DECIMAL needs its digits, as in DECIMAL(10,2), not {word or 'the end'!r}", self.position)
        return int(self._take())

    def _inside(self, what: Callable[[], str]) -> str:
        kind = self._take().upper()
        self._expect("<", kind)
        inside = what()
        self._expect(">", f"what {kind} is made of")
        return inside

    def _map(self) -> str:
        start = self.position
        key = self.type()
        if key != "STRING":
            raise DdlError(f"the keys of a MAP must be STRING, as in JSON, not {key}", start)
        self._expect(",", "a MAP's key")
        return f"{key},{self.type()}"

    def _fields(self) -> str:
        fields = []
        while True:
            name = self.name()
            self.skip(":")
            fields.append(f"{quoted(name)}: {self.type()}")
            self.not_null()
            if not self.skip(","):
                return ", ".join(fields)
