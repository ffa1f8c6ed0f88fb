"""The samples of the page on traces run as they stand, on an embedded broker."""

from __future__ import annotations

import re
from pathlib import Path

from rocketstream import AdminClient
from rocketstream.producer import trace
from tests.bare_client import eventually

PAGE = Path(__file__).parents[2] / "docs" / "howto-trace.md"


def test_the_samples_run(embedded_broker, capsys):
    samples = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    samples = [sample.replace("127.0.0.1:9876", embedded_broker.address) for sample in samples]
    with AdminClient(embedded_broker.address) as admin:
        admin.create_topic("orders", queues=1)
    names: dict[str, object] = {}
    for sample in samples:
        exec(compile(sample, str(PAGE), "exec"), names)
    assert len(samples) == 3

    def shown() -> bool:
        exec(compile(samples[1], str(PAGE), "exec"), names)
        return "PublishTrace(" in capsys.readouterr().out

    eventually(shown)


def test_the_numbers_in_the_text_are_those_of_the_code():
    text = " ".join(PAGE.read_text().split())
    assert f"at most {trace.MAX_WAITING:,} of them, and leave in groups of up to {trace.MAX_RECORDS} or after" in text
    assert f"for at most {trace.FLUSH_TIMEOUT:.0f} seconds" in text
