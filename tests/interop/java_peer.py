"""RocketMQ's own Java client as a peer: what it sends we must read, what we send it must read.

    with JavaPeer("5.5.0", cluster.name_server_address) as peer:
        peer.produce("orders", bodies=[b"1", b"2"], tags="paid")
        peer.consume("group", "orders", count=2)

The program is `java/*.java`; it is compiled once per source and version into the user's cache. It dies with us.
"""

from __future__ import annotations

import base64
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
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self

from rocketstream.errors import RocketStreamError
from rocketstream.testing.jars import JarSet, cache_directory, resolve_jars
from rocketstream.testing.java import find_java
from rocketstream.testing.node import JAVA_17_DOORS, PROFILES, Profile
from rocketstream.testing.process import DirectoryGuard, GuardedProcess

SOURCES = Path(__file__).with_name("java")


class JavaPeerError(RocketStreamError):
    """The Java program answered with an exception, or did not answer."""


@dataclass(frozen=True, slots=True)
class JavaReceipt:
    """What the Java producer got for one send (of a message, or of a batch: then ids and offset are its messages')."""

    status: str
    message_id: str
    offset_message_id: str
    broker_name: str
    queue_id: int
    queue_offset: int


@dataclass(frozen=True, slots=True)
class JavaMessage:
    """A message with every field that the Java consumer's `MessageExt` has."""

    topic: str
    broker_name: str
    queue_id: int
    queue_offset: int
    message_id: str
    offset_message_id: str
    tags: str | None
    keys: str | None
    properties: Mapping[str, str]
    body: bytes
    body_crc: int
    born_timestamp: int
    store_timestamp: int
    born_host: str
    store_host: str
    reconsume_times: int
    sys_flag: int
    flag: int
    commit_log_offset: int
    store_size: int
    prepared_transaction_offset: int


@dataclass(frozen=True, slots=True)
class JavaCount:
    """How fast the Java consumer was: wall and CPU seconds from the first message to the last, and since its start."""

    complete: bool
    messages: int
    seconds: float
    cpu_seconds: float
    seconds_since_start: float
    cpu_seconds_since_start: float


