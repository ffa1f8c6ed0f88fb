"""The words of a filter expression, found one at a time: RocketMQ never looks at what follows a whole expression.

Of two words that could begin at a place the longer one is taken, as JavaCC does; so "007" is three numbers, and a line
comment without an end of line is two minus signs.
"""

from __future__ import annotations

import re
from enum import Enum
from typing import NamedTuple

from rocketstream.broker.sql92.errors import SqlError


class Kind(Enum):
    """What a word is."""

    KEYWORD = "a keyword"
    NAME = "a property name"
    INTEGER = "a whole number"
    FLOAT = "a number"
    STRING = "a quoted string"
    SYMBOL = "a symbol"
    END = "the end"


class Token(NamedTuple):
    """A word: `value` is the keyword in capitals, the symbol, the name, the number's text or the string's content."""

    kind: Kind
    value: str
    position: int

    def __str__(self) -> str:
        if self.kind is Kind.END:
            return "the end of the expression"
        return f"'{self.value}'"


KEYWORDS = frozenset(
    "NOT AND OR BETWEEN IN TRUE FALSE NULL IS CONTAINS STARTSWITH ENDSWITH".split()  # noqa: SIM905
)

_SKIPPED = re.compile(
    r"(?:[ \t\n\r\f]"
    r"|--[^\n\r]*(?:\r\n|\n|\r)"
    r"|/\*[^*]*\*(?:\*|[^*/][^*]*\*)*/)*"
)
_WORD = re.compile(
    r"(?P<FLOAT>[0-9]+\.[0-9]*(?:E[+-]?[0-9]+)?|\.[0-9]+(?:E[+-]?[0-9]+)?|[0-9]+E[+-]?[0-9]+)"
    r"|(?P<INTEGER>0|[1-9][0-9]*L?)"
    r"|(?P<STRING>'(?:''|[^'])*')"
    r"|(?P<NAME>[A-Z_$][A-Z0-9_$]*)"
    r"|(?P<SYMBOL><>|<=|>=|[=<>(),+-])",
    re.IGNORECASE | re.ASCII,
)


class Lexer:
    """Reads words from a text, with a look at the next one."""

    def __init__(self, text: str) -> None:
        self.text = text
        self._place = 0
        self._ahead: list[Token] = []

    def peek(self, distance: int = 0) -> Token:
        """The next word, or one after it, without taking it."""
        while len(self._ahead) <= distance:
            self._ahead.append(self._read())
        return self._ahead[distance]

    def take(self) -> Token:
        """The next word."""
        token = self.peek()
        self._ahead.pop(0)
        return token

    def _read(self) -> Token:
        skipped = _SKIPPED.match(self.text, self._place)
        start = skipped.end() if skipped is not None else self._place
        if start == len(self.text):
            return Token(Kind.END, "", start)
        word = _WORD.match(self.text, start)
        if word is None:
            character = self.text[start]
            if character == "'":
                raise SqlError("the quoted string that begins here is not closed", start, self.text)
            raise SqlError(f"{character!r} is not part of the language", start, self.text)
        self._place = word.end()
        kind, value = Kind[word.lastgroup or "SYMBOL"], word.group()
        if kind is Kind.NAME and value.upper() in KEYWORDS:
            return Token(Kind.KEYWORD, value.upper(), start)
        if kind is Kind.STRING:
            value = value[1:-1].replace("''", "'")
        return Token(kind, value, start)
