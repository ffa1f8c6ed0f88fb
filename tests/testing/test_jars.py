"""A version's directory in the cache is either complete or not there."""

from __future__ import annotations

import json
import threading
import zipfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from rocketstream.errors import ConfigurationError
from rocketstream.testing._resolvers import Progress, find_ivy, resolve_with_ivy, resolve_with_maven
from rocketstream.testing.jars import MAIN_CLASSES, MANIFEST, JarResolutionError, resolve_jars


class FakeRepository:
    """A resolver that makes jars instead of fetching them, and counts how often it was asked."""

    def __init__(self, classes: tuple[str, ...] = MAIN_CLASSES) -> None:
        self.classes = classes
        self.asked = 0

    def __call__(self, version: str, into: Path, progress: Progress) -> None:
        self.asked += 1
        for number, name in enumerate(self.classes):
            with zipfile.ZipFile(into / f"part-{number}-{version}.jar", "w") as jar:
                jar.writestr(name, name * 10)


def test_is_resolved_once_and_then_comes_from_the_cache(tmp_path: Path) -> None:
    repository = FakeRepository()
    first = resolve_jars("9.9.9", cache=tmp_path, resolvers=[repository])
    second = resolve_jars("9.9.9", cache=tmp_path, resolvers=[repository], verify=True)

    assert first == second
    assert first.directory == tmp_path / "rocketmq" / "9.9.9"
    assert len(first.jars) == 4
    assert first.classpath.endswith("*")
    assert repository.asked == 1


def cut(jar: Path) -> None:
    jar.write_bytes(jar.read_bytes()[:-10])


@pytest.mark.parametrize(
    "damage",
    [
        pytest.param(lambda directory: cut(next(directory.glob("*.jar"))), id="a jar is cut"),
        pytest.param(lambda directory: next(directory.glob("*.jar")).unlink(), id="a jar is missing"),
        pytest.param(lambda directory: (directory / MANIFEST).unlink(), id="no manifest"),
        pytest.param(lambda directory: (directory / MANIFEST).write_text("{"), id="half a manifest"),
        pytest.param(lambda directory: (directory / MANIFEST).write_text('{"jars": {}}'), id="an empty manifest"),
    ],
)
def test_a_damaged_cache_is_resolved_again(tmp_path: Path, damage) -> None:
    repository = FakeRepository()
    jars = resolve_jars("9.9.9", cache=tmp_path, resolvers=[repository])
    damage(jars.directory)
    told: list[str] = []

    resolve_jars("9.9.9", cache=tmp_path, resolvers=[repository], progress=told.append)

    assert repository.asked == 2
    assert "damaged" in told[0]
    jars.verify()


def test_a_change_that_keeps_the_size_is_found_by_a_full_check(tmp_path: Path) -> None:
    repository = FakeRepository()
    jars = resolve_jars("9.9.9", cache=tmp_path, resolvers=[repository])
    victim = jars.jars[2]
    content = bytearray(victim.read_bytes())
    content[40] ^= 1
    victim.write_bytes(content)

    with pytest.raises(JarResolutionError, match=f"{victim.name} has changed"):
        jars.verify()
    assert resolve_jars("9.9.9", cache=tmp_path, resolvers=[repository]).looks_complete()
    assert repository.asked == 1

    resolve_jars("9.9.9", cache=tmp_path, resolvers=[repository], verify=True)
    assert repository.asked == 2
    jars.verify()


def test_nothing_is_left_of_a_failure_and_the_next_resolver_is_tried(tmp_path: Path) -> None:
    def broken(version: str, into: Path, progress: Progress) -> None:
        (into / "half.jar").write_bytes(b"PK")
        raise JarResolutionError("the network went away")

    with pytest.raises(JarResolutionError, match="the network went away"):
        resolve_jars("9.9.9", cache=tmp_path, resolvers=[broken])
    assert [path.name for path in (tmp_path / "rocketmq").iterdir()] == ["9.9.9.lock"]

    jars = resolve_jars("9.9.9", cache=tmp_path, resolvers=[broken, FakeRepository()])
    assert "half.jar" not in {jar.name for jar in jars.jars}


def test_jars_that_lack_a_main_class_are_refused(tmp_path: Path) -> None:
    with pytest.raises(JarResolutionError, match=r"lack org/apache/rocketmq/tools/command/MQAdminStartup\.class"):
        resolve_jars("9.9.9", cache=tmp_path, resolvers=[FakeRepository(MAIN_CLASSES[:3])])
    assert not (tmp_path / "rocketmq" / "9.9.9").exists()


