"""What the how-to says of settings is true."""

from __future__ import annotations

import dataclasses
import re
from enum import Enum
from pathlib import Path

from rocketstream.consumer.settings import ConsumerSettings


def test_the_settings_in_the_docs_are_those_that_exist() -> None:
    text = (Path(__file__).parents[2] / "docs" / "howto-consume.md").read_text()
    rows = dict(re.findall(r"^\| `(\w+)` \| `(\S.*?)` \|", text, re.MULTILINE))
    assert set(rows) == {field.name for field in dataclasses.fields(ConsumerSettings)} - {"group"}
    defaults = ConsumerSettings(group="g")
    for name, told in rows.items():
        value = getattr(defaults, name)
        expected = f"{type(value).__name__}.{value.name}" if isinstance(value, Enum) else repr(value)
        assert told == expected, name
