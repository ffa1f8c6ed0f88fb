"""How a run is shared out among the workers of pytest-xdist, and what it tells while it runs and at its end.

A pytest plugin of our own test run. Tests that have something expensive in common (a Spark session, a cluster of their
own, a Java client) are one unit, and a worker runs it as a whole; other tests of brokers are units of their own, and
those that need no broker go by file. The longest unit goes first, as far as the RocketMQ that it needs is ready; so
short ones fill the gaps at the end. But those that keep the machine busy (Spark, servers of a test's own) are not all
run at the same time: what has to be done within some seconds, as Spark's Python workers have to connect, would not be.
How long a unit takes is guessed from its tests' markers:

    @pytest.mark.slow(15, "waits for two retries")      # about 15 s; a test above 10 s says why
    @pytest.mark.long(60, "kills a broker ten times")   # the same, and only a run of everything runs it
    @pytest.mark.long(30, "stops a broker", real=True)  # the same, but on an embedded broker it is short
    @pytest.mark.xdist_group("machine")                 # runs in one worker with all others of this group
    @pytest.mark.flaky(reruns=1, reason="...")          # may be run again, because ...; it is listed at the end

A worker tells the controller the units in a file, before it says that it has collected.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from xdist.scheduler import LoadScopeScheduling

from rocketstream.testing.plugin import EMBEDDED, FOLLOWED, shared_directory
from tests import whole_run
from tests.whole_run import long_marker, targets

_UNITS = "units.json"
#: Without a marker: seconds that a test takes, by what it runs on.
_ALONE, _ON_EMBEDDED, _ON_REAL, _ON_SPARK = 0.05, 0.5, 3.0, 3.0
#: Tests that run Java's client or servers, whatever they are parametrized with.
_JAVA = ("tests/interop/", "tests/testing/test_cluster.py", "tests/cli/test_cluster.py")
#: Tests that run Spark, if they take long: those of its options and of the code around it do not.
_SPARK = ("tests/spark/", "tests/demo/", "tests/cli/test_pipeline.py")
SLOW = 10.0
"""A test that takes longer says why."""
#: What Spark (after 10 s) and Java's client (after 3 s) say when they gave up waiting for an answer. What ours gives up
#: is not run again: it may have lost the answer.
_SPARK_GAVE_UP = "Python worker failed to connect back"
_JAVA_GAVE_UP = "RemotingTimeoutException"
_STANDSTILL = "on a slow machine an answer came too late for somebody else's program"
#: Tests that send as much as they can, likewise.
_SENDING = "tests/faults/"
#: What tests make of work for the machine: Spark and those that send much, servers of their own, everything else.
FULL_LOAD, SERVERS_LOAD, LIGHT_LOAD = 2, 1, 0
_LOADED_FROM = 20.0
#: How much of that a core can bear.
_LOAD_OF_A_CORE = 2
_MOST_WORKERS = 10
_TIMER_SLACK_NS = 2_000_000
_TELL_EVERY = 30.0
#: All of it comes at the end; who waits for that may be shown a part of the output only.
_LINES_OF_A_FAILURE = 25


def cores() -> int:
    """How many cores this process may use: a container may have fewer than the machine."""
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    with contextlib.suppress(OSError, ValueError):
        quota, period = map(int, Path("/sys/fs/cgroup/cpu.max").read_text().split())  # "max 100000": no limit
        usable = min(usable, max(quota // period, 1))
    return usable


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """Twice as many as cores, for many tests wait; not more than the brokers that they share can serve."""
    return min(2 * cores(), _MOST_WORKERS)


# --- units ----------------------------------------------------------------------------------------------------------


def unit_of(item: pytest.Item) -> str:
    """The tests that one worker has to run, by the name of their unit."""
    marker = item.get_closest_marker("xdist_group")
    if marker is not None:
        return str(marker.args[0])
    fixtures = set(getattr(item, "fixturenames", ()))
    if "spark" in fixtures:
        return "spark"
    where = "-".join(sorted(targets(item)))
    if "java_peer" in fixtures:
        return f"java {where}"
    shared = _shared_with(item)
    if shared is not None:
        return f"{shared} {where}"
    return item.nodeid if where else item.nodeid.partition("::")[0]


def _shared_with(item: pytest.Item) -> str | None:
    """The widest directory or file of which the test shares a fixture with others."""
    found: list[str] = []
    for definitions in getattr(item, "_fixtureinfo").name2fixturedefs.values():  # noqa: B009
        definition = definitions[-1]
        if definition.baseid.startswith("tests/"):
            if definition.scope == "package":
                found.append(definition.baseid)
            elif definition.scope == "module":
                found.append(item.nodeid.partition("::")[0])
    return min(found, key=len, default=None)


def expected_seconds(item: pytest.Item) -> float:
    """About how long a test takes."""
    marker = long_marker(item) or item.get_closest_marker("slow")
    if marker is not None:
        return float(marker.args[0])
    if "spark" in getattr(item, "fixturenames", ()):
        return _ON_SPARK
    where = targets(item)
    return _ALONE if not where else _ON_EMBEDDED if where == {EMBEDDED} else _ON_REAL


def load(item: pytest.Item) -> int:
    """How much a test keeps the machine busy."""
    if "spark" in getattr(item, "fixturenames", ()):
        return FULL_LOAD
    if not says_why(item) or expected_seconds(item) < _LOADED_FROM:
        return LIGHT_LOAD
    return FULL_LOAD if item.nodeid.startswith((*_SPARK, _SENDING)) else SERVERS_LOAD


def needs(item: pytest.Item) -> set[str]:
    """The versions of RocketMQ whose jars a test needs."""
    return (targets(item) - {EMBEDDED}) | ({FOLLOWED} if _runs_java(item) else set())


def _runs_java(item: pytest.Item) -> bool:
    return item.nodeid.startswith(_JAVA) or "java_peer" in getattr(item, "fixturenames", ())


def says_why(item: pytest.Item) -> bool:
    """Whether a test says why it takes long."""
    return (long_marker(item) or item.get_closest_marker("slow")) is not None


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    for item in items:
        if "configure" in getattr(item, "fixturenames", ()):  # it changes settings of a broker that others use, too
            item.add_marker("rocketmq_exclusive")
        standstills = _standstills(item)
        if standstills and item.get_closest_marker("flaky") is None:
            item.add_marker(pytest.mark.flaky(reruns=1, only_rerun=standstills, reason=_STANDSTILL))
        for name in ("slow", "long"):
            marker = item.get_closest_marker(name)
            if marker is not None and not _is_told(marker):
                whole_run.refuse(config, f'{item.nodeid}: write @pytest.mark.{name}(seconds, "why it takes so long")')
        marker = item.get_closest_marker("flaky")
        if marker is not None and not marker.kwargs.get("reason"):
            whole_run.refuse(config, f'{item.nodeid}: write @pytest.mark.flaky(reruns=1, reason="why it may fail")')


def _standstills(item: pytest.Item) -> list[str]:
    """The failures of others' programs that a slow machine brings: only these are run again, and listed."""
    runs_spark = "spark" in getattr(item, "fixturenames", ()) or item.nodeid.startswith(_SPARK)
    return [*([_SPARK_GAVE_UP] if runs_spark else []), *([_JAVA_GAVE_UP] if _runs_java(item) else [])]


def _is_told(marker: pytest.Mark) -> bool:
    return len(marker.args) == 2 and isinstance(marker.args[0], int | float) and isinstance(marker.args[1], str)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_finish(session: pytest.Session) -> None:
    directory = shared_directory(session.config)
    if directory is None or (directory / _UNITS).exists():
        return
    units: dict[str, dict[str, Any]] = {}
    for item in session.items:
        unit = units.setdefault(unit_of(item), {"tests": [], "seconds": 0.0, "load": 0, "needs": []})
        unit["tests"].append(item.nodeid)
        unit["seconds"] += expected_seconds(item)
        unit["load"] = max(unit["load"], load(item))
        unit["needs"] = sorted({*unit["needs"], *needs(item)})
    mine = directory / f".{_UNITS}-{session.config.workerinput['workerid']}"  # type: ignore[attr-defined]
    mine.write_text(json.dumps(units), "utf-8")
    mine.replace(directory / _UNITS)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]):
    report = yield
    report.user_properties.append(("says why", says_why(item)))
    return report


# --- sharing out ----------------------------------------------------------------------------------------------------


class UnitScheduling(LoadScopeScheduling):
    """Gives each worker a unit at a time: the longest whose RocketMQ is ready and that the machine can bear."""

    directory: Path
    most_load = _LOAD_OF_A_CORE * cores()

    def __init__(self, config: pytest.Config, log: Any = None) -> None:
        super().__init__(config, log)
        self._units: dict[str, dict[str, Any]] = {}
        self._unit_of: dict[str, str] = {}

    def schedule(self) -> None:
        """Read the units that the workers have told of, then begin."""
        if not self._units:
            self._units = json.loads((self.directory / _UNITS).read_text("utf-8"))
            self._unit_of = {test: name for name, unit in self._units.items() for test in unit["tests"]}
        super().schedule()

    def _split_scope(self, nodeid: str) -> str:
        return self._unit_of.get(nodeid, nodeid)

    def _is_ready(self, unit: str) -> bool:
        return all((self.directory / f"{version}.json").exists() for version in self._told(unit)["needs"])

    def _load_beside(self, node: Any) -> int:
        """How busy the other workers keep the machine, with the unit that each runs or the next one."""
        return sum(
            max((self._told(unit)["load"] for unit, tests in units.items() if not all(tests.values())), default=0)
            for other, units in self.assigned_work.items()
            if other is not node
        )

    def _told(self, unit: str) -> dict[str, Any]:
        return self._units.get(unit, {"seconds": 0.0, "load": 0, "needs": ()})

    def _assign_work_unit(self, node: Any) -> None:
        longest = max(self.workqueue, key=lambda unit: (self._is_ready(unit), self._told(unit)["seconds"]))
        if self._load_beside(node) + self._told(longest)["load"] > self.most_load:
            # Not now; and nothing that makes a load goes before it, or it would wait for ever. What makes none may.
            light = [unit for unit in self.workqueue if not self._told(unit)["load"] and self._is_ready(unit)]
            longest = max(light, key=lambda unit: self._told(unit)["seconds"], default=longest)
        self.workqueue.move_to_end(longest, last=False)
        super()._assign_work_unit(node)

    def _reschedule(self, node: Any) -> None:
        # A worker needs to know one test ahead. xdist gives it two, and so keeps them behind a long one at the end.
        if not node.shutting_down and self.workqueue and self._pending_of(self.assigned_work[node]) > 1:
            return
        super()._reschedule(node)


@pytest.hookimpl(optionalhook=True, trylast=True)
def pytest_configure_node(node: Any) -> None:
    UnitScheduling.directory = Path(node.workerinput["rocketstream_shared_clusters"])


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> UnitScheduling:
    return UnitScheduling(config, log)


# --- what is told ---------------------------------------------------------------------------------------------------


class Progress:
    """A line now and then: how many tests have ended, and which are running; and at once, what fails and where."""

    def __init__(self) -> None:
        self._began = time.monotonic()
        self._running: dict[str, float] = {}
        self._ended: Counter[str] = Counter()
        self._over = threading.Event()

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self._running[nodeid] = time.monotonic()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "call" or report.outcome != "passed":
            self._ended[report.outcome] += 1
        if report.failed:
            why = "\n".join(report.longreprtext.splitlines()[-_LINES_OF_A_FAILURE:])
            self._write(f"FAILED {report.nodeid} ({report.when})\n{why}")

    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        self._running.pop(nodeid, None)

    def start(self) -> None:
        threading.Thread(target=self._run, name="progress", daemon=True).start()

    def pytest_sessionfinish(self) -> None:
        self._over.set()

    def _run(self) -> None:
        while not self._over.wait(_TELL_EVERY):
            self.tell()

    def tell(self) -> None:
        """Say where the run is."""
        now = time.monotonic()
        oldest = sorted(self._running.copy().items(), key=lambda one: one[1])
        running = ", ".join(f"{test.partition('::')[2]} ({now - since:.0f} s)" for test, since in oldest)
        ended = ", ".join(f"{count} {outcome}" for outcome, count in self._ended.copy().items()) or "collecting tests"
        minutes, seconds = divmod(int(now - self._began), 60)
        self._write(f"{minutes:2d}:{seconds:02d}  {ended}; running: {running or 'nothing yet'}")

    def _write(self, line: str) -> None:
        sys.__stderr__.write(f"\n{line}\n")
        sys.__stderr__.flush()


def wake_up_less_often() -> None:
    """Let Linux put off what sleeps, here and in all that is started from here, so that more of it wakes up together.

    A RocketMQ at rest wakes up 2,200 times a second, for 0.11 cores of a small machine; with 5 ms of slack 0.065.
    """
    with contextlib.suppress(OSError):
        Path("/proc/self/timerslack_ns").write_text(str(_TIMER_SLACK_NS))


def pytest_configure(config: pytest.Config) -> None:
    if whole_run.is_worker(config):
        wake_up_less_often()
    elif config.getoption("numprocesses", None):
        wake_up_less_often()  # the brokers that all workers share are started here
        progress = Progress()
        config.pluginmanager.register(progress)
        progress.start()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    reports = [report for kind in ("passed", "failed") for report in terminalreporter.stats.get(kind, ())]
    for line in slow_without_reason(reports):
        terminalreporter.line(line, yellow=True)
    again = terminalreporter.stats.get("rerun", ())
    if again:
        terminalreporter.section("run again")
        for report in again:
            terminalreporter.line(report.nodeid)


def slow_without_reason(reports: Iterable[pytest.TestReport]) -> list[str]:
    """A line for each test that took longer than it says why."""
    return [
        f'{report.nodeid} took {report.duration:.0f} s: mark it @pytest.mark.slow(seconds, "why") or make it shorter'
        for report in reports
        if report.when == "call" and report.duration > SLOW and not dict(report.user_properties).get("says why")
    ]
