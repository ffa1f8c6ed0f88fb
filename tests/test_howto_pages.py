"""The Python of the how-to pages on pop, asyncio and processes runs as it is written there."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from rocketstream import AdminClient
from rocketstream.broker import EmbeddedBroker

DOCS = Path(__file__).parents[1] / "docs"
SHOWN = {"howto-pop.md": 2, "howto-asyncio.md": 2, "howto-processes.md": 2}


@pytest.mark.parametrize("page", SHOWN)
def test_the_examples_of_the_page_run_one_after_the_other(page, embedded_broker: EmbeddedBroker, tmp_path):
    """As one program; the last page's functions are called at its end."""
    blocks = re.findall(r"^```python\n(.*?)^```", (DOCS / page).read_text("utf-8"), re.MULTILINE | re.DOTALL)
    assert len(blocks) == SHOWN[page]
    calls = 'if __name__ == "__main__":\n    handle_request(b"x")\n    handle_request(b"y")\n'
    program = tmp_path / "program.py"
    text = "\n".join([*blocks, calls if page == "howto-processes.md" else ""])
    program.write_text(text.replace("127.0.0.1:9876", embedded_broker.address), "utf-8")
    done = subprocess.run(
        [sys.executable, "-W", "error", str(program)],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        env={**os.environ},
    )
    assert done.returncode == 0, done.stderr
    printed = done.stdout.splitlines()
    if page == "howto-pop.md":
        assert "mode='POP'" in printed[0]
        assert "queue_id=-1" in printed[1]
    elif page == "howto-asyncio.md":
        assert printed[0].startswith("100 ")
        assert "COMMIT" in printed[1]
    else:
        assert printed[0] == "4"
        with AdminClient(embedded_broker.address) as admin:
            assert sum(one.messages for one in admin.queue_ranges("orders")) == 6