@pytest.mark.parametrize(("change", "words"), [(-8, "is not a jar"), (45, "does not match its checksum")])
def test_a_damaged_download_is_refused(tmp_path: Path, change: int, words: str) -> None:
    def garbling(version: str, into: Path, progress: Progress) -> None:
        FakeRepository()(version, into, progress)
        victim = into / "part-1-9.9.9.jar"
        content = bytearray(victim.read_bytes())
        if change < 0:
            del content[change:]
        else:
            content[change + 40] ^= 0xFF
        victim.write_bytes(content)

    with pytest.raises(JarResolutionError, match=words):
        resolve_jars("9.9.9", cache=tmp_path, resolvers=[garbling])


def test_two_at_once_resolve_once(tmp_path: Path) -> None:
    began, go_on = threading.Event(), threading.Event()
    repository = FakeRepository()

    def slow(version: str, into: Path, progress: Progress) -> None:
        began.set()
        assert go_on.wait(30)
        repository(version, into, progress)

    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(resolve_jars, "9.9.9", cache=tmp_path, resolvers=[slow])
        assert began.wait(30)
        second = pool.submit(resolve_jars, "9.9.9", cache=tmp_path, resolvers=[slow])
        assert not (tmp_path / "rocketmq" / "9.9.9").exists()
        go_on.set()
        assert first.result(30) == second.result(30)
    assert repository.asked == 1


@pytest.mark.parametrize("version", ["", "latest", "../../etc", "5.5"])
def test_a_version_is_a_version(tmp_path: Path, version: str) -> None:
    with pytest.raises(ConfigurationError, match="is not a RocketMQ version"):
        resolve_jars(version, cache=tmp_path, resolvers=[FakeRepository()])


def test_the_environment_moves_the_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROCKETSTREAM_CACHE", str(tmp_path / "elsewhere"))
    assert resolve_jars("9.9.9", resolvers=[FakeRepository()]).directory.is_relative_to(tmp_path / "elsewhere")


@pytest.mark.parametrize("version", ["5.5.0", "4.9.7"])
def test_what_maven_central_gave_us_is_unchanged(version: str) -> None:
    jars = resolve_jars(version)
    jars.verify()
    names = {jar.name for jar in jars.jars}
    assert {f"rocketmq-{module}-{version}.jar" for module in ("namesrv", "broker", "client", "tools")} <= names
    assert json.loads((jars.directory / MANIFEST).read_text())["version"] == version


def test_ivy_of_pyspark_is_found_and_its_words_are_shown(tmp_path: Path) -> None:
    assert find_ivy() is not None
    with pytest.raises(JarResolutionError, match=r"(?s)Ivy ended with 1.*rocketmq-broker;0\.0\.1"):
        resolve_jars("0.0.1", cache=tmp_path, resolvers=[resolve_with_ivy])


def test_maven_is_asked_for_the_same_modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    jars = resolve_jars("9.9.9", cache=tmp_path / "made", resolvers=[FakeRepository()])
    maven = tmp_path / "bin" / "mvn"
    maven.parent.mkdir()
    maven.write_text(
        "#!/bin/sh\n"
        'while [ $# -gt 0 ]; do case "$1" in -f) pom=$2;; -DoutputDirectory=*) out=${1#*=};; esac; shift; done\n'
        f'/bin/cp "$pom" "{tmp_path}/asked.xml"\n'
        f'/bin/cp "{jars.directory}"/*.jar "$out"\n'
    )
    maven.chmod(0o755)
    monkeypatch.setenv("PATH", str(maven.parent))

    copy = resolve_jars("9.9.9", cache=tmp_path / "copied", resolvers=[resolve_with_maven])

    asked = (tmp_path / "asked.xml").read_text()
    assert "<artifactId>rocketmq-broker</artifactId><version>9.9.9</version>" in asked
    assert [jar.name for jar in copy.jars] == [jar.name for jar in jars.jars]


def test_without_any_tool_the_error_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rocketstream.testing._resolvers.find_ivy", lambda: None)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(JarResolutionError) as error:
        resolve_jars("9.9.9", cache=tmp_path)
    assert "Install pyspark" in str(error.value)
    assert "pyspark, which carries it, is not installed" in str(error.value)
    assert "there is no mvn on PATH" in str(error.value)
