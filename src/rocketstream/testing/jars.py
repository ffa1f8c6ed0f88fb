"""RocketMQ's jars, resolved once per user and version, verified, and never committed.

The rule of this file: a version's directory in the cache is either complete or not there. It is filled under another
name, verified, given a manifest, and moved into place in one step, while a lock keeps a second process from doing the
same. A warm start compares names and sizes with the manifest, which is cheap; `JarSet.verify()` compares the contents.

    python -m rocketstream.testing.jars 5.5.0 4.9.7        # fetch (and verify what is there)
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import re
import shutil
import signal
import sys
import tempfile
import time
import zipfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import platformdirs

from rocketstream.errors import ConfigurationError, RocketStreamError
from rocketstream.testing._lock import locked
from rocketstream.testing._resolvers import (
    JarResolutionError,
    Progress,
    Resolver,
    resolve_with_ivy,
    resolve_with_maven,
)
from rocketstream.testing.java import find_java

__all__ = ["JarResolutionError", "JarSet", "cache_directory", "resolve_jars"]

log = logging.getLogger(__name__)

MANIFEST = "manifest.json"
#: What must be inside, or the servers, our Java peer or mqadmin would fail later and less clearly.
MAIN_CLASSES = (
    "org/apache/rocketmq/namesrv/NamesrvStartup.class",
    "org/apache/rocketmq/broker/BrokerStartup.class",
    "org/apache/rocketmq/client/consumer/DefaultMQPushConsumer.class",
    "org/apache/rocketmq/tools/command/MQAdminStartup.class",
)
_VERSION = re.compile(r"\d+\.\d+\.\d+[0-9A-Za-z.-]*")


@dataclass(frozen=True, slots=True)
class JarSet:
    """The jars of one RocketMQ version, with all that they depend on."""

    version: str
    directory: Path

    @property
    def classpath(self) -> str:
        """For `java -cp`; Java itself expands the star."""
        return str(self.directory / "*")

    @property
    def jars(self) -> list[Path]:
        return sorted(self.directory.glob("*.jar"))

    def verify(self) -> None:
        """Compare each jar with the manifest by content; a `JarResolutionError` names the first that differs."""
        listed = self._manifest()["jars"]
        for name, entry in listed.items():
            jar = self.directory / name
            if not jar.is_file():
                raise JarResolutionError(f"{jar} is missing")
            if _sha256(jar) != entry["sha256"]:
                raise JarResolutionError(f"{jar} has changed since it was downloaded")

    def looks_complete(self) -> bool:
        """Whether every jar is there with the size it had: milliseconds, for a warm start."""
        try:
            listed: dict[str, dict[str, Any]] = self._manifest()["jars"]
            sizes = {entry.name: entry.stat().st_size for entry in os.scandir(self.directory)}
        except (OSError, ValueError, KeyError, TypeError):
            return False
        return bool(listed) and all(sizes.get(name) == entry["size"] for name, entry in listed.items())

    def _manifest(self) -> dict[str, Any]:
        manifest: dict[str, Any] = json.loads((self.directory / MANIFEST).read_text())
        return manifest


def cache_directory() -> Path:
    """Where jars live: $ROCKETSTREAM_CACHE, or the user's cache directory."""
    override = os.environ.get("ROCKETSTREAM_CACHE")
    return Path(override) if override else Path(platformdirs.user_cache_dir("rocketstream", appauthor=False))


def resolve_jars(
    version: str,
    *,
    cache: Path | None = None,
    progress: Progress | None = None,
    resolvers: Sequence[Resolver] = (resolve_with_ivy, resolve_with_maven),
    verify: bool = False,
) -> JarSet:
    """Return the jars of a RocketMQ version, from the cache or, the first time, from Maven Central (1 to 3 minutes).

    `resolvers` are tried in order. `progress` is told what happens while it takes its time; the default is the logger
    of this module. With `verify` the contents are compared too, not only the sizes.
    """
    if not _VERSION.fullmatch(version):
        raise ConfigurationError(f"version={version!r} is not a RocketMQ version such as '5.5.0'")
    root = (cache if cache is not None else cache_directory()) / "rocketmq"
    jar_set = JarSet(version, root / version)
    if _is_sound(jar_set, verify):
        return jar_set
    tell = progress if progress is not None else log.info
    root.mkdir(parents=True, exist_ok=True)
    with locked(root / f"{version}.lock"):
        if _is_sound(jar_set, verify):  # another process has just done it
            return jar_set
        if jar_set.directory.exists():
            tell(f"RocketMQ {version}: the cached jars are incomplete or damaged, resolving them again")
        _fill(jar_set, tell, resolvers)
    return jar_set


