"""Which Java is taken, and the sentence when there is none."""

from __future__ import annotations

from pathlib import Path

import pytest

from rocketstream.testing.java import JavaNotFoundError, find_java


def fake_java(home: Path, said: str) -> Path:
    """A `java` that answers `-version` like that."""
    executable = home / "bin" / "java"
    executable.parent.mkdir(parents=True)
    executable.write_text(f"#!/bin/sh\necho '{said}' >&2\n")
    executable.chmod(0o755)
    return executable


def test_java_home_comes_before_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    at_home = fake_java(tmp_path / "home", 'openjdk version "21.0.2" 2024-01-16')
    on_path = fake_java(tmp_path / "path", 'openjdk version "17.0.1" 2021-10-19')
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("PATH", str(on_path.parent))

    java = find_java()

    assert (java.executable, java.version) == (at_home, 21)


def test_an_old_java_home_gives_way_to_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_java(tmp_path / "home", 'openjdk version "1.8.0_372"')
    on_path = fake_java(tmp_path / "path", 'openjdk version "17.0.1" 2021-10-19')
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("PATH", str(on_path.parent))

    assert find_java().executable == on_path


def test_says_what_was_there_when_all_are_too_old(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_java(tmp_path / "home", 'java version "1.8.0_372"')
    on_path = fake_java(tmp_path / "path", 'openjdk version "11.0.19" 2023-04-18')
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("PATH", str(on_path.parent))

    with pytest.raises(JavaNotFoundError) as error:
        find_java()

    assert str(error.value) == (
        f"Java 17 or newer is needed to run RocketMQ: JAVA_HOME ({tmp_path / 'home'}) is Java 8 and {on_path} is"
        " Java 11. Install a JDK 17 or newer, or set JAVA_HOME to one."
    )


def test_says_that_there_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(JavaNotFoundError, match="JAVA_HOME is not set and there is no java on PATH"):
        find_java()


def test_a_java_that_does_not_tell_its_version_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    on_path = fake_java(tmp_path, "Unable to locate a Java Runtime")
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(on_path.parent))
    with pytest.raises(JavaNotFoundError, match="Unable to locate a Java Runtime"):
        find_java()


def test_a_runtime_without_a_compiler_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    on_path = fake_java(tmp_path, 'openjdk version "17.0.1"')
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(on_path.parent))
    with pytest.raises(JavaNotFoundError, match="without a compiler: install the JDK"):
        _ = find_java().compiler
