"""Which Java runs the real RocketMQ.

JAVA_HOME first, then PATH; the first one that is new enough wins. When there is none, one sentence says what was looked
at and what each was, because "java: not found" in the middle of a test run helps nobody.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from rocketstream.errors import RocketStreamError

#: RocketMQ 5.5.0 and 4.9.7 run on older ones too, but the flags we start them with are those of 17.
MINIMUM_VERSION = 17

_VERSION = re.compile(r'version "(?:1\.)?(\d+)')


class JavaNotFoundError(RocketStreamError):
    """No Java that is new enough; the text says where we looked and what we saw there."""


@dataclass(frozen=True, slots=True)
class Java:
    """A Java installation that was asked for its version."""

    executable: Path
    version: int

    @property
    def compiler(self) -> Path:
        """`javac` of the same installation; a runtime without a compiler is an error that says so."""
        name = "javac.exe" if os.name == "nt" else "javac"
        beside = self.executable.resolve().parent / name
        if beside.exists():
            return beside
        if found := shutil.which("javac"):
            return Path(found)
        raise JavaNotFoundError(
            f"{self.executable} is a Java {self.version} runtime without a compiler: install the JDK (not the JRE)"
            " of the same version, or point JAVA_HOME at a JDK."
        )


def find_java(minimum: int = MINIMUM_VERSION) -> Java:
    """Return the Java of JAVA_HOME or PATH, or raise `JavaNotFoundError` with one clear sentence."""
    return _find_java(minimum, os.environ.get("JAVA_HOME") or "", os.environ.get("PATH") or "")


@lru_cache(maxsize=8)
def _find_java(minimum: int, java_home: str, path: str) -> Java:
    seen = []
    if java_home:
        inside = shutil.which("java", path=os.path.join(java_home, "bin"))
        if inside is None:
            seen.append(f"JAVA_HOME ({java_home}) has no bin/java")
        else:
            version, words = _ask_version(inside)
            if version >= minimum:
                return Java(Path(inside), version)
            seen.append(f"JAVA_HOME ({java_home}) is {words}")
    else:
        seen.append("JAVA_HOME is not set")
    on_path = shutil.which("java", path=path)
    if on_path is None:
        seen.append("there is no java on PATH")
    else:
        version, words = _ask_version(on_path)
        if version >= minimum:
            return Java(Path(on_path), version)
        seen.append(f"{on_path} is {words}")
    raise JavaNotFoundError(
        f"Java {minimum} or newer is needed to run RocketMQ: {' and '.join(seen)}."
        f" Install a JDK {minimum} or newer, or set JAVA_HOME to one."
    )


def _ask_version(executable: str) -> tuple[int, str]:
    """The major version (0 when it can't be told) and how to say it."""
    try:
        answer = subprocess.run([executable, "-version"], capture_output=True, text=True, timeout=60, check=False)
    except (OSError, subprocess.SubprocessError) as problem:
        return 0, f"not usable ({problem})"
    said = answer.stderr + answer.stdout
    match = _VERSION.search(said)
    if match is None:
        return 0, f"not usable (`java -version` said {said.strip()[:200]!r})"
    return int(match[1]), f"Java {match[1]}"
