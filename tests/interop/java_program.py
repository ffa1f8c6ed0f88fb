"""The Java program beside us: compiled when its sources are new, started, spoken to in lines of JSON.

What it can be asked is in `java_peer.py`. It dies with us.
"""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import json
import os
import shutil
import subprocess
import tempfile
import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from rocketstream.errors import RocketStreamError
from rocketstream.testing.jars import JarSet, cache_directory, resolve_jars
from rocketstream.testing.java import find_java
from rocketstream.testing.node import JAVA_17_DOORS, PROFILES, Profile
from rocketstream.testing.process import DirectoryGuard, GuardedProcess

SOURCES = Path(__file__).with_name("java")


class JavaPeerError(RocketStreamError):
    """The Java program answered with an exception, or did not answer."""


class JavaProgram:
    """The Java client of one RocketMQ version, in a process of its own.

    `jvm_properties` reach the client's own switches: `rocketmq.serialize.type=ROCKETMQ` for binary headers,
    `tls.enable=true`, ... `profile="benchmark"` runs it with the JIT compiler that its users have.
    """

    def __init__(
        self,
        version: str,
        name_server: str,
        *,
        profile: Profile = "test",
        heap: str = "256m",
        jvm_properties: Mapping[str, str] | None = None,
        jvm_options: Sequence[str] = (),
    ) -> None:
        self.version = version
        self.name_server = name_server
        self._profile = profile
        self._heap = heap
        self._jvm_properties = dict(jvm_properties or {})
        self._jvm_options = jvm_options
        self._ids = itertools.count(1)
        self._lock = threading.Lock()
        self._ended = False
        self._waiting: dict[int, Future[dict[str, Any]]] = {}

    def __enter__(self) -> Self:
        jars = resolve_jars(self.version)
        classes = compile_peer(jars)
        self._home = Path(tempfile.mkdtemp(prefix="rocketstream-peer-"))
        self._home_guard = DirectoryGuard(self._home)
        self._log = self._home / "peer.log"
        properties = {"user.home": str(self._home), **self._jvm_properties}
        command = [
            *(str(find_java().executable), *JAVA_17_DOORS, f"-Xms{self._heap}", f"-Xmx{self._heap}"),
            *(*PROFILES[self._profile], *self._jvm_options),
            *(f"-D{key}={value}" for key, value in properties.items()),
            *("-cp", os.pathsep.join((str(classes), jars.classpath)), "JavaPeer", self.name_server),
        ]
        with self._log.open("ab") as log:
            self._process = GuardedProcess(command, output=log, piped=True)
        self._reader = threading.Thread(target=self._read_answers, name="java-peer", daemon=True)
        self._reader.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with contextlib.suppress(OSError):
            self._process.stdin.write(b'{"command": "exit"}\n')
            self._process.stdin.flush()
        if not self._process.wait(5.0):
            self._process.kill()
            self._process.wait(5.0)
        self._reader.join()
        self._process.close()
        shutil.rmtree(self._home, ignore_errors=True)
        self._home_guard.dismiss()

    @property
    def pid(self) -> int:
        """The process id of the JVM."""
        return self._process.pid

    # --- commands and answers ---------------------------------------------------------------------------------------

    def call(self, command: str, timeout: float = 60.0, **fields: Any) -> dict[str, Any]:
        """Give a command and wait for its answer; an exception there is a `JavaPeerError` here."""
        return self.submit(command, timeout=timeout, **fields).result(timeout + 30.0)

    def submit(self, command: str, **fields: Any) -> Future[dict[str, Any]]:
        """Give a command; commands run side by side."""
        answer: Future[dict[str, Any]] = Future()
        number = next(self._ids)
        line = json.dumps({"id": number, "command": command, **fields}).encode() + b"\n"
        with self._lock:
            if self._ended:
                answer.set_exception(self._gone())
                return answer
            self._waiting[number] = answer
            with contextlib.suppress(OSError):  # it has just died: the reader is about to say so to all who wait
                self._process.stdin.write(line)
                self._process.stdin.flush()
        return answer

    def _read_answers(self) -> None:
        for line in self._process.stdout:
            answer = json.loads(line)
            with self._lock:
                waiting = self._waiting.pop(answer["id"])
            if answer["ok"]:
                waiting.set_result(answer)
            else:
                waiting.set_exception(JavaPeerError(f"the Java client {self.version}: {answer['error']}"))
        with self._lock:
            self._ended = True
            left, self._waiting = self._waiting, {}
        for waiting in left.values():
            waiting.set_exception(self._gone())

    def _gone(self) -> JavaPeerError:
        tail = "\n".join(self._log.read_text(errors="replace").splitlines()[-30:])
        return JavaPeerError(f"the Java client {self.version} is gone\n{tail}")


def compile_peer(jars: JarSet) -> Path:
    """The directory of the compiled program, made now unless these very sources were compiled before."""
    java = find_java()
    sources = sorted(SOURCES.glob("*.java"))
    digest = hashlib.sha256(b"".join(source.read_bytes() for source in sources)).hexdigest()[:16]
    classes = cache_directory() / "interop" / f"{jars.version}-java{java.version}-{digest}"
    if classes.is_dir():
        return classes
    classes.parent.mkdir(parents=True, exist_ok=True)
    fresh = Path(tempfile.mkdtemp(prefix=".compile-", dir=classes.parent))
    try:
        done = subprocess.run(
            [str(java.compiler), "-nowarn", "-proc:none", "-cp", jars.classpath, "-d", str(fresh), *map(str, sources)],
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode != 0:
            raise JavaPeerError(f"javac failed on {SOURCES}:\n{done.stderr}{done.stdout}")
        with contextlib.suppress(OSError):  # another process was first: its result is as good
            os.replace(fresh, classes)
    finally:
        shutil.rmtree(fresh, ignore_errors=True)
    return classes