class JavaPeer:
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

    # --- what it can do ---------------------------------------------------------------------------------------------

    def ping(self) -> None:
        """Return once it answers."""
        self.call("ping")

    def create_topic(self, topic: str, queues: int = 8, *, perm: int = 6) -> list[str]:
        """Create a topic on every master and return their names, once the name servers know all of them."""
        return list(self.call("create-topic", topic=topic, queues=queues, perm=perm)["brokers"])

    def produce(
        self,
        topic: str,
        bodies: Sequence[bytes] = (),
        *,
        count: int | None = None,
        size: int = 100,
        tags: str | None = None,
        keys: str | None = None,
        properties: Mapping[str, str] | None = None,
        flag: int | None = None,
        delay_level: int | None = None,
        sharding_key: str | None = None,
        queue: tuple[str, int] | None = None,
        batch: int = 0,
        compress_over: int = 4096,
        compress_type: Literal["ZLIB", "LZ4", "ZSTD"] = "ZLIB",
        receipts: bool = True,
        timeout: float = 60.0,
    ) -> list[JavaReceipt]:
        """Send `bodies`, or `count` messages of `size` bytes; `batch` many in one request unless that is 0.

        `queue` is (broker name, queue id). A batch gives one receipt. Without `receipts`, which are many for a
        benchmark, the list is empty.
        """
        answer = self.call(
            "produce",
            timeout=timeout,
            topic=topic,
            bodies=[base64.b64encode(body).decode() for body in bodies],
            count=len(bodies) if count is None else count,
            size=size,
            tags=tags,
            keys=keys,
            properties=dict(properties) if properties is not None else None,
            flag=flag,
            delayLevel=delay_level,
            shardingKey=sharding_key,
            brokerName=queue[0] if queue is not None else None,
            queueId=queue[1] if queue is not None else None,
            batch=batch,
            compressOver=compress_over,
            compressType=compress_type,
            receipts=receipts,
        )
        return [_receipt(receipt) for receipt in answer["receipts"]]

    def consume(
        self,
        group: str,
        topic: str,
        *,
        count: int,
        timeout: float = 30.0,
        expression: str = "*",
        sql: bool = False,
        orderly: bool = False,
        batch_size: int = 1,
    ) -> list[JavaMessage]:
        """Consume from the first offset until there are `count` messages or `timeout` seconds are over."""
        return self.start_consuming(
            group,
            topic,
            count=count,
            timeout=timeout,
            expression=expression,
            sql=sql,
            orderly=orderly,
            batch_size=batch_size,
        ).result(timeout + 30.0)

    def start_consuming(
        self,
        group: str,
        topic: str,
        *,
        count: int,
        timeout: float = 30.0,
        expression: str = "*",
        sql: bool = False,
        orderly: bool = False,
        batch_size: int = 1,
    ) -> Future[list[JavaMessage]]:
        """The same without waiting for it."""
        answer = self.submit(
            "consume",
            group=group,
            topic=topic,
            count=count,
            timeout=timeout,
            expression=expression,
            sql=sql,
            orderly=orderly,
            batchSize=batch_size,
        )
        messages: Future[list[JavaMessage]] = Future()

        def convert(done: Future[dict[str, Any]]) -> None:
            try:
                messages.set_result([_message(fields) for fields in done.result()["messages"]])
            except BaseException as problem:
                messages.set_exception(problem)

        answer.add_done_callback(convert)
        return messages

    def consume_count(
        self,
        group: str,
        topic: str,
        *,
        count: int,
        timeout: float = 120.0,
        batch_size: int = 32,
        pull_batch_size: int = 32,
    ) -> JavaCount:
        """Consume from the first offset, counting only: the other side of a benchmark."""
        answer = self.call(
            "consume-count",
            timeout=timeout,
            group=group,
            topic=topic,
            count=count,
            batchSize=batch_size,
            pullBatchSize=pull_batch_size,
        )
        return JavaCount(
            complete=answer["complete"],
            messages=answer["messages"],
            seconds=float(answer["seconds"]),
            cpu_seconds=float(answer["cpuSeconds"]),
            seconds_since_start=float(answer["secondsSinceStart"]),
            cpu_seconds_since_start=float(answer["cpuSecondsSinceStart"]),
        )

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


def _receipt(fields: Mapping[str, Any]) -> JavaReceipt:
    return JavaReceipt(
        status=fields["status"],
        message_id=fields["msgId"],
        offset_message_id=fields["offsetMsgId"],
        broker_name=fields["brokerName"],
        queue_id=fields["queueId"],
        queue_offset=fields["queueOffset"],
    )


def _message(fields: Mapping[str, Any]) -> JavaMessage:
    return JavaMessage(
        topic=fields["topic"],
        broker_name=fields["brokerName"],
        queue_id=fields["queueId"],
        queue_offset=fields["queueOffset"],
        message_id=fields["msgId"],
        offset_message_id=fields["offsetMsgId"],
        tags=fields.get("tags"),
        keys=fields.get("keys"),
        properties=fields["properties"],
        body=base64.b64decode(fields["body"]),
        body_crc=fields["bodyCRC"],
        born_timestamp=fields["bornTimestamp"],
        store_timestamp=fields["storeTimestamp"],
        born_host=fields["bornHost"],
        store_host=fields["storeHost"],
        reconsume_times=fields["reconsumeTimes"],
        sys_flag=fields["sysFlag"],
        flag=fields["flag"],
        commit_log_offset=fields["commitLogOffset"],
        store_size=fields["storeSize"],
        prepared_transaction_offset=fields["preparedTransactionOffset"],
    )
