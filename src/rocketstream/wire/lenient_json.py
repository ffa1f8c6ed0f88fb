"""RocketMQ's JSON, which is not always JSON.

Java's fastjson writes a map's keys as it writes any value: a number as a bare number (`{0:"10.0.0.1:10911"}`), a
queue as an object (`{{"brokerName":"a","queueId":0,"topic":"t"}:5}`). Most bodies have neither, so the standard
parser goes first and only what it refuses is given to the tolerant one below.

The rules here:
- Both parsers give the same values. A key that is a number or another bare word is its text (`"0"`), as if it had
  been quoted. An object with an object or array among its keys is a `Pairs`; every other one is a `dict`.
- Whatever the bytes, the only exception is `ProtocolError`, and the time is proportional to the length.

No faster third-party parser is tried first: they turn numbers above 64 bits into floats and refuse lone
surrogates, so what a body means would depend on what happens to be installed.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from typing import Any, Final, TypeAlias

from rocketstream.errors import ProtocolError

JsonValue: TypeAlias = Any
"""None, bool, int, float, str, list, dict (of str) or `Pairs`, all the way down."""

MAX_DEPTH: Final = 100
"""How deep the tolerant parser follows brackets. RocketMQ's bodies need five."""


class Pairs:
    """A JSON object some of whose keys are objects: (key, value) in the order they came, nothing merged."""

    __slots__ = ("items",)

    def __init__(self, items: list[tuple[JsonValue, JsonValue]]) -> None:
        self.items = items

    def __iter__(self) -> Iterator[tuple[JsonValue, JsonValue]]:
        return iter(self.items)

    def __len__(self) -> int:
        return len(self.items)

    def __eq__(self, other: object) -> bool:
        return self.items == other.items if isinstance(other, Pairs) else NotImplemented

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"Pairs({self.items!r})"


_STANDARD = json.JSONDecoder(strict=False)  # fastjson leaves some control characters as they are
_PADDING = "\0 \t\r\n\ufeff"


def loads(data: bytes | bytearray | memoryview | str) -> JsonValue:
    """The value of a JSON text as RocketMQ writes it."""
    try:
        text = data if isinstance(data, str) else str(data, "utf-8")
    except UnicodeDecodeError as error:
        raise ProtocolError(f"not a JSON text: byte {error.start} is not UTF-8") from None
    text = text.strip(_PADDING)
    if not text:
        raise ProtocolError("not a JSON text: it is empty")
    try:
        return _STANDARD.decode(text)
    except ValueError:
        pass
    except RecursionError:
        raise _too_deep() from None
    try:
        return _TolerantParser(text).parse()
    except RecursionError:
        raise _too_deep() from None


def _too_deep() -> ProtocolError:
    return ProtocolError("not a JSON text of RocketMQ: its brackets are nested too deeply")


# --- the tolerant parser ------------------------------------------------------------------------------------

_TOKEN = re.compile(
    r"""\s*+(?:
        (?P<mark>[{}\[\]:,])
      | (?P<double>"[^"\\]*+(?:\\.[^"\\]*+)*+")
      | (?P<single>'[^'\\]*+(?:\\.[^'\\]*+)*+')
      | (?P<word>[^\s{}\[\]:,"']++)
    )""",
    re.VERBOSE | re.DOTALL,
)
_INTEGER = re.compile(r"[+-]?[0-9]+")
_NUMBER = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
_WORDS: dict[str, JsonValue] = {
    "true": True,
    "false": False,
    "null": None,
    "undefined": None,
    "NaN": math.nan,
    "Infinity": math.inf,
    "-Infinity": -math.inf,
}
_NOTHING: Final = object()
_BARE_KEY = re.compile(r'[{]\s*+[^"\s}]')
_ESCAPE = re.compile(r'\\.|"', re.DOTALL)
_REQUOTED = {"\\'": "'", '"': '\\"'}


class _Level:
    """One open bracket: what it holds so far and, in an object, the key that still waits for its value."""

    __slots__ = ("closes_with", "has_colon", "items", "key", "needs_comma", "only_text_keys")

    def __init__(self, closes_with: str) -> None:
        self.closes_with = closes_with
        self.items: list[Any] = []
        self.key: JsonValue = _NOTHING
        self.has_colon = False
        self.needs_comma = False
        self.only_text_keys = True


