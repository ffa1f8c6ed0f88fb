"""The samples of a page: its Python blocks that begin with the name of a file, and the broker that they talk to."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

DOCS = Path(__file__).parents[2] / "docs"
ADDRESS = "127.0.0.1:9876"
_FILE = re.compile(r"^```python\n# (\w+\.py)\n(.*?)^```", re.MULTILINE | re.DOTALL)


def write_samples(page: str, directory: Path, address: str) -> list[str]:
    """Write the files of a page, all of its Python, for a broker that is elsewhere than the page says."""
    text = (DOCS / page).read_text("utf-8")
    files = _FILE.findall(text)
    assert len(files) == text.count("```python"), f"{page} has Python without the name of a file"
    for name, code in files:
        (directory / name).write_text(code.replace(ADDRESS, address), "utf-8")
    return [name for name, _ in files]


def run_sample(directory: Path, name: str, address: str) -> list[str]:
    """Run a file as a user would, to its end; what it printed."""
    done = subprocess.run(
        [sys.executable, "-W", "error", name],
        cwd=directory,
        env={"NAMESRV_ADDR": address, "PATH": ""},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()
