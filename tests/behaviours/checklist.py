"""The checklist of the mission: which rows of docs/behaviours.md have a passing test.

A pytest plugin of our own test run. A test says what it proves with `@pytest.mark.behaviour("REM-01", ...)`; an id
that is not in the document is an error at collection. A row counts as proven when at least one of its tests passed and
none failed. A run of everything (`tests.whole_run`, another plugin) fails when a row is not proven, or when the
document's table of tests is not what the markers say; `pytest --collect-only -q --write-behaviours` writes that table.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path

import pytest

from rocketstream.testing.plugin import EMBEDDED, VERSIONS
from tests import whole_run
from tests.whole_run import Checklist, targets

DOCUMENT = Path(__file__).parents[2] / "docs" / "behaviours.md"

_ROW = re.compile(r"^\| ([A-Z]+-\d+) \|", re.MULTILINE)
_TABLE = "## By which test each is shown, and on what"


def behaviour_ids(document: str) -> list[str]:
    """The ids of a document's rows, in its order."""
    return _ROW.findall(document)


def lines(checklist: Checklist) -> list[str]:
    """What a person reads at the end of a run: a line per group of rows."""
    text = [f"{len(checklist.proven)} of {len(checklist.ids)} behaviours have a passing test"]
    groups: dict[str, list[str]] = {}
    for row in checklist.missing:
        group, _, number = row.partition("-")
        groups.setdefault(group, []).append(number)
    return text + [f"  missing {group}: {' '.join(numbers)}" for group, numbers in groups.items()]


def claimed(item: pytest.Item) -> list[str]:
    """The ids that a test claims to prove."""
    return [row for marker in item.iter_markers("behaviour") for row in marker.args]


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


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--write-behaviours", action="store_true", help="write the table of tests in docs/behaviours.md")


def pytest_configure(config: pytest.Config) -> None:
    whole_run.keep(config, "behaviours", Checklist(behaviour_ids(DOCUMENT.read_text("utf-8"))))


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    known = set(whole_run.checklist(config, "behaviours").ids)
    for item in items:
        unknown = [row for row in claimed(item) if row not in known]
        if unknown:
            whole_run.refuse(config, f"{item.nodeid} claims {unknown}, which docs/behaviours.md does not have")
    _check_table(config, items)


def _check_table(config: pytest.Config, items: list[pytest.Item]) -> None:
    document = DOCUMENT.read_text("utf-8")
    head, _, _ = document.partition(_TABLE)
    wanted = head.rstrip() + "\n\n" + table(whole_run.checklist(config, "behaviours").ids, items)
    if config.getoption("--write-behaviours"):
        DOCUMENT.write_text(wanted, "utf-8")
    elif whole_run.is_whole(config) and not whole_run.is_writing(config) and document != wanted:
        whole_run.refuse(
            config,
            "docs/behaviours.md does not say what the tests' markers say: pytest --collect-only -q --write-behaviours",
        )


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]):
    report = yield
    whole_run.claims(report, "behaviours", claimed(item))
    return report


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    terminalreporter.section("behaviours")
    checklist = whole_run.checklist(config, "behaviours")
    for line in lines(checklist):
        terminalreporter.line(line)
    if whole_run.judges(config) and (missing := checklist.unexcused):
        terminalreporter.line(f"a run of everything fails without them: {' '.join(missing)}", red=True)
