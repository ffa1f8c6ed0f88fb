"""Whatever happens to a pipeline file, it is a pipeline or a list of mistakes; never a traceback."""

from __future__ import annotations

import json
import tomllib
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rocketstream.spark.pipeline import Pipeline, PipelineFileError, load_pipeline
from tests.spark.pipeline.examples import COMPLETE

BITS = [
    "",
    "\n",
    '"',
    "'''",
    '"""',
    "[",
    "]]",
    "{",
    "}",
    "=",
    ",",
    ".",
    "#",
    "${",
    "${X}",
    "\\",
    "\x00",
    "é",
    "true",
    "1e9",
]
BITS += [
    "[[sinks]]",
    "name = 1",
    "FROM",
    "(",
    ")",
    "WITH",
    ";",
    "`",
    "--",
    "/*",
    "DECIMAL(",
    "STRUCT<",
    "-1",
    "nan",
    "*",
]
ODD_VALUES: list[Any] = [
    None,
    True,
    -1,
    2.5,
    "",
    " ",
    "x",
    "${",
    [],
    ["x"],
    [[]],
    {},
    {"name": "x"},
    [{}],
    "a b",
    "SELECT",
]


def load(text: str, syntax: str) -> Pipeline | PipelineFileError:
    try:
        return load_pipeline(f"{text}\n", syntax=syntax, environ={})
    except PipelineFileError as error:
        refused = error
    assert refused.mistakes
    for mistake in refused.mistakes:
        assert 0 <= mistake.line <= text.count("\n") + 2
        assert mistake.sentence
        assert "\n" not in mistake.sentence
    return refused


@pytest.fixture(autouse=True)
def _regions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "regions.csv").touch()


def test_the_file_itself_is_good(tmp_path: Path) -> None:
    assert isinstance(load(COMPLETE, "toml"), Pipeline)


@settings(max_examples=400)
@given(
    st.lists(
        st.tuples(st.integers(0, len(COMPLETE)), st.integers(0, 30), st.sampled_from(BITS)), min_size=1, max_size=3
    )
)
def test_bits_cut_out_and_put_in(damages: list[tuple[int, int, str]]) -> None:
    text = COMPLETE
    for start, length, bit in damages:
        text = text[:start] + bit + text[start + length :]
    load(text, "toml")


def _places(value: Any) -> list[tuple[Any, Any]]:
    """All places in a document, as (container, key)."""
    entries = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [place for key, one in entries for place in [(value, key), *_places(one)]]


@settings(max_examples=400)
@given(st.data())
def test_values_of_other_kinds(data: st.DataObject) -> None:
    document = tomllib.loads(COMPLETE)
    for _ in range(data.draw(st.integers(1, 3))):
        container, key = data.draw(st.sampled_from(_places(document) or [(document, "name")]))
        match data.draw(st.sampled_from(["replace", "delete", "rename"])):
            case "delete":
                del container[key]
            case "rename" if isinstance(container, dict):
                container[f"{key}x"] = container.pop(key)
            case _:
                container[key] = deepcopy(data.draw(st.sampled_from(ODD_VALUES)))
    load(json.dumps(document, indent=1), "yaml")
