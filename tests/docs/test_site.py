"""The site is built by one command without a warning, and nothing in it leads nowhere."""

from __future__ import annotations

import dataclasses
import re
import subprocess
from collections.abc import Iterator
from html.parser import HTMLParser
from importlib import import_module
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest
from sphinx.pycode import ModuleAnalyzer
from sphinx.util.inventory import InventoryFile

import rocketstream
import rocketstream.aio
import rocketstream.broker
import rocketstream.spark
import rocketstream.testing
from rocketstream.cli.app import COMMANDS
from tests.docs.samples import DOCS

SETTINGS = DOCS / "reference" / "settings.md"
SCRIPT = DOCS.parent / "scripts" / "docs"
PUBLIC = (rocketstream, rocketstream.aio, rocketstream.broker, rocketstream.spark, rocketstream.testing)


class Page(HTMLParser):
    """What a page links to, and what in it can be linked to."""

    def __init__(self, file: Path) -> None:
        super().__init__()
        self.links: list[str] = []
        self.anchors: set[str] = set()
        self.feed(file.read_text("utf-8"))

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        for name, value in attributes:
            if value is not None and name == "id":
                self.anchors.add(value)
            elif value is not None and name in ("href", "src"):
                self.links.append(value)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, built as everybody builds it."""
    output = tmp_path_factory.mktemp("site")
    done = subprocess.run([SCRIPT, "--output", output], capture_output=True, text=True, timeout=600)
    told = done.stdout + done.stderr
    assert done.returncode == 0, told
    assert "WARNING" not in told
    return output


@pytest.fixture(scope="module")
def pages(site: Path) -> dict[Path, Page]:
    return {file: Page(file) for file in sorted(site.rglob("*.html"))}


@pytest.mark.slow(30, "builds the whole site")
def test_every_page_is_there(site: Path):
    sources = {file.relative_to(DOCS).with_suffix(".html") for file in DOCS.rglob("*.md")}
    assert sources
    assert sources <= {file.relative_to(site) for file in site.rglob("*.html")}


def test_every_link_leads_somewhere(site: Path, pages: dict[Path, Page]):
    assert not [f"{page.relative_to(site)}: {link}" for page, link in _broken(pages)]


def _broken(pages: dict[Path, Page]) -> Iterator[tuple[Path, str]]:
    for file, page in pages.items():
        for link in page.links:
            where = urlsplit(link)
            if where.scheme or where.netloc:
                continue
            target = (file.parent / unquote(where.path)).resolve() if where.path else file
            anchors = pages[target].anchors if target in pages else {unquote(where.fragment)}
            if not target.exists() or (where.fragment and unquote(where.fragment) not in anchors):
                yield file, link


def test_nothing_is_fetched_from_elsewhere(pages: dict[Path, Page]):
    for file in pages:
        text = file.read_text("utf-8")
        assert 'src="http' not in text, file
        assert '<link rel="stylesheet" type="text/css" href="http' not in text, file


def test_every_public_name_is_in_the_reference(site: Path):
    inventory = InventoryFile.loads((site / "objects.inv").read_bytes(), uri="")
    told = {name for kind, names in inventory.data.items() if kind.startswith("py:") for name in names}
    wanted = {f"{module.__name__}.{name}" for module in PUBLIC for name in module.__all__ if name != "__version__"}
    elsewhere = {
        "rocketstream.RocketStreamError",  # with all errors
        "rocketstream.broker.BrokerSettings",  # a table of settings
    }
    assert "rocketstream.errors.RocketStreamError" in told
    assert sorted(wanted - told - elsewhere) == []


def test_every_setting_says_what_it_is():
    tables = re.findall(r"^```\{settings-table\} (\S+)\.(\w+)$", SETTINGS.read_text("utf-8"), re.MULTILINE)
    assert len(tables) >= 4
    for module, name in tables:
        told = ModuleAnalyzer.for_module(module).find_attr_docs()
        fields = dataclasses.fields(getattr(import_module(module), name))
        assert [field.name for field in fields if (name, field.name) not in told] == [], name


def test_every_command_is_in_the_reference(pages: dict[Path, Page], site: Path):
    anchors = pages[site / "reference" / "commands.html"].anchors
    assert [command for command in COMMANDS if command not in anchors] == []


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--nonsense"], "--nonsense is not known; there is --open, --output DIR and --help"),
        (["--output"], "--output needs a directory"),
        (["--output", "/dev/null/site"], "--output /dev/null/site: this directory can't be made"),
    ],
)
def test_a_wrong_option_is_one_sentence(arguments: list[str], told: str):
    done = subprocess.run([SCRIPT, *arguments], capture_output=True, text=True, timeout=60)
    assert done.returncode == 2
    assert done.stderr.splitlines()[-1] == f"scripts/docs: {told}"
