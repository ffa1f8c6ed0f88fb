"""RocketMQ's own `mqadmin`: several commands in one JVM, because starting one takes longer than any command."""

from __future__ import annotations

import base64
import os
import re
import subprocess
from collections.abc import Sequence
from pathlib import Path

from rocketstream.testing.jars import resolve_jars
from rocketstream.testing.java import find_java
from rocketstream.testing.node import JAVA_17_DOORS, PROFILES
from tests.interop.java_program import compile_peer


def tools_home(directory: Path) -> Path:
    """A directory that the tools take for their home; those of 4.9 do not start without it."""
    (directory / "conf").mkdir(parents=True)
    (directory / "conf" / "logback_tools.xml").write_text("<configuration/>")
    return directory


def mqadmin(version: str, home: Path, name_server: str, *commands: Sequence[str]) -> list[str]:
    """What each command prints; what they write into files is in `home`."""
    jars = resolve_jars(version)
    arguments = [word for command in commands for word in (command[0], "-n", name_server, *command[1:], "--")]
    done = subprocess.run(
        [
            *(
                str(find_java().executable),
                *JAVA_17_DOORS,
                *PROFILES["test"],
                "-Xmx128m",
                f"-Duser.home={home}",
                f"-Djava.io.tmpdir={home}",
            ),
            *("-cp", os.pathsep.join((str(compile_peer(jars)), jars.classpath)), "MqAdmin", *arguments),
        ],
        env={**os.environ, "ROCKETMQ_HOME": str(home)},
        cwd=home,
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )
    printed = re.findall(r"^printed:(.*)$", done.stdout, re.MULTILINE)
    assert len(printed) == len(commands), f"{len(printed)} of {len(commands)} ended\n{done.stderr[-2000:]}"
    return [base64.b64decode(one).decode() for one in printed]
