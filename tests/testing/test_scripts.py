"""`scripts/test` says in one sentence what a machine lacks."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[2]


def bare_machine(tmp_path: Path, **tools: str) -> tuple[Path, dict[str, str]]:
    """A checkout with only scripts/test, and a PATH with only what the script needs and the given fake tools."""
    checkout = tmp_path / "checkout"
    (checkout / "scripts").mkdir(parents=True)
    shutil.copy(ROOT / "scripts" / "test", checkout / "scripts" / "test")
    commands = tmp_path / "bin"
    commands.mkdir()
    for name in ("bash", "dirname", "sed", "head", "cmp", "rm"):
        found = shutil.which(name)
        assert found is not None
        (commands / name).symlink_to(found)
    for name, script in tools.items():
        (commands / name).write_text(f"#!{shutil.which('sh')}\n{script}\n")
        (commands / name).chmod(0o755)
    environment = {key: value for key, value in os.environ.items() if key != "JAVA_HOME"}
    return checkout, {**environment, "PATH": str(commands)}


def run(checkout: Path, environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    script = str(checkout / "scripts" / "test")
    return subprocess.run([script], env=environment, capture_output=True, text=True, check=False, timeout=60)


def test_without_java(tmp_path: Path) -> None:
    done = run(*bare_machine(tmp_path))
    assert done.returncode == 1
    assert done.stderr.strip().splitlines()[-1] == (
        "scripts/test: Java 17 or newer is needed to run RocketMQ, and neither JAVA_HOME (not set) nor PATH has one."
        " Install a JDK 17 or newer, or set JAVA_HOME to one."
    )


def test_with_an_old_java(tmp_path: Path) -> None:
    done = run(*bare_machine(tmp_path, java="echo 'openjdk version \"11.0.19\"' >&2"))
    assert done.returncode == 1
    assert "Java 17 or newer is needed" in done.stderr


def test_without_python(tmp_path: Path) -> None:
    done = run(*bare_machine(tmp_path, java="echo 'openjdk version \"17.0.1\"' >&2", python3="exit 1"))
    assert done.returncode == 1
    assert done.stderr.startswith("scripts/test: Python 3.11 or newer is needed, and none of")


def test_the_build_machine_runs_the_same() -> None:
    assert (ROOT / ".ci" / "run").read_text().splitlines()[-1] == 'exec ./scripts/test "$@"'
    assert os.access(ROOT / ".ci" / "run", os.X_OK)
    assert os.access(ROOT / "scripts" / "test", os.X_OK)
