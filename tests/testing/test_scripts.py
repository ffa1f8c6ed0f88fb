"""The scripts say in one sentence what a machine lacks, and set up what is missing in one way."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from pathlib import Path

import pytest

from tests.testing.processes import eventually

ROOT = Path(__file__).parents[2]


JAVA = "echo 'openjdk version \"17.0.1\"' >&2"


def bare_machine(tmp_path: Path, **tools: str) -> tuple[Path, dict[str, str]]:
    """A checkout with only the scripts, and a PATH with only what they need and the given fake tools."""
    checkout = tmp_path / "checkout"
    shutil.copytree(ROOT / "scripts", checkout / "scripts")
    shutil.copy(ROOT / "pyproject.toml", checkout)
    commands = tmp_path / "bin"
    commands.mkdir()
    for name in ("bash", "dirname", "sed", "head", "tail", "cat", "cmp", "rm", "cp", "mkdir", "mktemp", "sleep"):
        found = shutil.which(name)
        assert found is not None
        (commands / name).symlink_to(found)
    for name, script in tools.items():
        (commands / name).write_text(f"#!{shutil.which('sh')}\n{script}\n")
        (commands / name).chmod(0o755)
    hidden = ("JAVA_HOME", "ROCKETSTREAM_ENVIRONMENT")
    environment = {key: value for key, value in os.environ.items() if key not in hidden}
    return checkout, {**environment, "PATH": str(commands)}


def run(
    checkout: Path, environment: dict[str, str], *arguments: str, script: str = "test"
) -> subprocess.CompletedProcess[str]:
    command = [str(checkout / "scripts" / script), *arguments]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=60)


@pytest.mark.parametrize(("script", "purpose"), [("test", "to run RocketMQ"), ("demo", "for Spark")])
def test_without_java(tmp_path: Path, script: str, purpose: str) -> None:
    done = run(*bare_machine(tmp_path), script=script)
    assert done.returncode == 1
    assert (
        done.stderr.strip()
        .splitlines()[-1]
        .startswith(
            f"scripts/{script}: Java 17 or newer is needed {purpose}, and neither JAVA_HOME (not set) nor PATH has one."
            " Install a JDK 17 or newer, or set JAVA_HOME to one"
        )
    )


def test_with_an_old_java(tmp_path: Path) -> None:
    done = run(*bare_machine(tmp_path, java="echo 'openjdk version \"11.0.19\"' >&2"))
    assert done.returncode == 1
    assert "Java 17 or newer is needed" in done.stderr


@pytest.mark.parametrize("script", ["test", "demo", "docs"])
def test_without_python(tmp_path: Path, script: str) -> None:
    done = run(*bare_machine(tmp_path, java=JAVA, python3="exit 1"), script=script)
    assert done.returncode == 1
    assert done.stderr.startswith(f"scripts/{script}: Python 3.11 or newer is needed, and none of")


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--python="], "--python needs an interpreter, for example --python python3.13"),
        (["--python"], "--python needs an interpreter, for example --python python3.13"),
        (["--python", "python9"], "--python python9: there is no such Python on PATH"),
        (["--python", "dead"], "--python dead is on PATH, but does not run: not here. Give the path of one that does."),
        (["--python=old"], "--python old is Python 3.8.1: Python 3.11 or newer is needed"),
        (["--all", "tests/wire"], "--all runs everything: leave it out to run tests/wire"),
    ],
)
def test_a_wrong_option_is_one_sentence(tmp_path: Path, arguments: list[str], told: str) -> None:
    old = 'case $1 in -c) [ -z "$2" ] ;; *) echo Python 3.8.1 ;; esac'
    done = run(*bare_machine(tmp_path, java=JAVA, old=old, dead="echo not here; exit 1"), *arguments)
    assert done.returncode == 2
    assert done.stderr.strip() == f"scripts/test: {told}"


#: A Python that is new enough, makes environments that have it, and tells what it is asked to do.
FAKE_PYTHON = """case "$*" in
    "-m pip --version") ;;
    "-m venv "*) mkdir -p "$3/bin"; cp "$0" "$3/bin/python"; echo "venv" >>"$LOG" ;;
    "-m pip "*) echo "pip ${*##*[}" >>"$LOG" ;;
    *print*) echo 3.13 ;;
    --version) echo Python 3.13.0 ;;
    -c*) ;;
    *) echo "ran $*" >>"$LOG" ;;
