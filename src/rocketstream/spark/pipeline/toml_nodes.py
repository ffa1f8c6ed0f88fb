"""TOML with lines: `tomllib` reads the values, and a scan over the same text finds where each of them is.

The scan relies on the text being valid, which `tomllib` has made sure of, so it need not understand values: only where
they begin and end.
"""

from __future__ import annotations

import re
import tomllib
from bisect import bisect_right
from collections.abc import Iterator
from datetime import date, datetime, time
from typing import Any, TypeAlias

from rocketstream.spark.pipeline.mistakes import Mistake
from rocketstream.spark.pipeline.nodes import Node

Path: TypeAlias = tuple[str | int, ...]

_AT_LINE = re.compile(r"^(.*?) \(at (?:line (\d+), column \d+|end of document)\)$", re.DOTALL)
_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")
_SPACE = re.compile(r"(?:[ \t\r\n]|#[^\n]*)*")
_TOKEN_END = re.compile(r"[,\]}\n#]|$")
_FOLDED = re.compile(r"\\[ \t]*\r?\n")


def read_toml(text: str) -> Node | Mistake:
    """The file as a tree, or why it is no TOML."""
    # tomllib takes a lone carriage return for a mistake; what is left of "\r\n" it replaces, and so do we.
    text = text.replace("\r\n", "\n")
    try:
        values = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        found = _AT_LINE.match(str(error))
        line = int(found[2]) if found and found[2] else text.count("\n") + 1
        return Mistake(line, f"this is no TOML: {_lower(found[1] if found else str(error))}")
    except (ValueError, RecursionError) as error:
        return Mistake(0, f"this is no TOML: {error}")
    return _node(values, (), dict(_Scan(text).places()), 1)


def _lower(words: str) -> str:
    return words[:1].lower() + words[1:]


def _node(value: Any, path: Path, places: dict[Path, tuple[int, int]], above: int) -> Node:
    line, text_line = places.get(path, (above, 0))
    if isinstance(value, dict):
        return Node({key: _node(one, (*path, key), places, line) for key, one in value.items()}, line)
    if isinstance(value, list):
        return Node([_node(one, (*path, index), places, line) for index, one in enumerate(value)], line)
    if isinstance(value, datetime | date | time):
        return Node(value.isoformat(), line)
    return Node(value, line, text_line if isinstance(value, str) else 0)


class _Scan:
    """Walks over a valid text; `places()` gives, for each path, its line and the line where its text begins."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._line_starts = [0, *(found.end() for found in re.finditer("\n", text))]
        self._lengths: dict[Path, int] = {}  # of the arrays of tables

    def places(self) -> Iterator[tuple[Path, tuple[int, int]]]:
        """Every path of the file; a later line of the same path is the one that counts for an array's tables only."""
        seen: set[Path] = set()
        for path, line, text_line in self._statements():
            if path not in seen or text_line:
                seen.add(path)
                yield path, (line, text_line)

    def _statements(self) -> Iterator[tuple[Path, int, int]]:
        prefix: Path = ()
        while self._skip():
            line = self._line()
            if self._peek("[["):
                self._at += 2
                prefix = self._header(self._keys())
                index = self._lengths.get(prefix, 0)
                self._lengths[prefix] = index + 1
                yield prefix, line, 0
                prefix = (*prefix, index)
                yield prefix, line, 0
                self._at += 2
            elif self._peek("["):
                self._at += 1
                keys = self._keys()
                prefix = self._header(keys)
                yield from self._levels(prefix, len(keys), line)
                self._at += 1
            else:
                yield from self._assignment(prefix)

    def _assignment(self, prefix: Path) -> Iterator[tuple[Path, int, int]]:
        line = self._line()
        keys = self._keys()
        self._at += 1  # the equals sign
        path = (*prefix, *keys)
        yield from self._levels(path, len(keys), line)
        yield from self._value(path, line)

    def _levels(self, path: Path, new: int, line: int) -> Iterator[tuple[Path, int, int]]:
        for length in range(len(path) - new + 1, len(path) + 1):
            yield path[:length], line, 0

    def _header(self, keys: list[str]) -> Path:
        """The path of a header: what is below an array of tables belongs to its last table."""
        path: Path = ()
        for key in keys[:-1]:
            path = (*path, key)
            if path in self._lengths:
                path = (*path, self._lengths[path] - 1)
        return (*path, keys[-1])

    def _value(self, path: Path, key_line: int) -> Iterator[tuple[Path, int, int]]:
        self._skip()
        first = self._text[self._at : self._at + 1]
        if first in ('"', "'"):
            text_line = self._string()
            if text_line:
                yield path, key_line, text_line
        elif first == "[":
            self._at += 1
            index = 0
            while self._skip() and not self._peek("]"):
                line = self._line()
                yield (*path, index), line, 0
                yield from self._value((*path, index), line)
                index += 1
                self._comma()
            self._at += 1
        elif first == "{":
            self._at += 1
            while self._skip() and not self._peek("}"):
                yield from self._assignment(path)
                self._comma()
            self._at += 1
        else:
            found = _TOKEN_END.search(self._text, self._at)
            self._at = found.start() if found else len(self._text)

    def _string(self) -> int:
        """Go to the end of a string; the line where its text begins, 0 if its lines are not the file's lines."""
        quote = self._text[self._at]
        if not self._peek(quote * 3):
            line = self._line()
            self._at = self._closing(quote, self._at + 1) + 1
            return line
        start = self._at = self._at + 3
        if self._peek("\n"):
            start += 1
        line = self._line(start)
        end = self._closing(quote * 3, self._at)
        # Two quotes may stand right before the three that end it.
        while self._text.startswith(quote, end + 3):
            end += 1
        self._at = end + 3
        folded = quote == '"' and _FOLDED.search(self._text, start, end)
        return 0 if folded else line

    def _closing(self, quotes: str, at: int) -> int:
        while not self._text.startswith(quotes, at) and at < len(self._text):
            at += 2 if quotes[0] == '"' and self._text[at] == "\\" else 1
        return at

    def _keys(self) -> list[str]:
        keys = []
        while True:
            self._skip()
            found = _BARE_KEY.match(self._text, self._at)
            if found:
                keys.append(found[0])
                self._at = found.end()
            else:
                start = self._at
                self._at = self._closing(self._text[start], start + 1) + 1
                # What a quoted key means is for tomllib to say.
                keys.append(next(iter(tomllib.loads(f"{self._text[start : self._at]} = 0"))))
            self._skip()
            if not self._peek("."):
                return keys
            self._at += 1

    def _comma(self) -> None:
        self._skip()
        if self._peek(","):
            self._at += 1

    def _skip(self) -> bool:
        """Go over space and comments; whether there is more."""
        found = _SPACE.match(self._text, self._at)
        self._at = found.end() if found else self._at
        return self._at < len(self._text)

    def _peek(self, wanted: str) -> bool:
        return self._text.startswith(wanted, self._at)

    def _line(self, at: int | None = None) -> int:
        return bisect_right(self._line_starts, self._at if at is None else at)
