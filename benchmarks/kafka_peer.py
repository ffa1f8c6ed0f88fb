"""A Kafka of this machine, and the jars of Spark's own Kafka source: the peer of `spark_source.py`.

Its jars come from Maven Central by the Ivy that pyspark carries, once, into the cache that has RocketMQ's jars; none of
it is a part of rocketstream. The newest version of Spark's Kafka source whose parts are all there is 4.0.0; its
batch reads run in newer Sparks too.
"""

from __future__ import annotations

import contextlib
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from rocketstream.testing._resolvers import find_ivy
from rocketstream.testing.jars import cache_directory
from rocketstream.testing.java import find_java
from rocketstream.testing.ports import reserve

KAFKA = ("org.apache.kafka", "kafka_2.13", "3.9.1")
SOURCE = ("org.apache.spark", "spark-sql-kafka-0-10_2.13", "4.0.0")
# What else the source resolves to is in Spark already.
OF_SOURCE = ("kafka", "commons-pool2")


def resolve(module: tuple[str, str, str]) -> list[Path]:
    """The jars of a module and of what it depends on."""
    organisation, name, version = module
    into = cache_directory() / "benchmarks" / f"{name}-{version}"
    if not into.exists():
        ivy = find_ivy()
        assert ivy is not None, "pyspark, which carries Ivy, is not installed"
        with tempfile.TemporaryDirectory() as work:
            settings, wanted = Path(work, "settings.xml"), Path(work, "ivy.xml")
            settings.write_text(
                '<ivysettings><settings defaultResolver="central"/>'
                '<resolvers><ibiblio name="central" m2compatible="true"/></resolvers></ivysettings>'
            )
            wanted.write_text(
                '<ivy-module version="2.0"><info organisation="rocketstream" module="peer"/>'
                '<configurations><conf name="default"/></configurations><dependencies>'
                f'<dependency org="{organisation}" name="{name}" rev="{version}" conf="default->default"/>'
                "</dependencies></ivy-module>"
            )
            subprocess.run(
                [
                    *(str(find_java().executable), "-jar", str(ivy), "-settings", str(settings), "-ivy", str(wanted)),
                    *("-confs", "default", "-cache", f"{work}/cache"),
                    *("-retrieve", f"{work}/jars/[artifact]-[revision](-[classifier]).[ext]"),
                ],
                check=True,
                stdout=subprocess.DEVNULL,
            )
            into.parent.mkdir(parents=True, exist_ok=True)
            shutil.copytree(Path(work, "jars"), into)
    return sorted(into.glob("*.jar"))


def source_jars() -> str:
    """What `spark.jars` takes for the Kafka source."""
    return ",".join(str(jar) for jar in resolve(SOURCE) if any(part in jar.name for part in OF_SOURCE))


@contextlib.contextmanager
def kafka(heap: str = "512m") -> Iterator[str]:
    """A broker with its controller in one process; gives its address."""
    directory = resolve(KAFKA)[0].parent
    port, control = reserve(), reserve()
    java = [str(find_java().executable), f"-Xms{heap}", f"-Xmx{heap}", "-cp", str(directory / "*")]
    with tempfile.TemporaryDirectory() as data:
        settings = Path(data, "server.properties")
        settings.write_text(
            "process.roles=broker,controller\nnode.id=1\ncontroller.listener.names=CONTROLLER\nnum.partitions=4\n"
            f"controller.quorum.voters=1@127.0.0.1:{control}\nlog.dirs={data}/logs\n"
            f"listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{control}\n"
            f"advertised.listeners=PLAINTEXT://127.0.0.1:{port}\n"
            "offsets.topic.replication.factor=1\ntransaction.state.log.replication.factor=1\n"
            "transaction.state.log.min.isr=1\n"
        )
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        format_store = ["kafka.tools.StorageTool", "format", "-t", "AAAAAAAAAAAAAAAAAAAAAQ", "-c", str(settings)]
        subprocess.run([*java, *format_store], check=True, **quiet)
        process = subprocess.Popen([*java, "kafka.Kafka", str(settings)], cwd=data, **quiet)
        try:
            for _ in range(600):
                with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
                    break
                assert process.poll() is None, "Kafka has ended"
                time.sleep(0.1)
            yield f"127.0.0.1:{port}"
        finally:
            process.kill()
            process.wait()
