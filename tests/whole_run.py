"""A run of everything, or of what a contributor needs before a commit, and what the former has to show.

A pytest plugin of our own test run, the ground of `tests.behaviours.checklist` and `tests.features.plugin`: each keeps
a `Checklist` here. `pytest` runs everything; `pytest --quick` collects everything, so that the documents are held
against all tests, and leaves out RocketMQ 4.9.7, what is marked `long`, and a second pass of interop (it runs on 5.5.0)
and of Spark (on the embedded broker). Both work with the workers of pytest-xdist: a test's report carries the rows that
it claims to the process that judges them.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

from rocketstream.testing.plugin import EMBEDDED, FOLLOWED, VERSIONS

_SELECTING = ("keyword", "markexpr", "rocketmq_version", "lf", "ignore", "deselect")
_WRITING = ("write_behaviours", "write_features")
#: What a quick run leaves to a run of everything.
_OTHER_VERSIONS = frozenset(VERSIONS) - {FOLLOWED}
#: Where a quick run passes once, and on what: a test that runs there is not run on the other brokers.
_ONE_PASS = {"tests/interop/": FOLLOWED, "tests/spark/": EMBEDDED}


class Checklist:
    """Which rows were seen to pass, and which to fail."""

    def __init__(self, ids: Iterable[str]) -> None:
        self.ids = list(ids)
        self._passed: set[str] = set()
        self._failed: set[str] = set()

    def record(self, ids: Iterable[str], *, passed: bool) -> None:
        """A test that claims these rows has ended."""
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

    @property
    def unexcused(self) -> list[str]:
        """The rows that make a run of everything fail: nobody shows them. (A test that fails does so by itself.)"""
        return [row for row in self.missing if row not in self._failed]


_checklists = pytest.StashKey[dict[str, Checklist]]()
_refusals = pytest.StashKey[list[str]]()


def keep(config: pytest.Config, name: str, checklist: Checklist) -> None:
    """Have a run judged by this checklist, too."""
    config.stash.setdefault(_checklists, {})[name] = checklist


def checklist(config: pytest.Config, name: str) -> Checklist:
    """The checklist that was kept under this name."""
    return config.stash[_checklists][name]


def _kept(config: pytest.Config) -> Iterable[Checklist]:
    return config.stash.get(_checklists, {}).values()


# --- what is run ----------------------------------------------------------------------------------------------------


def is_worker(config: pytest.Config) -> bool:
    """Whether this is a worker of pytest-xdist."""
    return hasattr(config, "workerinput")


def is_whole(config: pytest.Config) -> bool:
    """Whether everything is collected: no path, no option that leaves something out."""
    if is_worker(config):
        return bool(config.workerinput["whole_run"])  # type: ignore[attr-defined]
    chosen = (config.getoption(name, None) for name in _SELECTING)
    return config.args_source is pytest.Config.ArgsSource.TESTPATHS and not any(chosen)


def is_writing(config: pytest.Config) -> bool:
    """Whether the run is there to write a document: then no other one is held against the tests."""
    return any(config.getoption(name, False) for name in _WRITING)


def judges(config: pytest.Config) -> bool:
    """Whether this run has to show every row: it runs everything, and is not a worker."""
    partly = config.getoption("collectonly") or config.getoption("--quick")
    return is_whole(config) and not partly and not is_worker(config)


def targets(item: pytest.Item) -> set[str]:
    """The brokers that a test is parametrized with: versions of RocketMQ, or the embedded one."""
    callspec = getattr(item, "callspec", None)
    values = callspec.params.values() if callspec is not None else ()
    return {value for value in values if isinstance(value, str) and value in (EMBEDDED, *VERSIONS)}


def long_marker(item: pytest.Item) -> pytest.Mark | None:
    """The marker of a test that is long where it runs: `real=True` excepts embedded brokers."""
    marker = item.get_closest_marker("long")
    excepted = marker is not None and marker.kwargs.get("real") and targets(item) == {EMBEDDED}
    return None if excepted else marker


def left_out(items: Iterable[pytest.Item]) -> list[pytest.Item]:
    """What a quick run leaves out: what is long, the other version, and a second pass of what needs one."""
    items = list(items)
    passed_once = {_family(item) for item in items if targets(item) == {_one_pass(item)} and not long_marker(item)}
    return [item for item in items if _is_left_out(item, again=_family(item) in passed_once)]


def _is_left_out(item: pytest.Item, *, again: bool) -> bool:
    where = targets(item)
    second_pass = again and bool(where) and where != {_one_pass(item)}
    return long_marker(item) is not None or bool(where & _OTHER_VERSIONS) or second_pass


def _one_pass(item: pytest.Item) -> str | None:
    return next((target for place, target in _ONE_PASS.items() if item.nodeid.startswith(place)), None)


def _family(item: pytest.Item) -> str:
    """A test with all that it is parametrized with, but for the broker."""
    callspec, where = getattr(item, "callspec", None), targets(item)
    values = callspec.params.values() if callspec is not None else ()
    others = [id(value) for value in values if not (isinstance(value, str) and value in where)]
    return f"{item.nodeid.partition('[')[0]} {others}"


def refuse(config: pytest.Config, why: str) -> None:
    """End the run before its first test, with this reason; a worker leaves it to its controller to say so."""
    if not is_worker(config):
        raise pytest.UsageError(why)
    config.stash.setdefault(_refusals, []).append(why)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--quick",
        action="store_true",
        help="leave out RocketMQ 4.9.7, tests that are marked long, and second passes of interop and Spark",
    )


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    node.workerinput["whole_run"] = is_whole(node.config)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]):
    # After all others, which look at what a run of everything has.
    result = yield
    if refusals := config.stash.get(_refusals, []):
        config.workeroutput["refusals"] = refusals  # type: ignore[attr-defined]
        items.clear()
    elif config.getoption("--quick"):
        out = left_out(items)
        gone = set(out)
        items[:] = [item for item in items if item not in gone]
        config.hook.pytest_deselected(items=out)
    return result


# --- what it has shown ----------------------------------------------------------------------------------------------


def claims(report: pytest.TestReport, name: str, ids: Iterable[str]) -> None:
    """Let a report say which rows of a checklist its test claims."""
    report.user_properties.append((name, list(ids)))


class Recorder:
    """Records what reports say of the rows, its own process's and its workers'."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if not (report.failed or (report.when == "call" and report.passed)):
            return
        checklists = self._config.stash.get(_checklists, {})
        for name, ids in report.user_properties:
            if name in checklists:
                checklists[name].record(ids, passed=report.passed)


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(Recorder(config))


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any, error: object) -> None:
    node.config.stash.setdefault(_refusals, []).extend(getattr(node, "workeroutput", {}).get("refusals", ()))


@pytest.hookimpl(tryfirst=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    config = session.config
    if not is_worker(config) and config.stash.get(_refusals, []):
        session.exitstatus = pytest.ExitCode.USAGE_ERROR
    elif session.exitstatus == 0 and judges(config) and any(one.unexcused for one in _kept(config)):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    for why in dict.fromkeys(config.stash.get(_refusals, [])):
        terminalreporter.line(f"ERROR: {why}", red=True)
