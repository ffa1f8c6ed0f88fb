"""A run of everything, in one piece or in two parts side by side, and what it has to show.

A pytest plugin of our own test run, the ground of `tests.behaviours.checklist` and `tests.features.plugin`: each keeps
a `Checklist` here. Most tests of real brokers wait for them, so everything can be run in two parts: `--part 1` and
`--part 2` write what they have seen into a directory, and the one that ends last judges the rows (`--parts-seen DIR`);
a row that nobody shows leaves the file `rows-missing` there.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

import pytest

#: Part 1 of a run of everything; part 2 is the rest.
FIRST_PART = ("tests/contract/", "tests/demo/", "tests/test_aio")
_SELECTING = ("keyword", "markexpr", "rocketmq_version", "lf", "ignore", "deselect")
_WRITING = ("write_behaviours", "write_features")


class Checklist:
    """Which rows were seen to pass, and which to fail."""

    def __init__(self, ids: Iterable[str]) -> None:
        self.ids = list(ids)
        self._passed: set[str] = set()
        self._failed: set[str] = set()

    def record(self, ids: Iterable[str], *, passed: bool) -> None:
        """A test that claims these rows has ended."""
        (self._passed if passed else self._failed).update(ids)

    def add(self, other: dict[str, list[str]]) -> None:
        """What another part of the run has seen."""
        self._passed.update(other["passed"])
        self._failed.update(other["failed"])

    def seen(self) -> dict[str, list[str]]:
        """What was seen, for the other part."""
        return {"passed": sorted(self._passed), "failed": sorted(self._failed)}

    @property
    def proven(self) -> list[str]:
        """Rows with a passing test and no failing one."""
        return [row for row in self.ids if row in self._passed and row not in self._failed]

    @property
    def missing(self) -> list[str]:
        """All other rows."""
        proven = set(self.proven)
        return [row for row in self.ids if row not in proven]

    @property
    def unexcused(self) -> list[str]:
        """The rows that make a run of everything fail: nobody shows them. (A test that fails does so by itself.)"""
        return [row for row in self.missing if row not in self._failed]


_checklists = pytest.StashKey[dict[str, Checklist]]()


def keep(config: pytest.Config, name: str, checklist: Checklist) -> None:
    """Have a run judged by this checklist, too."""
    config.stash.setdefault(_checklists, {})[name] = checklist


def checklist(config: pytest.Config, name: str) -> Checklist:
    """The checklist that was kept under this name."""
    return config.stash[_checklists][name]


def is_whole(config: pytest.Config) -> bool:
    """Whether everything is collected: no path, no option that leaves something out."""
    chosen = (config.getoption(name, None) for name in _SELECTING)
    return config.args_source is pytest.Config.ArgsSource.TESTPATHS and not any(chosen)


def is_writing(config: pytest.Config) -> bool:
    """Whether the run is there to write a document: then no other one is held against the tests."""
    return any(config.getoption(name, False) for name in _WRITING)


def record(item: pytest.Item, report: pytest.TestReport, name: str, ids: Iterable[str]) -> None:
    """A phase of a test has ended that claims these rows of a checklist."""
    if report.failed or (report.when == "call" and report.passed):
        checklist(item.config, name).record(ids, passed=report.passed)


def judges(config: pytest.Config) -> bool:
    """Whether this run has to show every row: everything was run, here or in the other part that has ended before."""
    if not is_whole(config) or config.getoption("collectonly"):
        return False
    part, directory = config.getoption("--part"), config.getoption("--parts-seen")
    return part is None or (directory is not None and (directory / f"part-{3 - part}.json").exists())


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--part", type=int, choices=(1, 2), help="run one of the two parts of everything")
    parser.addoption("--parts-seen", type=Path, help="the directory in which the parts tell what they have seen")


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]):
    # After all others, which look at what both parts have.
    result = yield
    part = config.getoption("--part")
    if part is not None:
        theirs = [item for item in items if item.nodeid.startswith(FIRST_PART) != (part == 1)]
        items[:] = [item for item in items if item.nodeid.startswith(FIRST_PART) == (part == 1)]
        config.hook.pytest_deselected(items=theirs)
    return result


@pytest.hookimpl(tryfirst=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    config = session.config
    checklists = config.stash.get(_checklists, {})
    part, directory = config.getoption("--part"), config.getoption("--parts-seen")
    if part is not None and directory is not None:
        # First told, then looked: of two that end in the same moment at least one sees the other.
        mine, other = (directory / f"part-{number}.json" for number in (part, 3 - part))
        new = mine.with_suffix(".new")
        new.write_text(json.dumps({name: one.seen() for name, one in checklists.items()}), "utf-8")
        new.replace(mine)
        if other.exists():
            for name, seen in json.loads(other.read_text("utf-8")).items():
                checklists[name].add(seen)
    if judges(config) and any(one.unexcused for one in checklists.values()):
        if directory is not None:
            (directory / "rows-missing").touch()
        if session.exitstatus == 0:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED
