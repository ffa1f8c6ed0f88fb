"""A table of the file, read key by key: wrong types and unknown keys become mistakes, and reading goes on."""

from __future__ import annotations

import re
from collections.abc import Mapping

from rocketstream.spark.pipeline.mistakes import Mistake, nearest
from rocketstream.spark.pipeline.nodes import Node

_UNITS = "millisecond|second|minute|hour|day|week"
_DURATION = re.compile(rf"\s*(?:interval\s+)?(?:\d+\s+(?:{_UNITS})s?\s*)+", re.IGNORECASE)


class Table:
    """The entries of one table. Each reader gives the value, or None after noting a mistake or if it is not there."""

    def __init__(self, node: Node, what: str, mistakes: list[Mistake]) -> None:
        self.line = node.line
        self.what = what
        self._entries = node.entries
        self._mistakes = mistakes
        self._asked: dict[str, None] = {}
        if not isinstance(node.value, dict):
            self.wrong(node.line, f"must be a table, not {node.kind()}")

    def wrong(self, line: int, sentence: str) -> None:
        """Note a mistake of this table."""
        self._mistakes.append(Mistake(line, f"{self.what}: {sentence}" if self.what else sentence))

    def line_of(self, key: str) -> int:
        """The line of a key, or the table's own."""
        return self._entries[key].line if key in self._entries else self.line

    def lines(self) -> dict[str, int]:
        """The lines of all keys."""
        return {key: entry.line for key, entry in self._entries.items()}

    def has(self, key: str) -> bool:
        """Whether the key is there."""
        self._asked[key] = None
        return key in self._entries

    def node(self, key: str) -> Node | None:
        """The value as it is."""
        self._asked[key] = None
        return self._entries.get(key)

    def text(self, key: str, *, needed: bool = False) -> str | None:
        """A text that is not empty."""
        node = self.node(key)
        if node is None:
            if needed:
                self.wrong(self.line, f"`{key}` is missing")
            return None
        if not isinstance(node.value, str):
            self.wrong(node.line, f"`{key}` must be a text, not {node.kind()}")
            return None
        if not node.value.strip():
            self.wrong(node.line, f"`{key}` must not be empty")
            return None
        return node.value

    def one_of(self, key: str, allowed: tuple[str, ...], *, needed: bool = False) -> str | None:
        """A text out of a few, in any case of its letters."""
        value = self.text(key, needed=needed)
        if value is None or value.lower() in allowed:
            return value if value is None else value.lower()
        choices = f"{', '.join(allowed[:-1])} or {allowed[-1]}"
        self.wrong(self.line_of(key), f"`{key}` must be {choices}, not {value!r}{nearest(value, allowed)}")
        return None

    def texts(self, key: str) -> tuple[str, ...]:
        """A list of texts; one text is a list of one."""
        node = self.node(key)
        if node is None:
            return ()
        nodes = node.value if isinstance(node.value, list) else [node]
        values: list[str] = []
        for one in nodes:
            if not isinstance(one.value, str) or not one.value.strip():
                kind = "an empty text" if isinstance(one.value, str) else one.kind()
                self.wrong(one.line, f"`{key}` must be a text or a list of texts, not {kind}")
            elif one.value in values:
                self.wrong(one.line, f"`{key}` names {one.value!r} twice")
            else:
                values.append(one.value)
        return tuple(values)

    def flag(self, key: str) -> bool:
        """True or false; false if it is not there."""
        node = self.node(key)
        if node is None or isinstance(node.value, bool):
            return bool(node and node.value)
        if node.replaced and str(node.value).lower() in ("true", "false"):
            return str(node.value).lower() == "true"
        self.wrong(node.line, f"`{key}` must be true or false, not {node.kind()}")
        return False

    def duration(self, key: str, *, needed: bool = False, zero: bool = False) -> str | None:
        """A span of time as Spark writes it: "10 minutes"."""
        value = self.text(key, needed=needed)
        if value is None:
            return None
        if not _DURATION.fullmatch(value):
            self.wrong(self.line_of(key), f"`{key}` must be a span like '10 minutes' or '30 seconds', not {value!r}")
            return None
        if not zero and not re.search(r"[1-9]", value):
            self.wrong(self.line_of(key), f"`{key}` must be longer than nothing, not {value!r}")
            return None
        return value

    def options(self, key: str) -> dict[str, Node]:
        """A table of options: texts, numbers, true or false; as texts, as Spark wants them."""
        node = self.node(key)
        if node is None:
            return {}
        if not isinstance(node.value, dict):
            self.wrong(node.line, f"`{key}` must be a table of options, not {node.kind()}")
            return {}
        return self.as_options(key, node.value)

    def as_options(self, key: str, entries: Mapping[str, Node]) -> dict[str, Node]:
        """Entries as options, each a text with its line."""
        options: dict[str, Node] = {}
        for name, one in entries.items():
            match one.value:
                case bool():
                    options[name] = Node("true" if one.value else "false", one.line)
                case int() | float():
                    options[name] = Node(str(one.value), one.line)
                case str():
                    options[name] = one
                case _:
                    said = f"`{key}.{name}`" if key else f"`{name}`"
                    self.wrong(one.line, f"{said} must be a text, a number, true or false, not {one.kind()}")
        return options

    def rest(self) -> dict[str, Node]:
        """The entries that nobody has asked for yet; from now on they are asked for."""
        entries = {key: entry for key, entry in self._entries.items() if key not in self._asked}
        self._asked.update(dict.fromkeys(entries))
        return entries

    def table(self, key: str) -> Table | None:
        """A table inside."""
        node = self.node(key)
        return (
            None if node is None else Table(node, f"{self.what}: `{key}`" if self.what else f"`{key}`", self._mistakes)
        )

    def tables(self, key: str, what: str) -> list[Table]:
        """A list of tables; each is called by its name, or by its number."""
        node = self.node(key)
        if node is None:
            return []
        if isinstance(node.value, dict):
            self.wrong(node.line, f"`{key}` must be a list of tables: write [[{key}]], or in YAML begin each with -")
            return []
        if not isinstance(node.value, list):
            self.wrong(node.line, f"`{key}` must be a list of tables, not {node.kind()}")
            return []
        tables = []
        for number, one in enumerate(node.value, 1):
            name = one.entries.get("name")
            called = repr(name.value) if name is not None and isinstance(name.value, str) else str(number)
            tables.append(Table(one, f"{what} {called}", self._mistakes))
        return tables

    def end(self) -> None:
        """Nobody will ask for more: what is left has unknown keys."""
        for key, entry in self._entries.items():
            if key not in self._asked:
                self.wrong(entry.line, f"unknown key {key!r}{nearest(key, self._asked)}")
