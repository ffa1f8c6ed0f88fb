"""Values know their lines, in TOML and in YAML, whatever a file looks like."""

from __future__ import annotations

import tomllib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketstream.spark.pipeline.mistakes import Mistake
from rocketstream.spark.pipeline.nodes import Node
from rocketstream.spark.pipeline.toml_nodes import read_toml
from rocketstream.spark.pipeline.yaml_nodes import read_yaml
from tests.spark.pipeline.examples import COMPLETE

ODD = '''\
# [not.a.table]
"quoted key" = 1 # comment = 2
a.b."c.d" = "x"
basic = "a \\" = b"
literal = 'C:\\'
empty = ""
many = """
first "" line
second \\""" line"""
raw = \'\'\'one
two''\'\'\'
folded = """\\
   all one \\
   line"""
numbers = [ 1, # one
  2.5,
  { deep = [ "x",
     "y" ], other = true } ]
when = 2026-01-01T00:00:00Z

[table] # comment
inside = { a = 1, "b c" = { d = 2 } }

[[list]]
n = 1
[list.sub]
x = 1
[[list.more]]
y = 1
[[list.more]]
y = 2

[[list]]
n = 2
[[list.more]]
y = 3
'''


def at(node: Node, *path: str | int) -> Node:
    for part in path:
        value: Any = node.value
        node = value[part]
    return node


def toml(text: str) -> Node:
    read = read_toml(text)
    assert isinstance(read, Node), read
    return read


def yaml(text: str) -> Node:
    read = read_yaml(text)
    assert isinstance(read, Node), read
    return read


def plain(node: Node) -> Any:
    if isinstance(node.value, dict):
        return {key: plain(one) for key, one in node.value.items()}
    return [plain(one) for one in node.value] if isinstance(node.value, list) else node.value


@pytest.mark.parametrize(
    ("path", "line"),
    [
        (("quoted key",), 2),
        (("a", "b", "c.d"), 3),
        (("basic",), 4),
        (("literal",), 5),
        (("many",), 7),
        (("raw",), 10),
        (("folded",), 12),
        (("numbers",), 15),
        (("numbers", 1), 16),
        (("numbers", 2, "deep"), 17),
        (("numbers", 2, "deep", 1), 18),
        (("numbers", 2, "other"), 18),
        (("when",), 19),
        (("table",), 21),
        (("table", "inside", "b c", "d"), 22),
        (("list", 0), 24),
        (("list", 0, "n"), 25),
        (("list", 0, "sub"), 26),
        (("list", 0, "more", 1, "y"), 31),
        (("list", 1, "n"), 34),
        (("list", 1, "more", 0), 35),
        (("list", 1, "more", 0, "y"), 36),
    ],
)
def test_lines_of_toml(path: tuple[str | int, ...], line: int) -> None:
    assert at(toml(ODD), *path).line == line
    assert at(toml(ODD.replace("\n", "\r\n")), *path).line == line


def test_where_texts_begin_in_toml() -> None:
    node = toml(ODD)
    assert [at(node, key).text_line for key in ("basic", "many", "raw", "folded")] == [4, 8, 10, 0]


def test_the_values_are_those_of_tomllib() -> None:
    values = tomllib.loads(ODD)
    values["when"] = values["when"].isoformat()
    assert plain(toml(ODD)) == values
    assert plain(toml(COMPLETE)) == tomllib.loads(COMPLETE)


_keys = st.text(alphabet="ab.'\"\\ #=[]é\n", min_size=1, max_size=5)
_scalars = st.one_of(
    st.text(alphabet="ab'\"\\ #=[]{},\n\ré", max_size=12), st.integers(-9, 9), st.booleans(), st.floats(0, 9, width=16)
)
_values = st.recursive(
    _scalars,
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(_keys, inner, max_size=3)),
    max_leaves=8,
)


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n").replace("\r", "\\r")
    return f'"{escaped}"'