def _is_sound(jar_set: JarSet, verify: bool) -> bool:
    if not jar_set.looks_complete():
        return False
    if verify:
        try:
            jar_set.verify()
        except (JarResolutionError, OSError):
            return False
    return True


def _fill(jar_set: JarSet, tell: Progress, resolvers: Sequence[Resolver]) -> None:
    began = time.monotonic()
    tell(f"RocketMQ {jar_set.version}: resolving jars from Maven Central; the first time this takes a few minutes")
    problems = []
    root = jar_set.directory.parent
    for resolver in resolvers:
        work = Path(tempfile.mkdtemp(prefix=f".{jar_set.version}-", dir=root))
        try:
            fresh = work / "jars"
            fresh.mkdir()
            resolver(jar_set.version, fresh, lambda line: tell(f"RocketMQ {jar_set.version}: {line}"))
            _write_manifest(jar_set.version, fresh)
            if jar_set.directory.exists():
                os.replace(jar_set.directory, work / "old")
            os.replace(fresh, jar_set.directory)
            tell(f"RocketMQ {jar_set.version}: {len(jar_set.jars)} jars in {time.monotonic() - began:.0f} s")
            return
        except RocketStreamError as problem:
            problems.append(str(problem))
            tell(f"RocketMQ {jar_set.version}: {str(problem).splitlines()[0]}")
        finally:
            shutil.rmtree(work, ignore_errors=True)
    raise JarResolutionError(
        f"RocketMQ {jar_set.version} could not be had from Maven Central. Install pyspark (its Ivy is used) or mvn, and"
        " check that this machine reaches Maven Central.\n" + "\n".join(f"- {problem}" for problem in problems)
    )


def _write_manifest(version: str, directory: Path) -> None:
    """Check each jar as a zip file and that all main classes are there, then write down what there is."""
    jars: dict[str, dict[str, Any]] = {}
    missing = set(MAIN_CLASSES)
    for jar in sorted(directory.glob("*.jar")):
        try:
            with zipfile.ZipFile(jar) as archive:
                if (broken := archive.testzip()) is not None:
                    raise JarResolutionError(f"{jar.name} is damaged: {broken} in it does not match its checksum")
                missing.difference_update(archive.namelist())
        except (zipfile.BadZipFile, OSError) as problem:
            raise JarResolutionError(f"{jar.name} is not a jar: {problem}") from problem
        jars[jar.name] = {"size": jar.stat().st_size, "sha256": _sha256(jar)}
    if missing:
        raise JarResolutionError(
            f"the {len(jars)} jars that were resolved for {version} lack {', '.join(sorted(missing))}"
        )
    (directory / MANIFEST).write_text(json.dumps({"version": version, "jars": jars}, indent=1))


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def main(versions: Sequence[str]) -> int:
    """Fetch the given versions at the same time (it is waiting for the network, mostly); the exit code."""
    if not versions:
        print("usage: python -m rocketstream.testing.jars VERSION...", file=sys.stderr)
        return 2

    def tell(line: str) -> None:
        print(line, flush=True)

    try:
        find_java()
        with ThreadPoolExecutor(len(versions)) as pool:
            for jar_set in pool.map(lambda version: resolve_jars(version, progress=tell), versions):
                print(f"RocketMQ {jar_set.version}: {jar_set.directory}", flush=True)
    except RocketStreamError as problem:
        print(problem, file=sys.stderr)
        return 1
    except OSError as problem:
        print(f"the jars can't be kept: {problem}. Set ROCKETSTREAM_CACHE to a directory for them", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    # Who is told to end leaves nothing half fetched; the resolvers' processes are in the same group, and end too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    sys.exit(main(sys.argv[1:]))
