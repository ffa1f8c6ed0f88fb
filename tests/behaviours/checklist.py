"""The checklist of the mission: which rows of docs/behaviours.md have a passing test.

A pytest plugin of our own test run. A test says what it proves with `@pytest.mark.behaviour("REM-01", ...)`; an id
that is not in the document is an error at collection. A row counts as proven when at least one of its tests passed and
none failed. For now the missing rows are only listed.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

import pytest

DOCUMENT = Path(__file__).parents[2] / "docs" / "behaviours.md"

_ROW = re.compile(r"^\| ([A-Z]+-\d+) \|", re.MULTILINE)


def behaviour_ids(document: str) -> list[str]:
    """The ids of a document's rows, in its order."""
    return _ROW.findall(document)


class Checklist:
    """Which behaviours were seen to pass, and which to fail."""

    def __init__(self, ids: Iterable[str]) -> None:
        self.ids = list(ids)
        self._passed: set[str] = set()
        self._failed: set[str] = set()

    def record(self, ids: Iterable[str], *, passed: bool) -> None:
        """A test that claims these behaviours has ended."""
        (self._passed if passed else self._failed).update(ids)

    @property
    def proven(self) -> list[str]:
        """Rows with a passing test and no failing one."""
        return [row for row in self.ids if row in self._passed and row not in self._failed]

    @property
    def missing(self) -> list[str]:
        """All other rows."""
        proven = set(self.proven)
        return [row for row in self.ids if row not in proven]

    def lines(self) -> list[str]:
        """What a person reads at the end of a run: a line per group of rows."""
        text = [f"{len(self.proven)} of {len(self.ids)} behaviours have a passing test"]
        groups: dict[str, list[str]] = {}
        for row in self.missing:
            group, _, number = row.partition("-")
            groups.setdefault(group, []).append(number)
        return text + [f"  missing {group}: {' '.join(numbers)}" for group, numbers in groups.items()]


def claimed(item: pytest.Item) -> list[str]:
    """The ids that a test claims to prove."""
    return [row for marker in item.iter_markers("behaviour") for row in marker.args]


_checklist = pytest.StashKey[Checklist]()


def pytest_configure(config: pytest.Config) -> None:
    config.stash[_checklist] = Checklist(behaviour_ids(DOCUMENT.read_text("utf-8")))


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    known = set(config.stash[_checklist].ids)
    for item in items:
        unknown = [row for row in claimed(item) if row not in known]
        if unknown:
            raise pytest.UsageError(f"{item.nodeid} claims {unknown}, which docs/behaviours.md does not have")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]):
    report = yield
    ids = claimed(item)
    if ids and (report.failed or (report.when == "call" and report.passed)):
        item.config.stash[_checklist].record(ids, passed=report.passed)
    return report


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    terminalreporter.section("behaviours")
    for line in config.stash[_checklist].lines():
        terminalreporter.line(line)
