"""The examples of docs/howto-test.md run as they are written there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "howto-test.md"


def test_the_examples_of_the_page_pass(pytester: pytest.Pytester) -> None:
    pytester.makeini("[pytest]\nasyncio_default_fixture_loop_scope = function\n")
    files = re.findall(r"^```python\n# (\w+)\.py\n(.*?)^```", PAGE.read_text("utf-8"), re.MULTILINE | re.DOTALL)
    pytester.makepyfile(**dict(files))
    assert len(files) == PAGE.read_text("utf-8").count("```python") == 5
    result = pytester.runpytest("-p", "no:cacheprovider")
    result.assert_outcomes(passed=7)
