"""`${NAME}` in the texts of a file."""

from __future__ import annotations

import pytest

from rocketstream.spark.pipeline.nodes import Node
from rocketstream.spark.pipeline.variables import replace_variables


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("plain $5 {x}", "plain $5 {x}"),
        ("${SET}", "value"),
        ("a ${SET:-default} b", "a value b"),
        ("${NONE:-default}", "default"),
        ("${NONE:-}", ""),
        ("${EMPTY:-default}", "default"),  # as in a shell
        ("${EMPTY}", ""),
        ("$${SET} ${SET}", "${SET} value"),
        ("${NESTED}", "${SET}"),  # once is enough
        ("${NONE:-a:-b}", "a:-b"),
    ],
)
def test_texts(text: str, expected: str) -> None:
    node = Node(text, 3, 3)
    environ = {"SET": "value", "EMPTY": "", "NESTED": "${SET}"}
    assert replace_variables(node, environ) == []
    assert node.value == expected
    assert node.replaced == (text != expected)


def test_everywhere_but_in_keys() -> None:
    node = Node({"${X}": Node([Node("${X}", 2), Node(5, 2)], 2)}, 1)
    assert replace_variables(node, {"X": "y"}) == []
    (inside,) = node.entries.values()
    assert list(node.entries) == ["${X}"]
    assert isinstance(inside.value, list)
    assert [one.value for one in inside.value] == ["y", 5]


def test_lines_that_move_are_not_told() -> None:
    node = Node("a\n${X}\nb", 1, 1)
    replace_variables(node, {"X": "1\n2"})
    assert node.text_line == 0