esac"""
FAKE_UV = """case "$*" in
    "venv "*) mkdir -p "$5/bin"; cp "$4" "$5/bin/python"; echo "uv venv" >>"$LOG" ;;
    "pip install "*) echo "uv pip ${*##*[}" >>"$LOG" ;;
esac"""


@pytest.mark.parametrize("has_uv", [False, True], ids=["pip", "uv"])
def test_an_environment_is_made_once_with_uv_where_it_is_installed(tmp_path: Path, has_uv: bool) -> None:
    tools = {"uv": FAKE_UV} if has_uv else {}
    checkout, environment = bare_machine(tmp_path, java=JAVA, python3=FAKE_PYTHON, **tools)
    log = tmp_path / "log"
    environment["LOG"] = str(log)
    for _ in range(2):
        assert run(checkout, environment, "--rounds", script="demo").returncode == 0
    made, installed = ("uv venv", "uv pip spark,speed]") if has_uv else ("venv", "pip spark,speed]")
    ran = "ran -m rocketstream demo --rounds"
    assert log.read_text().splitlines() == [made, installed, ran, ran]
    with (checkout / "pyproject.toml").open("a") as file:
        file.write("# changed\n")
    assert run(checkout, environment, script="demo").returncode == 0
    assert log.read_text().splitlines()[4] == installed, "what is needed may have changed with the file"


def test_an_environment_that_was_not_made_to_its_end_is_made_anew(tmp_path: Path) -> None:
    checkout, environment = bare_machine(tmp_path, java=JAVA, python3=FAKE_PYTHON)
    log = tmp_path / "log"
    environment["LOG"] = str(log)
    (checkout / ".venv" / "bin").mkdir(parents=True)
    shutil.copy(tmp_path / "bin" / "python3", checkout / ".venv" / "bin" / "python")  # Ctrl-C came before pip
    assert run(checkout, environment, script="demo").returncode == 0
    assert log.read_text().splitlines()[0] == "venv"


# --- scripts/test, with tools that only tell what they are asked to do ----------------------------------------------

TOOLS = {"java": JAVA, "python3": FAKE_PYTHON, "ruff": "echo fine", "mypy": "echo fine", "lint-imports": "echo fine"}
ASKED_FOR_QUICK = "ran -m pytest -n auto --durations=20 --durations-min=5 --quick"
ASKED_FOR_ALL = "ran -m pytest -n auto --durations=20 --durations-min=5"


def checkout_with(tmp_path: Path, **tools: str) -> tuple[Path, dict[str, str], Path]:
    checkout, environment = bare_machine(tmp_path, **{**TOOLS, **tools})
    log = tmp_path / "log"
    environment["LOG"] = str(log)
    environment.pop("TEST_WORKERS", None)
    return checkout, environment, log


@pytest.mark.parametrize(
    ("arguments", "asked", "jars"),
    [
        ([], ASKED_FOR_QUICK, "5.5.0"),
        (["--all"], ASKED_FOR_ALL, "5.5.0 4.9.7"),
        (["tests/wire", "-k", "frame"], "ran -m pytest tests/wire -k frame", "5.5.0"),
        (["--rocketmq-version", "4.9.7"], "ran -m pytest --rocketmq-version 4.9.7", "5.5.0 4.9.7"),
    ],
)
def test_what_is_run(tmp_path: Path, arguments: list[str], asked: str, jars: str) -> None:
    checkout, environment, log = checkout_with(tmp_path)
    done = run(checkout, environment, *arguments)
    assert done.returncode == 0, done.stderr
    lines = done.stderr.splitlines()
    assert lines[-1] == "== all passed"
    assert lines[-2].startswith("== times: set-up ")
    assert {asked, f"ran -m rocketstream.testing.jars {jars}"} <= set(log.read_text().splitlines())


def test_another_python_has_an_environment_of_its_own(tmp_path: Path) -> None:
    newer = FAKE_PYTHON.replace("in\n", "in\n    *base_prefix*) echo 3.13.1 ;;\n", 1)
    checkout, environment, log = checkout_with(tmp_path, other=FAKE_PYTHON, newer=newer)
    assert run(checkout, environment, "--python", "other").returncode == 0
    assert (checkout / ".venv-3.13" / "bin" / "python").exists()
    assert not (checkout / ".venv").exists()
    made = log.read_text().splitlines().count("venv")
    command, here = [str(checkout / "scripts" / "test"), "--python=./other"], tmp_path / "bin"
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, cwd=here)
    assert done.returncode == 0, done.stderr
    assert log.read_text().splitlines().count("venv") == made, "it is the same one"
    (tmp_path / "bin" / "other").write_text((tmp_path / "bin" / "newer").read_text())
    assert run(checkout, environment, "--python", "other").returncode == 0
    assert log.read_text().splitlines().count("venv") == made + 1


def test_a_check_that_fails_ends_the_run(tmp_path: Path) -> None:
    checkout, environment, log = checkout_with(tmp_path, mypy="echo this is wrong; exit 1")
    done = run(checkout, environment)
    assert done.returncode == 1
    assert "== mypy failed:" in done.stderr.splitlines()
    assert done.stdout == "this is wrong\n"
    assert done.stderr.splitlines()[-1] == "scripts/test: the checks above failed"
    assert ASKED_FOR_QUICK not in log.read_text().splitlines()


def test_tests_that_fail_fail_the_run(tmp_path: Path) -> None:
    python = FAKE_PYTHON.replace('*) echo "ran', '"-m pytest"*) exit 3 ;; *.jars*) echo no net; exit 1 ;; *) echo "ran')
    checkout, environment, _ = checkout_with(tmp_path, python3=python)
    done = run(checkout, environment)
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == "scripts/test: tests failed (pytest's exit code 3)"
    assert done.stdout == "no net\n", "why jars are missing"
    again = run(checkout, environment, "tests/wire")
    assert (again.returncode, again.stderr.splitlines()[-1]) == (1, done.stderr.splitlines()[-1])


def test_a_wrong_number_of_workers_is_told_before_anything_is_made(tmp_path: Path) -> None:
    checkout, environment, _ = checkout_with(tmp_path)
    done = run(checkout, {**environment, "TEST_WORKERS": "many"})
    assert done.returncode == 2
    assert done.stderr == "scripts/test: TEST_WORKERS=many is not a number of tests to run side by side\n"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_the_tests_in_order(tmp_path: Path, number: signal.Signals) -> None:
    waits = """"-m pytest"*) trap 'echo ended >>"$LOG"; exit 2' INT
        echo began >>"$LOG"; while :; do sleep 0.1; done ;;"""
    python = FAKE_PYTHON.replace('*) echo "ran', waits + '\n    *) echo "ran')
    checkout, environment, log = checkout_with(tmp_path, python3=python)
    command = [str(checkout / "scripts" / "test")]
    with subprocess.Popen(
        command, env=environment, stderr=subprocess.PIPE, text=True, start_new_session=True
    ) as running:
        assert eventually(lambda: log.exists() and "began" in log.read_text())
        running.send_signal(number)
        said = running.communicate(timeout=30)[1]
    assert running.returncode == 128 + number
    assert said.splitlines()[-1] == "== ending the tests and their servers (Ctrl-C again: at once)"
    assert log.read_text().splitlines()[-1] == "ended"


def test_the_build_machine_runs_the_same() -> None:
    assert (ROOT / ".ci" / "run").read_text().splitlines()[-1] == "exec ./scripts/test --all"
    assert os.access(ROOT / ".ci" / "run", os.X_OK)
    assert os.access(ROOT / "scripts" / "test", os.X_OK)
