"""A pipeline file with a bit of everything, and what a test changes in it."""

from __future__ import annotations

from pathlib import Path

import pytest

from rocketstream.spark.pipeline import PipelineFileError, load_pipeline

COMPLETE = '''\
name = "orders"
checkpoint = "state"

[rocketmq]
nameServers = "127.0.0.1:9876"

[spark]
sql.shuffle.partitions = 2

[trigger]
processing_time = "2 seconds"

[[sources]]
name = "orders"
topics = ["orders", "returns"]
options = { startingOffsets = "earliest", group = "orders-pipeline" }
dead_letter = { path = "dead" }
dedupe = { columns = ["order_id"] }

[sources.schema]
order_id = "STRING NOT NULL"
region = "STRING"
amount = "DECIMAL(12,2)"
created_at = "TIMESTAMP"
items = "ARRAY<STRUCT<sku: STRING, count: INT>>"

[sources.watermark]
column = "created_at"
delay = "10 minutes"

[[lookups]]
name = "regions"
path = "regions.csv"

[[steps]]
name = "known"
sql = """
SELECT o.order_id, o.created_at, r.title, o.amount
FROM orders o
JOIN regions r ON r.region = o.region
"""

[[steps]]
name = "per_minute"
sql = "SELECT window.start AS t, title, sum(amount) AS sum FROM known GROUP BY window(created_at, '1 minute'), title"

[[sinks]]
name = "files"
from = "known"
type = "parquet"
path = "out"
partition_by = ["title"]

[[sinks]]
name = "back"
from = "per_minute"
type = "rocketmq"
topic = "per-minute"
keys = "title"
trigger = { available_now = true }
'''


def line_of(text: str, part: str) -> int:
    """The first line that has this in it."""
    return next(number for number, line in enumerate(text.splitlines(), 1) if part in line)


def changed(*changes: tuple[str, str]) -> str:
    """The file with some words replaced, each of which must be there."""
    text = COMPLETE
    for old, new in changes:
        assert old in text, old
        text = text.replace(old, new, 1)
    return text


def mistakes_in(directory: Path, text: str, suffix: str = "toml", **environ: str) -> list[str]:
    """What is wrong with a file, as `LINE: sentence`."""
    (directory / "regions.csv").write_text("region,title\neu,Europe\n", "utf-8")
    file = directory / f"pipeline.{suffix}"
    file.write_text(text, "utf-8")
    with pytest.raises(PipelineFileError) as raised:
        load_pipeline(file, environ=environ)
    assert str(raised.value) == "\n".join(mistake.at(str(file)) for mistake in raised.value.mistakes)
    return [f"{mistake.line}: {mistake.sentence}" for mistake in raised.value.mistakes]
