"""What the how-to says of settings is true."""

from __future__ import annotations

import dataclasses
import re
from enum import Enum
from pathlib import Path

import pytest

from rocketstream.consumer.lite.settings import LitePullSettings
from rocketstream.consumer.settings import ConsumerSettings


@pytest.mark.parametrize(
    ("page", "kind"), [("howto-consume.md", ConsumerSettings), ("howto-lite-pull.md", LitePullSettings)]
)
def test_the_settings_in_the_docs_are_those_that_exist(
    page: str, kind: type[ConsumerSettings | LitePullSettings]
) -> None:
    text = (Path(__file__).parents[2] / "docs" / page).read_text()
    rows = dict(re.findall(r"^\| `(\w+)` \| `(\S.*?)` \|", text, re.MULTILINE))
    assert set(rows) == {field.name for field in dataclasses.fields(kind)} - {"group"}
    defaults = kind(group="g")
    for name, told in rows.items():
        value = getattr(defaults, name)
        expected = f"{type(value).__name__}.{value.name}" if isinstance(value, Enum) else repr(value)
        assert told == expected, name
