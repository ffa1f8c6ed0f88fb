"""YAML with lines: the composer's nodes have marks, and its own resolver says what a scalar is."""

from __future__ import annotations

from typing import Any

from rocketstream.errors import ConfigurationError
from rocketstream.spark.pipeline.mistakes import Mistake
from rocketstream.spark.pipeline.nodes import Node, Value

#: More is a file whose aliases multiply, not one that somebody wrote.
_MOST_VALUES = 100_000


def read_yaml(text: str) -> Node | Mistake:
    """The file as a tree, or why it is no YAML."""
    try:
        import yaml
    except ImportError:
        raise ConfigurationError(
            "a pipeline in YAML needs PyYAML: pip install 'rocketstream[spark]', or write it in TOML"
        ) from None
    try:
        loader = yaml.SafeLoader(text)
        try:
            root = loader.get_single_node()
            return Node({}, 1) if root is None else _Reading(yaml, loader).node(root, root.start_mark.line + 1)
        finally:
            loader.dispose()
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        words = " ".join(str(error.problem or error.context or error).split())
        return Mistake(mark.line + 1 if mark else 0, f"this is no YAML: {words}")
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        return Mistake(line, f"this is no YAML: {error.reason}")
    except _Unusable as error:
        return Mistake(error.line, str(error))
    except RecursionError:
        return Mistake(0, "this is no YAML: it is nested too deeply")
    except (ValueError, TypeError, LookupError, yaml.YAMLError) as error:
        return Mistake(0, f"this is no YAML: {error}")


class _Unusable(Exception):
    """YAML, but no file for us."""

    def __init__(self, line: int, sentence: str) -> None:
        super().__init__(sentence)
        self.line = line


class _Reading:
    """Turns the composer's nodes into ours; aliases are followed, to themselves never."""

    def __init__(self, yaml: Any, loader: Any) -> None:
        self._yaml = yaml
        self._loader = loader
        self._open: set[int] = set()
        self._count = 0

    def node(self, made: Any, line: int) -> Node:
        self._count += 1
        if self._count > _MOST_VALUES:
            raise _Unusable(line, f"the file has more than {_MOST_VALUES} values, counting those of its aliases")
        if isinstance(made, self._yaml.ScalarNode):
            return self._scalar(made, line)
        if id(made) in self._open:
            raise _Unusable(line, "an alias (*) must not be inside of what it stands for")
        self._open.add(id(made))
        try:
            if isinstance(made, self._yaml.SequenceNode):
                return Node([self.node(one, one.start_mark.line + 1) for one in made.value], line)
            return Node(self._table(made), line)
        finally:
            self._open.discard(id(made))

    def _table(self, made: Any) -> dict[str, Node]:
        own: set[str] = set()
        for key, _ in made.value:
            line = key.start_mark.line + 1
            if not isinstance(key, self._yaml.ScalarNode):
                raise _Unusable(line, "a key must be a text")
            if key.value in own and key.value != "<<":
                raise _Unusable(line, f"the key {key.value!r} is there twice")
            own.add(key.value)
        self._loader.flatten_mapping(made)  # the merge keys
        entries: dict[str, Node] = {}
        for key, value in made.value:
            if not isinstance(key, self._yaml.ScalarNode):
                raise _Unusable(key.start_mark.line + 1, "a key must be a text")
            entries[key.value] = self.node(value, key.start_mark.line + 1)
        return entries

    def _scalar(self, made: Any, line: int) -> Node:
        start, end = made.start_mark.line + 1, made.end_mark.line + 1
        try:
            value: Value = self._loader.construct_object(made, deep=True)
        except ValueError as error:
            raise _Unusable(start, f"this is no YAML: {error}") from None
        if value is not None and not isinstance(value, str | int | float | bool):
            value = made.value  # a date is what was written
        if made.style == "|":
            return Node(value, line, start + 1)
        return Node(value, line, start if start == end and made.style != ">" else 0)
