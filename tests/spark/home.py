"""The Spark that tests run: as it is installed, but made to start with less work (`python -m tests.spark.home`).

Each JVM of Spark loads some ten thousand classes, and each Python process of Spark would compile pyspark anew from its
archive. Together that is most of what a small Spark test costs a machine of two cores.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from rocketstream.testing.node import PROFILES

_LIMIT = 300.0


def spark_home() -> Path:
    """Spark as it is installed, but for the archive from which its Python processes would import pyspark.

    Each of them would compile the archive's files anew, which takes 1.2 s of CPU. Without it they import what is
    installed, and was compiled then.
    """
    home = Path(sys.prefix) / "spark-home"
    if not home.exists():
        spec = importlib.util.find_spec("pyspark")
        assert spec is not None
        assert spec.origin is not None
        installed = Path(spec.origin).parent
        made = Path(tempfile.mkdtemp(prefix="spark-home-", dir=sys.prefix))
        for part in ("bin", "sbin", "jars"):
            (made / part).symlink_to(installed / part)
        try:
            made.rename(home)
        except OSError:  # another worker was faster
            shutil.rmtree(made)
    return home


def jvm_options() -> str:
    """For a JVM of Spark that lives for a minute: less compiling, and its classes from an archive, if there is one."""
    options = list(PROFILES["test"])
    if _archive().exists():  # a JVM that looks for it in vain does without Java's own archive, too
        options += [f"-XX:SharedArchiveFile={_archive()}", "-Xlog:cds*=off"]
    return " ".join(options)


def _archive() -> Path:
    return spark_home() / "classes.jsa"


def make_archive() -> None:
    """Write the classes that a session, a query, a stream and files need to an archive, if that is still to do.

    A session and its first query, stream and file then take 13 s of CPU instead of 19 (measured on a busy machine).
    Java itself looks whether an archive fits, and does without it if not.
    """
    archive = _archive()
    if archive.exists():
        return
    with tempfile.TemporaryDirectory(dir=spark_home()) as place:
        made = Path(place) / "classes.jsa"
        options = " ".join([*PROFILES["test"], f"-XX:ArchiveClassesAtExit={made}", "-Xlog:cds*=off"])
        ours = {key: value for key, value in os.environ.items() if not key.startswith(("SPARK_", "PYSPARK_"))}
        subprocess.run(
            [sys.executable, "-c", _SESSION, place],
            env={**ours, "SPARK_HOME": str(spark_home()), "SPARK_SUBMIT_OPTS": options, "SPARK_LOCAL_IP": "127.0.0.1"},
            stdin=subprocess.DEVNULL,
            check=True,
            timeout=_LIMIT,
        )
        made.replace(archive)


_SESSION = """
import sys
from pyspark.sql import SparkSession
place = sys.argv[1]
session = (
    SparkSession.builder.master("local[2]")
    .config("spark.ui.enabled", "false")
    .config("spark.driver.memory", "512m")
    .config("spark.sql.shuffle.partitions", "2")
    .config("spark.sql.warehouse.dir", place + "/warehouse")
    .getOrCreate()
)
session.range(100).selectExpr("id % 7 AS key").groupBy("key").count().write.parquet(place + "/files")
session.read.parquet(place + "/files").collect()
rows = session.readStream.format("rate").load().writeStream.format("parquet").trigger(availableNow=True)
rows.option("checkpointLocation", place + "/checkpoint").start(place + "/rows").awaitTermination()
gateway = session.sparkContext._gateway
session.stop()
gateway.shutdown()
gateway.proc.stdin.close()
gateway.proc.wait()
"""


if __name__ == "__main__":
    make_archive()
