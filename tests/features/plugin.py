"""The feature table: what tests say they show, held against what is declared and against docs/features.md.

A pytest plugin of our own test run. A test says what it shows with `@pytest.mark.feature("lite-pull/seek", ...)`; an id
that no file of tests/features declares is an error at collection. On which broker a test shows it is read off its
parameters and fixtures; where those cannot tell (it starts its own broker in its body), the marker does:
`@pytest.mark.feature("pop/ack", on="embedded")`. A run of everything (`tests.whole_run`) fails when a row lacks a test
on one of its targets, when none of those tests passed, or when docs/features.md is not what the markers say;
`pytest --collect-only -q --write-features` writes it.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pytest

from rocketstream.testing.plugin import EMBEDDED
from tests import whole_run
from tests.features.page import ALONE, JAVA, Shown, complaints, page
from tests.features.sections import TARGETS, Section, SectionError, all_rows, load_sections
from tests.whole_run import Checklist, targets

SECTIONS = Path(__file__).parent
DOCUMENT = Path(__file__).parents[2] / "docs" / "features.md"
_EMBEDDED_FIXTURES = {"embedded_broker", "manual_embedded_broker"}

_sections = pytest.StashKey[list[Section]]()
_broken = pytest.StashKey[str]()
_incomplete = pytest.StashKey[list[str]]()


def claimed(item: pytest.Item) -> list[str]:
    """The ids that a test claims to show."""
    return [row for marker in item.iter_markers("feature") for row in marker.args]


def columns(item: pytest.Item) -> set[str]:
    """Where a test shows what it shows: the brokers that it runs on, and whether Java takes part."""
    fixtures = set(getattr(item, "fixturenames", ()))
    found = targets(item) | _told(item)
    if fixtures & _EMBEDDED_FIXTURES:
        found.add(EMBEDDED)
    if item.nodeid.startswith("tests/interop/") or "java_peer" in fixtures:
        return found | {JAVA}
    return found or {ALONE}


def _told(item: pytest.Item) -> set[str]:
    told: set[str] = set()
    for marker in item.iter_markers("feature"):
        on = marker.kwargs.get("on", ())
        told.update((on,) if isinstance(on, str) else on)
        if set(marker.kwargs) - {"on"} or told - set(TARGETS):
            raise pytest.UsageError(
                f"{item.nodeid}: @pytest.mark.feature(*ids, on=...) with on= one or some of {', '.join(TARGETS)}"
            )
    return told


def shown(items: Iterable[pytest.Item]) -> dict[str, Shown]:
    """What tests show, by row."""
    found: dict[str, Shown] = {}
    for item in items:
        rows = claimed(item)
        if rows:
            file, _, name = item.nodeid.partition("[")[0].partition("::")
            for row in rows:
                found.setdefault(row, Shown()).add(file, name, columns(item))
    return found


def cells(rows: Iterable[str], where: Iterable[str]) -> list[str]:
    """What a passing test proves: its rows, and each of them on each target."""
    return [cell for row in rows for cell in (row, *(f"{row} on {column}" for column in where))]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--write-features", action="store_true", help="write docs/features.md")


def pytest_configure(config: pytest.Config) -> None:
    try:
        sections = load_sections(SECTIONS)
    except SectionError as error:
        # Told once it matters: somebody's half-written section is nothing to those who run other tests.
        sections, config.stash[_broken] = [], f"tests/features/{error}"
    config.stash[_sections] = sections
    config.stash[_incomplete] = []
    rows = all_rows(sections).values()
    needed = [cell for row in rows for cell in ([row.id] if row.client else cells([row.id], row.needed)[1:])]
    whole_run.keep(config, "features", Checklist(needed))


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(session: pytest.Session, config: pytest.Config, items: list[pytest.Item]) -> None:
    broken = config.stash.get(_broken, None)
    if broken and (whole_run.is_whole(config) or any(map(claimed, items))):
        whole_run.refuse(config, broken)
        return
    known = all_rows(config.stash[_sections])
    for item in items:
        unknown = [row for row in claimed(item) if row not in known]
        if unknown:
            whole_run.refuse(config, f"{item.nodeid} claims {unknown}, which no file of tests/features declares")
        _told(item)
    if not whole_run.is_whole(config):
        if config.getoption("--write-features"):
            raise pytest.UsageError("--write-features needs all tests: pytest --collect-only -q --write-features")
        return
    if session.testsfailed:
        return  # Files that cannot be collected are told as such; without them the page would say too little.
    found = shown(items)
    config.stash[_incomplete] = complaints(config.stash[_sections], found)
    _check_page(config, page(config.stash[_sections], found))


def _check_page(config: pytest.Config, wanted: str) -> None:
    if config.getoption("--write-features"):
        DOCUMENT.write_text(wanted, "utf-8")
        return
    if config.getoption("collectonly"):
        return  # What is not complete is told at the end.
    if config.stash[_incomplete]:
        told = "\n  ".join(config.stash[_incomplete])
        whole_run.refuse(config, f"the feature table is not complete:\n  {told}")
        return
    if not DOCUMENT.exists() or DOCUMENT.read_text("utf-8") != wanted:
        whole_run.refuse(
            config,
            "docs/features.md does not say what the tests' markers say: pytest --collect-only -q --write-features",
        )


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]):
    report = yield
    if rows := claimed(item):
        whole_run.claims(report, "features", cells(rows, columns(item)))
    return report


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    checklist = whole_run.checklist(config, "features")
    missing = checklist.unexcused if whole_run.judges(config) else []
    incomplete = config.stash[_incomplete]
    if not checklist.proven and not missing and not incomplete:
        return
    terminalreporter.section("features")
    terminalreporter.line(f"{len(checklist.proven)} of {len(checklist.ids)} features on brokers have a passing test")
    for line in incomplete:
        terminalreporter.line(f"  {line}", red=True)
    if missing:
        terminalreporter.line(f"a run of everything fails without them: {', '.join(missing)}", red=True)
