"""The checklist of the mission: which rows of docs/behaviours.md have a passing test.

A pytest plugin of our own test run. A test says what it proves with `@pytest.mark.behaviour("REM-01", ...)`; an id
that is not in the document is an error at collection. A row counts as proven when at least one of its tests passed and
none failed. A run of everything fails when a row is not proven, or when the document's table of tests is not what the
markers say; `pytest --collect-only -q --write-behaviours` writes that table.

Most tests of real brokers wait for them, so everything can be run in two parts side by side: `--part 1` and `--part 2`
write what they have seen into a directory, and the one that ends last judges the rows (`--parts-seen DIR`); a row that
nobody shows leaves the file `rows-missing` there.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from pathlib import Path

import pytest

from rocketstream.testing.plugin import EMBEDDED, VERSIONS

DOCUMENT = Path(__file__).parents[2] / "docs" / "behaviours.md"

_ROW = re.compile(r"^\| ([A-Z]+-\d+) \|", re.MULTILINE)
_TABLE = "## By which test each is shown, and on what"
#: Part 1 of a run of everything; part 2 is the rest.
FIRST_PART = ("tests/contract/", "tests/cli/", "tests/demo/", "tests/interop/", "tests/test_aio")
# What belongs to a later issue and may be missing until then.
LATER = frozenset[str]()


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

    def add(self, other: str) -> None:
        """What another part of the run has seen."""
        seen = json.loads(other)
        self._passed.update(seen["passed"])
        self._failed.update(seen["failed"])

    def seen(self) -> str:
        """What was seen, for the other part."""
        return json.dumps({"passed": sorted(self._passed), "failed": sorted(self._failed)})

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
        return [row for row in self.missing if row not in LATER | self._failed]

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


def targets(item: pytest.Item) -> set[str]:
    """The brokers that a test is parametrized with: versions of RocketMQ, or the embedded one."""
    callspec = getattr(item, "callspec", None)
    values = callspec.params.values() if callspec is not None else ()
    return {value for value in values if isinstance(value, str) and value in (EMBEDDED, *VERSIONS)}


def shown_on(items: Sequence[pytest.Item]) -> str:
    """What a test of ours runs against, by the brokers and fixtures of all its variants."""
    item = items[0]
    fixtures = set(getattr(item, "fixturenames", ()))
    if item.nodeid.startswith("tests/interop/") and not fixtures & {"rocketmq_cluster", "cluster"}:
        return "Java's own classes"
    found: set[str] = set().union(*map(targets, items))
    real = " and ".join(version for version in VERSIONS if version in found)
    if found:
        embedded = ["the embedded broker"] if EMBEDDED in found else []
        return ", ".join([*embedded, *([f"RocketMQ {real}"] if real else [])])
    return "the fault proxy" if "fault_proxy" in fixtures else "unit and scripted peers"


def table(ids: Iterable[str], items: Iterable[pytest.Item]) -> str:
    """The section of the document that says which test shows which row."""
    tests: dict[str, dict[str, list[pytest.Item]]] = {}
    for item in items:
        name = item.nodeid.partition("[")[0].removeprefix("tests/")
        for row in claimed(item):
            tests.setdefault(row, {}).setdefault(name, []).append(item)
    lines = [_TABLE, "", "Written from the tests' markers by `pytest --collect-only -q --write-behaviours`.", ""]
    lines += ["| row | shown by (in `tests/`) | on |", "|---|---|---|"]
    for row in ids:
        for number, (name, variants) in enumerate(sorted(tests.get(row, {}).items())):
            lines.append(f"| {f'`{row}`' if not number else ''} | `{name}` | {shown_on(variants)} |")
    return "\n".join(lines) + "\n"


_checklist = pytest.StashKey[Checklist]()
_is_whole = pytest.StashKey[bool]()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--write-behaviours", action="store_true", help="write the table of tests in docs/behaviours.md")
    parser.addoption("--part", type=int, choices=(1, 2), help="run one of the two parts of everything")
    parser.addoption("--parts-seen", type=Path, help="the directory in which the parts tell what they have seen")


def pytest_configure(config: pytest.Config) -> None:
    config.stash[_checklist] = Checklist(behaviour_ids(DOCUMENT.read_text("utf-8")))
    chosen = (
        config.getoption(name, None) for name in ("keyword", "markexpr", "rocketmq_version", "lf", "ignore", "deselect")
    )
    config.stash[_is_whole] = config.args_source is pytest.Config.ArgsSource.TESTPATHS and not any(chosen)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    known = set(config.stash[_checklist].ids)
    for item in items:
        unknown = [row for row in claimed(item) if row not in known]
        if unknown:
            raise pytest.UsageError(f"{item.nodeid} claims {unknown}, which docs/behaviours.md does not have")
    _check_table(config, items)
    part = config.getoption("--part")
    if part is not None:
        theirs = [item for item in items if item.nodeid.startswith(FIRST_PART) != (part == 1)]
        items[:] = [item for item in items if item.nodeid.startswith(FIRST_PART) == (part == 1)]
        config.hook.pytest_deselected(items=theirs)


def _check_table(config: pytest.Config, items: list[pytest.Item]) -> None:
    document = DOCUMENT.read_text("utf-8")
    head, _, _ = document.partition(_TABLE)
    wanted = head.rstrip() + "\n\n" + table(config.stash[_checklist].ids, items)
    if config.getoption("--write-behaviours"):
        DOCUMENT.write_text(wanted, "utf-8")
    elif config.stash[_is_whole] and document != wanted:
        raise pytest.UsageError(
            "docs/behaviours.md does not say what the tests' markers say: pytest --collect-only -q --write-behaviours"
        )


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]):
    report = yield
    ids = claimed(item)
    if ids and (report.failed or (report.when == "call" and report.passed)):
        item.config.stash[_checklist].record(ids, passed=report.passed)
    return report


def _judges(config: pytest.Config) -> bool:
    """Whether this run has to show every row: everything was run, here or in the other part that has ended before."""
    if not config.stash[_is_whole] or config.getoption("collectonly"):
        return False
    part, directory = config.getoption("--part"), config.getoption("--parts-seen")
    return part is None or (directory is not None and (directory / f"part-{3 - part}.json").exists())


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    terminalreporter.section("behaviours")
    for line in config.stash[_checklist].lines():
        terminalreporter.line(line)
    if _judges(config) and (missing := config.stash[_checklist].unexcused):
        terminalreporter.line(f"a run of everything fails without them: {' '.join(missing)}", red=True)


def pytest_sessionfinish(session: pytest.Session) -> None:
    config = session.config
    checklist, part, directory = config.stash[_checklist], config.getoption("--part"), config.getoption("--parts-seen")
    if part is not None and directory is not None:
        # First told, then looked: of two that end in the same moment at least one sees the other.
        mine, other = (directory / f"part-{number}.json" for number in (part, 3 - part))
        new = mine.with_suffix(".new")
        new.write_text(checklist.seen(), "utf-8")
        new.replace(mine)
        if other.exists():
            checklist.add(other.read_text("utf-8"))
    if _judges(config) and checklist.unexcused:
        if directory is not None:
            (directory / "rows-missing").touch()
        if session.exitstatus == 0:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED
