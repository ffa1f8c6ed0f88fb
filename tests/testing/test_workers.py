"""How our own run is shared out: what belongs together stays together, and long units go first."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests import workers
from tests.workers import (
    FULL_LOAD,
    SERVERS_LOAD,
    UnitScheduling,
    expected_seconds,
    load,
    needs,
    slow_without_reason,
    unit_of,
)

PLUGINS = ("-p", "tests.whole_run", "-p", "tests.workers", "-p", "no:cacheprovider")


@pytest.fixture
def settings(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[2]))
    pytester.makeini(
        """
        [pytest]
        asyncio_default_fixture_loop_scope = function
        markers =
            slow(seconds, why): takes a while
            long(seconds, why): takes longer
        """
    )
    return pytester


TESTS = """
import pytest

@pytest.fixture(scope="module", params=["embedded", "5.5.0"])
def own_cluster(request): return request.param

@pytest.fixture(scope="session")
def spark(): pass

@pytest.fixture(scope="session")
def java_peer(): pass

def test_alone(): pass
def test_alone_too(): pass
@pytest.mark.parametrize("target", ["embedded", "5.5.0"])
def test_broker(target): pass
def test_own(own_cluster): pass
def test_own_too(own_cluster): pass
def test_of_spark(spark): pass
@pytest.mark.parametrize("target", ["5.5.0"])
def test_of_java(java_peer, target): pass
@pytest.mark.xdist_group("machine")
def test_of_the_machine(spark): pass
@pytest.mark.slow(15, "waits")
def test_slow(): pass
@pytest.mark.long(60, "kills")
@pytest.mark.parametrize("target", ["4.9.7"])
def test_long(target): pass
"""


def test_what_shares_something_expensive_is_one_unit(settings: pytest.Pytester):
    file = settings.path / "tests" / "test_it.py"
    file.parent.mkdir()
    file.write_text(TESTS)
    items, _ = settings.inline_genitems("tests", *PLUGINS)
    units = {item.name: unit_of(item) for item in items}
    here = "tests/test_it.py"
    assert units == {
        "test_alone": here,
        "test_alone_too": here,
        "test_slow": here,
        "test_broker[embedded]": f"{here}::test_broker[embedded]",
        "test_broker[5.5.0]": f"{here}::test_broker[5.5.0]",
        "test_long[4.9.7]": f"{here}::test_long[4.9.7]",
        "test_own[embedded]": f"{here} embedded",
        "test_own_too[embedded]": f"{here} embedded",
        "test_own[5.5.0]": f"{here} 5.5.0",
        "test_own_too[5.5.0]": f"{here} 5.5.0",
        "test_of_spark": "spark",
        "test_of_java[5.5.0]": "java 5.5.0",
        "test_of_the_machine": "machine",
    }
    needed = {item.name: needs(item) for item in items}
    assert needed["test_broker[embedded]"] == needed["test_alone"] == set()
    assert needed["test_of_java[5.5.0]"] == needed["test_broker[5.5.0]"] == {"5.5.0"}
    seconds = {item.name: expected_seconds(item) for item in items}
    assert seconds["test_slow"] == 15
    assert seconds["test_long[4.9.7]"] == 60
    assert seconds["test_alone"] < seconds["test_broker[embedded]"] < seconds["test_broker[5.5.0]"] < 15
    loads = {item.name: load(item) for item in items}
    assert {name for name, made in loads.items() if made == FULL_LOAD} == {"test_of_spark", "test_of_the_machine"}
    assert {name for name, made in loads.items() if made == SERVERS_LOAD} == {"test_long[4.9.7]"}


def test_a_quick_run_leaves_out_what_is_long_and_the_other_version(settings: pytest.Pytester):
    settings.makepyfile(TESTS)
    done = settings.runpytest("--collect-only", "-q", "--quick", *PLUGINS)
    done.stdout.fnmatch_lines(["*test_broker[[]5.5.0[]]", "12/13 tests collected (1 deselected)*"])
    assert "test_long" not in str(done.stdout)


def test_a_quick_run_passes_once_over_interop_and_spark(settings: pytest.Pytester):
    text = """
import pytest
@pytest.mark.parametrize("target", ["embedded", "5.5.0", "4.9.7"])
@pytest.mark.parametrize("what", [["a"], ["b"]], ids=["a", "b"])
def test_everywhere(target, what): pass
@pytest.mark.parametrize("target", ["embedded"])
def test_embedded(target): pass
@pytest.mark.parametrize("target", ["5.5.0"])
def test_real(target): pass
@pytest.mark.long(30, "stops a broker", real=True)
@pytest.mark.parametrize("target", ["embedded", "5.5.0"])
def test_long_on_real(target): pass
def test_alone(): pass
"""
    for place in ("contract", "interop", "spark"):
        (settings.path / "tests" / place).mkdir(parents=True)
        (settings.path / "tests" / place / f"test_{place}.py").write_text(text)
    done = settings.runpytest("--collect-only", "-q", "--quick", *PLUGINS, "tests")
    found = [line.partition("::")[2] for line in done.outlines if "::" in line]
    both = ["test_embedded[embedded]", "test_real[5.5.0]", "test_long_on_real[embedded]", "test_alone"]
    embedded = ["test_everywhere[a-embedded]", "test_everywhere[b-embedded]"]
    real = ["test_everywhere[a-5.5.0]", "test_everywhere[b-5.5.0]"]
    assert sorted(found) == sorted([*both, *embedded, *real, *both, *real, *both, *embedded])


@pytest.mark.parametrize(
    ("marker", "told"),
    [
        ("slow(15)", '*: write @pytest.mark.slow(seconds, "why it takes so long")'),
        ("long('why')", '*: write @pytest.mark.long(seconds, "why it takes so long")'),
        ("flaky(reruns=1)", '*: write @pytest.mark.flaky(reruns=1, reason="why it may fail")'),
    ],
)
def test_a_marker_without_a_reason_is_refused(settings: pytest.Pytester, marker: str, told: str):
    settings.makepyfile(f"import pytest\n@pytest.mark.{marker}\ndef test_x(): pass\n")
    done = settings.runpytest_inprocess(*PLUGINS)
    assert done.ret == pytest.ExitCode.USAGE_ERROR
    done.stderr.fnmatch_lines([told])


def test_workers_leave_it_to_their_controller_to_refuse(settings: pytest.Pytester):
    settings.makepyfile("import pytest\n@pytest.mark.slow\ndef test_x(): pass\ndef test_y(): pass\n")
    done = settings.runpytest_subprocess("-n", "2", *PLUGINS)
    assert done.ret == pytest.ExitCode.USAGE_ERROR
    done.stdout.fnmatch_lines(['ERROR: *::test_x: write @pytest.mark.slow(seconds, "why it takes so long")'])
    done.assert_outcomes()


class Node:
    """A worker, as the scheduler sees it."""

    shutting_down = False

    def __init__(self, name: str) -> None:
        self.gateway = SimpleNamespace(id=name)
        self.given: list[int] = []

    def send_runtest_some(self, indices: list[int]) -> None:
        self.given += indices

    def shutdown(self) -> None:
        self.shutting_down = True


def scheduling(directory: Path, units: dict[str, dict[str, Any]], nodes: int = 1) -> tuple[UnitScheduling, list[Node]]:
    (directory / "units.json").write_text(json.dumps(units))
    option = SimpleNamespace(tx=["popen"] * nodes, loadscopereorder=True, px=[])
    config: Any = SimpleNamespace(option=option, getvalue=lambda name: getattr(option, name))
    made = UnitScheduling(config)
    made.directory = directory
    workers = [Node(f"gw{number}") for number in range(nodes)]
    tests = [test for unit in units.values() for test in unit["tests"]]
    for node in workers:
        made.add_node(node)  # type: ignore[arg-type]
        made.add_node_collection(node, tests)  # type: ignore[arg-type]
    return made, workers


def unit(seconds: float, *tests: str, needs: tuple[str, ...] = (), load: int = 0) -> dict[str, Any]:
    return {"tests": list(tests), "seconds": seconds, "load": load, "needs": list(needs)}


def test_the_longest_unit_goes_first_of_those_whose_broker_is_ready(tmp_path: Path):
    units = {
        "short": unit(1, "s1"),
        "real": unit(60, "r1", "r2", needs=("5.5.0",)),
        "middle": unit(10, "m1"),
        "long": unit(30, "l1"),
    }
    made, (node,) = scheduling(tmp_path, units)
    made.schedule()
    names = [test for one in units.values() for test in one["tests"]]

    def given() -> list[str]:
        return [names[index] for index in node.given]

    assert given() == ["l1", "m1"], "one ahead, and none of the broker that is not there yet"
    (tmp_path / "5.5.0.json").touch()
    made.mark_test_complete(node, names.index("l1"))  # type: ignore[arg-type]
    assert given() == ["l1", "m1", "r1", "r2"]
    made.mark_test_complete(node, names.index("m1"))  # type: ignore[arg-type]
    assert given() == ["l1", "m1", "r1", "r2"], "a worker that has enough gets no more"
    made.mark_test_complete(node, names.index("r1"))  # type: ignore[arg-type]
    assert given()[-1] == "s1"
    made.mark_test_complete(node, names.index("r2"))  # type: ignore[arg-type]
    assert node.shutting_down
    assert made.tests_finished


def test_what_keeps_the_machine_busy_is_not_all_run_at_the_same_time(tmp_path: Path):
    units = {
        **{f"spark {n}": unit(90 + n, f"spark {n}", load=2) for n in range(3)},
        "servers": unit(50, "servers", load=1),
        **{f"light {n}": unit(1 + n, f"light {n}") for n in range(6)},
    }
    made, nodes = scheduling(tmp_path, units, nodes=4)
    made.most_load = 4
    made.schedule()
    names = list(units)

    def given(node: Node) -> list[str]:
        return [names[index] for index in node.given]

    # Each gets one, then the next one: who has Spark may have it again, for it runs one at a time.
    assert [given(node)[0] for node in nodes] == ["spark 2", "spark 1", "light 5", "light 4"]
    assert [given(node)[1] for node in nodes] == ["spark 0", "servers", "light 3", "light 2"]
    made.mark_test_complete(nodes[2], names.index("light 5"))  # type: ignore[arg-type]
    assert given(nodes[2])[-1] == "light 1"


def test_a_test_above_ten_seconds_says_why():
    def report(name: str, duration: float, says_why: bool) -> Any:
        told = [("says why", says_why)]
        return SimpleNamespace(nodeid=name, when="call", duration=duration, user_properties=told)

    reports = [report("quick", 9.0, False), report("slow", 12.0, False), report("told", 99.0, True)]
    (line,) = slow_without_reason(reports)
    assert line.startswith("slow took 12 s: mark it @pytest.mark.slow(")


def test_what_was_run_again_is_listed(settings: pytest.Pytester):
    settings.makepyfile(
        """
        import pytest
        tries = []

        @pytest.mark.flaky(reruns=1, reason="the first try is lost")
        def test_second_time_lucky():
            tries.append(1)
            assert len(tries) == 2

        def test_unlucky():
            tries.append(1)
            assert len(tries) == 5
        """
    )
    done = settings.runpytest_subprocess(*PLUGINS)
    done.assert_outcomes(passed=1, failed=1)
    done.stdout.fnmatch_lines(["*= run again =*", "*::test_second_time_lucky"])


def test_what_spark_gives_up_after_ten_seconds_is_run_again_and_nothing_else_of_it(settings: pytest.Pytester):
    file = settings.path / "tests" / "spark" / "test_it.py"
    file.parent.mkdir(parents=True)
    file.write_text(
        """
tries = []

def test_the_next_one_connects():
    tries.append(1)
    if len(tries) == 1:
        raise RuntimeError("Python worker failed to connect back.")

def test_wrong():
    tries.append(1)
    assert len(tries) == 4
"""
    )
    done = settings.runpytest_subprocess(*PLUGINS, "tests")
    done.assert_outcomes(passed=1, failed=1)
    done.stdout.fnmatch_lines(["*= run again =*", "tests/spark/test_it.py::test_the_next_one_connects"])


def test_what_javas_client_gives_up_is_run_again_and_what_ours_does_is_not(settings: pytest.Pytester):
    file = settings.path / "tests" / "interop" / "test_it.py"
    file.parent.mkdir(parents=True)
    file.write_text(
        """
tries = []

def test_java():
    tries.append(1)
    if len(tries) == 1:
        raise RuntimeError("org.apache.rocketmq.remoting.exception.RemotingTimeoutException: wait response timeout")

def test_ours():
    tries.append(1)
    if len(tries) == 3:
        raise RuntimeError("no answer to PULL_MESSAGE within 3 s")
"""
    )
    done = settings.runpytest_subprocess(*PLUGINS, "tests")
    done.assert_outcomes(passed=1, failed=1)
    done.stdout.fnmatch_lines(["*= run again =*", "tests/interop/test_it.py::test_java"])


def test_progress_says_what_runs(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    monkeypatch.setattr(workers.sys, "__stderr__", workers.sys.stderr)
    progress = workers.Progress()
    progress.pytest_runtest_logstart("tests/test_a.py::test_a")
    progress.pytest_runtest_logstart("tests/test_b.py::test_b")
    passed = SimpleNamespace(when="call", outcome="passed", failed=False)
    progress.pytest_runtest_logreport(passed)  # type: ignore[arg-type]
    progress.pytest_runtest_logfinish("tests/test_a.py::test_a")
    progress.tell()
    text = "\n".join(["not this", *(f"line {n}" for n in range(25))])
    test = "tests/test_b.py::test_b"
    failed = SimpleNamespace(when="setup", outcome="failed", failed=True, nodeid=test, longreprtext=text)
    progress.pytest_runtest_logreport(failed)  # type: ignore[arg-type]
    said = capsys.readouterr().err
    assert said.startswith(
        "\n 0:00  1 passed; running: test_b (0 s)\n\nFAILED tests/test_b.py::test_b (setup)\nline 0\n"
    )
    assert said.endswith("line 24\n")
