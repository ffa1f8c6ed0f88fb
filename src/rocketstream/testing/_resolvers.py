"""How jars come from Maven Central: with the Ivy that pyspark carries, or with `mvn`.

A resolver puts all jars of the modules, with what they depend on, into a directory, or raises `JarResolutionError` with
the end of what the tool said. Both tools know where Maven Central is and check what they download against the checksums
that it publishes; we never name a host.
"""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path

from rocketstream.errors import RocketStreamError
from rocketstream.testing.java import find_java

ORGANISATION = "org.apache.rocketmq"
#: The servers, the client for our Java peer, and mqadmin.
MODULES = ("rocketmq-namesrv", "rocketmq-broker", "rocketmq-client", "rocketmq-tools")

#: Told what is going on, one short line at a time.
Progress = Callable[[str], None]
#: (version, directory, progress): fill the directory with jars.
Resolver = Callable[[str, Path, Progress], None]


class JarResolutionError(RocketStreamError):
    """RocketMQ's jars could not be had, or are not what they should be."""


def resolve_with_ivy(version: str, into: Path, progress: Progress) -> None:
    """Resolve with the Ivy jar inside pyspark, which is found without importing (and so starting) any of it."""
    ivy_jar = find_ivy()
    if ivy_jar is None:
        raise JarResolutionError("there is no Ivy: pyspark, which carries it, is not installed")
    java = find_java()
    work = into.parent / "ivy"
    work.mkdir()
    settings = work / "settings.xml"
    settings.write_text(
        "<ivysettings>"
        '<property name="ivy.checksums" value="sha1,md5"/>'
        '<settings defaultResolver="central"/>'
        '<resolvers><ibiblio name="central" m2compatible="true"/></resolvers>'
        "</ivysettings>"
    )
    dependencies = "".join(
        f'<dependency org="{ORGANISATION}" name="{module}" rev="{version}" conf="default->default"/>'
        for module in MODULES
    )
    module = work / "ivy.xml"
    module.write_text(
        '<ivy-module version="2.0"><info organisation="rocketstream" module="rocketmq"/>'
        f'<configurations><conf name="default"/></configurations><dependencies>{dependencies}</dependencies>'
        "</ivy-module>"
    )
    command = [
        *(str(java.executable), "-jar", str(ivy_jar)),
        *("-settings", str(settings), "-ivy", str(module), "-confs", "default", "-cache", str(work / "cache")),
        *("-retrieve", f"{into}/[artifact]-[revision](-[classifier]).[ext]"),
    ]
    _run("Ivy", command, progress)


def resolve_with_maven(version: str, into: Path, progress: Progress) -> None:
    """Resolve with the `mvn` on PATH, by a pom that depends on what we want."""
    maven = shutil.which("mvn")
    if maven is None:
        raise JarResolutionError("there is no mvn on PATH")
    work = into.parent / "maven"
    work.mkdir()
    dependencies = "".join(
        f"<dependency><groupId>{ORGANISATION}</groupId><artifactId>{module}</artifactId>"
        f"<version>{version}</version></dependency>"
        for module in MODULES
    )
    pom = work / "pom.xml"
    pom.write_text(
        "<project><modelVersion>4.0.0</modelVersion>"
        "<groupId>rocketstream</groupId><artifactId>rocketmq</artifactId><version>1</version>"
        f"<dependencies>{dependencies}</dependencies></project>"
    )
    command = [
        *(maven, "--batch-mode", "--strict-checksums", "-f", str(pom), "dependency:copy-dependencies"),
        *(f"-DoutputDirectory={into}", "-DincludeScope=runtime"),
    ]
    _run("mvn", command, progress)


def find_ivy() -> Path | None:
    """The Ivy jar that pyspark carries, if pyspark is installed."""
    spec = importlib.util.find_spec("pyspark")
    for location in (spec.submodule_search_locations or ()) if spec else ():
        for jar in sorted(Path(location, "jars").glob("ivy-*.jar")):
            return jar
    return None


def _run(tool: str, command: Sequence[str], progress: Progress) -> None:
    said: deque[str] = deque(maxlen=40)
    with subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace"
    ) as process:
        assert process.stdout is not None
        downloaded = 0
        for line in process.stdout:
            line = line.rstrip()
            if line.strip(". "):
                said.append(line)
            # Ivy says what it begins to download, mvn what it has downloaded (its own plug-ins too).
            if line.startswith(("downloading ", "Downloaded ", "[INFO] Downloaded ")) and ".jar" in line:
                downloaded += 1
                if downloaded % 10 == 0:
                    progress(f"{tool}: {downloaded} jars downloaded")
    if process.returncode != 0:
        tail = "\n  ".join(said)
        raise JarResolutionError(f"{tool} ended with {process.returncode}:\n  {tail}")
