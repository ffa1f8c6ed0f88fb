"""What the how-to says of settings is true."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

from rocketstream.consumer.push_consumer import ConsumerFace
from rocketstream.spark import SparkConsumer

HOW_TO = (Path(__file__).parents[3] / "docs" / "howto-spark-consumer.md").read_text()


def test_the_settings_in_the_docs_are_those_that_exist():
    own = inspect.signature(SparkConsumer.__init__).parameters
    everybodys = inspect.signature(ConsumerFace.__init__).parameters
    rows = dict(re.findall(r"^\| `(\w+)` \| `(\S.*?)` \|", HOW_TO, re.MULTILINE))
    assert set(rows) == own.keys() - everybodys.keys() - {"spark"}
    assert rows == {name: repr(own[name].default) for name in rows}


def test_the_example_can_be_compiled():
    (example,) = re.findall(r"```python\n(.*?)```", HOW_TO, re.DOTALL)
    compile(example, "example", "exec")