def _written(value: Any, line: list[int], lines: dict[tuple[Any, ...], int], path: tuple[Any, ...]) -> str:
    """A value as TOML on as many lines as there are elements, and where each went."""
    if isinstance(value, dict):
        parts = []
        for key, one in value.items():
            lines[*path, key] = line[0]
            parts.append(f"{_quoted(key)} = {_written(one, line, lines, (*path, key))}")
        return "{ " + ", ".join(parts) + " }"
    if isinstance(value, list):
        text = "[ # a [ \" ' comment\n"
        line[0] += 1
        for index, one in enumerate(value):
            lines[*path, index] = line[0]
            text += f"{_written(one, line, lines, (*path, index))} ,\n"
            line[0] += 1
        return text + "]"
    if isinstance(value, bool):
        return "true" if value else "false"
    return _quoted(value) if isinstance(value, str) else repr(value)


@given(st.dictionaries(_keys, _values, max_size=4))
def test_lines_of_any_toml(values: dict[str, Any]) -> None:
    text, line = "", [1]
    lines: dict[tuple[Any, ...], int] = {}
    for key, value in values.items():
        lines[(key,)] = line[0]
        text += f"{_quoted(key)} = {_written(value, line, lines, (key,))}\n"
        line[0] += 1
    node = toml(text)
    assert plain(node) == values
    for path, expected in lines.items():
        assert at(node, *path).line == expected, (text, path)


@given(st.text(alphabet="ab=[]{}\"'#.,\n \\1", max_size=40))
def test_any_text_is_toml_or_one_mistake(text: str) -> None:
    read = read_toml(text)
    if isinstance(read, Mistake):
        assert "\n" not in read.sentence
        with pytest.raises(tomllib.TOMLDecodeError):
            tomllib.loads(text)
    else:
        assert plain(read) == tomllib.loads(text)


# --- YAML ------------------------------------------------------------------------------------------------------------

SHEET = """\
a: 1
text: |
  one
  two
folded: >
  all
  one
list:
  - x: 1
    when: 2026-01-01
  - {y: 2,
     z: true}
base: &base {k: 1, l: 2}
other:
  <<: *base
  l: 3
nothing:
"""

BOMB = "a: &a [x,x,x,x,x,x,x,x,x]\n"
for number in range(7):
    BOMB += f"a{number}: &a{number} [{','.join([f'*a{number - 1}' if number else '*a'] * 9)}]\n"


def test_lines_of_yaml() -> None:
    node = yaml(SHEET)
    expected = {("a",): 1, ("text",): 2, ("folded",): 5, ("list",): 8, ("list", 0): 9, ("list", 0, "when"): 10}
    expected |= {("list", 1, "z"): 12, ("other", "k"): 13, ("other", "l"): 16, ("nothing",): 17}
    assert {path: at(node, *path).line for path in expected} == expected
    assert [at(node, key).text_line for key in ("text", "folded")] == [3, 0]
    assert plain(node)["other"] == {"k": 1, "l": 3}
    assert plain(node)["list"][0]["when"] == "2026-01-01"


@pytest.mark.parametrize(
    ("text", "line", "said"),
    [
        ("a: 1\nb: [1,\n", 3, "this is no YAML"),
        ("a: 1\na: 2\n", 2, "the key 'a' is there twice"),
        ("a: &x\n  b: *x\n", 2, "an alias (*) must not be inside of what it stands for"),
        ("? [1]\n: 2\n", 1, "a key must be a text"),
        ("a: !!python/object:os.system x\n", 1, "this is no YAML"),
        ("a: 1\n---\nb: 2\n", 2, "this is no YAML"),
        ("a: 1\nb: \x07\n", 2, "this is no YAML"),
        ("a: 1\nb: 2026-99-99\n", 2, "this is no YAML"),
        ("[" * 5000, 0, "this is no YAML: it is nested too deeply"),
        (BOMB, 0, "values, counting those of its aliases"),
    ],
)
def test_no_yaml(text: str, line: int, said: str) -> None:
    read = read_yaml(text)
    assert isinstance(read, Mistake)
    assert said in read.sentence
    assert read.line == line or not line


@given(st.text(alphabet="ab:-[]{}\"'#&*!|>%@,\n \t1<", max_size=40))
def test_any_text_is_yaml_or_one_mistake(text: str) -> None:
    read = read_yaml(text)
    assert isinstance(read, Node) or "\n" not in read.sentence
