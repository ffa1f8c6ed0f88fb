"""A Spark session for a pipeline: quiet, with this Python for its workers, its log in a file."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from rocketstream.errors import ConfigurationError, RocketStreamError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: What suits a pipeline, unless the file, the command or Spark's own defaults file say otherwise.
_SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}
#: 200 partitions, Spark's default, are for clusters.
_LOCAL_SETTINGS = {"spark.sql.shuffle.partitions": str(max(2, os.cpu_count() or 2))}


class SparkStartError(RocketStreamError):
    """Spark could not be started."""


def require_spark() -> None:
    """Raise one sentence where Spark is not installed."""
    try:
        import pyarrow
        import pyspark  # noqa: F401

        del pyarrow
    except ImportError as error:
        raise ConfigurationError(
            f"pipelines need Spark, and {error.name} is not installed: pip install 'rocketstream[spark]'"
        ) from None


def open_session(
    app_name: str,
    *,
    master: str | None = None,
    conf: Mapping[str, str] | None = None,
    log: Path | None = None,
) -> SparkSession:
    """Start Spark; what it logs goes to the file `log`, or where this process's errors go."""
    require_spark()
    from pyspark.errors import PySparkException
    from pyspark.sql import SparkSession

    # Spark looks for data sources, and runs tasks, with the python3 that comes first on PATH: it may be another one.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    settings = dict(conf or {})
    place = master or settings.pop("spark.master", None)
    defaults = _SETTINGS | (_LOCAL_SETTINGS if place is None or place.startswith("local") else {})
    builder = SparkSession.builder.appName(app_name)
    if place is not None:
        builder = builder.master(place)
    for name, value in (defaults | settings).items():
        builder = builder.config(name, value)
    try:
        with _errors_to(log):
            return builder.getOrCreate()
    except PySparkException as error:
        raise SparkStartError(_why(str(error), log)) from None
    except Exception as error:  # of Java, by way of py4j
        from rocketstream.spark.pipeline.failures import cause

        text = str(error)
        java = text.partition(".\n: ")[2] or text
        raise SparkStartError(f"Spark could not be started: {cause(java)}") from None


def _why(text: str, log: Path | None) -> str:
    if "JAVA_GATEWAY_EXITED" in text:
        where = f" (its log: {log})" if log is not None else ""
        return f"Spark could not be started: Java 17 or newer must be on PATH, or JAVA_HOME set{where}"
    return f"Spark could not be started: {' '.join(text.split())}"


@contextlib.contextmanager
def _errors_to(log: Path | None) -> Iterator[None]:
    """Let the processes that are started meanwhile write their errors to a file, for as long as they live."""
    if log is None:
        yield
        return
    sys.stderr.flush()
    before = os.dup(2)
    try:
        with open(log, "ab") as file:
            os.dup2(file.fileno(), 2)
        yield
    finally:
        sys.stderr.flush()
        os.dup2(before, 2)
        os.close(before)