class _TolerantParser:
    """Reads token by token with its own stack, so that no input can exhaust Python's.

    A comma too many is let pass, as fastjson does.
    """

    def __init__(self, text: str) -> None:
        self._text = text
        self._position = 0
        self._tries = 64  # a failed try may cost a look at the whole text, so there is a limit to them

    def parse(self) -> JsonValue:
        """The one value of the text."""
        levels: list[_Level] = []
        text, match_token = self._text, _TOKEN.match
        while True:
            token = match_token(text, self._position)
            if token is None:
                raise self._error("the text ends here" if self._at_end() else "unreadable")
            self._position = token.end()
            mark = token["mark"]
            if mark is None:
                value = self._scalar(token, as_key=self._expects_key(levels))
            elif mark in "{[":
                value = self._standard_value(token.end() - 1)
                if value is _NOTHING:
                    if len(levels) == MAX_DEPTH:
                        raise self._error(f"brackets nested deeper than {MAX_DEPTH}")
                    levels.append(_Level("}" if mark == "{" else "]"))
                    continue
            elif mark in ":,":
                self._separate(levels[-1] if levels else None, mark)
                continue
            else:
                value = self._close(levels, mark)
            if not levels:
                if not self._at_end():
                    raise self._error("something follows the value")
                return value
            self._put(levels[-1], value)

    def _standard_value(self, start: int) -> JsonValue:
        """The object or array that starts here if it is plain JSON: most are, also among those that hold others."""
        if self._tries == 0 or _BARE_KEY.match(self._text, start):
            return _NOTHING
        try:
            value, self._position = _STANDARD.raw_decode(self._text, start)
        except ValueError:
            self._tries -= 1
            return _NOTHING
        return value

    @staticmethod
    def _expects_key(levels: list[_Level]) -> bool:
        return bool(levels) and levels[-1].closes_with == "}" and levels[-1].key is _NOTHING

    def _put(self, level: _Level, value: JsonValue) -> None:
        if level.needs_comma:
            raise self._error("a comma is missing")
        if level.closes_with == "]":
            level.items.append(value)
            level.needs_comma = True
        elif level.key is _NOTHING:
            level.key = value
            level.only_text_keys = level.only_text_keys and isinstance(value, str)
        elif level.has_colon:
            level.items.append((level.key, value))
            level.key, level.has_colon, level.needs_comma = _NOTHING, False, True
        else:
            raise self._error("a key without ':'")

    def _separate(self, level: _Level | None, mark: str) -> None:
        if level is None or (mark == ":") != (level.key is not _NOTHING) or level.has_colon:
            raise self._error(f"{mark!r} separates nothing")
        if mark == ":":
            level.has_colon = True
        else:
            level.needs_comma = False

    def _close(self, levels: list[_Level], mark: str) -> JsonValue:
        if not levels or levels[-1].closes_with != mark:
            raise self._error(f"{mark!r} closes nothing")
        level = levels.pop()
        if level.key is not _NOTHING:
            raise self._error("a key without a value")
        if mark == "]":
            return level.items
        return dict(level.items) if level.only_text_keys else Pairs(level.items)

    def _scalar(self, token: re.Match[str], *, as_key: bool) -> JsonValue:
        if (quoted := token["double"] or token["single"]) is not None:
            return self._string(quoted)
        word = token["word"]
        if as_key:
            return word
        try:
            if _INTEGER.fullmatch(word):
                return int(word)
            if _NUMBER.fullmatch(word):
                return float(word)
            return _WORDS[word]
        except (ValueError, KeyError):
            raise self._error(f"{word[:40]!r} is no value") from None

    def _string(self, quoted: str) -> str:
        inner = quoted[1:-1]
        if "\\" not in inner:
            return inner
        # JSON knows neither an escaped ' nor, inside single quotes, a bare ".
        inner = _ESCAPE.sub(lambda match: _REQUOTED.get(match[0], match[0]), inner)
        try:
            value: str = _STANDARD.decode(f'"{inner}"')
        except ValueError:
            raise self._error(f"the text {quoted[:40]!r} has an unknown escape") from None
        return value

    def _at_end(self) -> bool:
        return not self._text[self._position :].strip()

    def _error(self, reason: str) -> ProtocolError:
        near = self._text[max(0, self._position - 20) : self._position + 20]
        return ProtocolError(f"not a JSON text of RocketMQ: {reason} at character {self._position}, near {near!r}")


# --- writing ------------------------------------------------------------------------------------------------

_write_text = json.encoder.encode_basestring_ascii


def dumps(value: JsonValue) -> bytes:
    """The JSON text of a value, as fastjson reads it: keys quoted, `Pairs` with their keys as objects."""
    parts: list[str] = []
    _write(value, parts.append)
    return "".join(parts).encode("ascii")


def _write(value: JsonValue, put: Any) -> None:
    if isinstance(value, str):
        put(_write_text(value))
    elif value is None:
        put("null")
    elif isinstance(value, bool):
        put("true" if value else "false")
    elif isinstance(value, int):
        put(int.__repr__(value))
    elif isinstance(value, float):
        # fastjson has no NaN or infinity: it writes and expects null.
        put(float.__repr__(value) if math.isfinite(value) else "null")
    elif isinstance(value, list):
        _write_all(value, "[", "]", put, _write)
    elif isinstance(value, dict):
        _write_all(value.items(), "{", "}", put, _write_pair)
    elif isinstance(value, Pairs):
        _write_all(value, "{", "}", put, _write_pair)
    else:
        raise TypeError(f"{type(value).__name__} has no JSON form")


def _write_pair(pair: tuple[JsonValue, JsonValue], put: Any) -> None:
    _write(pair[0], put)
    put(":")
    _write(pair[1], put)


def _write_all(items: Any, opening: str, closing: str, put: Any, write: Any) -> None:
    put(opening)
    separator = ""
    for item in items:
        put(separator)
        write(item, put)
        separator = ","
    put(closing)
