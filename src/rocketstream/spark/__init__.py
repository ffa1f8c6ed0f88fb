"""RocketMQ in Spark: a source, a sink, the push consumer on executors, and pipelines.

Names are loaded when they are first used: a worker that only reads needs no listener, and nothing here needs Spark
before it is asked for.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from rocketstream.spark.consumer import SparkConsumer
    from rocketstream.spark.source import RocketMQDataSource

__all__ = ["RocketMQDataSource", "SparkConsumer", "register"]

_HOMES = {"RocketMQDataSource": "rocketstream.spark.source", "SparkConsumer": "rocketstream.spark.consumer"}


def register(spark: SparkSession) -> None:
    """Make `format("rocketmq")` known to a session, where the package is not installed but shipped (`--py-files`)."""
    from rocketstream.spark.source import RocketMQDataSource

    spark.dataSource.register(RocketMQDataSource)


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOMES])
