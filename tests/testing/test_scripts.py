"""The scripts say in one sentence what a machine lacks, and set up what is missing in one way."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


JAVA = "echo 'openjdk version \"17.0.1\"' >&2"


def bare_machine(tmp_path: Path, **tools: str) -> tuple[Path, dict[str, str]]:
    """A checkout with only the scripts, and a PATH with only what they need and the given fake tools."""
    checkout = tmp_path / "checkout"
    shutil.copytree(ROOT / "scripts", checkout / "scripts")
    shutil.copy(ROOT / "pyproject.toml", checkout)
    commands = tmp_path / "bin"
    commands.mkdir()
    for name in ("bash", "dirname", "sed", "head", "cmp", "rm", "cp", "mkdir", "mktemp"):
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


def test_the_build_machine_runs_the_same() -> None:
    assert (ROOT / ".ci" / "run").read_text().splitlines()[-1] == "exec ./scripts/test --all"
    assert os.access(ROOT / ".ci" / "run", os.X_OK)
    assert os.access(ROOT / "scripts" / "test", os.X_OK)
